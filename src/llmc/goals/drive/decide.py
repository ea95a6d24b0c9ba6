"""Decides what to do about a goal: facts in; one change and its actions out. Pure.

The change contains the intent of every action, so storing it before acting loses nothing in a crash. Deciding
again from the same facts at the same time changes nothing more.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from llmc.goals.drive import intents, ladder, words
from llmc.goals.drive.assignment_steps import attend
from llmc.goals.drive.intents import ANSWER, NO_ROOM, WORK, Action, Room, Round
from llmc.goals.drive.ladder import HOME, Policy, may_supervise, may_touch, session_key
from llmc.goals.drive.liveness import Signals
from llmc.goals.drive.moves import move_assignment
from llmc.goals.model import (
    Assignment,
    AssignmentStatus,
    Change,
    Crystallization,
    GoalStatus,
    GoalView,
    Mode,
    Node,
    NodeStatus,
    Recovery,
    Result,
)
from llmc.goals.plan.plan import Shape, ready_among


class Decided(Struct, frozen=True):
    """The change, the actions to take once it is stored, assignments to sample, and the next due time."""

    change: Change
    actions: tuple[Action, ...] = ()
    wants_samples: tuple[str, ...] = ()
    next_due: float | None = None
    #: budget left for other goals
    room: Room = NO_ROOM


def watched(view: GoalView) -> tuple[str, ...]:
    """The assignments whose activity can change at any time."""
    if not view.goal.status.goes_on:
        return tuple(a.assignment_id for a in view.assignments.values() if a.pending)
    return tuple(
        a.assignment_id
        for a in view.assignments.values()
        if a.status.at_work or a.status is AssignmentStatus.BLOCKED or a.pending or _is_answered(a)
    )


def _is_answered(assignment: Assignment) -> bool:
    """Whether the answer to its question is being sent; its session may still be there to receive it."""
    return assignment.status is AssignmentStatus.QUEUED and bool(assignment.answer)


def has_business(view: GoalView) -> bool:
    """Whether a goal is active, or has open assignments or unfinished withdrawals."""
    if view.goal.status is GoalStatus.ACTIVE:
        return True
    return any(a.status.is_open or _is_owed(a) for a in view.assignments.values())


def _is_owed(assignment: Assignment) -> bool:
    last = assignment.last_dispatch
    if assignment.pending is not None:
        return True
    return last is not None and last.purpose == intents.WITHDRAW and last.result is not Result.OK


def at_work(view: GoalView) -> int:
    """The number of leaves at work."""
    return sum(a.status.at_work for a in view.assignments.values())


def in_order(views: Iterable[GoalView]) -> list[GoalView]:
    """By priority, then by age."""
    return sorted(views, key=lambda v: (v.goal.priority.of_task, v.goal.created_at, v.goal.goal_id))


def full_room(views: Collection[GoalView], policy: Policy, now: float) -> Room:
    """The budget of one tick over all goals, less what was sent at `now`."""
    busy = sum(at_work(view) for view in views if view.goal.status is GoalStatus.ACTIVE)
    just_now = sum(a.last_dispatch_at == now for view in views for a in view.assignments.values())
    return room_beside(busy, just_now, policy)


def room_beside(busy: int, just_now: int, policy: Policy) -> Room:
    """The budget left after `busy` leaves and `just_now` dispatches."""
    return Room(
        in_progress=policy.max_in_progress - busy,
        dispatches=policy.max_dispatches_per_tick - just_now,
        samples=policy.max_samples_per_tick,
    )


def decide(
    view: GoalView,
    signals: Mapping[str, Signals],
    policy: Policy,
    now: float,
    ids: Callable[[], str],
    *,
    crystals: Mapping[str, Crystallization] | None = None,
    shape: Shape | None = None,
    room: Room | None = None,
    granted_until: float | None = None,
) -> Decided:
    """Decide about one goal.

    `signals`: by assignment; none means unknown, and nothing is concluded. `crystals`: the newest summaries by node ("" for
    the goal). `room`: what other goals left; `shape` saves computing the plan's structure.
    """
    work = Round(
        view, policy, now, ids, crystals or {}, shape, room or full_room([view], policy, now), granted_until
    )
    open_ones = [one.assignment_id for one in view.assignments.values() if one.status.is_open]
    keys = [signals[one].session_key for one in open_ones if one in signals]
    work.of_session.update(key for key in keys if key)
    for assignment in tuple(view.assignments.values()):
        if may_touch(assignment, policy):
            attend(work, assignment, signals.get(assignment.assignment_id))
    if view.goal.status is GoalStatus.ACTIVE:
        _hand_out(work)
    return Decided(work.change(), tuple(work.actions), tuple(work.wants_samples), work.next_due(), work.room)


def orphans(assignments: Iterable[Assignment], goals: Iterable[str], now: float) -> Change:
    """Close and report open assignments of goals that no longer exist."""
    known = set(goals)
    closed, events = [], []
    for assignment in assignments:
        if assignment.status.is_open and assignment.goal_id not in known:
            moved, event = move_assignment(
                assignment,
                AssignmentStatus.CANCELLED,
                now,
                reason=f"goal {assignment.goal_id} no longer exists",
            )
            closed.append(moved)
            events += [event, replace(event, type="assignment.orphaned")]
    return Change(assignments=tuple(closed), events=tuple(events))


def _hand_out(work: Round) -> None:
    """Queue the leaves that are ready and send as many as there are slots, in plan order."""
    owners = {a.work_node_id: a for a in work.assignments.values() if a.status.is_open}
    waiting = [leaf for leaf in work.shape.leaves if _waits(work, work.nodes[leaf], owners.get(leaf))]
    # sending a leaf closes nothing, so all of these stay ready
    for leaf in ready_among(waiting, work.nodes, work.shape):
        node = work.nodes[leaf]
        if node.status is NodeStatus.TODO:
            node = work.move_node(node, NodeStatus.QUEUED, "all dependencies are done")
        _send_work(work, node, owners.get(leaf))


def _waits(work: Round, node: Node, owner: Assignment | None) -> bool:
    """Whether a leaf is to be sent once it is ready."""
    if not node.status.is_unblocked:
        return False
    # overridden to in progress: the user works on it
    if node.overridden and node.status is NodeStatus.IN_PROGRESS:
        return False
    return owner is None or (owner.status is AssignmentStatus.QUEUED and may_touch(owner, work.policy))


def _send_work(work: Round, node: Node, owner: Assignment | None) -> None:
    agent = owner.agent_id if owner else _agent_for(node, work.policy)
    if not may_supervise(agent, work.policy):
        return
    if work.room.in_progress <= 0 or work.room.dispatches <= 0:
        work.later()
        return
    assignment = owner or _new_assignment(work, node, agent)
    purpose, mode, text = _instruction(work, node, assignment)
    if work.is_early(ladder.not_before(assignment, words.instruction_hash(text), work.policy)):
        return
    if mode is Mode.SPAWN:
        assignment = replace(assignment, session_key="", session_id="", run_id="")
    assignment = work.move(assignment, AssignmentStatus.DISPATCHED, "ready")
    work.send(work.expected(assignment), purpose, mode, text)


def _agent_for(node: Node, policy: Policy) -> str:
    """The pool that the plan suggests, if allowed, or the home pool."""
    wanted = node.suggested_agent_id
    return wanted if wanted and may_supervise(wanted, policy) else HOME


def _new_assignment(work: Round, node: Node, agent: str) -> Assignment:
    assignment = Assignment(
        assignment_id=work.ids(),
        goal_id=node.goal_id,
        work_node_id=node.node_id,
        agent_id=agent,
        session_key="" if agent == HOME else session_key(agent, agent),
        delivery_context=work.goal.origin.origin_delivery_context,
        idle_after_ms=node.idle_after_ms,
        recovery_policy=node.recovery_policy or Recovery.NUDGE,
        created_at=work.now,
        updated_at=work.now,
    )
    return work.put(assignment, assignment.event("assignment.queued", work.now, {"agentId": agent}))


def _instruction(work: Round, node: Node, assignment: Assignment) -> tuple[str, Mode, str]:
    """The instruction to start, or to continue after an answer, and how it is sent.

    A leaf becomes a task file for the pool. Manual workers, and sessions that asked and still run, get a prompt.
    """
    signals = work.seen.get(assignment.assignment_id)
    reachable = bool(signals and signals.reachable and assignment.session_key)
    if assignment.answer and reachable:
        return ANSWER, Mode.SEND, words.answer_text(work.goal, node, assignment.answer)
    mode = Mode.SPAWN if assignment.agent_id == HOME else Mode.SEND
    return WORK, mode, work.work_text(node, assignment.answer)
