"""Taking tasks and giving them back. The ledger is written before the file: it knows what to look for after a crash."""

import os
from functools import partial

from llmc.agents.task_files import NoTask, TaskFiles
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, NotFound
from llmc.base.faults import step as fault_step
from llmc.base.names import TaskKey, WorkerName
from llmc.records.books import Action, Books, Claim, entry
from llmc.records.ledger import Ledger
from llmc.records.task import Task, TaskStatus
from llmc.records.worker import Assignment, WorkerRecord
from llmc.repo.project import Project
from llmc.tasks.rules import claims
from llmc.tasks.task_list import open_ledger as open_ledger
from llmc.tasks.task_list import open_list


def take(
    files: TaskFiles,
    ledger: Ledger,
    worker: str,
    task: TaskKey,
    subject: str = "",
    dispatch: str = "",
    part: str = "",
) -> Claim | None:
    """Claim a task for a worker; None when somebody else was faster."""
    claim = Claim(os.urandom(6).hex(), task, worker)
    of_goal = {name: value for name, value in (("dispatch", dispatch), ("part", part)) if value}
    with fault_step("claim.ledger"):
        ledger.write(entry("claimed", claim, now_unix(), subject=subject, **of_goal))
    with fault_step("claim.file"):
        try:
            won = files.of(task.list).change(task.id, partial(claims.taken, claim=claim)).claim == claim.id
        except (NotFound, NoTask):
            won = False
        except LlmcError:
            ledger.write(entry("released", claim, now_unix(), reason="its file could not be written"))
            raise
    if not won:
        ledger.write(entry("released", claim, now_unix(), reason="somebody else was faster"))
        return None
    return claim


def claim_of(worker: str, assignment: Assignment) -> Claim:
    return Claim(assignment.claim, assignment.task, worker)


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
        about = {"worker": claim.worker, "reason": reason, **claim.task.fields()}
        tx.emit("task_released", **about, cause="", ref=None)


def landed_as(project: Project, commit: str) -> TaskKey | None:
    """The task whose work landed as this commit; None for a person's own, and for one that was taken back since."""
    books = open_ledger(project).books()
    task = books.landed_as(commit)
    return task if task is not None and books.is_completed(task) else None


def take_back(project: Project, task: TaskKey, reason: str) -> Task | None:
    """A task whose work was undone is pending again, in ledger and list; can be repeated after a crash.

    None, and it stays completed, where its file is gone: nothing is left to do it from, and what waits for it goes on.
    """
    ledger = open_ledger(project)
    task = ledger.books().whole(task)
    files = open_list(project).of(task.list)
    try:
        seen = files.get(task.id)
    except NotFound:
        return None
    if ledger.books().is_completed(task):
        with fault_step("claim.take_back"):
            ledger.write(entry("requeued", Claim(seen.claim, task, seen.owner), now_unix(), reason=reason))
    if seen.status is not TaskStatus.COMPLETED:
        return seen  # done before a crash, or somebody has begun it since
    return files.change(task.id, partial(claims.freed, seen=seen))


def settle_files(files: TaskFiles, books: Books) -> list[TaskKey]:
    """What a crash left between ledger and file is finished in the file; the tasks that were put right.

    Only where our own claim is on the file: what else a file says is somebody's word (see `in_question`).
    """
    put_right = []
    for task in files.listing().tasks.values():
        key = files.key(task.id)
        claim = Claim(task.claim, key, task.owner)
        if not books.has_ended(task.claim, key):
            continue
        edit = partial(claims.given_back, claim=claim, hold=books.kept_back(key))
        if books.is_completed(key):
            edit = partial(claims.done, claim=claim)
        _edit_if_there(files, key, edit)
        put_right.append(key)
    return put_right


def _edit_if_there(files: TaskFiles, task: TaskKey, edit: "claims.Edit") -> None:
    try:
        files.of(task.list).change(task.id, edit)
    except (NotFound, NoTask):
        return  # somebody removed it meanwhile, or broke it: the ledger knows
