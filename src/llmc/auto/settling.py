"""What a crash, or a lost state, left behind is put right before auto mode gives out tasks."""

from llmc.base.names import WorkerName
from llmc.landing import accept, fast_forward
from llmc.records.books import Books, Claim
from llmc.records.worker import WorkerRecord
from llmc.repo.project import Project
from llmc.tasks import claiming
from llmc.tasks.queue import TaskQueue

#: why a claim goes back that a crash left behind
UNKNOWN_CLAIM = "its worker was not at it after a restart"


def settle(project: Project, queue: TaskQueue) -> None:
    """Claims, files and records agree again: what has landed is completed, what no record goes on with is free."""
    for claim in list(queue.ledger.books().claims.values()):
        settle_claim(project, queue, claim)
    claiming.settle_files(queue.files, queue.ledger.books())


def settle_claim(project: Project, queue: TaskQueue, claim: Claim) -> None:
    """A claim that its worker's record does not have is over, one way or the other."""
    books = queue.ledger.books()
    record = project.store.read().workers.get(WorkerName(claim.worker))
    if _landed_unseen(project, books, claim, record):
        _complete(project, queue, books, claim)
    elif not _is_at(record, claim):
        _free(project, queue, claim)


def _is_at(record: WorkerRecord | None, claim: Claim) -> bool:
    return record is not None and record.assignment is not None and record.assignment.claim == claim.id


def _landed_unseen(project: Project, books: Books, claim: Claim, record: WorkerRecord | None) -> bool:
    """Its commit is on the branch, and the accept that brought it there is not known any more: the state got lost.

    Whoever began the task again would find it done.
    """
    if record is not None and record.accept is not None and _is_at(record, claim):
        return False  # it is finished from its journal
    commit = books.landing.get(claim.id)
    return bool(commit) and fast_forward.is_landed(project, str(commit))


def _complete(project: Project, queue: TaskQueue, books: Books, claim: Claim) -> None:
    commit = books.landing[claim.id]
    claiming.complete(queue.files, queue.ledger, claim, commit)
    with project.store.transaction() as tx:
        accept.count_completed(tx, claim.worker, claim.task, commit, books.subjects.get(claim.task, ""))


def _free(project: Project, queue: TaskQueue, claim: Claim) -> None:
    claiming.give_back(queue.files, queue.ledger, claim, UNKNOWN_CLAIM)
    with project.store.transaction() as tx:
        said = {"worker": claim.worker, **claim.task.fields(), "reason": UNKNOWN_CLAIM}
        tx.emit("task_released", **said, cause="", ref=None)
