"""The commands that agents run: `llmc report`, `llmc hook`, and what a contained agent may ask the daemon to show."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llmc import hook_client
from llmc.base.errors import Refused, UsageError
from llmc.config.paths import OverseerRoot, Root
from llmc.repo.project import open_project
from llmc.sessions import caller as calling
from llmc.sessions.caller import Caller, Kind, caller
from llmc.sessions.rules.agent_commands import FOR_AGENTS as FOR_AGENTS
from llmc.sessions.rules.agent_commands import shown_to_agents

if TYPE_CHECKING:
    from llmc.sessions.requests import Answer


def read_update(said: dict[str, Any]) -> dict[str, Any]:
    """The options of a report as an update: progress, decisions, questions, next steps, evidence."""
    from llmc.goals.drive.updates import flags  # slow to import

    update, problems = flags(**said)
    if problems:
        raise UsageError(problems[0], hint="Run `llmc report --help` for the options.")
    return update


def report(root: str | None, kind: str, text: str, *, no_changes: bool, update: dict[str, Any]) -> str:
    """Record a report of the calling agent, in order with its hooks, and return the agent's name."""
    said = {"kind": kind, "text": text, "no_changes": no_changes, **({"update": update} if update else {})}
    who = caller()
    if who.inbox:
        calling.report_from_inside(who, said)
        return who.name
    project = open_project(root)
    calling.check_reporter(project, who)
    calling.report(project, who, said)
    return who.name


def ask(argv: list[str]) -> "Answer | None":
    """The daemon's answer to a contained agent; None if the caller is not one, or the command needs no daemon."""
    who = caller()
    wanted = argv[0] if argv[0] == "status" else " ".join(argv[:2])
    if not who.inbox or wanted not in ("status", "tasks list", "tasks show") or {"-h", "--help"} & {*argv}:
        return None
    if shown_to_agents(argv) is None:
        raise Refused(
            f"contained agents cannot run `llmc {wanted}` with these arguments",
            hint=f"Run `llmc {wanted} --help` for usage.",
        )
    from llmc.sessions import requests  # only contained agents need it

    return requests.ask(who, argv)


def hook_command(arguments: list[str]) -> list[str]:
    """The command that delivers a hook event of the calling agent; refuses any inbox but its own."""
    who = caller()
    if who.kind not in (Kind.WORKER, Kind.OVERSEER):
        raise Refused(
            "`llmc hook` is only for agents",
            hint="Do not run this command yourself; the hooks in an agent's settings run it.",
        )
    if os.path.realpath(arguments[0]) != os.path.realpath(_inbox(who)):
        raise Refused(f"{who.name} can send hook events only to its own inbox, not to {arguments[0]}")
    return [sys.executable, "-I", "-S", hook_client.__file__, *arguments]


def _inbox(who: Caller) -> Path:
    kind = OverseerRoot if who.kind is Kind.OVERSEER else Root
    return kind(Path(who.root)).inbox / who.name
