"""From a plan as it was to the plan as it will be: the records, assignments and events that differ. Pure."""

from collections.abc import Mapping

from msgspec.structs import replace

from llmc.goals.model import (
    Assignment,
    AssignmentStatus,
    Change,
    Crystallization,
    Event,
    Goal,
    GoalView,
    Node,
    NodeStatus,
    PlanRevision,
)
from llmc.goals.plan.plan import Provenance

#: so many revisions are kept with the goal; the events keep all of them
MAX_REVISIONS = 100
#: so much of a reason
WHY_CHARS = 1000

_OVER = (AssignmentStatus.DONE, AssignmentStatus.CANCELLED)
_BEGUN = (NodeStatus.QUEUED, NodeStatus.IN_PROGRESS, NodeStatus.BLOCKED)


def change_of(
    view: GoalView,
    after: Mapping[str, Node],
    moved: Mapping[str, str],
    now: float,
    why: str,
    provenance: Provenance | None,
) -> Change:
    """Everything that has to be written for a plan to be the new one; nothing, if it is the same."""
    nodes = {id: _reset_if_regrouped(view, node, moved, after, now) for id, node in after.items()}
    former = {new: old for old, new in moved.items()}
    same = {id: view.nodes.get(former.get(id, id)) for id in nodes}
    revision = PlanRevision(
        ts=now,
        why=why[:WHY_CHARS],
        added=tuple(id for id in nodes if same[id] is None),
        removed=tuple(id for id in view.nodes if id not in nodes and id not in moved),
        changed=tuple(id for id, node in nodes.items() if _differs(same[id], node)),
        moved=dict(moved),
    )
    if not (revision.added or revision.removed or revision.changed or moved):
        return Change()
    nodes = {id: replace(n, updated_at=now) if id in revision.changed else n for id, n in nodes.items()}
    assignments = _assignments(view, nodes, moved, now)
    events = [_planned(view, revision), *_restarted(view, nodes, former, now)]
    events += [event for _, event in assignments]
    return Change(
        goal=_goal(view.goal, revision, provenance, now),
        nodes=tuple(node for id, node in nodes.items() if node != view.nodes.get(id)),
        assignments=tuple(assignment for assignment, _ in assignments),
        crystallizations=tuple(_done_already(view, nodes, same, now)),
        events=tuple(events),
        removed_nodes=tuple(id for id in view.nodes if id not in nodes),
    )


def _is_group(nodes: Mapping[str, Node], node_id: str) -> bool:
    return any(node.parent_id == node_id for node in nodes.values())


def _reset_if_regrouped(
    view: GoalView, node: Node, moved: Mapping[str, str], after: Mapping[str, Node], now: float
) -> Node:
    """A leaf that has become a group is not under way any more, nor is a group that has become a leaf."""
    former = next((old for old, new in moved.items() if new == node.node_id), node.node_id)
    if former not in view.nodes or node.status not in _BEGUN:
        return node
    if _is_group(view.nodes, former) == _is_group(after, node.node_id):
        return node
    return replace(node, status=NodeStatus.TODO, blocked_reason=None, updated_at=now)


def _differs(old: Node | None, new: Node) -> bool:
    """Whether a node says something else; where it stands and who waits for it do not count."""
    if old is None:
        return False
    neutral = {"node_id": "", "position": 0, "blocks": (), "updated_at": 0.0, "parent_id": ""}
    return replace(old, **neutral) != replace(new, **neutral)


def _assignments(
    view: GoalView, after: Mapping[str, Node], moved: Mapping[str, str], now: float
) -> list[tuple[Assignment, Event]]:
    """Those that follow their node to another id, and those that nobody has to finish any more."""
    found = []
    for assignment in view.assignments.values():
        node_id = moved.get(assignment.work_node_id, assignment.work_node_id)
        reason = _why_over(node_id, after) if assignment.status not in _OVER else ""
        if reason:
            found.append(_cancelled(assignment, node_id, reason, now))
        elif node_id != assignment.work_node_id:
            new = replace(assignment, work_node_id=node_id, updated_at=now)
            found.append((new, _event(new, "assignment.moved", {"from": assignment.work_node_id}, now)))
    return found


def _why_over(node_id: str, after: Mapping[str, Node]) -> str:
    if node_id not in after:
        return f"the new plan has no {node_id} any more"
    if _is_group(after, node_id):
        return f"{node_id} has become several subtasks"
    if after[node_id].status is NodeStatus.DONE:
        return f"{node_id} is done, says the new plan"
    return ""


def _cancelled(assignment: Assignment, node_id: str, reason: str, now: float) -> tuple[Assignment, Event]:
    new = replace(
        assignment,
        work_node_id=node_id,
        status=AssignmentStatus.CANCELLED,
        blocked_reason=None,
        expected_next_update_at=None,
        backoff_until=None,
        updated_at=now,
    )
    return new, _event(new, "assignment.cancelled", {"from": str(assignment.status), "reason": reason}, now)


def _event(assignment: Assignment, type: str, data: dict[str, object], now: float) -> Event:
    return Event(
        ts=now,
        type=type,
        goal_id=assignment.goal_id,
        assignment_id=assignment.assignment_id,
        work_node_id=assignment.work_node_id,
        data=data,
    )


def _planned(view: GoalView, revision: PlanRevision) -> Event:
    """The first plan of a goal was generated, every later one is a revision."""
    data = {
        "why": revision.why,
        "added": list(revision.added),
        "removed": list(revision.removed),
        "changed": list(revision.changed),
        "moved": revision.moved,
    }
    type = "plan.revised" if view.nodes else "plan.generated"
    return Event(ts=revision.ts, type=type, goal_id=view.goal.goal_id, data=data)


def _restarted(
    view: GoalView, after: Mapping[str, Node], former: Mapping[str, str], now: float
) -> list[Event]:
    """Every status that a new plan has changed."""
    events = []
    for id, node in after.items():
        old = view.nodes.get(former.get(id, id))
        before = old.status if old is not None else NodeStatus.TODO
        if before is not node.status:
            said = (
                "the plan says so" if node.status is NodeStatus.DONE else "it is not the same work any more"
            )
            data = {"from": str(before), "reason": said}
            goal_id = view.goal.goal_id
            events.append(
                Event(ts=now, type=f"work.{node.status}", goal_id=goal_id, work_node_id=id, data=data)
            )
    return events


def _done_already(
    view: GoalView, after: Mapping[str, Node], same: Mapping[str, Node | None], now: float
) -> list[Crystallization]:
    """Nothing is done without a word about it; here that word is the plan's."""
    found = []
    for id, node in after.items():
        old = same[id]
        if node.status is NodeStatus.DONE and (old is None or old.status is not NodeStatus.DONE):
            found.append(
                Crystallization(
                    crystallization_id=f"plan:{view.goal.goal_id}:{id}:{now:.3f}",
                    goal_id=view.goal.goal_id,
                    work_node_id=id,
                    level=str(node.kind),
                    created_at=now,
                    summary="The plan says that it was done already.",
                )
            )
    return found


def _goal(goal: Goal, revision: PlanRevision, provenance: Provenance | None, now: float) -> Goal:
    history = (*goal.plan_revision_history, revision)[-MAX_REVISIONS:]
    goal = replace(goal, updated_at=now, plan_revision_history=history)
    if provenance is None:
        return goal
    return replace(
        goal,
        planner=provenance.planner,
        planner_inputs=dict(provenance.inputs),
        raw_planner_output_json=provenance.raw_json,
        validation_errors=provenance.validation_errors,
    )
