"""llmc peek"""

import click

from llmc.base.text import fitted
from llmc.cli.output import json_option, print_json, say_lines, screen_width
from llmc.cli.workers import pane_of, project_of, worker_argument


@click.command("peek")
@worker_argument
@click.option("--lines", "-n", type=click.IntRange(1, 20000), default=40, show_default=True)
@json_option
@click.pass_context
def command(ctx: click.Context, worker: str, lines: int, as_json: bool) -> None:
    """Print the last lines of a worker's screen; its rules and gaps are as long as fit.

    \b
    Example:
      llmc peek adam -n 100

    What is not a terminal is COLUMNS wide, or 80; --json has the lines as they are.
    """
    project = project_of(ctx)
    pane = pane_of(project, worker)
    screen = project.tmux.capture(pane, history=lines).rstrip().split("\n")
    shown = [line.rstrip() for line in screen][-lines:]
    if as_json:
        print_json({"worker": worker, "dead": pane.dead, "exit_code": pane.exit_code, "lines": shown})
        return
    say_lines("\n".join(fitted(line, screen_width()) for line in shown))
