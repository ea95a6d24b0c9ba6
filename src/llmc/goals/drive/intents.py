"""Intents: stored before anything is sent, and completed with the outcome. Pure."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from llmc.goals.drive import ladder, words
from llmc.goals.drive.ladder import Policy
from llmc.goals.drive.moves import move_assignment
from llmc.goals.model import (
    Assignment,
    AssignmentStatus,
    BlockedReason,
    Change,
    DeliveryContext,
    Dispatch,
    Event,
    Goal,
    GoalView,
    Mode,
    Node,
    Recovery,
    Result,
)

WORK, ANSWER, REMINDER, WITHDRAW, DIAGNOSE = "work", "answer", "reminder", "withdraw", "diagnose"
NUDGE, REPLAN, REASSIGN, ESCALATE = (
    step.value for step in (Recovery.NUDGE, Recovery.REPLAN, Recovery.REASSIGN, Recovery.ESCALATE)
)
MAX_NOTES = 500

#: results that may still improve: a timeout by proof, an acceptance by completion
_LATER: Mapping[Result, tuple[Result, ...]] = {
    Result.PENDING: (Result.ACCEPTED, Result.OK, Result.TIMEOUT, Result.ERROR),
    Result.TIMEOUT: (Result.ACCEPTED, Result.OK),
    Result.ACCEPTED: (Result.OK,),
}


class Action(Struct, frozen=True):
    """An action; repeating it under the same id has no further effect."""

    dispatch_id: str
    goal_id: str
    assignment_id: str
    work_node_id: str
    purpose: str
    mode: Mode
    text: str
    agent_id: str
    session_key: str = ""
    #: nothing of it can have happened before this time
    decided_at: float = 0.0
    delivery_context: DeliveryContext | None = None
    #: earlier dispatches whose tasks are withdrawn first
    replaces: tuple[str, ...] = ()


def intend(
    assignment: Assignment,
    dispatch_id: str,
    purpose: str,
    mode: Mode,
    text: str,
    now: float,
    delivery_context: DeliveryContext | None = None,
) -> Assignment:
    """The assignment with an intent to send something."""
    dispatch = Dispatch(
        dispatch_id=dispatch_id,
        ts=now,
        mode=mode,
        purpose=purpose,
        session_key=assignment.session_key if mode is Mode.SEND else "",
        delivery_context=delivery_context,
        instruction_hash=words.instruction_hash(text),
    )
    intended = replace(
        assignment,
        dispatch_history=(*assignment.dispatch_history, dispatch),
        last_dispatch_at=now,
        updated_at=now,
    )
    if not dispatch.is_instruction:
        return intended
    return replace(intended, last_instruction_text=text, instruction_hash=dispatch.instruction_hash)


def is_pending(view: GoalView, dispatch_id: str) -> bool:
    known = (d for a in view.assignments.values() for d in a.dispatch_history)
    return any(d.dispatch_id == dispatch_id and d.result is Result.PENDING for d in known)


def again(assignment: Assignment, dispatch: Dispatch, now: float) -> Assignment:
    tried = replace(dispatch, result=Result.PENDING, attempts=dispatch.attempts + 1)
    return replace(with_dispatch(assignment, tried), last_dispatch_at=now, updated_at=now)


def with_dispatch(assignment: Assignment, dispatch: Dispatch) -> Assignment:
    history = tuple(
        dispatch if entry.dispatch_id == dispatch.dispatch_id else entry
        for entry in assignment.dispatch_history
    )
    return replace(assignment, dispatch_history=history)


def given_up(assignment: Assignment, dispatch: Dispatch, now: float, why: str) -> Assignment:
    """The assignment with an intent dropped as no longer needed."""
    closed = replace(dispatch, result=Result.ERROR, result_at=now, notes=why[:MAX_NOTES])
    return replace(with_dispatch(assignment, closed), updated_at=now)


def action_for(goal: Goal, node: Node | None, assignment: Assignment, dispatch: Dispatch) -> Action:
    """The action of an intent, from the records alone."""
    return Action(
        dispatch_id=dispatch.dispatch_id,
        goal_id=assignment.goal_id,
        assignment_id=assignment.assignment_id,
        work_node_id=assignment.work_node_id,
        purpose=dispatch.purpose,
        mode=dispatch.mode,
        text=_text_of(goal, node, assignment, dispatch),
        agent_id=assignment.agent_id,
        session_key=dispatch.session_key,
        decided_at=dispatch.ts,
        delivery_context=dispatch.delivery_context,
        replaces=_replaced(assignment, dispatch),
    )


def _text_of(goal: Goal, node: Node | None, assignment: Assignment, dispatch: Dispatch) -> str:
    if dispatch.is_instruction:
        return assignment.last_instruction_text
    if node is None or dispatch.purpose == WITHDRAW:
        return ""
    if dispatch.purpose == REPLAN:
        return words.replan_text(node)
    if dispatch.purpose == DIAGNOSE:
        return words.diagnose_text(node)
    if dispatch.purpose == NUDGE:
        return words.nudge_as_sent(goal, node, assignment.advice, dispatch.instruction_hash)
    # repeat the same text: as if nothing was tried since
    index = assignment.dispatch_history.index(dispatch)
    then = replace(assignment, dispatch_history=assignment.dispatch_history[:index])
    reason = assignment.blocked_reason or BlockedReason(kind="stalled", text="no progress")
    say = words.reminder_text if dispatch.purpose == REMINDER else words.question_text
    return say(goal, node, then, reason)


def _replaced(assignment: Assignment, dispatch: Dispatch) -> tuple[str, ...]:
    """Earlier dispatches that this one replaces; a message to the same session replaces none."""
    if dispatch.purpose not in (WORK, REASSIGN, WITHDRAW) or dispatch.mode is not Mode.SPAWN:
        return ()
    index = assignment.dispatch_history.index(dispatch)
    return tuple(d.dispatch_id for d in assignment.dispatch_history[:index] if d.is_instruction)


def outcome(
    view: GoalView,
    dispatch_id: str,
    result: Result,
    now: float,
    notes: str = "",
    *,
    run_id: str = "",
    policy: Policy | None = None,
) -> Change:
    """Record an outcome; a repeated or late one changes nothing."""
    for assignment in view.assignments.values():
        for dispatch in assignment.dispatch_history:
            if dispatch.dispatch_id == dispatch_id:
                if result not in _LATER.get(dispatch.result, ()):
                    return Change()
                return _settled(assignment, dispatch, result, now, notes, run_id, policy or Policy())
    return Change()


def _settled(
    assignment: Assignment,
    dispatch: Dispatch,
    result: Result,
    now: float,
    notes: str,
    run_id: str,
    policy: Policy,
) -> Change:
    entry = replace(
        dispatch, result=result, result_at=now, notes=notes[:MAX_NOTES], run_id=run_id or dispatch.run_id
    )
    settled = replace(with_dispatch(assignment, entry), updated_at=now)
    events = [outcome_event(settled, entry, now)]
    if not result.is_good:
        wait_s = ladder.backoff_s(assignment.retry_count + 1, policy)
        settled = replace(settled, backoff_until=max(assignment.backoff_until or 0.0, now + wait_s))
    elif dispatch.is_instruction and run_id and dispatch is assignment.last_instruction:
        settled = replace(settled, run_id=run_id)
    elif dispatch.purpose == WITHDRAW and assignment.status is AssignmentStatus.DISPATCHED:
        settled, event = move_assignment(
            settled, AssignmentStatus.QUEUED, now, reason="withdrawn before a worker claimed it"
        )
        # paused by the user: earlier attempts do not count
        settled = ladder.progressed(settled, now, now)
        settled = replace(settled, run_id="", session_key="", session_id="")
        events.append(event)
    return Change(assignments=(settled,), events=tuple(events))


def outcome_event(assignment: Assignment, dispatch: Dispatch, now: float) -> Event:
    data = {
        "dispatchId": dispatch.dispatch_id,
        "purpose": dispatch.purpose,
        "result": dispatch.result.value,
        "attempts": dispatch.attempts,
        "notes": dispatch.notes,
    }
    return assignment.event(f"dispatch.{dispatch.result.value}", now, data)
