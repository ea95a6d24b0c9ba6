"""Status transitions of goals, nodes and assignments, and the status of parents. Pure.

A move returns the new record and its event. A transition that is not in the table is refused. Parents follow their children.
"""

import re
from collections.abc import Iterable
from itertools import chain
from typing import Any, NamedTuple

from msgspec.structs import replace

from llmc.base.errors import Refused, UsageError
from llmc.goals.model import (
    Assignment,
    AssignmentStatus,
    BlockedReason,
    Change,
    Crystallization,
    Event,
    Evidence,
    Goal,
    GoalStatus,
    GoalView,
    Node,
    NodeKind,
    NodeStatus,
)
from llmc.goals.plan.plan import children_of

G, N, A = GoalStatus, NodeStatus, AssignmentStatus

#: actors
HUMAN, OVERSEER = "human", "overseer"

GOAL_MOVES: dict[tuple[GoalStatus, GoalStatus], str] = {
    (G.ACTIVE, G.PAUSED): "paused by the user",
    (G.PAUSED, G.ACTIVE): "resumed by the user",
    (G.ACTIVE, G.COMPLETED): "all phases are done and all verify commands passed",
    (G.PAUSED, G.COMPLETED): "all phases are done and all verify commands passed",
    (G.COMPLETED, G.ACTIVE): "a plan item was reopened",
    (G.ACTIVE, G.CANCELLED): "cancelled by the user",
    (G.PAUSED, G.CANCELLED): "cancelled by the user",
    (G.COMPLETED, G.ARCHIVED): "archived",
    (G.CANCELLED, G.ARCHIVED): "archived",
}

NODE_MOVES: dict[tuple[NodeStatus, NodeStatus], str] = {
    (N.TODO, N.QUEUED): "all dependencies are done",
    (N.QUEUED, N.IN_PROGRESS): "work started",
    (N.IN_PROGRESS, N.DONE): "the work has landed",
    (N.QUEUED, N.BLOCKED): "blocked",
    (N.IN_PROGRESS, N.BLOCKED): "blocked",
    (N.BLOCKED, N.QUEUED): "unblocked",
    (N.QUEUED, N.CANCELLED): "no longer needed",
    (N.IN_PROGRESS, N.CANCELLED): "no longer needed",
    (N.BLOCKED, N.CANCELLED): "no longer needed",
    # a plan is cancelled or changed before its items are ready;
    (N.TODO, N.CANCELLED): "no longer needed",
    (N.QUEUED, N.TODO): "a dependency was reopened",
    (N.BLOCKED, N.TODO): "unblocked, but not all dependencies are done",
    # a worker returns its task;
    (N.IN_PROGRESS, N.QUEUED): "the worker stopped working on it",
    # an agent resumes by itself after a question;
    (N.BLOCKED, N.IN_PROGRESS): "work resumed",
    # the user decides;
    (N.TODO, N.BLOCKED): "blocked by the user",
    (N.TODO, N.DONE): "marked done by the user",
    (N.QUEUED, N.DONE): "marked done by the user, or landed before llmc saw the work start",
    (N.BLOCKED, N.DONE): "marked done by the user, or landed while blocked",
    # finished work turns out to be unfinished.
    (N.DONE, N.TODO): "reopened",
    (N.DONE, N.QUEUED): "reopened",
}

ASSIGNMENT_MOVES: dict[tuple[AssignmentStatus, AssignmentStatus], str] = {
    (A.QUEUED, A.DISPATCHED): "the instruction was sent",
    (A.DISPATCHED, A.ACTIVE): "the worker made progress",
    (A.ACTIVE, A.STALLED): "no progress for too long",
    (A.STALLED, A.ACTIVE): "the worker is making progress again",
    (A.STALLED, A.BLOCKED): "waiting for the user",
    (A.ACTIVE, A.DONE): "the work has landed",
    (A.STALLED, A.DONE): "the work has landed",
    (A.BLOCKED, A.DONE): "the work has landed",
    # never started, or first seen when it ends or asks;
    (A.DISPATCHED, A.STALLED): "not started in time",
    (A.DISPATCHED, A.BLOCKED): "waiting for the user",
    (A.DISPATCHED, A.DONE): "the work has landed",
    (A.ACTIVE, A.BLOCKED): "the worker reported that it is blocked",
    (A.QUEUED, A.BLOCKED): "waiting for the user's decision",
    (A.QUEUED, A.DONE): "marked done by the user before the instruction was sent",
    # answered;
    (A.BLOCKED, A.ACTIVE): "the worker resumed",
    (A.BLOCKED, A.DISPATCHED): "the answer was sent",
    (A.BLOCKED, A.QUEUED): "will be sent again",
    # sent again, reassigned or withdrawn.
    (A.STALLED, A.DISPATCHED): "another instruction was sent",
    (A.STALLED, A.QUEUED): "will be sent to another worker",
    (A.ACTIVE, A.DISPATCHED): "another instruction was sent",
    (A.ACTIVE, A.QUEUED): "returned by the worker",
    (A.DISPATCHED, A.QUEUED): "the instruction was withdrawn",
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
    """Make a move from the table; done needs proof, blocked needs a reason."""
    if (node.status, to) not in NODE_MOVES:
        raise _illegal(f"{node.kind} {node.node_id}", node.status, to)
    shown = _shown(f"{node.kind} {node.node_id}", to, blocked, proof)
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
    """Set a status regardless of the children, until `release_node`. Cancelled stays cancelled."""
    what = f"{node.kind} {node.node_id}"
    if node.status is N.CANCELLED and to is not N.CANCELLED:
        raise _illegal(what, node.status, to)
    if not reason.strip():
        raise IllegalMove(f"cannot override {what} without a reason", hint="Pass --reason TEXT.")
    blocked = BlockedReason(kind=actor, text=reason) if to is N.BLOCKED else None
    shown = _shown(what, to, blocked, proof)
    data = {**_data(node.status, to, reason, actor), **shown}
    moved, event = _set_node(replace(node, overridden=True), to, now, blocked, data)
    return moved, replace(event, type="work.overridden")


def release_node(node: Node, now: float, *, reason: str) -> tuple[Node, Event]:
    if not node.overridden:
        raise IllegalMove(
            f"cannot clear the override of {node.kind} {node.node_id}: its status is not overridden",
            hint="Run `llmc goal show` to see the plan; overrides are marked `(set by the user)`.",
        )
    event = node.event("work.released", now, {"reason": reason, "actor": HUMAN})
    return replace(node, overridden=False, updated_at=now), event


def follow_children(
    node: Node, to: NodeStatus, now: float, children: tuple[str, ...], blocked: BlockedReason | None
) -> tuple[Node, Event]:
    """For rollups only: set the status derived from the children. Cancelled stays cancelled."""
    if node.status is N.CANCELLED:
        raise _illegal(f"{node.kind} {node.node_id}", node.status, to)
    data = {
        **_data(node.status, to, "follows the status of its children", OVERSEER),
        "children": list(children),
    }
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
    """Make a move from the table; done needs proof, blocked needs a reason."""
    what = f"assignment {assignment.assignment_id}"
    if (assignment.status, to) not in ASSIGNMENT_MOVES:
        raise _illegal(what, assignment.status, to)
    shown = _shown(what, to, blocked, proof)
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


def _shown(
    what: str, to: str, blocked: BlockedReason | None, proof: Crystallization | Evidence | None
) -> dict[str, Any]:
    """The evidence as shown in an event; done needs evidence, blocked needs a reason."""
    if to == N.BLOCKED and not (blocked and blocked.kind.strip() and blocked.text.strip()):
        raise IllegalMove(
            f"cannot block {what} without a reason", hint="Pass --reason TEXT and, optionally, --kind KIND."
        )
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
    said = f"{what} is already {to}" if before == to else f"cannot change {what} from {before} to {to}"
    return IllegalMove(said, hint="Run `llmc goal show` to see the current status.")


#: code in Markdown: as many backticks behind it as before it
CODE = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)


def as_code(text: str) -> str:
    """The text as code in Markdown, in as many backticks as it needs."""
    ticks = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") or not text else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def _code_first(text: str) -> tuple[str, str]:
    """The code that a text starts with, "" for none, and the rest."""
    found = CODE.match(text)
    return (found[2].strip(), text[found.end() :]) if found else ("", text)


def bare(command: str) -> str:
    """A command as the user means it: without the backticks, if all of it is written as code."""
    inner, rest = _code_first(command.strip())
    return inner if inner and not rest else command.strip()


def criterion(command: str) -> str:
    """The success criterion that `commands` reads this command from."""
    if not command.strip("` \t\r\n"):
        raise UsageError("the verify command is empty", hint='Example: --verify "make test"')
    return f"{as_code(bare(command))} passes"


def commands(criteria: Iterable[str]) -> tuple[str, ...]:
    found = (_code_first(text.strip()) for text in criteria)
    return tuple(inner for inner, rest in found if inner and rest in (" passes", " passes."))


def is_reached(goal: Goal) -> bool:
    """Whether no criterion has a command, or all commands passed."""
    return not commands(goal.success_criteria) or (goal.checked is not None and goal.checked.passed)


_DEEPEST_FIRST = (NodeKind.TASK, NodeKind.PHASE)


class Progress(NamedTuple):
    """The number of leaves done, out of those not cancelled."""

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
    """Both changes as one; for a record in both, the second wins."""
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
    """The changes that make every parent match its children."""
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
                moved, event = follow_children(node, wanted, now, ids, reason)
                nodes[node.node_id] = changed[node.node_id] = moved
                events.append(event)
    goal = _rolled_goal(view.goal, [nodes[phase.node_id] for phase in children.get("", ())], now, events)
    return Change(goal=goal, nodes=tuple(changed.values()), events=tuple(events))


def follows(node: Node, children: list[Node]) -> bool:
    """Leaves, overridden nodes and cancelled nodes keep their status."""
    return bool(children) and not node.overridden and node.status is not N.CANCELLED


def status_of(node: Node, children: list[Node]) -> NodeStatus:
    """The status derived from the children."""
    if not follows(node, children):
        return node.status
    found = {child.status for child in children}
    if found == {N.CANCELLED}:
        return N.CANCELLED
    if not any(status.is_open for status in found):
        return N.DONE
    if N.IN_PROGRESS in found:
        return N.IN_PROGRESS
    if N.QUEUED in found:
        return N.IN_PROGRESS if N.DONE in found else N.QUEUED
    if N.BLOCKED in found:
        return N.BLOCKED
    return N.IN_PROGRESS if N.DONE in found else N.TODO


def is_completed(phases: list[Node]) -> bool:
    """Whether all phases are closed and at least one is done."""
    found = {phase.status for phase in phases}
    return N.DONE in found and not any(status.is_open for status in found)


def progress(view: GoalView) -> dict[str, Progress]:
    """Progress by node id, with the goal under "". A cancelled goal counts its cancelled work as open."""
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
        if node.status is N.CANCELLED:
            done, total = (done, total) if given_up else (0, 0)
        elif node.status is N.DONE and not (given_up and node.node_id in below):
            done = total = total or 1
        found[node.node_id] = done, total
        done_beside, beside = below.get(node.parent_id, (0, 0))
        below[node.parent_id] = done_beside + done, beside + total
    return {**found, "": below[""]}


def _waits_for(wanted: NodeStatus, children: list[Node]) -> BlockedReason | None:
    if wanted is not N.BLOCKED:
        return None
    waiting = [child for child in children if child.status is N.BLOCKED]
    first = waiting[0].blocked_reason
    said = f": {first.text}" if first else ""
    names = ", ".join(child.node_id for child in waiting)
    return BlockedReason(kind="parts", text=f"{names} blocked{said}")


def _rolled_goal(before: Goal, phases: list[Node], now: float, events: list[Event]) -> Goal | None:
    goal, is_done = before, is_completed(phases)
    if phases and not is_done and goal.checked is not None:
        # an earlier check says nothing about the new work
        goal = replace(goal, checked=None, asks=None)
    wanted = goal.status
    if is_done and is_reached(goal) and goal.status.goes_on:
        # a completed goal needs no answer, and cannot be cancelled, as its question may offer
        goal, wanted = replace(goal, asks=None), GoalStatus.COMPLETED
    elif goal.status is GoalStatus.COMPLETED and phases and not is_done:
        wanted = GoalStatus.ACTIVE
    if wanted is not goal.status:
        goal, event = move_goal(goal, wanted, now)
        events.append(event)
    return goal if goal is not before else None
