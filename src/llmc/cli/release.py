"""llmc release"""

import click

from llmc.cli.hold import set_held
from llmc.cli.output import json_option, print_json, say
from llmc.cli.workers import project_of, worker_argument


@click.command("release")
@worker_argument
@json_option
@click.pass_context
def command(ctx: click.Context, worker: str, as_json: bool) -> None:
    """Give a held worker back to llmc.

    \b
    Example:
      llmc release adam
    """
    changed = set_held(project_of(ctx), worker, False)
    if as_json:
        print_json({"worker": worker, "held": False})
    else:
        say(f"{worker} is released" if changed else f"{worker} was not held")
