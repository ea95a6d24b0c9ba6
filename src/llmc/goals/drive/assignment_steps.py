"""Decides the next step of one assignment: facts and reports first, then pending intents, then recovery. Pure."""

from collections.abc import Iterable

from msgspec.structs import replace

from llmc.goals.drive import intents, ladder, words
from llmc.goals.drive.intents import DIAGNOSE, NUDGE, REMINDER, REPLAN, WITHDRAW, Round
from llmc.goals.drive.ladder import HOME, may_report, worker_of
from llmc.goals.drive.liveness import (
    Liveness,
    Merged,
    Report,
    Run,
    Signals,
    State,
    began_at,
    is_of_former_run,
    judge,
    sampled,
)
from llmc.goals.drive.updates import (
    Claim,
    Parsed,
    Update,
    claims_done,
    fingerprint,
    is_blocked,
    merged,
    not_about,
    parse,
    text_fingerprint,
)
from llmc.goals.drive.words import of_merge, of_report
from llmc.goals.model import (
    Assignment,
    AssignmentStatus,
    BlockedReason,
    Dispatch,
    GoalStatus,
    Mode,
    Node,
    NodeStatus,
    Recovery,
    Result,
)
from llmc.goals.plan.plan import is_barred, is_closed

S = AssignmentStatus

#: most attempts at a withdrawal
MAX_WITHDRAWALS = 6
#: longest wait before an action that could not be tried is tried again
MAX_SETTLE_S = 60.0
#: most report fingerprints kept
MAX_KEPT = 50


def attend(work: Round, assignment: Assignment, signals: Signals | None) -> None:
    if signals is not None:
        work.seen[assignment.assignment_id] = signals
    if not assignment.status.is_open:
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
    """Why this assignment is no longer needed; "" if it is."""
    if node is None:
        return f"plan item {assignment.work_node_id} no longer exists"
    if work.goal.status.is_over:
        return f"the goal is {work.goal.status}"
    if not node.status.is_open or is_closed(node.node_id, work.nodes, work.shape):
        return f"plan item {node.node_id} is no longer open"
    return ""


def _finish(work: Round, assignment: Assignment, node: Node, merged: Merged) -> None:
    assignment = work.drop_pending(assignment, "the work has landed")
    crystal = of_merge(work.ids(), assignment, node, merged, work.crystals.get(node.node_id), work.now)
    assignment = ladder.progressed(assignment, min(merged.at, work.now), work.now)
    assignment = replace(assignment, last_observed_activity_at=min(merged.at, work.now))
    work.move(assignment, S.DONE, merged.told, proof=crystal)
    work.crystallize(crystal)
    work.move_node(node, NodeStatus.DONE, merged.told, proof=crystal)
    work.crystallize_above(node.node_id)


def _close(work: Round, assignment: Assignment, why: str, *, orphan: bool) -> None:
    """Cancel the assignment and withdraw its task."""
    if _is_out(assignment) and work.is_full():
        return
    assignment = work.drop_pending(assignment, why)
    assignment = work.move(assignment, S.CANCELLED, why)
    if orphan:
        work.note(assignment, "assignment.orphaned", reason=why)
    if _is_out(assignment):
        work.send(assignment, WITHDRAW, Mode.SPAWN, "")


def _is_out(assignment: Assignment) -> bool:
    """Whether an instruction was sent and not withdrawn."""
    for dispatch in reversed(assignment.dispatch_history):
        if dispatch.purpose == WITHDRAW and dispatch.result is Result.OK:
            return False
        if dispatch.is_instruction:
            return True
    return False


def _settle_closed(work: Round, assignment: Assignment) -> None:
    """Complete the withdrawal of a closed assignment, and drop any other pending intent."""
    last = assignment.last_dispatch
    if last is None:
        return
    withdrawing = last.purpose == WITHDRAW and assignment.status is S.CANCELLED
    open_one = assignment.pending  # not always the last: an answer may come after it
    if open_one is not None and not (withdrawing and open_one is last):
        work.drop_pending(assignment, f"the assignment is {assignment.status}")
    elif withdrawing:
        _settle_withdrawal(work, assignment, last)


def _settle_withdrawal(work: Round, assignment: Assignment, dispatch: Dispatch) -> None:
    tries_again = dispatch.result.is_bad and dispatch.attempts < MAX_WITHDRAWALS
    if dispatch.result is Result.PENDING or (
        tries_again and not work.is_early(assignment.backoff_until or 0.0)
    ):
        _settle(work, assignment, dispatch)


def _settle(work: Round, assignment: Assignment, dispatch: Dispatch) -> None:
    """Repeat an intent with unknown outcome, under its own id."""
    signals = work.seen.get(assignment.assignment_id)
    if work.is_early((assignment.last_dispatch_at or 0.0) + _settle_wait_s(dispatch)) or work.is_full():
        return
    if signals is not None and signals.delivering:
        work.later()
        return
    work.send_again(assignment, dispatch, "assignment.settled")


def _settle_wait_s(dispatch: Dispatch) -> float:
    """Longer after each attempt that could not be made: the user has the worker, or it is busy."""
    return min(MAX_SETTLE_S, 2.0 ** min(dispatch.attempts - 1, 10))


def _rest(work: Round, assignment: Assignment, node: Node, signals: Signals | None) -> None:
    """Paused goal: record what is observed, withdraw unclaimed tasks, send nothing else."""
    if _still_withdraws(work, assignment) or signals is None or assignment.status is S.QUEUED:
        return
    assignment, judged = _observed(work, assignment, signals)
    if judged.state is State.ALIVE:
        assignment = _is_active(work, assignment, node, judged)
    _withdraw_unclaimed(work, assignment, signals)


def _hold(work: Round, assignment: Assignment, node: Node, signals: Signals | None) -> None:
    """Blocked by the user: record what is observed, withdraw an unclaimed task, send nothing else."""
    if signals is not None and assignment.status is S.BLOCKED:
        assignment, _ = _seen(work, assignment, node, signals)
    elif signals is not None:  # a report would ask
        assignment, _ = _observed(work, assignment, signals)
    if not _still_withdraws(work, assignment):
        assignment = work.drop_pending(assignment, "blocked by the user")
        _withdraw_unclaimed(work, assignment, signals)


def _is_held(work: Round, assignment: Assignment, node: Node) -> bool:
    """Whether the user blocked the item or, by an override, a parent; a question of llmc does not count."""
    asks = assignment.status is S.BLOCKED and not node.overridden
    by_user = assignment.is_held or (node.status is NodeStatus.BLOCKED and not asks)
    return by_user or is_barred(node.node_id, work.nodes, work.shape)


def _still_withdraws(work: Round, assignment: Assignment) -> bool:
    """Whether a withdrawal is not over; if it is due, it is tried again."""
    last = assignment.last_dispatch
    if last is None or last.purpose != WITHDRAW or last.result is Result.OK:
        return False
    _settle_withdrawal(work, assignment, last)
    return True


def _withdraw_unclaimed(work: Round, assignment: Assignment, signals: Signals | None) -> None:
    is_unclaimed = signals is not None and signals.run is Run.WAITING and assignment.pending is None
    if is_unclaimed and not work.is_full():
        work.send(assignment, WITHDRAW, Mode.SPAWN, "")


def _drive(work: Round, assignment: Assignment, node: Node, signals: Signals | None) -> None:
    """Active goal: observe, complete pending intents, then recover from stalls."""
    if assignment.status is S.QUEUED:
        assignment = work.drop_pending(assignment, "will be sent again")  # a late withdrawal would undo that
        if signals is not None:
            hear(work, assignment, node, signals)
        return
    if _was_unblocked(assignment, node):
        assignment = work.drop_pending(assignment, "unblocked by the user")
        assignment = ladder.progressed(assignment, work.now, work.now)
        work.move(assignment, S.QUEUED, "unblocked by the user")
        return
    if _is_held(work, assignment, node):
        _hold(work, assignment, node, signals)
        return
    judged: Liveness | None = None
    if signals is not None:
        assignment, judged = _seen(work, assignment, node, signals)
        node = work.nodes[node.node_id]
    pending = assignment.pending
    if pending is not None:
        _settle(work, assignment, pending)
    elif assignment.status is S.BLOCKED:
        remind(work, assignment)
    elif judged is not None and signals is not None:
        recover(work, assignment, node, signals, judged)


def _was_unblocked(assignment: Assignment, node: Node) -> bool:
    """Whether the user unblocked the node rather than answering the assignment."""
    ready = node.status.is_waiting and not node.overridden
    return assignment.status is S.BLOCKED and ready


def _seen(work: Round, assignment: Assignment, node: Node, signals: Signals) -> tuple[Assignment, Liveness]:
    assignment = work.put(_bound(work, assignment, signals))
    assignment, node = hear(work, assignment, node, signals)
    assignment, judged = _observed(work, assignment, signals)
    if assignment.status is S.BLOCKED:
        assignment = _unblock_by_progress(work, assignment, node, judged, signals)
    alive = judged.state is State.ALIVE and not is_doubtful(assignment, signals, judged)
    pending = assignment.pending
    if pending is not None and _is_pointless(
        assignment, pending, is_active=alive or judged.state is State.WAITING
    ):
        assignment, pending = work.drop_pending(assignment, "no longer needed"), None
    on_its_way = pending is not None and pending.is_instruction
    if alive and not on_its_way:
        assignment = _is_active(work, assignment, work.nodes[node.node_id], judged)
    return assignment, judged


def _is_pointless(assignment: Assignment, pending: Dispatch, *, is_active: bool) -> bool:
    """Whether a pending message has become pointless: there is activity, or the question is closed."""
    if pending.mode is Mode.ESCALATE:
        return assignment.status is not S.BLOCKED
    return pending.purpose in (NUDGE, REPLAN, DIAGNOSE) and (is_active or assignment.status is not S.STALLED)


def _observed(work: Round, assignment: Assignment, signals: Signals) -> tuple[Assignment, Liveness]:
    """The assignment with its session, confirmed delivery and last activity."""
    assignment = _bound(work, assignment, signals)
    judged = judge(assignment, signals, work.policy, work.now, work.granted_until)
    if judged.progress_at is not None:
        assignment = ladder.progressed(assignment, judged.progress_at, work.now)
    seen = assignment.last_observed_activity_at
    if judged.active_at is not None and (seen is None or judged.active_at > seen):
        expected = judged.active_at + assignment.idle_after_s(work.policy.idle_after_s)
        assignment = replace(
            assignment,
            last_observed_activity_at=judged.active_at,
            expected_next_update_at=max(expected, assignment.expected_next_update_at or expected),
            updated_at=work.now,
        )
    return work.put(assignment), judged


def _bound(work: Round, assignment: Assignment, signals: Signals) -> Assignment:
    """The assignment bound to the session that has its task; an existing task also confirms delivery."""
    if is_of_former_run(assignment, signals) or signals.run is Run.NONE:
        return assignment
    who = (signals.session_key or assignment.session_key, signals.session_id or assignment.session_id)
    run_id = signals.run_id or assignment.run_id
    if who != (assignment.session_key, assignment.session_id) or run_id != assignment.run_id:
        assignment = replace(
            assignment, session_key=who[0], session_id=who[1], run_id=run_id, updated_at=work.now
        )
    last = assignment.last_instruction
    spawned = last is not None and last.mode is Mode.SPAWN
    if signals.run_id and spawned and last is not None and not last.result.is_good:
        proved = replace(
            last,
            result=Result.ACCEPTED,
            result_at=work.now,
            run_id=signals.run_id,
            notes="confirmed: the task exists",
        )
        assignment = intents.with_dispatch(assignment, proved)
        work.note(
            assignment, "dispatch.accepted", dispatchId=last.dispatch_id, notes="confirmed: the task exists"
        )
    return assignment


def _is_active(work: Round, assignment: Assignment, node: Node, judged: Liveness) -> Assignment:
    work.due(judged.stalls_at)
    if assignment.status in (S.DISPATCHED, S.STALLED):
        assignment = work.move(assignment, S.ACTIVE, judged.why)
    if assignment.status is S.ACTIVE and node.status.is_waiting:
        if node.status is NodeStatus.TODO:
            node = work.move_node(node, NodeStatus.QUEUED, "work started")
        work.move_node(node, NodeStatus.IN_PROGRESS, "work started")
    return assignment


def _unblock_by_progress(
    work: Round, assignment: Assignment, node: Node, judged: Liveness, signals: Signals
) -> Assignment:
    """Resume after a commit or a message to the worker since the question: the user has helped directly."""
    asked = assignment.last_question
    if asked is None:
        return assignment
    told = [at for at in signals.told_at if at > asked.ts]
    helped = judged.progress_at is not None and judged.progress_at > asked.ts
    if not helped and not told:
        return assignment
    work.move_node(node, NodeStatus.IN_PROGRESS, "work resumed")
    return work.move(assignment, S.ACTIVE, "work resumed")


def hear(work: Round, assignment: Assignment, node: Node, signals: Signals) -> tuple[Assignment, Node]:
    """Apply all new reports; the newest sets the status.

    Reports from before the last instruction, or from another worker, do not affect the status.
    """
    worker = worker_of(signals.session_key)
    if worker and not may_report(worker, signals.session_id, assignment):
        return assignment, node
    said = _said(work, assignment, signals)
    candidates = work.of_session[signals.session_key]
    assignment, fresh = _fresh(work, work.assignments[assignment.assignment_id], said, candidates)
    began = began_at(assignment)
    waits = assignment.status is S.QUEUED
    standing = [report for report in fresh if report.at > began and not waits]
    now_said = [report.update for report in standing]
    said_at = min(standing[-1].at, work.now) if standing else work.now
    blocked = bool(now_said) and is_blocked(now_said[-1])
    if blocked and work.is_full():
        return assignment, node
    for report in fresh:
        assignment = _crystallized(work, assignment, node, report)
    going_on = [update for update in now_said if not is_blocked(update)]
    if going_on:
        assignment = _goes_on(
            work, _progressed(work, assignment, said_at), work.nodes[node.node_id], going_on[-1]
        )
    if blocked and assignment.status is not S.BLOCKED:
        reason = words.blockers_reason(now_said[-1].blockers or (), now_said[-1].summary or "")
        assignment = ask(work, _progressed(work, assignment, said_at), work.nodes[node.node_id], reason)
    return assignment, work.nodes[node.node_id]


def _fresh(
    work: Round, assignment: Assignment, said: Iterable[Report], candidates: int
) -> tuple[Assignment, list[Report]]:
    """New reports, each once; reports about something else are refused."""
    found: dict[str, Report] = {}
    for report in said:
        print_ = fingerprint(report.update)
        problem = not_about(report.update, assignment, candidates)
        if problem:
            assignment = _refused(work, assignment, print_, (problem,))
        elif print_ not in assignment.applied_updates:
            found[print_] = report
    return assignment, list(found.values())


def _said(work: Round, assignment: Assignment, signals: Signals) -> tuple[Report, ...]:
    """The reports, plus the update in the agent's newest message since it got the work.

    Prompts of llmc and messages of the user are never parsed. An invalid update is refused here.
    """
    began = began_at(assignment)
    own = [m for m in sampled(signals) if m.role == "assistant" and m.at > began and m.text.strip()]
    parsed = parse(own[-1].text) if own else Parsed()
    if parsed.problems:
        _refused(work, assignment, text_fingerprint(own[-1].text), parsed.problems)
    if parsed.update is None:
        return signals.reports
    return (*signals.reports, Report(own[-1].at, parsed.update, own[-1].message_id))


def _crystallized(work: Round, assignment: Assignment, node: Node, report: Report) -> Assignment:
    """Store what a report says."""
    update = report.update
    full = merged(update, work.crystals.get(node.node_id))
    crystal = of_report(work.ids(), assignment, node, full, work.now, report.message_id)
    work.crystallize(crystal)
    status = update.status.value if update.status else ""
    work.note(assignment, "work.reported", status=status, crystallizationId=crystal.crystallization_id)
    return work.put(_kept(assignment, fingerprint(update)))


def _progressed(work: Round, assignment: Assignment, said_at: float) -> Assignment:
    seen = max(said_at, assignment.last_observed_activity_at or said_at)
    return replace(ladder.progressed(assignment, work.now, work.now), last_observed_activity_at=seen)


def _goes_on(work: Round, assignment: Assignment, node: Node, update: Update) -> Assignment:
    """Mark the work active, unless the user blocked it.

    A report of done is only noted, since only landing confirms it.
    """
    if assignment.is_held or assignment.status is S.ACTIVE:
        work.put(assignment)
    else:
        assignment = work.move(assignment, S.ACTIVE, "reported by the worker")
    if node.status in (NodeStatus.QUEUED, NodeStatus.BLOCKED) and not assignment.is_held:
        work.move_node(node, NodeStatus.IN_PROGRESS, "reported by the worker")
    if claims_done(update):
        work.note(assignment, "work.says_done")
    elif update.status is Claim.DONE:
        work.note(assignment, "work.claim_refused", reason="the worker reported done without evidence")
    return assignment


def _refused(work: Round, assignment: Assignment, print_: str, problems: tuple[str, ...]) -> Assignment:
    """A bad report changes nothing and is logged once."""
    if print_ in assignment.applied_updates:
        return assignment
    work.note(assignment, "update.refused", problems=list(problems[:5]))
    return work.put(_kept(assignment, print_))


def _kept(assignment: Assignment, print_: str) -> Assignment:
    return replace(assignment, applied_updates=(*assignment.applied_updates, print_)[-MAX_KEPT:])


def ask(work: Round, assignment: Assignment, node: Node, reason: BlockedReason) -> Assignment:
    """Block the assignment and ask the user, in one change."""
    assignment = replace(work.drop_pending(assignment, "replaced by a question for the user"), reminders=0)
    text = words.question_text(work.goal, node, assignment, reason)
    assignment = work.move(assignment, S.BLOCKED, reason.text, blocked=reason)
    if node.status is NodeStatus.TODO:
        node = work.move_node(node, NodeStatus.QUEUED, "work started")
    work.move_node(node, NodeStatus.BLOCKED, reason.text, blocked=reason)
    context = work.goal.origin.origin_delivery_context
    assignment = work.send(assignment, Recovery.ESCALATE.value, Mode.ESCALATE, text, context)
    work.due(ladder.reminder_due(assignment, work.policy))
    return assignment


def remind(work: Round, assignment: Assignment) -> None:
    """Remind the user, a few times with long pauses; a question that was not delivered is sent again."""
    due = ladder.reminder_due(assignment, work.policy)
    if due is None or work.is_early(max(due, work.granted_until or due)):
        return
    asked = assignment.last_question
    node = work.nodes[assignment.work_node_id]
    reason = assignment.blocked_reason
    if asked is None or reason is None:
        work.later()
        return
    if work.is_full():
        return
    assignment = replace(assignment, reminders=assignment.reminders + 1)
    if asked.result.is_bad:
        work.send_again(assignment, asked, "assignment.escalated")
        return
    text = words.reminder_text(work.goal, node, assignment, reason)
    assignment = work.send(assignment, REMINDER, Mode.ESCALATE, text, asked.delivery_context)
    work.due(ladder.reminder_due(assignment, work.policy))


def recover(work: Round, assignment: Assignment, node: Node, signals: Signals, judged: Liveness) -> None:
    """Detect a stall and take the next recovery step."""
    doubtful = is_doubtful(assignment, signals, judged)
    if judged.state is State.ALIVE and not doubtful:
        return
    if judged.state is State.WAITING and signals.waiting is not None:
        if not work.is_full():
            # the worker waited for an answer, and a question to the user counts as progress
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
    if work.is_early(earliest):
        return
    if not failed and not doubtful and _wants_sample(work, assignment, signals):
        return
    why = judged.why if failed or not doubtful else "delivery of the last instruction is unconfirmed"
    assignment = work.move(assignment, S.STALLED, why)
    _step(work, assignment, node, ladder.Situation(reachable=signals.reachable, failed=failed), why)


def is_doubtful(assignment: Assignment, signals: Signals, judged: Liveness) -> bool:
    """Whether nothing confirms the last instruction: no task of its own, and no activity since."""
    last = assignment.last_instruction
    if last is None or not ladder.in_doubt(assignment) or judged.active_at is not None:
        return False
    no_run = signals.run is Run.NONE or is_of_former_run(assignment, signals)
    return last.mode is Mode.SEND or no_run


def _wants_sample(work: Round, assignment: Assignment, signals: Signals) -> bool:
    """Whether to read its last messages first; only if it seems stalled and the tick has samples left."""
    if signals.messages is not None or not assignment.session_key or work.room.samples <= 0:
        return False
    work.room = replace(work.room, samples=work.room.samples - 1)
    work.wants_samples.append(assignment.assignment_id)
    work.due(work.now)
    return True


def _step(work: Round, assignment: Assignment, node: Node, situation: ladder.Situation, why: str) -> None:
    """Take the next recovery step, if it is due."""
    step = ladder.next_step(assignment, node, situation, work.policy)
    advised = _advised(work, assignment, node, situation) if step is Recovery.ESCALATE else None
    text = advised[1] if advised else _words_of(work, step, assignment, node)
    earliest = ladder.not_before(assignment, words.instruction_hash(text), work.policy)
    if work.is_early(earliest) or work.is_full():
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
            last = stepped.last_instruction
            assert last is not None
            sent = work.move(
                work.expected(stepped), S.DISPATCHED, "sent again because delivery was unconfirmed"
            )
            work.send_again(sent, last, "assignment.resent")
        case Recovery.REASSIGN:
            _reassign(work, stepped, text)
        case Recovery.ESCALATE:
            ask(work, stepped, node, words.stalled_reason(node, why, situation.failed, stepped.advice))


def _advised(
    work: Round, assignment: Assignment, node: Node, situation: ladder.Situation
) -> tuple[str, str] | None:
    """The next step before asking the user, as purpose and text: a diagnosis, then the planner's message.

    Each once, and only after all other recovery steps.
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
            # a unique text: only the backoff delays a question
            return f"escalation {assignment.assignment_id} {len(assignment.dispatch_history)}"


def _reassign(work: Round, assignment: Assignment, text: str) -> None:
    """Reassign the work; from now on only the new session is observed."""
    moved = replace(
        work.expected(assignment),
        agent_id=HOME,
        spawned_by_key=assignment.session_key or assignment.spawned_by_key,
        session_key="",
        session_id="",
        run_id="",
    )
    moved = work.move(moved, S.DISPATCHED, "reassigned to another worker")
    work.send(moved, Recovery.REASSIGN.value, Mode.SPAWN, text)
