"""A tick of the goals that somebody asks for: the daemon's where one runs, else one of our own."""

import time

from llmc.base.clock import monotonic
from llmc.base.errors import LlmcError, Refused
from llmc.daemon.control import live_registration
from llmc.goals.goals import open_store
from llmc.goals.runner import Runner, Ticked
from llmc.goals.status import log
from llmc.goals.ticks import last_tick
from llmc.repo.project import Project

#: so long the daemon's tick is waited for; one is bounded to less
LIMIT_S = 30.0
POLL_S = 0.05
ENABLE = "llmc config set overseer.goals.enabled true"


def undriven(project: Project) -> str:
    """Why nothing is done for any goal now, with the command that helps; "" where a daemon is at it."""
    if not project.config.overseer.goals.enabled:
        return f"goals are not driven: overseer.goals.enabled is false ({ENABLE})"
    record = live_registration(project)
    if record is None:
        return "" if project.daemon_runs() else "no daemon drives goals now (llmc up --auto --detach)"
    if record.auto is False:
        return "the daemon runs without auto mode: nobody takes what goals give out (llmc up --auto --detach)"
    return ""


def tick_now(project: Project, reason: str, limit_s: float = LIMIT_S) -> Ticked:
    """One tick that began after this call, and what it did."""
    if not project.config.overseer.goals.enabled:
        raise Refused("goals are not driven: overseer.goals.enabled is false", hint=f"Enable them: {ENABLE}")
    if not project.daemon_runs():
        return Runner(project).tick(project, reason)
    log(project, f"a tick was asked for: {reason}")
    return _of_daemon(project, limit_s)


def _of_daemon(project: Project, limit_s: float) -> Ticked:
    asked = monotonic()
    project.wake()
    while monotonic() < asked + limit_s:
        seen = last_tick(project)
        if seen is not None and seen.began_monotonic >= asked:
            return Ticked(seen.ok, seen.did_work, seen.actions, seen.problem, seen.next_due)
        time.sleep(POLL_S)
    raise LlmcError(
        f"the daemon made no tick within {limit_s:g} s",
        hint="`llmc logs goals` and `llmc doctor` show what keeps it.",
    )


def settle(project: Project, reason: str) -> str:
    """After a word of a person that takes work back or gives it out: done at once where nobody else would.

    What is to be said about it; "" when a daemon was woken and does it, or nothing is left to do.
    """
    if project.daemon_runs():
        return ""
    if not project.config.overseer.goals.enabled:
        return (
            ""
            if not _is_out(project)
            else f"goals are not driven now; what that changes for workers waits for the next tick ({ENABLE})"
        )
    done = tick_now(project, reason)
    if not done.ok:
        return f"what that changes for workers waits for the next tick: {done.problem}"
    seen = last_tick(project)
    if seen is None or not seen.goals.active:
        return ""
    return "no daemon drives goals now; what comes next waits for `llmc up --auto --detach`"


def _is_out(project: Project) -> bool:
    """Whether somebody may have an instruction for a goal."""
    with open_store(project).reading() as found:
        return any(one.dispatch_history for one in found.open_assignments())
