"""What follows for one assignment: first the facts, then what was begun, then what does not get on. Pure."""

from msgspec.structs import replace

from llmc.goals.drive import intents, ladder
from llmc.goals.drive import liveness as live
from llmc.goals.drive.hearing import hear
from llmc.goals.drive.intents import DIAGNOSE, NUDGE, REPLAN, WITHDRAW
from llmc.goals.drive.liveness import Liveness, Merged, Run, Signals, State
from llmc.goals.drive.recover import ask, is_doubtful, recover, remind
from llmc.goals.drive.round import OPEN, Round
from llmc.goals.model import (
    Assignment,
    AssignmentStatus,
    Dispatch,
    GoalStatus,
    Mode,
    Node,
    NodeStatus,
    Result,
)
from llmc.goals.plan.shape import CLOSED, is_closed
from llmc.goals.report.crystals import of_merge

S = AssignmentStatus

#: a withdrawal that fails is tried so often in all
MAX_WITHDRAWALS = 6
#: the longest wait before something that nobody could try is tried again
MAX_SETTLE_S = 60.0

_FAILED = (Result.ERROR, Result.TIMEOUT)
#: what its own run shows to have arrived, whoever did not live to write that down
_UNPROVED = (*_FAILED, Result.PENDING)


def attend(work: Round, assignment: Assignment, signals: Signals | None) -> None:
    """Everything that follows for one assignment."""
    if signals is not None:
        work.seen[assignment.assignment_id] = signals
    if assignment.status not in OPEN:
        _settle_closed(work, assignment)
        return
    assignment = work.put(ladder.unskewed(assignment, work.policy, work.now))
    node = work.nodes.get(assignment.work_node_id)
    if signals is not None and signals.merged is not None and node is not None:
        _finish(work, assignment, node, signals.merged)
        return
    unwanted = _unwanted(work, assignment, node)
    if unwanted:
        _close(work, assignment, unwanted, orphan=node is None)
        return
    assert node is not None
    if work.goal.status is GoalStatus.PAUSED:
        _rest(work, assignment, node, signals)
    elif work.goal.status is GoalStatus.ACTIVE:
        _drive(work, assignment, node, signals)


def _unwanted(work: Round, assignment: Assignment, node: Node | None) -> str:
    """Why nobody needs this assignment any more; "" if somebody does."""
    if node is None:
        return f"its part of the plan, {assignment.work_node_id}, is gone"
    if work.goal.status in (GoalStatus.CANCELLED, GoalStatus.ARCHIVED):
        return f"the goal is {work.goal.status}"
    if node.status in CLOSED or is_closed(node.node_id, work.nodes, work.shape):
        return f"{node.node_id} is closed already"
    return ""


def _finish(work: Round, assignment: Assignment, node: Node, merged: Merged) -> None:
    """It has landed: done, with what it came to."""
    assignment = work.drop_pending(assignment, "its work has landed")
    crystal = of_merge(work.ids(), assignment, node, merged, work.crystals.get(node.node_id), work.now)
    assignment = ladder.progressed(assignment, min(merged.at, work.now), work.now)
    assignment = replace(assignment, last_observed_activity_at=min(merged.at, work.now))
    work.move(assignment, S.DONE, f"merged as {merged.commit[:12]}", proof=crystal)
    work.crystallize(crystal)
    work.move_node(node, NodeStatus.DONE, f"merged as {merged.commit[:12]}", proof=crystal)
    work.crystallize_above(node.node_id)


def _close(work: Round, assignment: Assignment, why: str, *, orphan: bool) -> None:
    """Nobody needs it: cancelled, and taken back from whoever has it."""
    if _is_out(assignment) and work.room.dispatches <= 0:
        work.later()
        return
    assignment = work.drop_pending(assignment, why)
    assignment = work.move(assignment, S.CANCELLED, why)
    if orphan:
        work.note(assignment, "assignment.orphaned", reason=why)
    if _is_out(assignment):
        work.send(assignment, WITHDRAW, Mode.SPAWN, "")


def _is_out(assignment: Assignment) -> bool:
    """Whether somebody may have an instruction that was not taken back."""
    for dispatch in reversed(assignment.dispatch_history):
        if dispatch.purpose == WITHDRAW and dispatch.result is Result.OK:
            return False
        if dispatch.purpose in live.INSTRUCTIONS:
            return True
    return False


def _settle_closed(work: Round, assignment: Assignment) -> None:
    """Of one that is closed only its withdrawal matters: that is brought to its end."""
    last = assignment.dispatch_history[-1] if assignment.dispatch_history else None
    if last is None:
        return
    withdrawing = last.purpose == WITHDRAW and assignment.status is S.CANCELLED
    if last.result is Result.PENDING and not withdrawing:
        work.drop_pending(assignment, f"it is {assignment.status}")
    elif withdrawing:
        _settle_withdrawal(work, assignment, last)


def _settle_withdrawal(work: Round, assignment: Assignment, dispatch: Dispatch) -> None:
    if dispatch.result is Result.PENDING:
        _settle(work, assignment, dispatch)
    elif dispatch.result in _FAILED and dispatch.attempts < MAX_WITHDRAWALS:
        if (assignment.backoff_until or 0.0) > work.now:
            work.due(assignment.backoff_until)
        else:
            _settle(work, assignment, dispatch)


def _settle(work: Round, assignment: Assignment, dispatch: Dispatch) -> None:
    """What was intended and whose outcome nobody saw is done now, under its own id."""
    signals = work.seen.get(assignment.assignment_id)
    earliest = (assignment.last_dispatch_at or 0.0) + _settle_wait_s(dispatch)
    if earliest > work.now:
        work.due(earliest)
        return
    if (signals is not None and signals.delivering) or work.room.dispatches <= 0:
        work.later()
        return
    work.send_again(assignment, dispatch, "assignment.settled")


def _settle_wait_s(dispatch: Dispatch) -> float:
    """What could not even be tried, because a person has the worker or it is busy, is tried less and less often."""
    return min(MAX_SETTLE_S, 2.0 ** min(dispatch.attempts - 1, 10))


def _rest(work: Round, assignment: Assignment, node: Node, signals: Signals | None) -> None:
    """Of a paused goal: what is observed is kept; what nobody has taken is taken back; nothing else leaves."""
    last = assignment.dispatch_history[-1] if assignment.dispatch_history else None
    if last is not None and last.purpose == WITHDRAW and last.result is not Result.OK:
        _settle_withdrawal(work, assignment, last)
        return
    if signals is None or assignment.status is S.QUEUED:
        return
    assignment, judged = _observed(work, assignment, signals)
    if judged.state is State.ALIVE:
        _is_active(work, assignment, node, judged)
    unclaimed = assignment.status is S.DISPATCHED and signals.run is Run.WAITING
    if unclaimed and intents.pending(assignment) is None:
        if work.room.dispatches <= 0:
            work.later()
        else:
            work.send(assignment, WITHDRAW, Mode.SPAWN, "")


def _drive(work: Round, assignment: Assignment, node: Node, signals: Signals | None) -> None:
    """Of an active goal: what is seen, what was begun, and then what does not get on."""
    if assignment.status is S.QUEUED:
        if signals is not None:
            hear(work, assignment, node, signals, ask)
        return
    if _was_unblocked(assignment, node):
        assignment = work.drop_pending(assignment, "a person unblocked it")
        assignment = ladder.progressed(assignment, work.now, work.now)
        work.move(assignment, S.QUEUED, "a person unblocked it")
        return
    if node.status is NodeStatus.BLOCKED and assignment.status is not S.BLOCKED:
        # a person holds it: what is seen is kept, nothing is sent
        if signals is not None:
            _observed(work, assignment, signals)
        return
    judged: Liveness | None = None
    if signals is not None:
        assignment, judged = _seen(work, assignment, node, signals)
        node = work.nodes[node.node_id]
    pending = intents.pending(assignment)
    if pending is not None:
        _settle(work, assignment, pending)
    elif assignment.status is S.BLOCKED:
        remind(work, assignment)
    elif judged is not None and signals is not None:
        recover(work, assignment, node, signals, judged)


def _was_unblocked(assignment: Assignment, node: Node) -> bool:
    """Whether a person said of the node, not of the assignment, that it can go on."""
    ready = node.status in (NodeStatus.TODO, NodeStatus.QUEUED) and not node.overridden
    return assignment.status is S.BLOCKED and ready


def _seen(work: Round, assignment: Assignment, node: Node, signals: Signals) -> tuple[Assignment, Liveness]:
    """The assignment after all that was observed, reports included."""
    assignment = work.put(_bound(work, assignment, signals))
    assignment, node = hear(work, assignment, node, signals, ask)
    assignment, judged = _observed(work, assignment, signals)
    if assignment.status is S.BLOCKED:
        assignment = _unblock_by_progress(work, assignment, node, judged, signals)
    alive = judged.state is State.ALIVE and not is_doubtful(assignment, signals, judged)
    pending = intents.pending(assignment)
    if pending is not None and _is_idle_talk(
        assignment, pending, stirs=alive or judged.state is State.WAITING
    ):
        assignment, pending = work.drop_pending(assignment, "not needed any more"), None
    on_its_way = pending is not None and pending.purpose in live.INSTRUCTIONS
    if alive and not on_its_way:
        assignment = _is_active(work, assignment, work.nodes[node.node_id], judged)
    return assignment, judged


def _is_idle_talk(assignment: Assignment, pending: Dispatch, *, stirs: bool) -> bool:
    """Whether something that was about to be said has lost its point: the worker stirs, or nobody is asked any more."""
    if pending.mode is Mode.ESCALATE:
        return assignment.status is not S.BLOCKED
    return pending.purpose in (NUDGE, REPLAN, DIAGNOSE) and (stirs or assignment.status is not S.STALLED)


def _observed(work: Round, assignment: Assignment, signals: Signals) -> tuple[Assignment, Liveness]:
    """The assignment with what was seen of it: who has it, that its instruction arrived, when it last stirred."""
    assignment = _bound(work, assignment, signals)
    judged = live.judge(assignment, signals, work.policy, work.now, work.granted_until)
    if judged.progress_at is not None:
        assignment = ladder.progressed(assignment, judged.progress_at, work.now)
    seen = assignment.last_observed_activity_at
    if judged.active_at is not None and (seen is None or judged.active_at > seen):
        expected = judged.active_at + live.idle_after(assignment, work.policy)
        assignment = replace(
            assignment,
            last_observed_activity_at=judged.active_at,
            expected_next_update_at=max(expected, assignment.expected_next_update_at or expected),
            updated_at=work.now,
        )
    return work.put(assignment), judged


def _bound(work: Round, assignment: Assignment, signals: Signals) -> Assignment:
    """The assignment with the session that has its run, and a delivery that its run proves."""
    if live.is_of_former_run(assignment, signals) or signals.run is Run.NONE:
        return assignment
    who = (signals.session_key or assignment.session_key, signals.session_id or assignment.session_id)
    run_id = signals.run_id or assignment.run_id
    if who != (assignment.session_key, assignment.session_id) or run_id != assignment.run_id:
        assignment = replace(
            assignment, session_key=who[0], session_id=who[1], run_id=run_id, updated_at=work.now
        )
    last = ladder.last_instruction(assignment)
    spawned = last is not None and last.mode is Mode.SPAWN
    if signals.run_id and spawned and last is not None and last.result in _UNPROVED:
        proved = replace(
            last, result=Result.ACCEPTED, result_at=work.now, run_id=signals.run_id, notes="seen by its run"
        )
        assignment = intents.with_dispatch(assignment, proved)
        work.note(assignment, "dispatch.accepted", dispatchId=last.dispatch_id, notes="seen by its run")
    return assignment


def _is_active(work: Round, assignment: Assignment, node: Node, judged: Liveness) -> Assignment:
    """Somebody is at it."""
    work.due(judged.stalls_at)
    if assignment.status in (S.DISPATCHED, S.STALLED):
        assignment = work.move(assignment, S.ACTIVE, judged.why)
    if assignment.status is S.ACTIVE and node.status in (NodeStatus.TODO, NodeStatus.QUEUED):
        if node.status is NodeStatus.TODO:
            node = work.move_node(node, NodeStatus.QUEUED, "somebody works on it")
        work.move_node(node, NodeStatus.IN_PROGRESS, "somebody works on it")
    return assignment


def _unblock_by_progress(
    work: Round, assignment: Assignment, node: Node, judged: Liveness, signals: Signals
) -> Assignment:
    """A commit after the question was asked, or a message to the worker itself: whoever was asked has helped without us."""
    asked = ladder.last_question(assignment)
    told = [at for at in signals.prompted_at if asked is not None and at > asked.ts]
    helped = judged.progress_at is not None and (asked is None or judged.progress_at > asked.ts)
    if not helped and not told:
        return assignment
    work.move_node(node, NodeStatus.IN_PROGRESS, "it goes on")
    return work.move(assignment, S.ACTIVE, "it goes on")
