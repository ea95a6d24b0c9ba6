"""Status and progress of parents, derived from their children. Pure."""

import re
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from msgspec.structs import replace

from llmc.goals.drive import moves
from llmc.goals.model import (
    BlockedReason,
    Change,
    Event,
    Goal,
    GoalStatus,
    GoalView,
    Node,
    NodeKind,
    NodeStatus,
)
from llmc.goals.plan.plan import children_of

_COMMAND = re.compile(r"^`([^`\n]+)` passes\.?$")


def criterion(command: str) -> str:
    return f"`{command.strip()}` passes"


def commands(criteria: Iterable[str]) -> tuple[str, ...]:
    found = (_COMMAND.match(text.strip()) for text in criteria)
    return tuple(match[1].strip() for match in found if match)


def is_reached(goal: Goal) -> bool:
    """Whether no criterion has a command, or all commands passed."""
    return not commands(goal.success_criteria) or (goal.checked is not None and goal.checked.passed)


S = NodeStatus

_DEEPEST_FIRST = (NodeKind.TASK, NodeKind.PHASE)


class Progress(NamedTuple):
    """Done leaves, of those that were not cancelled."""

    done: int = 0
    total: int = 0

    @property
    def percent(self) -> int:
        """100 only when everything is done."""
        return 100 * self.done // self.total if self.total else 0


def after(view: GoalView, change: Change) -> GoalView:
    gone = set(change.removed_nodes)
    nodes = {**view.nodes, **{node.node_id: node for node in change.nodes}}
    return GoalView(
        change.goal or view.goal,
        {node_id: node for node_id, node in nodes.items() if node_id not in gone},
        {**view.assignments, **{one.assignment_id: one for one in change.assignments}},
    )


def settled(view: GoalView, change: Change, now: float) -> Change:
    """The change plus the new status of tasks, phases and the goal."""
    return joined(change, rolled_up(after(view, change), now))


def joined(first: Change, then: Change) -> Change:
    """Both changes; of a record in both, the second."""
    nodes = {node.node_id: node for node in (*first.nodes, *then.nodes)}
    assignments = {one.assignment_id: one for one in (*first.assignments, *then.assignments)}
    return replace(
        first,
        goal=then.goal or first.goal,
        nodes=tuple(nodes.values()),
        assignments=tuple(assignments.values()),
        crystallizations=(*first.crystallizations, *then.crystallizations),
        events=(*first.events, *then.events),
        removed_nodes=(*first.removed_nodes, *then.removed_nodes),
    )


def rolled_up(view: GoalView, now: float) -> Change:
    """What must change so that every parent matches its children."""
    nodes, children = dict(view.nodes), children_of(view.nodes)
    changed: dict[str, Node] = {}
    events: list[Event] = []
    for kind in _DEEPEST_FIRST:
        for node in [one for one in nodes.values() if one.kind is kind]:
            below = [nodes[child.node_id] for child in children.get(node.node_id, ())]
            if not follows(node, below):
                continue
            wanted = status_of(node, below)
            reason = _waits_for(wanted, below)
            if (wanted, reason) != (node.status, node.blocked_reason):
                ids = tuple(child.node_id for child in below)
                moved, event = moves.follow_children(node, wanted, now, ids, reason)
                nodes[node.node_id] = changed[node.node_id] = moved
                events.append(event)
    goal = _rolled_goal(view.goal, [nodes[phase.node_id] for phase in children.get("", ())], now, events)
    return Change(goal=goal, nodes=tuple(changed.values()), events=tuple(events))


def follows(node: Node, children: list[Node]) -> bool:
    """Leaves, overridden nodes and cancelled nodes keep their status."""
    return bool(children) and not node.overridden and node.status is not S.CANCELLED


def status_of(node: Node, children: list[Node]) -> NodeStatus:
    """The status derived from the children."""
    if not follows(node, children):
        return node.status
    found = {child.status for child in children}
    if found == {S.CANCELLED}:
        return S.CANCELLED
    if not any(status.is_open for status in found):
        return S.DONE
    if S.IN_PROGRESS in found:
        return S.IN_PROGRESS
    if S.QUEUED in found:
        return S.IN_PROGRESS if S.DONE in found else S.QUEUED
    if S.BLOCKED in found:
        return S.BLOCKED
    return S.IN_PROGRESS if S.DONE in found else S.TODO


def is_completed(phases: list[Node]) -> bool:
    """Whether all phases are closed and at least one is done."""
    found = {phase.status for phase in phases}
    return S.DONE in found and not any(status.is_open for status in found)


def progress(view: GoalView) -> dict[str, Progress]:
    """By node id, and of the goal under "". A cancelled goal counts its cancelled work as open."""
    return {node_id: Progress(*counted) for node_id, counted in _counted(view).items()}


def whole_progress(view: GoalView) -> Progress:
    return Progress(*_counted(view)[""])


def _counted(view: GoalView) -> dict[str, tuple[int, int]]:
    """Done leaves and all leaves, of each node and of the goal."""
    given_up = view.goal.status is GoalStatus.CANCELLED
    every = view.nodes.values()
    parts = ([node for node in every if node.kind is kind] for kind in (NodeKind.SUBTASK, *_DEEPEST_FIRST))
    found: dict[str, tuple[int, int]] = {}
    below: dict[str, tuple[int, int]] = {"": (0, 0)}
    for node in chain.from_iterable(parts):
        done, total = below.get(node.node_id, (0, 1))
        if node.status is S.CANCELLED:
            done, total = (done, total) if given_up else (0, 0)
        elif node.status is S.DONE and not (given_up and node.node_id in below):
            done = total = total or 1
        found[node.node_id] = done, total
        done_beside, beside = below.get(node.parent_id, (0, 0))
        below[node.parent_id] = done_beside + done, beside + total
    return {**found, "": below[""]}


def _waits_for(wanted: NodeStatus, children: list[Node]) -> BlockedReason | None:
    if wanted is not S.BLOCKED:
        return None
    waiting = [child for child in children if child.status is S.BLOCKED]
    first = waiting[0].blocked_reason
    said = f": {first.text}" if first else ""
    names = ", ".join(child.node_id for child in waiting)
    return BlockedReason(kind="parts", text=f"{names} blocked{said}")


def _rolled_goal(before: Goal, phases: list[Node], now: float, events: list[Event]) -> Goal | None:
    goal, is_done = before, is_completed(phases)
    if (
        phases and not is_done and goal.checked is not None
    ):  # an earlier check says nothing about the new work
        goal = replace(goal, checked=None, asks=None)
    wanted = goal.status
    if is_done and is_reached(goal) and goal.status.goes_on:
        wanted = GoalStatus.COMPLETED
    elif goal.status is GoalStatus.COMPLETED and phases and not is_done:
        wanted = GoalStatus.ACTIVE
    if wanted is not goal.status:
        goal, event = moves.move_goal(goal, wanted, now)
        events.append(event)
    return goal if goal is not before else None
