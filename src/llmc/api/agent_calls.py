"""What agents say of themselves: `llmc report`, `llmc hook`."""

import os
import sys
from pathlib import Path
from typing import Any

from llmc import hook_client
from llmc.base.errors import Refused, UsageError
from llmc.config.paths import OverseerRoot, Root
from llmc.repo.project import Project
from llmc.sessions import caller as calling
from llmc.sessions.caller import Caller, Kind, caller


def read_update(said: dict[str, Any]) -> dict[str, Any]:
    """What an agent reports besides its word: progress, decisions, questions, next steps, evidence."""
    from llmc.goals.drive.updates import flags  # every command asks who calls; few report

    update, problems = flags(**said)
    if problems:
        raise UsageError(problems[0], hint="`llmc report --help` shows what can be given.")
    return update


def report(project: Project, kind: str, text: str, *, no_changes: bool, update: dict[str, Any]) -> str:
    """What the agent that calls says of its own work; its name. Judged with its hooks, in order."""
    who = calling.reporter(project)
    calling.report(project, who, kind, text, no_changes=no_changes, update=update)
    return who.name


def hook_command(arguments: list[str]) -> list[str]:
    """The program that takes a hook event of the agent that calls, for the inbox that is named first; no other one's."""
    who = caller()
    if who.kind not in (Kind.WORKER, Kind.OVERSEER):
        raise Refused("`llmc hook` is for agents", hint="The settings of a worker's agent call it.")
    if os.path.realpath(arguments[0]) != os.path.realpath(_inbox(who)):
        raise Refused(f"this is {who.name}, it cannot speak for the agent of {arguments[0]}")
    return [sys.executable, "-I", "-S", hook_client.__file__, *arguments]


def _inbox(who: Caller) -> Path:
    kind = OverseerRoot if who.kind is Kind.OVERSEER else Root
    return kind(Path(who.root)).inbox / who.name
