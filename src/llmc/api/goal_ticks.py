"""A goal tick on request: by the daemon if one is running, else in this process."""

import time

from llmc.base.clock import monotonic
from llmc.base.errors import LlmcError, Refused
from llmc.daemon.control import live_registration
from llmc.goals.goals import open_store
from llmc.goals.runner import Runner, Ticked
from llmc.goals.status import log
from llmc.goals.ticks import last_tick
from llmc.repo.project import Project

#: how long to wait for the daemon's tick; a tick takes less
LIMIT_S = 30.0
POLL_S = 0.05
ENABLE = "llmc config set overseer.goals.enabled true"


def undriven(project: Project) -> str:
    """Why no goal makes progress now, and the command that helps; "" if the daemon runs goals."""
    if not project.config.overseer.goals.enabled:
        return f"goals are disabled; to enable them: {ENABLE}"
    record = live_registration(project)
    if record is None:
        return (
            ""
            if project.daemon_runs()
            else "goals are not running; start them with `llmc up --auto --detach`"
        )
    if record.auto is False:
        return "goals need auto mode, and the daemon runs without it; run `llmc up --auto --detach`"
    return ""


def tick_now(project: Project, reason: str, limit_s: float = LIMIT_S) -> Ticked:
    """Run one tick that starts after this call."""
    if not project.config.overseer.goals.enabled:
        raise Refused("goals are disabled", hint=f"To enable them: {ENABLE}")
    if not project.daemon_runs():
        return Runner(project).tick(project, reason)
    log(project, f"tick requested: {reason}")
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
        f"the daemon did not check goals within {limit_s:g} s",
        hint="Run `llmc logs goals` and `llmc doctor` to find out why.",
    )


def settle(project: Project, reason: str) -> str:
    """After a change by the user: apply it to workers now if no daemon does.

    Returns what to tell the user; "" if the daemon does it, or nothing is left to do.
    """
    if project.daemon_runs():
        return ""
    if not project.config.overseer.goals.enabled:
        return (
            ""
            if not _is_out(project)
            else f"saved; workers are updated at the next goal tick, but goals are disabled ({ENABLE})"
        )
    done = tick_now(project, reason)
    if not done.ok:
        return f"saved; workers are updated at the next goal tick: {done.problem}"
    seen = last_tick(project)
    if seen is None or not seen.goals.active:
        return ""
    return "saved; further work starts with `llmc up --auto --detach`"


def _is_out(project: Project) -> bool:
    """Whether a worker may have an instruction for a goal."""
    with open_store(project).reading() as found:
        return any(one.dispatch_history for one in found.open_assignments())
