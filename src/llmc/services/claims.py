"""Taking tasks and giving them back. The ledger is written before the file: it knows what to look for after a crash."""

import os
from functools import partial

from llmc.agents.task_files import TaskFiles
from llmc.errors import LlmcError, NotFound
from llmc.names import TaskId, WorkerName
from llmc.services.project import Project
from llmc.services.task_list import open_list
from llmc.state.ledger import Ledger
from llmc.tasks import claims
from llmc.tasks.books import Action, Books, Claim, entry
from llmc.tasks.model import TaskStatus
from llmc.tools.clock import now_unix
from llmc.tools.faults import step as fault_step
from llmc.workers.model import Assignment, WorkerRecord


def open_ledger(project: Project) -> Ledger:
    return Ledger(project.root.tasks_ledger, project.root.log("task_pool"))


def take(
    files: TaskFiles,
    ledger: Ledger,
    worker: str,
    task_id: TaskId,
    subject: str = "",
    dispatch: str = "",
    part: str = "",
) -> Claim | None:
    """Claim a task for a worker; None when somebody else was faster."""
    claim = Claim(os.urandom(6).hex(), task_id, worker)
    of_goal = {name: value for name, value in (("dispatch", dispatch), ("part", part)) if value}
    with fault_step("claim.ledger"):
        ledger.write(entry("claimed", claim, now_unix(), subject=subject, **of_goal))
    with fault_step("claim.file"):
        try:
            won = files.change(task_id, partial(claims.taken, claim=claim)).claim == claim.id
        except NotFound:
            won = False
        except LlmcError:
            ledger.write(entry("released", claim, now_unix(), reason="its file could not be written"))
            raise
    if not won:
        ledger.write(entry("released", claim, now_unix(), reason="somebody else was faster"))
        return None
    return claim


def claim_of(worker: str, assignment: Assignment) -> Claim:
    return Claim(assignment.claim, assignment.task_id, worker)


def about_to_land(project: Project, worker: WorkerName, assignment: Assignment, commit: str) -> None:
    """Should the state get lost while it lands, this finds the commit, and nobody does the task again."""
    claim = claim_of(worker, assignment)
    open_ledger(project).write(entry("landing", claim, now_unix(), commit=commit))


def complete(files: TaskFiles, ledger: Ledger, claim: Claim, commit: str) -> None:
    """Its work has landed. A file that is gone is no problem: the ledger knows."""
    with fault_step("claim.complete"):
        ledger.write(entry("completed", claim, now_unix(), commit=commit))
    _edit_if_there(files, claim.task, partial(claims.done, claim=claim))


def complete_for(project: Project, worker: WorkerName, assignment: Assignment, commit: str) -> None:
    complete(open_list(project), open_ledger(project), claim_of(worker, assignment), commit)


def give_back(
    files: TaskFiles,
    ledger: Ledger,
    claim: Claim,
    reason: str,
    *,
    cause: str = "",
    counts: bool = False,
    hold: str = "",
) -> Books:
    """The task is free again. What `counts` is a failed attempt; too many of them keep it back for a person."""
    action: Action = "failed" if counts else "released"
    said = {"reason": reason, "cause": cause, **({"hold": hold} if hold else {})}
    with fault_step("claim.release"):
        ledger.write(entry(action, claim, now_unix(), **said))
    books = ledger.books()
    edit = partial(claims.given_back, claim=claim, hold=books.kept_back(claim.task))
    _edit_if_there(files, claim.task, edit)
    return books


def let_go(project: Project, record: WorkerRecord, reason: str) -> None:
    """A person takes a worker from its task: the task is free again, unless it was given back before."""
    task = record.assignment
    if task is not None and open_ledger(project).books().holds(task.claim):
        free(project, claim_of(record.name, task), reason)


def free(project: Project, claim: Claim, reason: str) -> None:
    """A claim that nobody goes on with is given back, and that is told."""
    ledger = open_ledger(project)
    if project.config.auto.task_list_id:
        give_back(open_list(project), ledger, claim, reason)
    else:  # the list was taken out of the configuration since
        ledger.write(entry("released", claim, now_unix(), reason=reason))
    with project.store.transaction() as tx:
        tx.emit("task_released", worker=claim.worker, reason=reason, task_id=claim.task, cause="", ref=None)


def settle_files(files: TaskFiles, books: Books) -> list[TaskId]:
    """What the ledger knows as completed or given back is so in the files, too; the tasks that were put right.

    After a crash between the two, or when somebody put a completed task back by hand without `tasks requeue`.
    """
    put_right = []
    for task in files.listing().tasks.values():
        claim = Claim(task.claim, task.id, task.owner)
        if task.id in books.completed and task.status is not TaskStatus.COMPLETED:
            _edit_if_there(files, task.id, partial(claims.done, claim=claim))
            put_right.append(task.id)
        elif task.id not in books.completed and books.has_ended(task.claim, task.id):
            edit = partial(claims.given_back, claim=claim, hold=books.kept_back(task.id))
            _edit_if_there(files, task.id, edit)
            put_right.append(task.id)
    return put_right


def _edit_if_there(files: TaskFiles, task_id: TaskId, edit: "claims.Edit") -> None:
    try:
        files.change(task_id, edit)
    except NotFound:
        return  # the client, or a person, removed it meanwhile
