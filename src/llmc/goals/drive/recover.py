"""What is done for an assignment that does not get on: one step of the ladder at a time, then a person. Pure."""

from msgspec.structs import replace
from msgspec.structs import replace as replaced

from llmc.goals.drive import ladder, words
from llmc.goals.drive import liveness as live
from llmc.goals.drive.intents import DIAGNOSE, REMINDER
from llmc.goals.drive.liveness import Liveness, Run, Signals, State
from llmc.goals.drive.policy import HOME
from llmc.goals.drive.round import Round
from llmc.goals.model import (
    Assignment,
    AssignmentStatus,
    BlockedReason,
    Mode,
    Node,
    NodeStatus,
    Recovery,
    Result,
)

S = AssignmentStatus

_FAILED = (Result.ERROR, Result.TIMEOUT)


def ask(work: Round, assignment: Assignment, node: Node, reason: BlockedReason) -> Assignment:
    """It waits on a person from now on, and the person is asked: both or neither."""
    assignment = replace(work.drop_pending(assignment, "a person is asked instead"), reminders=0)
    text = words.question_text(work.goal, node, assignment, reason)
    assignment = work.move(assignment, S.BLOCKED, reason.text, blocked=reason)
    if node.status is NodeStatus.TODO:
        node = work.move_node(node, NodeStatus.QUEUED, "somebody works on it")
    work.move_node(node, NodeStatus.BLOCKED, reason.text, blocked=reason)
    context = work.goal.origin.origin_delivery_context
    assignment = work.send(assignment, Recovery.ESCALATE.value, Mode.ESCALATE, text, context)
    work.due(ladder.reminder_due(assignment, work.policy))
    return assignment


def remind(work: Round, assignment: Assignment) -> None:
    """A person is told again, a few times and far apart; a question that did not reach anybody is asked again."""
    due = ladder.reminder_due(assignment, work.policy)
    if due is None:
        return
    due = max(due, work.granted_until or due)
    if due > work.now:
        work.due(due)
        return
    asked = ladder.last_question(assignment)
    node = work.nodes[assignment.work_node_id]
    reason = assignment.blocked_reason
    if work.room.dispatches <= 0 or asked is None or reason is None:
        work.later()
        return
    assignment = replace(assignment, reminders=assignment.reminders + 1)
    if asked.result in _FAILED:
        work.send_again(assignment, asked, "assignment.escalated")
        return
    text = words.reminder_text(work.goal, node, assignment, reason)
    assignment = work.send(assignment, REMINDER, Mode.ESCALATE, text, asked.delivery_context)
    work.due(ladder.reminder_due(assignment, work.policy))


def recover(work: Round, assignment: Assignment, node: Node, signals: Signals, judged: Liveness) -> None:
    """What does not get on: found, and helped, one step at a time."""
    doubtful = is_doubtful(assignment, signals, judged)
    if judged.state is State.ALIVE and not doubtful:
        return
    if judged.state is State.WAITING and signals.waiting is not None:
        if work.room.dispatches <= 0:
            work.later()
        else:
            # the worker was understood: the wait was for an answer, and this is one
            ask(work, ladder.progressed(assignment, work.now, work.now), node, signals.waiting)
        return
    failed = judged.state is State.FAILED
    if not failed and not doubtful and judged.stalls_at is None:
        if assignment.status is S.STALLED:
            work.move(assignment, S.DISPATCHED, judged.why)
        return
    earliest = judged.stalls_at or work.now
    if failed or doubtful:
        earliest = max(work.granted_until or work.now, work.now)
    if earliest > work.now:
        work.due(earliest)
        return
    if not failed and not doubtful and _wants_sample(work, assignment, signals):
        return
    why = judged.why if failed or not doubtful else "it is not known whether its instruction arrived"
    assignment = work.move(assignment, S.STALLED, why)
    _step(work, assignment, node, ladder.Situation(reachable=signals.reachable, failed=failed), why)


def is_doubtful(assignment: Assignment, signals: Signals, judged: Liveness) -> bool:
    """Whether nothing shows that the last instruction arrived: no run of its own, and nobody stirred since."""
    last = ladder.last_instruction(assignment)
    if last is None or not ladder.in_doubt(assignment) or judged.active_at is not None:
        return False
    no_run = signals.run is Run.NONE or live.is_of_former_run(assignment, signals)
    return last.mode is Mode.SEND or no_run


def _wants_sample(work: Round, assignment: Assignment, signals: Signals) -> bool:
    """Whether its last messages are to be read first; only of one that is stale, and only while there is room."""
    if signals.messages is not None or not assignment.session_key or work.room.samples <= 0:
        return False
    work.room = replaced(work.room, samples=work.room.samples - 1)
    work.wants_samples.append(assignment.assignment_id)
    work.due(work.now)
    return True


def _step(work: Round, assignment: Assignment, node: Node, situation: ladder.Situation, why: str) -> None:
    """The next step of the ladder, unless it is too early for it."""
    step = ladder.next_step(assignment, node, situation, work.policy)
    advised = _advised(work, assignment, node, situation) if step is Recovery.ESCALATE else None
    text = advised[1] if advised else _words_of(work, step, assignment, node)
    earliest = ladder.not_before(assignment, words.instruction_hash(text), work.policy)
    if earliest > work.now:
        work.due(earliest)
        return
    if work.room.dispatches <= 0:
        work.later()
        return
    stepped = ladder.stepped(assignment, work.policy, work.now)
    if advised:
        work.send(stepped, advised[0], Mode.SPAWN if advised[0] == DIAGNOSE else Mode.SEND, text)
        return
    match step:
        case Recovery.NUDGE:
            work.send(stepped, step.value, Mode.SEND, text)
        case Recovery.REPLAN:
            work.send(stepped, step.value, Mode.SPAWN, text)
        case Recovery.RESEND:
            last = ladder.last_instruction(stepped)
            assert last is not None
            sent = work.move(_expected(work, stepped), S.DISPATCHED, "sent again: it may not have arrived")
            work.send_again(sent, last, "assignment.resent")
        case Recovery.REASSIGN:
            _reassign(work, stepped, text)
        case Recovery.ESCALATE:
            ask(work, stepped, node, words.stalled_reason(node, why, situation.failed, stepped.advice))


def _advised(
    work: Round, assignment: Assignment, node: Node, situation: ladder.Situation
) -> tuple[str, str] | None:
    """What comes before a person is asked, as purpose and text: a planner, then what it wants the worker to be told.

    Each of them once, and only where the rules are at their end.
    """
    if situation.failed or not work.policy.diagnose:
        return None
    tried = ladder.episode(assignment)
    if not any(one.purpose == DIAGNOSE for one in tried):
        return DIAGNOSE, words.diagnose_text(node)
    if assignment.advice is None or not assignment.advice.message or not situation.reachable:
        return None
    text = words.advised_text(work.goal, node, assignment.advice.message)
    is_said = any(one.instruction_hash == words.instruction_hash(text) for one in tried)
    return None if is_said else (Recovery.NUDGE.value, text)


def _words_of(work: Round, step: Recovery, assignment: Assignment, node: Node) -> str:
    match step:
        case Recovery.NUDGE:
            return words.nudge_text(work.goal, node)
        case Recovery.RESEND:
            return assignment.last_instruction_text
        case Recovery.REPLAN:
            return words.replan_text(node)
        case Recovery.REASSIGN:
            return work.work_text(node, assignment.answer, taken_over=True)
        case Recovery.ESCALATE:
            # every question is a new one: it is asked once the backoff is over
            return f"escalation {assignment.assignment_id} {len(assignment.dispatch_history)}"


def _reassign(work: Round, assignment: Assignment, text: str) -> None:
    """Somebody else gets it; what is observed from now on is theirs."""
    moved = replace(
        _expected(work, assignment),
        agent_id=HOME,
        spawned_by_key=assignment.session_key or assignment.spawned_by_key,
        session_key="",
        session_id="",
        run_id="",
    )
    moved = work.move(moved, S.DISPATCHED, "given to somebody else")
    work.send(moved, Recovery.REASSIGN.value, Mode.SPAWN, text)


def _expected(work: Round, assignment: Assignment) -> Assignment:
    due = work.now + live.idle_after(assignment, work.policy)
    return replace(assignment, expected_next_update_at=due)
