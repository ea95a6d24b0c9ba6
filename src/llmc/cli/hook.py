"""llmc hook"""

import os
import sys
from pathlib import Path

import click

from llmc import hook_client
from llmc.base.errors import Refused, UsageError
from llmc.config.paths import OverseerRoot, Root
from llmc.sessions.caller import Caller, Kind, caller


@click.command("hook", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """Take a hook event of an agent from standard input, as the sender in the agent's settings does.

    \b
    Example:
      llmc hook <inbox directory> <wake-up socket> < payload.json
    """
    if not arguments:
        raise UsageError("no inbox was named", hint="`llmc hook --help` shows how it is used.")
    who = caller()
    if who.kind not in (Kind.WORKER, Kind.OVERSEER):
        raise Refused("`llmc hook` is for agents", hint="The settings of a worker's agent call it.")
    if os.path.realpath(arguments[0]) != os.path.realpath(_inbox(who)):
        raise Refused(f"this is {who.name}, it cannot speak for the agent of {arguments[0]}")
    sender = hook_client.__file__
    os.execv(sys.executable, [sys.executable, "-I", "-S", sender, *arguments])


def _inbox(who: Caller) -> Path:
    """Where the events of this agent go."""
    kind = OverseerRoot if who.kind is Kind.OVERSEER else Root
    return kind(Path(who.root)).inbox / who.name
