"""Identifies the caller of llmc, the user or an agent, and writes an agent's `llmc report` to its inbox.

Inside a contained agent, llmc does not read the root: the inbox names the worker, the report has the mark of the
launch, and the daemon checks both (sessions/rules/decide.py).
"""

import json
import os
import time
from enum import StrEnum
from pathlib import Path
from typing import Any

from msgspec import Struct

from llmc.agents.agent_events import REPORT
from llmc.base import callers
from llmc.base.callers import Mark, Server
from llmc.base.errors import Refused, ToolFailed, UsageError
from llmc.base.files import private_dir, write_atomic
from llmc.base.names import OVERSEER
from llmc.base.panes import Pane
from llmc.base.processes import ancestors
from llmc.base.text import pattern
from llmc.base.tmux import Tmux
from llmc.repo.project import Project


class Kind(StrEnum):
    PERSON = "person"
    WORKER = "worker"
    #: the supervisor's own agent, in its own pane
    OVERSEER = "overseer"
    #: unknown; `why` says why
    UNKNOWN = "unknown"


class Caller(Struct, frozen=True):
    kind: Kind
    #: for an agent: its name, the mark of its launch, and its root
    name: str = ""
    instance: str = ""
    root: str = ""
    why: str = ""
    #: for a contained agent: its inbox and the daemon's wake-up socket, which is all it sees of its root
    inbox: str = ""
    wake: str = ""


#: the start command of an agent's pane: sessions.py passes a file of this name to launch.py
_LAUNCHED = pattern(r"launch\.py.*/(?P<worker>[^/\s]+)\.(?P<instance>[0-9a-f]+)\.launch\.json")


def caller() -> Caller:
    """Identify the caller by process ancestry and pane, never by a variable alone."""
    kin = callers.processes()
    if not kin:
        return Caller(Kind.UNKNOWN, why="/proc cannot be read")
    server = callers.server(kin)
    found = callers.mark(kin)
    pane = None
    if server is not None and (found is None or found.worker == OVERSEER):
        try:
            pane = _launched_in(server)
        except ToolFailed as error:
            return Caller(Kind.UNKNOWN, why=f"tmux did not answer: {error.message}")
    if found is not None and found.worker == OVERSEER:
        return _overseer(found, pane)
    found = found or pane
    if found is not None:
        marks = found.worker, found.instance, found.root
        return Caller(Kind.WORKER, *marks, inbox=found.inbox, wake=found.wake)
    if server is not None and server.is_job:
        return Caller(
            Kind.UNKNOWN, why="the command was started by tmux itself, not from a shell in a window"
        )
    return Caller(Kind.PERSON)


def _overseer(found: Mark, pane: Mark | None) -> Caller:
    """Check that the caller runs in the pane of the supervisor's agent: anyone can set the variable with its name."""
    if pane is None or (pane.pid, pane.worker, pane.instance) != (found.pid, OVERSEER, found.instance):
        return Caller(
            Kind.UNKNOWN,
            why="the caller claims to be the supervisor's agent but is not running in that agent's pane",
        )
    return Caller(Kind.OVERSEER, OVERSEER, found.instance, found.root)


def _launched_in(server: Server) -> Mark | None:
    """What llmc started in our pane; None in the user's own window.

    Read from the pane's start command, not from its marks: an agent can remove the marks from its own pane.
    """
    rows = Tmux(server.name).run("list-panes", "-a", "-F", "#{pane_pid} #{pane_start_command}").stdout
    for pid, _, command in (row.partition(" ") for row in rows.splitlines()):
        if pid == str(server.child) and (launch := _LAUNCHED.search(command)):
            return Mark(server.child, launch["worker"], launch["instance"], "")
    return None


def check_reporter(project: Project, who: Caller) -> None:
    """Check that the caller of `report` runs in the pane of the worker it reports for."""
    if who.kind is Kind.PERSON:
        raise UsageError(
            "`llmc report` is only for agents",
            hint="To send a message to a worker, run `llmc message WORKER`.",
        )
    if who.kind is not Kind.WORKER:
        raise Refused(
            f"cannot tell which worker is running `llmc report`: {who.why}"
            if who.why
            else "`llmc report` is only for workers",
            hint="Run the command from a worker's agent.",
        )
    claimed = os.environ.get("LLMC_WORKER") or who.name
    record = project.store.worker(claimed)
    pane = project.pane(record)
    is_there = isinstance(pane, Pane) and pane.pid in ancestors(os.getpid())
    if not is_there or (record.name, record.instance) != (who.name, who.instance):
        raise _for_another(claimed)


def _for_another(claimed: str) -> Refused:
    return Refused(
        f"cannot report for {claimed}: this command was not run by {claimed}'s agent",
        hint=f"Run it from {claimed}'s agent.",
    )


def report(project: Project, who: Caller, said: dict[str, Any]) -> None:
    """Put the report into the worker's inbox, where it is applied in order with the hooks."""
    _put(private_dir(project.root.inbox / who.name), who, said)
    project.wake(who.name)


def report_from_inside(who: Caller, said: dict[str, Any]) -> None:
    """Put a contained agent's report into its inbox; the daemon accepts only the mark of the inbox's launch."""
    from llmc.base.wake import wake  # every command identifies its caller, few report

    claimed = os.environ.get("LLMC_WORKER") or who.name
    if claimed != who.name:
        raise _for_another(claimed)
    _put(Path(who.inbox), who, said)
    wake(Path(who.wake), who.name)


def _put(inbox: Path, who: Caller, said: dict[str, Any]) -> None:
    payload = {"hook_event_name": REPORT, **said}
    event = {"worker": who.name, "instance": who.instance, "payload": payload}
    write_atomic(inbox / f"{time.time_ns()}-{os.getpid()}.json", json.dumps(event).encode())
