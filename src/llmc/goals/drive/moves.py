"""Which status may follow which, for goals, nodes and assignments: three tables, and one function each. Pure.

A move returns the record as it is then, and the event that tells of it. One that is not in its table is refused.
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

#: who wanted it
HUMAN, OVERSEER = "human", "overseer"

GOAL_MOVES: dict[tuple[GoalStatus, GoalStatus], str] = {
    (G.ACTIVE, G.PAUSED): "a person wants nothing sent for it",
    (G.PAUSED, G.ACTIVE): "a person lets it go on",
    (G.ACTIVE, G.COMPLETED): "all of its phases are done, and its criteria with a command pass",
    (G.PAUSED, G.COMPLETED): "the same; what was out came back",
    (G.COMPLETED, G.ACTIVE): "a part of it was opened again",
    (G.ACTIVE, G.CANCELLED): "a person gave it up",
    (G.PAUSED, G.CANCELLED): "a person gave it up",
    (G.COMPLETED, G.ARCHIVED): "put away",
    (G.CANCELLED, G.ARCHIVED): "put away",
}

NODE_MOVES: dict[tuple[NodeStatus, NodeStatus], str] = {
    (N.TODO, N.QUEUED): "all that it waits for is done",
    (N.QUEUED, N.IN_PROGRESS): "somebody works on it",
    (N.IN_PROGRESS, N.DONE): "its work has landed",
    (N.QUEUED, N.BLOCKED): "it cannot go on until something happens",
    (N.IN_PROGRESS, N.BLOCKED): "it cannot go on until something happens",
    (N.BLOCKED, N.QUEUED): "what it waited for has happened",
    (N.QUEUED, N.CANCELLED): "not wanted any more",
    (N.IN_PROGRESS, N.CANCELLED): "not wanted any more",
    (N.BLOCKED, N.CANCELLED): "not wanted any more",
    # Not in the document's list, and they happen: a plan is given up, or changed, before its parts are ready;
    (N.TODO, N.CANCELLED): "not wanted any more",
    (N.QUEUED, N.TODO): "it waits for something again",
    (N.BLOCKED, N.TODO): "no longer blocked, but it waits for others",
    # a worker gives its task back;
    (N.IN_PROGRESS, N.QUEUED): "the one who worked on it does not any more",
    # an agent goes on by itself after a question;
    (N.BLOCKED, N.IN_PROGRESS): "somebody works on it again",
    # a person knows better, at any time;
    (N.TODO, N.BLOCKED): "a person says that it cannot begin",
    (N.TODO, N.DONE): "a person did it",
    (N.QUEUED, N.DONE): "a person did it, or it landed unseen",
    (N.BLOCKED, N.DONE): "it is done after all",
    # and finished work turns out to be unfinished.
    (N.DONE, N.TODO): "opened again",
    (N.DONE, N.QUEUED): "opened again",
}

ASSIGNMENT_MOVES: dict[tuple[AssignmentStatus, AssignmentStatus], str] = {
    (A.QUEUED, A.DISPATCHED): "an instruction is on its way",
    (A.DISPATCHED, A.ACTIVE): "progress was seen",
    (A.ACTIVE, A.STALLED): "no progress for too long",
    (A.STALLED, A.ACTIVE): "progress was seen again",
    (A.STALLED, A.BLOCKED): "it waits for a person, and that is certain",
    (A.ACTIVE, A.DONE): "its work has landed",
    (A.STALLED, A.DONE): "its work has landed",
    (A.BLOCKED, A.DONE): "its work has landed",
    # Not in the document's list, and they happen: nobody ever begins, or the first sign is the end or a question;
    (A.DISPATCHED, A.STALLED): "nobody began for too long",
    (A.DISPATCHED, A.BLOCKED): "it waits for a person, and that is certain",
    (A.DISPATCHED, A.DONE): "its work has landed",
    (A.ACTIVE, A.BLOCKED): "the worker says that it waits",
    (A.QUEUED, A.BLOCKED): "it cannot be sent until a person decides",
    (A.QUEUED, A.DONE): "a person did it before it was sent",
    # an answer came;
    (A.BLOCKED, A.ACTIVE): "the worker goes on",
    (A.BLOCKED, A.DISPATCHED): "the answer is on its way",
    (A.BLOCKED, A.QUEUED): "it is to be sent",
    # it is sent again, or to somebody else, or taken back.
    (A.STALLED, A.DISPATCHED): "another instruction is on its way",
    (A.STALLED, A.QUEUED): "it is to be sent to somebody else",
    (A.ACTIVE, A.DISPATCHED): "another instruction is on its way",
    (A.ACTIVE, A.QUEUED): "the worker gave it back",
    (A.DISPATCHED, A.QUEUED): "the instruction was taken back",
    **{(status, A.CANCELLED): "not wanted any more" for status in A if status.is_open},
}

#: the events of moves that are called otherwise than the status they lead to
_GOAL_EVENTS = {
    (G.PAUSED, G.ACTIVE): "goal.resumed",
    (G.COMPLETED, G.ACTIVE): "goal.reopened",
}


class IllegalMove(Refused):
    """Nothing was changed."""


def move_goal(
    goal: Goal, to: GoalStatus, now: float, *, reason: str = "", actor: str = OVERSEER
) -> tuple[Goal, Event]:
    step = (goal.status, to)
    if step not in GOAL_MOVES:
        raise _illegal(f"goal {goal.goal_id}", goal.status, to)
    data = _data(goal.status, to, reason or GOAL_MOVES[step], actor)
    event = Event(ts=now, type=_GOAL_EVENTS.get(step, f"goal.{to}"), goal_id=goal.goal_id, data=data)
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
    """What somebody says it is, whatever its children are, until `release_node`. Cancelled stays cancelled."""
    what = f"{node.kind} {node.node_id}"
    if node.status is N.CANCELLED and to is not N.CANCELLED:
        raise _illegal(what, node.status, to)
    if not reason.strip():
        raise IllegalMove(f"{what} is not overridden without a reason", hint='Give one: --reason "why"')
    shown = _shown_proof(what, to, proof)
    blocked = BlockedReason(kind=actor, text=reason) if to is N.BLOCKED else None
    data = {**_data(node.status, to, reason, actor), **shown}
    moved, event = _set_node(replace(node, overridden=True), to, now, blocked, data)
    return moved, replace(event, type="work.overridden")


def release_node(node: Node, now: float, *, reason: str, actor: str = HUMAN) -> tuple[Node, Event]:
    """It follows its children again."""
    if not node.overridden:
        raise IllegalMove(
            f"{node.kind} {node.node_id} is not overridden", hint="Its status is that of its work."
        )
    data = {"reason": reason, "actor": actor}
    event = Event(ts=now, type="work.released", goal_id=node.goal_id, work_node_id=node.node_id, data=data)
    return replace(node, overridden=False, updated_at=now), event


def follow_children(
    node: Node, to: NodeStatus, now: float, children: tuple[str, ...], blocked: BlockedReason | None
) -> tuple[Node, Event]:
    """For rollups only: the status that its children give a node. Cancelled is left by nobody."""
    if node.status is N.CANCELLED:
        raise _illegal(f"{node.kind} {node.node_id}", node.status, to)
    data = {**_data(node.status, to, "follows its parts", OVERSEER), "children": list(children)}
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
    event = Event(
        ts=now,
        type=f"assignment.{to}",
        goal_id=assignment.goal_id,
        assignment_id=assignment.assignment_id,
        work_node_id=assignment.work_node_id,
        data={**_data(assignment.status, to, why, actor), **shown},
    )
    return moved, event


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
    kind = "work.reopened" if reopened else f"work.{to}"
    return moved, Event(ts=now, type=kind, goal_id=node.goal_id, work_node_id=node.node_id, data=data)


def _data(before: str, after: str, reason: str, actor: str) -> dict[str, Any]:
    return {"from": str(before), "to": str(after), "reason": reason, "actor": actor}


def _check_reason(what: str, to: str, blocked: BlockedReason | None) -> None:
    if to == N.BLOCKED and not (blocked and blocked.kind.strip() and blocked.text.strip()):
        raise IllegalMove(
            f"{what} is not blocked without a reason", hint="Say what it waits for, and of what kind that is."
        )


def _shown_proof(what: str, to: str, proof: Crystallization | Evidence | None) -> dict[str, Any]:
    """What an event says of the proof: where it is, or the anchors themselves."""
    if to != N.DONE:
        return {}
    if isinstance(proof, Crystallization) and proof.summary.strip():
        return {"crystallizationId": proof.crystallization_id}
    if isinstance(proof, Evidence) and proof != Evidence():
        anchors = {"commits": proof.commits, "filesTouched": proof.files_touched, "prs": proof.prs}
        more = {"tests": tuple(test.command for test in proof.tests_run), "refs": proof.external_refs}
        return {"evidence": {name: list(found[:20]) for name, found in {**anchors, **more}.items() if found}}
    raise IllegalMove(f"{what} is not done without a proof", hint="Name a commit, or say what came of it.")


def _illegal(what: str, before: str, to: str) -> IllegalMove:
    return IllegalMove(
        f"{what} is {before} and cannot become {to}", hint="`llmc goal show` draws where it stands."
    )
