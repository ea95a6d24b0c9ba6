"""What the reports of a worker change; each is heard once. Pure."""

from collections.abc import Callable

from msgspec.structs import replace

from llmc.goals import ladder, words
from llmc.goals.crystals import of_report
from llmc.goals.liveness import Signals, began_at, sampled
from llmc.goals.model import Assignment, AssignmentStatus, BlockedReason, Node, NodeStatus
from llmc.goals.policy import may_report
from llmc.goals.round import Round
from llmc.goals.updates import (
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

#: fingerprints that are kept
MAX_KEPT = 50

Ask = Callable[[Round, Assignment, Node, BlockedReason], Assignment]


def hear(
    work: Round, assignment: Assignment, node: Node, signals: Signals, ask: Ask
) -> tuple[Assignment, Node]:
    """The assignment after every report that is new, oldest first; of its own worker's alone."""
    worker = signals.session_key.rpartition(":")[2]
    if worker and not may_report(worker, signals.session_id, assignment):
        return assignment, node
    for update in signals.reports:
        assignment = _heard(work, assignment, update, ask)
    text, parsed = _said(assignment, signals)
    if parsed.update is not None:
        assignment = _heard(work, assignment, parsed.update, ask)
    elif parsed.problems:
        assignment = _refused(work, assignment, text_fingerprint(text), parsed.problems)
    return assignment, work.nodes[node.node_id]


def _said(assignment: Assignment, signals: Signals) -> tuple[str, Parsed]:
    """The update in the agent's newest message since it was given the work; ours, and a person's, are never read."""
    began = began_at(assignment)
    own = [m for m in sampled(signals) if m.role == "assistant" and m.at > began and m.text.strip()]
    return (own[-1].text, parse(own[-1].text)) if own else ("", Parsed())


def _heard(work: Round, assignment: Assignment, update: Update, ask: Ask) -> Assignment:
    print_ = fingerprint(update)
    if print_ in assignment.applied_updates:
        return assignment
    problem = not_about(update, assignment)
    if problem:
        return _refused(work, assignment, print_, (problem,))
    if is_blocked(update) and work.room.dispatches <= 0:
        work.later()
        return assignment
    node = work.nodes[assignment.work_node_id]
    full = merged(update, work.crystals.get(node.node_id))
    crystal = of_report(work.ids(), assignment, node, full, work.now)
    work.crystallize(crystal)
    assignment = _kept(assignment, print_)
    status = update.status.value if update.status else ""
    work.note(assignment, "work.reported", status=status, crystallizationId=crystal.crystallization_id)
    if is_blocked(update) and assignment.status is AssignmentStatus.BLOCKED:
        return work.put(assignment)
    assignment = ladder.progressed(assignment, work.now, work.now)
    assignment = replace(assignment, last_observed_activity_at=work.now)
    if is_blocked(update):
        reason = words.blockers_reason(update.blockers or (), update.summary or "")
        return ask(work, assignment, node, reason)
    return _goes_on(work, assignment, node, update)


def _goes_on(work: Round, assignment: Assignment, node: Node, update: Update) -> Assignment:
    """It works, or says that it is done: which the merge decides."""
    if assignment.status is not AssignmentStatus.ACTIVE:
        assignment = work.move(assignment, AssignmentStatus.ACTIVE, "the worker reported")
    else:
        work.put(assignment)
    if node.status in (NodeStatus.QUEUED, NodeStatus.BLOCKED):
        work.move_node(node, NodeStatus.IN_PROGRESS, "the worker reported")
    if claims_done(update):
        work.note(assignment, "work.says_done")
    elif update.status is Claim.DONE:
        work.note(assignment, "work.claim_refused", reason="it says that it is done and shows nothing for it")
    return assignment


def _refused(work: Round, assignment: Assignment, print_: str, problems: tuple[str, ...]) -> Assignment:
    """A bad report changes nothing, and is told of once."""
    if print_ in assignment.applied_updates:
        return assignment
    work.note(assignment, "update.refused", problems=list(problems[:5]))
    return work.put(_kept(assignment, print_))


def _kept(assignment: Assignment, print_: str) -> Assignment:
    return replace(assignment, applied_updates=(*assignment.applied_updates, print_)[-MAX_KEPT:])
