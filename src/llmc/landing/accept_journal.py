"""An accept as others see it: its steps, how it can end, and what its journal means while it is interrupted."""

from collections.abc import Callable

from msgspec import Struct

from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, Refused
from llmc.base.names import TaskKey
from llmc.records.state import NOT_DIRTY, Due, due_fields
from llmc.records.store import Transaction
from llmc.records.worker import AcceptJournal, Reviewed
from llmc.repo.project import Project

#: the steps in their order; `finish` ends the journal
STEPS = ("check", "merge", "validate", "land", "wait", "verify", "complete", "reset", "finish")
#: steps in the journals of an older llmc: what it had made is made again
FORMER = {"rebase": "merge", "squash": "merge"}
#: what `progress` is told before a change is validated and landed that is not the one reviewed
CHANGED = "changed"
#: how often a landing that cannot answer at once is asked
POLL_S = 30.0

Progress = Callable[[str], None]


class Accepted(Struct, frozen=True):
    worker: str
    #: empty when all of the work was on the branch already, and nothing had to land
    commit: str
    subject: str
    reviewed: Reviewed
    #: the trash ref of what the worker changed while its work landed; empty: nothing
    late: str = ""


class WorkChanged(Refused):
    """The worker has something else now than what was taken; nothing landed, and nothing of it is lost."""


class Unseen(Refused):
    """What would land is not the change that a person reviewed; nothing landed, and they decide."""


class Waiting(LlmcError):
    """It is on its way to the branch, and nobody has to stay with it: the next accept asks what became of it."""


class SentBack(Refused):
    """Where it was to land they want something else; nothing landed, the accept has ended, and the worker has to know."""


class Cancelled(Refused):
    """A person had something to say to the worker while its work was validated."""


def may_have_landed(journal: AcceptJournal | None) -> bool:
    """Whether an accept has come so far that only its end can tell what became of the work."""
    return journal is not None and position(journal.step) >= STEPS.index("land")


def is_past_landing(journal: AcceptJournal | None) -> bool:
    return journal is not None and position(journal.step) > STEPS.index("wait")


def waits(journal: AcceptJournal | None) -> bool:
    """Whether it is on its way to the branch, without anybody at work on it."""
    return journal is not None and journal.step == "wait"


def is_due(journal: AcceptJournal) -> bool:
    """Whether to go on with it now: one that waits is asked now and then."""
    return (
        not waits(journal) or now_unix() - journal.polled_unix >= POLL_S or now_unix() < journal.polled_unix
    )


def position(step_name: str) -> int:
    return STEPS.index(FORMER.get(step_name, step_name))


def cancel(project: Project, name: str, why: str) -> bool:
    """End an accept that has not begun to land; whether there was one. The caller holds the worker's lock."""
    journal = project.store.worker(name).accept
    if journal is None or may_have_landed(journal):
        return False
    with project.store.transaction() as tx:
        tx.update(name, accept=None)
        tx.emit("accept_failed", worker=name, reason=why, step=journal.step)
    return True


def completed(tx: Transaction, name: str, commit: str | None) -> None:
    """The worker's task, if it had one, counts as completed."""
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
