"""Moves of one record to another status, with the event that tells of it. Pure."""

from msgspec.structs import replace

from llmc.goals.model import (
    Assignment,
    AssignmentStatus,
    BlockedReason,
    Crystallization,
    Event,
    Evidence,
    Node,
    NodeStatus,
)

_ENDED = (NodeStatus.DONE, NodeStatus.CANCELLED)
Proof = Crystallization | Evidence | None


def move_node(
    node: Node,
    to: NodeStatus,
    now: float,
    *,
    reason: str = "",
    blocked: BlockedReason | None = None,
    proof: Proof = None,
) -> tuple[Node, Event]:
    """The node with its new status, and the event."""
    if to is NodeStatus.DONE and proof is None:
        raise ValueError(f"{node.node_id} is not done without a proof")
    moved = replace(
        node,
        status=to,
        updated_at=now,
        blocked_reason=blocked,
        started_at=node.started_at or (now if to is NodeStatus.IN_PROGRESS else None),
        ended_at=now if to in _ENDED else None,
    )
    data = {"from": node.status.value, "to": to.value, "reason": reason, "actor": "overseer"}
    return moved, Event(
        ts=now, type=f"work.{to.value}", goal_id=node.goal_id, work_node_id=node.node_id, data=data
    )


def move_assignment(
    assignment: Assignment,
    to: AssignmentStatus,
    now: float,
    *,
    reason: str = "",
    blocked: BlockedReason | None = None,
    proof: Proof = None,
) -> tuple[Assignment, Event]:
    """The assignment with its new status, and the event."""
    if to is AssignmentStatus.BLOCKED and blocked is None:
        raise ValueError(f"{assignment.assignment_id} is not blocked without a reason")
    moved = replace(assignment, status=to, updated_at=now, blocked_reason=blocked)
    event = Event(
        ts=now,
        type=f"assignment.{to.value}",
        goal_id=assignment.goal_id,
        assignment_id=assignment.assignment_id,
        work_node_id=assignment.work_node_id,
        data={"from": assignment.status.value, "to": to.value, "reason": reason, "actor": "overseer"},
    )
    return moved, event
