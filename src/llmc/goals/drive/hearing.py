"""Applies the reports of a worker, each once. Pure."""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from llmc.goals.drive import ladder, words
from llmc.goals.drive.ladder import may_report, worker_of
from llmc.goals.drive.liveness import Report, Signals, began_at, sampled
from llmc.goals.drive.round import Round
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
from llmc.goals.model import Assignment, AssignmentStatus, BlockedReason, Node, NodeStatus
from llmc.goals.report.crystals import of_report

MAX_KEPT = 50

Ask = Callable[[Round, Assignment, Node, BlockedReason], Assignment]


def hear(
    work: Round, assignment: Assignment, node: Node, signals: Signals, ask: Ask
) -> tuple[Assignment, Node]:
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
    waits = assignment.status is AssignmentStatus.QUEUED
    standing = [report for report in fresh if report.at > began and not waits]
    now_said = [report.update for report in standing]
    said_at = min(standing[-1].at, work.now) if standing else work.now
    blocked = bool(now_said) and is_blocked(now_said[-1])
    if blocked and work.room.dispatches <= 0:
        work.later()
        return assignment, node
    for report in fresh:
        assignment = _crystallized(work, assignment, node, report)
    going_on = [update for update in now_said if not is_blocked(update)]
    if going_on:
        assignment = _goes_on(
            work, _got_on(work, assignment, said_at), work.nodes[node.node_id], going_on[-1]
        )
    if blocked and assignment.status is not AssignmentStatus.BLOCKED:
        reason = words.blockers_reason(now_said[-1].blockers or (), now_said[-1].summary or "")
        assignment = ask(work, _got_on(work, assignment, said_at), work.nodes[node.node_id], reason)
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


def _got_on(work: Round, assignment: Assignment, said_at: float) -> Assignment:
    seen = max(said_at, assignment.last_observed_activity_at or said_at)
    return replace(ladder.progressed(assignment, work.now, work.now), last_observed_activity_at=seen)


def _goes_on(work: Round, assignment: Assignment, node: Node, update: Update) -> Assignment:
    """The worker is at work, or reports done, which only landing confirms."""
    if assignment.status is not AssignmentStatus.ACTIVE:
        assignment = work.move(assignment, AssignmentStatus.ACTIVE, "reported by worker")
    else:
        work.put(assignment)
    if node.status in (NodeStatus.QUEUED, NodeStatus.BLOCKED):
        work.move_node(node, NodeStatus.IN_PROGRESS, "reported by worker")
    if claims_done(update):
        work.note(assignment, "work.says_done")
    elif update.status is Claim.DONE:
        work.note(assignment, "work.claim_refused", reason="reported done without evidence")
    return assignment


def _refused(work: Round, assignment: Assignment, print_: str, problems: tuple[str, ...]) -> Assignment:
    """A bad report changes nothing and is logged once."""
    if print_ in assignment.applied_updates:
        return assignment
    work.note(assignment, "update.refused", problems=list(problems[:5]))
    return work.put(_kept(assignment, print_))


def _kept(assignment: Assignment, print_: str) -> Assignment:
    return replace(assignment, applied_updates=(*assignment.applied_updates, print_)[-MAX_KEPT:])
