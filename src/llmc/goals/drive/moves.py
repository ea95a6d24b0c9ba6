"""Status transitions of goals, nodes and assignments: three tables, one function each. Pure.

A move returns the new record and its event. A transition that is not in the table is refused.
"""

from typing import Any

from msgspec.structs import replace

from llmc.base.errors import Refused
from llmc.goals.model import (
    Assignment,
    AssignmentStatus,
    BlockedReason,
    Crystallization,
    Event,
    Evidence,
    Goal,
    GoalStatus,
    Node,
    NodeStatus,
)

G, N, A = GoalStatus, NodeStatus, AssignmentStatus

#: actors
HUMAN, OVERSEER = "human", "overseer"

GOAL_MOVES: dict[tuple[GoalStatus, GoalStatus], str] = {
    (G.ACTIVE, G.PAUSED): "paused by user",
    (G.PAUSED, G.ACTIVE): "resumed by user",
    (G.ACTIVE, G.COMPLETED): "all phases are done and all commands in its criteria pass",
    (G.PAUSED, G.COMPLETED): "the same, while paused: work in progress landed",
    (G.COMPLETED, G.ACTIVE): "one of its plan items was reopened",
    (G.ACTIVE, G.CANCELLED): "cancelled by user",
    (G.PAUSED, G.CANCELLED): "cancelled by user",
    (G.COMPLETED, G.ARCHIVED): "archived",
    (G.CANCELLED, G.ARCHIVED): "archived",
}

NODE_MOVES: dict[tuple[NodeStatus, NodeStatus], str] = {
    (N.TODO, N.QUEUED): "all dependencies are done",
    (N.QUEUED, N.IN_PROGRESS): "work started",
    (N.IN_PROGRESS, N.DONE): "its work has landed",
    (N.QUEUED, N.BLOCKED): "blocked",
    (N.IN_PROGRESS, N.BLOCKED): "blocked",
    (N.BLOCKED, N.QUEUED): "unblocked",
    (N.QUEUED, N.CANCELLED): "no longer needed",
    (N.IN_PROGRESS, N.CANCELLED): "no longer needed",
    (N.BLOCKED, N.CANCELLED): "no longer needed",
    # a plan is cancelled or changed before its items are ready;
    (N.TODO, N.CANCELLED): "no longer needed",
    (N.QUEUED, N.TODO): "a dependency is open again",
    (N.BLOCKED, N.TODO): "unblocked, but dependencies are open",
    # a worker returns its task;
    (N.IN_PROGRESS, N.QUEUED): "its worker stopped working on it",
    # an agent resumes by itself after a question;
    (N.BLOCKED, N.IN_PROGRESS): "work resumed",
    # the user decides;
    (N.TODO, N.BLOCKED): "blocked by user",
    (N.TODO, N.DONE): "done by user",
    (N.QUEUED, N.DONE): "done by user, or landed before work was seen to start",
    (N.BLOCKED, N.DONE): "done after all",
    # finished work turns out to be unfinished.
    (N.DONE, N.TODO): "reopened",
    (N.DONE, N.QUEUED): "reopened",
}

ASSIGNMENT_MOVES: dict[tuple[AssignmentStatus, AssignmentStatus], str] = {
    (A.QUEUED, A.DISPATCHED): "instruction sent",
    (A.DISPATCHED, A.ACTIVE): "progress seen",
    (A.ACTIVE, A.STALLED): "no progress for too long",
    (A.STALLED, A.ACTIVE): "progress seen again",
    (A.STALLED, A.BLOCKED): "confirmed: waiting for user",
    (A.ACTIVE, A.DONE): "its work has landed",
    (A.STALLED, A.DONE): "its work has landed",
    (A.BLOCKED, A.DONE): "its work has landed",
    # never started, or first seen when it ends or asks;
    (A.DISPATCHED, A.STALLED): "not started in time",
    (A.DISPATCHED, A.BLOCKED): "confirmed: waiting for user",
    (A.DISPATCHED, A.DONE): "its work has landed",
    (A.ACTIVE, A.BLOCKED): "reported blocked by worker",
    (A.QUEUED, A.BLOCKED): "waiting for a decision by the user",
    (A.QUEUED, A.DONE): "done by user before it was sent",
    # answered;
    (A.BLOCKED, A.ACTIVE): "worker resumed",
    (A.BLOCKED, A.DISPATCHED): "answer sent",
    (A.BLOCKED, A.QUEUED): "to be sent again",
    # sent again, reassigned or withdrawn.
    (A.STALLED, A.DISPATCHED): "another instruction sent",
    (A.STALLED, A.QUEUED): "to be sent to another worker",
    (A.ACTIVE, A.DISPATCHED): "another instruction sent",
    (A.ACTIVE, A.QUEUED): "returned by worker",
    (A.DISPATCHED, A.QUEUED): "instruction withdrawn",
    **{(status, A.CANCELLED): "no longer needed" for status in A if status.is_open},
}

#: events named differently from the status they lead to
_GOAL_EVENTS = {
    (G.PAUSED, G.ACTIVE): "goal.resumed",
    (G.COMPLETED, G.ACTIVE): "goal.reopened",
}


class IllegalMove(Refused):
    """Raised before anything changes."""


def move_goal(
    goal: Goal, to: GoalStatus, now: float, *, reason: str = "", actor: str = OVERSEER
) -> tuple[Goal, Event]:
    step = (goal.status, to)
    if step not in GOAL_MOVES:
        raise _illegal(f"goal {goal.goal_id}", goal.status, to)
    data = _data(goal.status, to, reason or GOAL_MOVES[step], actor)
    event = goal.event(_GOAL_EVENTS.get(step, f"goal.{to}"), now, data)
    return replace(goal, status=to, updated_at=now), event


def move_node(
    node: Node,
    to: NodeStatus,
    now: float,
    *,
    reason: str = "",
    actor: str = OVERSEER,
    blocked: BlockedReason | None = None,
    proof: Crystallization | Evidence | None = None,
) -> tuple[Node, Event]:
    """A move of the table; done needs a proof, blocked a reason."""
    if (node.status, to) not in NODE_MOVES:
        raise _illegal(f"{node.kind} {node.node_id}", node.status, to)
    _check_reason(f"{node.kind} {node.node_id}", to, blocked)
    shown = _shown_proof(f"{node.kind} {node.node_id}", to, proof)
    why = reason or (blocked.text if blocked else "") or NODE_MOVES[node.status, to]
    return _set_node(node, to, now, blocked, {**_data(node.status, to, why, actor), **shown})


def override_node(
    node: Node,
    to: NodeStatus,
    now: float,
    *,
    reason: str,
    actor: str = HUMAN,
    proof: Crystallization | Evidence | None = None,
) -> tuple[Node, Event]:
    """Set a status whatever its children are, until `release_node`. Cancelled stays cancelled."""
    what = f"{node.kind} {node.node_id}"
    if node.status is N.CANCELLED and to is not N.CANCELLED:
        raise _illegal(what, node.status, to)
    if not reason.strip():
        raise IllegalMove(f"cannot override {what} without a reason", hint='Pass --reason "why".')
    shown = _shown_proof(what, to, proof)
    blocked = BlockedReason(kind=actor, text=reason) if to is N.BLOCKED else None
    data = {**_data(node.status, to, reason, actor), **shown}
    moved, event = _set_node(replace(node, overridden=True), to, now, blocked, data)
    return moved, replace(event, type="work.overridden")


def release_node(node: Node, now: float, *, reason: str, actor: str = HUMAN) -> tuple[Node, Event]:
    if not node.overridden:
        raise IllegalMove(
            f"{node.kind} {node.node_id} is not overridden", hint="There is no override to clear."
        )
    event = node.event("work.released", now, {"reason": reason, "actor": actor})
    return replace(node, overridden=False, updated_at=now), event


def follow_children(
    node: Node, to: NodeStatus, now: float, children: tuple[str, ...], blocked: BlockedReason | None
) -> tuple[Node, Event]:
    """For rollups only: the status derived from its children. Cancelled stays cancelled."""
    if node.status is N.CANCELLED:
        raise _illegal(f"{node.kind} {node.node_id}", node.status, to)
    data = {**_data(node.status, to, "follows its children", OVERSEER), "children": list(children)}
    return _set_node(node, to, now, blocked, data)


def move_assignment(
    assignment: Assignment,
    to: AssignmentStatus,
    now: float,
    *,
    reason: str = "",
    actor: str = OVERSEER,
    blocked: BlockedReason | None = None,
    proof: Crystallization | Evidence | None = None,
) -> tuple[Assignment, Event]:
    """A move of the table; done needs a proof, blocked a reason."""
    what = f"assignment {assignment.assignment_id}"
    if (assignment.status, to) not in ASSIGNMENT_MOVES:
        raise _illegal(what, assignment.status, to)
    _check_reason(what, to, blocked)
    shown = _shown_proof(what, to, proof)
    why = reason or (blocked.text if blocked else "") or ASSIGNMENT_MOVES[assignment.status, to]
    moved = replace(
        assignment, status=to, updated_at=now, blocked_reason=blocked if to is A.BLOCKED else None
    )
    data = {**_data(assignment.status, to, why, actor), **shown}
    return moved, assignment.event(f"assignment.{to}", now, data)


def _set_node(
    node: Node, to: NodeStatus, now: float, blocked: BlockedReason | None, data: dict[str, Any]
) -> tuple[Node, Event]:
    started = now if to is N.IN_PROGRESS and node.started_at is None else node.started_at
    moved = replace(
        node,
        status=to,
        updated_at=now,
        started_at=started,
        ended_at=None if to.is_open else now,
        blocked_reason=blocked if to is N.BLOCKED else None,
    )
    reopened = node.status is N.DONE and to is not N.DONE
    return moved, node.event("work.reopened" if reopened else f"work.{to}", now, data)


def _data(before: str, after: str, reason: str, actor: str) -> dict[str, Any]:
    return {"from": str(before), "to": str(after), "reason": reason, "actor": actor}


def _check_reason(what: str, to: str, blocked: BlockedReason | None) -> None:
    if to == N.BLOCKED and not (blocked and blocked.kind.strip() and blocked.text.strip()):
        raise IllegalMove(
            f"cannot block {what} without a reason", hint="Pass --reason, and --kind for the kind of blocker."
        )


def _shown_proof(what: str, to: str, proof: Crystallization | Evidence | None) -> dict[str, Any]:
    """The evidence as an event shows it."""
    if to != N.DONE:
        return {}
    if isinstance(proof, Crystallization) and proof.summary.strip():
        return {"crystallizationId": proof.crystallization_id}
    if isinstance(proof, Evidence) and proof != Evidence():
        anchors = {"commits": proof.commits, "filesTouched": proof.files_touched, "prs": proof.prs}
        more = {"tests": tuple(test.command for test in proof.tests_run), "refs": proof.external_refs}
        return {"evidence": {name: list(found[:20]) for name, found in {**anchors, **more}.items() if found}}
    raise IllegalMove(
        f"cannot mark {what} done without evidence", hint="Pass --commit SHA or --summary TEXT."
    )


def _illegal(what: str, before: str, to: str) -> IllegalMove:
    return IllegalMove(
        f"{what} is {before} and cannot become {to}", hint="Run `llmc goal show` to see the plan."
    )
