"""The steps and outcomes of an accept, and how to read the journal of an interrupted one."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, Refused
from llmc.base.names import TaskKey
from llmc.records.state import NOT_DIRTY, Due, due_fields
from llmc.records.store import Transaction
from llmc.records.worker import AcceptJournal, Reviewed, Seen, WorkerRecord
from llmc.repo import git
from llmc.repo.project import Project

#: the steps in their order; `finish` ends the journal
STEPS = ("check", "merge", "validate", "land", "wait", "verify", "complete", "reset", "finish")
#: steps in journals of an older llmc, and the step to repeat instead
_FORMER = {"rebase": "merge", "squash": "merge"}
#: passed to `progress` before a change lands that differs from the reviewed one
CHANGED = "changed"
#: how often a pending landing is polled
POLL_S = 30.0

Progress = Callable[[str], None]


class Accepted(Struct, frozen=True):
    worker: str
    #: empty if every change was already on the branch
    commit: str
    subject: str
    reviewed: Reviewed
    #: the trash ref of changes made while the work landed; empty: none
    late: str = ""


class WorkChanged(Refused):
    """The worker's work changed during the accept; nothing landed, and nothing is lost."""


class Unseen(Refused):
    """The change differs from the reviewed one; nothing landed, the user decides.

    `commit_message` and `author` would land. To land exactly this change, pass `lands` to `accept` as `agreed`.
    """

    def __init__(self, text: str, *, hint: str, lands: Seen, message: str, author: str) -> None:
        super().__init__(text, hint=hint)
        self.lands = lands
        self.commit_message = message
        self.author = author


class NotAsked(Refused):
    """The worker's commit is not the one that the user was asked about; nothing landed."""

    def __init__(self, name: str, asked: str, now: str) -> None:
        super().__init__(
            f"nothing landed: the commit from {name} changed from {asked[:9]} to {now[:9]} before you confirmed"
        )


class Waiting(LlmcError):
    """The landing is pending; the next accept or undo polls it."""


class LandingRejected(Refused):
    """The landing was rejected; nothing landed, and the accept or undo has ended. A worker gets the reason."""


class Cancelled(Refused):
    """The accept was cancelled during validation, by a message to the worker."""


def may_have_landed(journal: AcceptJournal | None) -> bool:
    """Whether an accept is far enough along that its work may have landed."""
    return journal is not None and position(journal.step) >= STEPS.index("land")


def is_past_landing(journal: AcceptJournal | None) -> bool:
    return journal is not None and position(journal.step) > STEPS.index("wait")


def is_due(journal: AcceptJournal) -> bool:
    """Whether to resume the accept now; a pending landing is polled at intervals."""
    return journal.step != "wait" or not 0 <= now_unix() - journal.polled_unix < POLL_S


def position(step_name: str) -> int:
    return STEPS.index(_FORMER.get(step_name, step_name))


def cancel(project: Project, name: str, why: str) -> bool:
    """Cancel an accept that has not started to land; whether there was one. The caller holds the worker's lock."""
    journal = project.store.worker(name).accept
    if journal is None or may_have_landed(journal):
        return False
    with project.store.transaction() as tx:
        tx.update(name, accept=None)
        tx.emit("accept_failed", worker=name, reason=why, step=journal.step)
    return True


def completed(tx: Transaction, name: str, commit: str | None) -> None:
    """Record that the worker's task is completed, if it had one."""
    task = tx.worker(name).assignment
    if task is not None:
        count_completed(tx, name, task.task, commit, task.subject)


def count_completed(tx: Transaction, name: str, task: TaskKey, commit: str | None, subject: str) -> None:
    auto = tx.state.auto
    tx.update_auto(
        tasks_completed=auto.tasks_completed + 1,
        last_task_completion_unix=tx.now,
        **due_fields((*auto.due, Due(task, name)) if commit else auto.due),
        **NOT_DIRTY,
    )
    tx.emit("task_completed", worker=name, **task.fields(), commit=commit, subject=subject)


def resumed(project: Project, record: WorkerRecord) -> WorkerRecord:
    """Convert the journal of an older llmc, which rebased the worktree first."""
    journal = record.accept
    assert journal is not None
    if journal.step in STEPS and not journal.rebased:
        return record
    tip = journal.rebased or git.head(Path(record.worktree_path))
    new = replace(journal, step=_FORMER.get(journal.step, journal.step), tip=tip, rebased="")
    with project.store.transaction() as tx:
        return tx.update(record.name, accept=new)
