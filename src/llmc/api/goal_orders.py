"""Commands that change goals: create, plan, pause, set the status of a plan item, answer a question, run a tick.

Each takes the store's own locks. Workers see a change at the next tick; without a daemon, `settle` runs one.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from llmc.base.clock import monotonic
from llmc.base.errors import LlmcError, Refused
from llmc.daemon.control import live_registration
from llmc.goals import goals, planning
from llmc.goals.drive.moves import criterion
from llmc.goals.goals import archive as archive
from llmc.goals.goals import cancel as cancel
from llmc.goals.goals import change as change
from llmc.goals.goals import log, open_store, reply_to
from llmc.goals.goals import pause as pause
from llmc.goals.goals import resume as resume
from llmc.goals.model import DeliveryContext, Origin
from llmc.goals.model import Goal as Goal
from llmc.goals.model import Node as Node
from llmc.goals.model import NodeStatus as NodeStatus
from llmc.goals.model import Priority as Priority
from llmc.goals.model import Recovery as Recovery
from llmc.goals.planning import Created
from llmc.goals.planning import plan as plan
from llmc.goals.planning import replan_by_hand as replan
from llmc.goals.runner import Runner
from llmc.goals.ticks import Ticked, last_tick
from llmc.goals.work import answer as answer
from llmc.goals.work import block as block
from llmc.goals.work import done as done
from llmc.goals.work import follow_again as follow_again
from llmc.goals.work import override as override
from llmc.goals.work import reopen as reopen
from llmc.goals.work import set_recovery as set_recovery
from llmc.goals.work import unblock as unblock
from llmc.repo.project import Project

__all__ = ["replan"]

#: options that are named differently from the fields of a goal
_FIELDS = {"problem": "problem_statement", "criteria": "success_criteria", "budget": "budget_usd"}


def create(
    project: Project,
    said: Mapping[str, Any],
    *,
    planned: bool,
    file: Path | None,
    kept: Callable[[Goal], None],
) -> Created:
    """Create a goal from the options and plan it; `kept` is called before planning."""
    fields = changes(said)
    where, session = fields.pop("reply_to", DeliveryContext()), fields.pop("from_session", "")
    origin = Origin(source_session_key=session, origin_delivery_context=where)
    goal = goals.new_goal(**fields, origin=origin)
    return planning.create(project, goal, planning.first_plan if planned else None, file, kept)


def changes(said: Mapping[str, Any]) -> dict[str, Any]:
    """The given options as fields to change; `reply_to` stands for the three reply options."""
    words = dict(said)
    where, thread, account = (words.pop(f"reply_{name}", None) or "" for name in ("to", "thread", "account"))
    words["criteria"] = (*words.pop("criteria", ()), *map(criterion, words.pop("verify", ())))
    fields = {_FIELDS.get(key, key): value for key, value in words.items() if value not in (None, ())}
    if (context := reply_to(where, thread, account)) != DeliveryContext():
        fields["reply_to"] = context
    if "risks" in fields:
        fields["risks"] = tuple(map(goals.risk_of, fields["risks"]))
    if "priority" in fields:
        fields["priority"] = Priority(fields["priority"])
    return fields


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
        is_starting = project.daemon_runs()
        return "" if is_starting else f"goals are not running; start them with `{project.up_auto()}`"
    if record.auto is False:
        return f"goals need auto mode, but the daemon was started without it; run `{project.up_auto()}`"
    return ""


def tick_now(project: Project, reason: str, limit_s: float = LIMIT_S) -> Ticked:
    """Run one tick that starts after this call."""
    if not project.config.overseer.goals.enabled:
        raise Refused("cannot check goals: goals are disabled", hint=f"To enable them: {ENABLE}")
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
            return seen
        time.sleep(POLL_S)
    raise LlmcError(
        f"the daemon did not check the goals within {limit_s:g} seconds",
        hint="Run `llmc logs goals` and `llmc doctor` to find out why, then run the command again.",
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
            else f"saved, but workers are not updated while goals are disabled; to enable goals: {ENABLE}"
        )
    done = tick_now(project, reason)
    if not done.ok:
        return f"saved, but the goal tick failed ({done.problem}); workers will be updated at the next tick"
    seen = last_tick(project)
    if seen is None or not seen.goals.active:
        return ""
    return f"saved; to continue the work: {project.up_auto()}"


def _is_out(project: Project) -> bool:
    """Whether a worker may have an instruction for a goal."""
    with open_store(project).reading() as found:
        return any(one.dispatch_history for one in found.open_assignments())
