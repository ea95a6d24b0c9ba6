"""Commands that change goals: create, plan, pause, set the status of a plan item, answer a question.

Each takes the store's own locks. Workers learn of it at the next tick: `goal_ticks.settle`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from llmc.goals import goals
from llmc.goals.drive.rollup import criterion
from llmc.goals.goals import Created as Created
from llmc.goals.goals import archive as archive
from llmc.goals.goals import cancel as cancel
from llmc.goals.goals import pause as pause
from llmc.goals.goals import reply_to
from llmc.goals.goals import resume as resume
from llmc.goals.model import DeliveryContext, GoalView
from llmc.goals.model import Goal as Goal
from llmc.goals.model import Node as Node
from llmc.goals.model import NodeStatus as NodeStatus
from llmc.goals.model import Priority as Priority
from llmc.goals.model import Recovery as Recovery
from llmc.goals.planning import ConfiguredPlanner
from llmc.goals.planning import replan_by_hand as replan
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

#: option names and the fields of a goal
_FIELDS = {
    **{
        name: name
        for name in ("title", "priority", "owner", "tags", "stakeholders", "constraints", "assumptions")
    },
    "problem": "problem_statement",
    "criteria": "success_criteria",
    "non_goals": "non_goals",
    "risks": "risks",
    "budget": "budget_usd",
}


def create(
    project: Project,
    said: Mapping[str, Any],
    *,
    planned: bool,
    file: Path | None,
    kept: Callable[[Goal], None],
) -> Created:
    """Create a goal from the options and plan it; `kept` is called before planning."""
    words = {key: value for key, value in _definition(said).items() if value is not None}
    words["budget_usd"] = words.pop("budget", 0.0)
    planner = ConfiguredPlanner() if planned else None
    return goals.create(project, goals.NewGoal(**words), planner, file, kept)


def plan(project: Project, goal_id: str, file: Path | None) -> GoalView:
    """Plan a goal for the first time, with the planner or from a file."""
    return goals.plan(project, goal_id, ConfiguredPlanner(), file)


def changes(said: Mapping[str, Any]) -> dict[str, Any]:
    """The given options as fields to change."""
    words = _definition(said)
    where = words.pop("reply_to")
    fields = {_FIELDS[key]: value for key, value in words.items() if value not in (None, ())}
    if where != DeliveryContext():
        fields["reply_to"] = where
    if "risks" in fields:
        fields["risks"] = tuple(map(goals.risk_of, fields["risks"]))
    if "priority" in fields:
        fields["priority"] = Priority(fields["priority"])
    return fields


def change(project: Project, goal_id: str, fields: dict[str, Any]) -> Goal:
    """Change the fields of a goal; see `changes`."""
    return goals.change(project, goal_id, fields)


def _definition(said: Mapping[str, Any]) -> dict[str, Any]:
    """Combine the criteria and verify commands, and the three reply options."""
    words = dict(said)
    where, thread, account = (words.pop(f"reply_{name}", None) or "" for name in ("to", "thread", "account"))
    words["reply_to"] = reply_to(where, thread, account)
    words["criteria"] = (*words.pop("criteria", ()), *map(criterion, words.pop("verify", ())))
    return words
