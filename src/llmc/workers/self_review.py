"""Self-review: a second prompt in which the agent reviews its own work before the user does.

The Stop that makes it due is recorded first (`self_review` in the worker's record). The next check of the worker
sends the prompt, once. If that fails, the work goes to human review as it is, with the reason.
"""

from llmc.agents.protocol import ClientStatus
from llmc.base.faults import step as fault_step
from llmc.base.panes import Pane
from llmc.base.processes import wait_until
from llmc.landing.prompts import self_review_prompt
from llmc.records.transitions import step
from llmc.records.worker import Obstacle, Outcome, SelfReview, Status, WorkerRecord
from llmc.repo.project import Project
from llmc.sessions import intake, submit
from llmc.sessions.rules import decide
from llmc.sessions.rules.decide import GitFacts, Todo
from llmc.sessions.sessions import is_taken, status_of

#: a client may look busy for a moment after its Stop
SETTLE_S = 0.5


def attend(project: Project, record: WorkerRecord) -> WorkerRecord:
    """Advance a worker's self-review; the caller holds its lock.

    Does nothing while the user has the worker, or a dialog or another turn is open.
    """
    todo = decide.todo(record)
    if todo is None:
        return record
    pane = project.pane(record)
    if not isinstance(pane, Pane) or pane.dead or is_taken(record, pane):
        return record
    if not _was_typed(record) and not _rests(record, pane):
        return record
    facts = intake.git_facts(project, record)
    if facts is None or facts.rebasing:
        return record
    if todo is Todo.GIVE_UP or not facts.ahead:
        return _give_up(project, record, facts)
    with fault_step("self_review.prompt"):
        receipt = _send(project, record) if todo is Todo.SEND else submit.deliver(project, record.name)
    after = project.store.worker(record.name)
    # The user came after the check above: send it when they leave. For an auto worker, send it later whatever the user
    # left in the way, because its work would land without a self-review.
    if receipt.obstacle in (Obstacle.HELD, Obstacle.ATTACHED) or (receipt.met_a_person and record.auto):
        with project.store.transaction() as tx:
            return tx.update(record.name, self_review=SelfReview.DUE)
    return after if receipt.outcome.arrived else _give_up(project, after, facts)


def _send(project: Project, record: WorkerRecord) -> submit.Receipt:
    text = self_review_prompt(project, record)
    return submit.submit(
        project,
        record.name,
        decide.KIND,
        text,
        then=Status.REVIEWING,
        self_review=SelfReview.SENT,
    )


def _was_typed(record: WorkerRecord) -> bool:
    """Whether the prompt was typed: the agent may already be busy with it; submit finds out."""
    on_its_way = decide.is_on_its_way(record.delivery)
    return on_its_way and record.delivery is not None and record.delivery.outcome is Outcome.TYPED


def _rests(record: WorkerRecord, pane: Pane) -> bool:
    """Whether the agent would run the prompt as its own turn."""
    busy = (ClientStatus.BUSY, ClientStatus.WAITING)
    return wait_until(lambda: status_of(record, pane) not in busy, SETTLE_S)


def _give_up(project: Project, record: WorkerRecord, facts: GitFacts) -> WorkerRecord:
    """Hand the work to human review as it is."""
    name, why = record.name, decide.failure(record.delivery)
    with fault_step("self_review.give_up"), project.store.transaction() as tx:
        if record.self_review is SelfReview.DUE:  # its commits are gone, so nothing was sent
            record = tx.update(name, self_review=SelfReview.WANTED)
            change = decide.after_stop(record, facts) if record.status is Status.WORKING else None
            return tx.move(name, change) if change else record
        tx.update(name, self_review=SelfReview.DONE)
        if record.delivery is not None and record.delivery.outcome.arrived:
            return tx.worker(name)  # the self-review ended with the agent's process
        tx.emit("self_review_failed", worker=name, reason=why)
        if record.status is Status.NEEDS_REVIEW:
            return tx.update(name, reason=why)
        with_commits = step(Status.NEEDS_REVIEW, why, commit_sha=facts.head)
        change = with_commits if facts.ahead else decide.after_stop(record, facts)
        return tx.move(name, change) if change else tx.worker(name)
