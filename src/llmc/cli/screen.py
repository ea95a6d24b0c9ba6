"""`llmc ui`: the fleet on one screen."""

import contextlib
import os
import shlex
import sys

import click

from llmc.api import roots, screens
from llmc.base import proc
from llmc.base.errors import Exit, LlmcError, UsageError
from llmc.cli.arguments import project_of
from llmc.cli.output import is_terminal, note

#: commands that need the terminal for themselves
_INTERACTIVE = (
    "attach",
    "console",
    "review",
    "claude",
    "init",
    "uninstall",
    "ui",
    "overseer",
    "demo",
    "drill",
)
GET_IT = "pip install 'llmc[ui]'"


@click.command("ui")
@click.option("--theme", type=click.Choice(["dark", "light"]), help="Colours [default: dark]")
@click.option("--ascii", "plain", is_flag=True, help="Draw with ASCII characters only")
@click.pass_context
def ui(ctx: click.Context, theme: str | None, plain: bool) -> int:
    """Show the fleet on an interactive screen

    Press ? for the keys. Needs textual: pip install 'llmc[ui]'.

    \b
    Example:
      llmc ui --theme light
    """
    if not is_terminal() or not sys.stdin.isatty():
        raise UsageError(
            "llmc ui needs a terminal", hint="Use `llmc status`, or `llmc status --json` in a script."
        )
    try:
        from llmc.tui import app, draw
        from llmc.tui import theme as themes
    except ImportError:
        note(f"The interactive screen needs textual: {GET_IT}")
        return Exit.FAILED
    project = project_of(ctx)
    while True:
        brush = draw.Brush(themes.THEMES[theme or "dark"], plain or themes.wants_ascii(os.environ, "auto"))
        chosen = app.run(project, brush, _command(str(project.root.path)), screens.roots_of_user())
        if chosen is None:
            return Exit.DONE
        with contextlib.suppress(LlmcError):
            project = roots.open_project(chosen)


def _command(root: str):  # type: ignore[no-untyped-def]
    from llmc.tui.frame import Command

    def argv(line: str) -> list[str]:
        return [sys.executable, "-m", "llmc", "--root", root, *shlex.split(line)]

    def run(line: str) -> tuple[int, str]:
        try:
            words = argv(line)
        except ValueError as error:
            return Exit.USAGE, str(error)
        done = proc.run(words, env=dict(os.environ), timeout_s=3600, check=False)
        return done.returncode, done.stdout + done.stderr

    def is_interactive(line: str) -> bool:
        words = line.split()
        return bool(words) and (words[0] in _INTERACTIVE or words[:2] in (["config", "edit"], ["logs", "-f"]))

    return Command(lambda text: [], run, is_interactive, argv)
