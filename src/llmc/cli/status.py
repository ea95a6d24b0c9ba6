"""llmc status"""

import shutil
import time

import click

from llmc.cli import fast
from llmc.cli.output import clear_screen, is_terminal, json_option, say_lines, show_frame
from llmc.cli.status_text import status_text
from llmc.cli.workers import project_of


@click.command("status")
@click.option("--watch", "-w", is_flag=True, help="Go on showing it until Ctrl-C.")
@click.option(
    "--interval", type=click.FloatRange(0.1), default=1.0, show_default=True, help="Seconds, with --watch."
)
@json_option
@click.pass_context
def command(ctx: click.Context, watch: bool, interval: float, as_json: bool) -> int:
    """Show the workers: who needs you, what each does, since when, and the next useful command.

    \b
    Example:
      llmc status --watch

    On a terminal it is coloured (unless NO_COLOR is set) and as wide as that; else it is plain, and 80 columns wide.
    """
    project = project_of(ctx)
    if as_json:
        project.store.read()  # says what is wrong with a state that cannot be read
        return fast.status(str(project.root.path))
    if not watch:
        say_lines(status_text(project))
        return 0
    clear_screen()
    while True:
        _draw(status_text(project), f"every {interval:g} s; Ctrl-C ends this")
        time.sleep(interval)


def _draw(text: str, foot: str) -> None:
    """As much of it as the screen is high."""
    if not is_terminal():
        say_lines(f"{text}\n")
        return
    lines, rows = text.splitlines(), shutil.get_terminal_size().lines - 3
    if len(lines) > rows:
        lines = [*lines[: rows - 1], f"... and {len(lines) - rows + 1} more lines"]
    show_frame([*lines, "", foot])
