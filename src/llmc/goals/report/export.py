"""The whole store as one JSON object, in the shape that document 003 gives it. Pure."""

from collections.abc import Iterable
from typing import Any

import msgspec

from llmc.goals.drive.rollup import children_of, progress
from llmc.goals.model import Crystallization, Event, GoalView, Node, NodeKind
from llmc.goals.plan.shape import CLOSED, shape_of

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


def said_of(view: GoalView, crystallizations: Iterable[Crystallization]) -> dict[str, Any]:
    """What workers decided and asked, and what they say comes next: from the newest of each leaf, in plan order."""
    newest = {one.work_node_id: one for one in crystallizations}
    found = [(leaf, newest[leaf]) for leaf in shape_of(view.nodes).leaves if leaf in newest]
    is_open = {leaf: view.nodes[leaf].status not in CLOSED for leaf, _ in found}
    return {
        "decisions": [
            {"workNodeId": leaf, **msgspec.to_builtins(decision)}
            for leaf, one in found
            for decision in one.decisions
        ],
        "openQuestions": [
            {"workNodeId": leaf, "question": text} for leaf, one in found for text in one.open_questions
        ],
        "nextActions": [
            {"workNodeId": leaf, "action": text}
            for leaf, one in found
            for text in one.next_actions
            if is_open[leaf]
        ],
    }


def event_row(event: Event) -> dict[str, Any]:
    """Without the ids that it does not have."""
    plain: dict[str, Any] = msgspec.to_builtins(event)
    return {key: value for key, value in plain.items() if value != "" or key in ("ts", "type")}
