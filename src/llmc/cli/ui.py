"""`llmc ui`: the fleet on an interactive screen."""

import sys

import click

from llmc.base.errors import Exit, UsageError
from llmc.cli import show_screen
from llmc.cli.arguments import project_of
from llmc.cli.output import is_terminal, note

GET_IT = "pip install 'llmc[ui]'"


@click.command("ui")
@click.option("--theme", type=click.Choice(["dark", "light"]), help="Color theme [default: ui.theme]")
@click.option("--ascii", "only_ascii", is_flag=True, help="Draw with ASCII characters only")
@click.option("--plain", is_flag=True, help="Print lines instead of drawing a screen, for screen readers")
@click.pass_context
def ui(ctx: click.Context, theme: str | None, only_ascii: bool, plain: bool) -> int:
    """Show the fleet on an interactive screen

    Press ? to list the keys. Without textual (pip install 'llmc[ui]'), shows `llmc status --watch` instead.

    \b
    Examples:
      llmc ui --theme light
      llmc ui --plain
    """
    if not sys.stdin.isatty() or not is_terminal():
        raise UsageError(
            "`llmc ui` requires a terminal", hint="Run `llmc status`, or `llmc status --json` in a script."
        )
    project = project_of(ctx)
    if plain:
        return show_screen.show_lines(project)
    if not show_screen.is_installed():
        from llmc.cli.watching import status

        note(f"the interactive screen requires textual; to install it: {GET_IT}")
        ctx.invoke(status, watch=True)
        return Exit.DONE
    return show_screen.show(project, theme, only_ascii)
