"""The whole store as one JSON object, in the shape that document 003 gives it. Pure."""

from collections.abc import Iterable
from typing import Any

import msgspec

from llmc.goals.model import Crystallization, Event, GoalView, Node, NodeKind
from llmc.goals.rollup import children_of, progress

#: of the shape, not of the file it is kept in
VERSION = 1

_BELOW = {NodeKind.PHASE: "tasks", NodeKind.TASK: "subtasks"}


def export(
    views: Iterable[GoalView], crystallizations: Iterable[Crystallization], events: Iterable[Event]
) -> dict[str, Any]:
    """Goals with their plans inside, assignments with their dispatches, handoffs, an index, and the log."""
    goals, assignments, index = {}, {}, {}
    for view in views:
        goals[view.goal.goal_id] = goal_tree(view)
        for one in view.assignments.values():
            assignments[one.assignment_id] = msgspec.to_builtins(one)
            for dispatch in one.dispatch_history:
                about = {"assignmentId": one.assignment_id, "goalId": one.goal_id}
                index[dispatch.dispatch_id] = {**about, **msgspec.to_builtins(dispatch)}
    return {
        "version": VERSION,
        "goals": goals,
        "assignments": assignments,
        "crystallizations": {one.crystallization_id: msgspec.to_builtins(one) for one in crystallizations},
        "dispatchIndex": index,
        "events": [event_row(event) for event in events],
    }


def goal_tree(view: GoalView) -> dict[str, Any]:
    """One goal with its phases, their tasks and their subtasks; each with what is done of it."""
    children, done = children_of(view), progress(view)

    def row(node: Node, path: str) -> dict[str, Any]:
        place = f"{path}/{node.node_id}" if path else node.node_id
        plain: dict[str, Any] = {f"{node.kind}Id": node.node_id, **msgspec.to_builtins(node)}
        plain |= {"path": place, "percent": done[node.node_id].percent}
        if node.kind in _BELOW:
            plain[_BELOW[node.kind]] = [row(child, place) for child in children.get(node.node_id, ())]
        return plain

    phases = [row(phase, "") for phase in children.get("", ())]
    whole: dict[str, Any] = msgspec.to_builtins(view.goal)
    return {**whole, "percent": done[""].percent, "phases": phases}


def event_row(event: Event) -> dict[str, Any]:
    """Without the ids that it does not have."""
    plain: dict[str, Any] = msgspec.to_builtins(event)
    return {key: value for key, value in plain.items() if value != "" or key in ("ts", "type")}
