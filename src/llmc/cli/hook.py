"""llmc hook"""

import os
import sys

import click

from llmc import hook_client


@click.command("hook", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Take a hook event of an agent from standard input, as the sender in the agent's settings does.

    \b
    Example:
      llmc hook <inbox directory> <wake-up socket> < payload.json
    """
    sender = hook_client.__file__
    os.execv(sys.executable, [sys.executable, "-I", "-S", sender, *arguments])
