"""The task list as a queue for auto workers: choose the next task and claim it."""

import contextlib
import threading
import tomllib
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Protocol

from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, UsageError
from llmc.base.given import written_out
from llmc.base.names import TaskId, TaskKey, WorkerName
from llmc.records.books import Books, Claim
from llmc.records.task import Task, TaskStatus, in_order
from llmc.records.worker import Assignment, WorkerRecord
from llmc.repo.project import Project
from llmc.tasks import task_list
from llmc.tasks.rules import draft
from llmc.tasks.rules.claims import (
    believed,
    is_abandoned,
    is_ours,
    is_out_of_date,
    is_unowned,
    pending_again,
    still_at_it,
)
from llmc.tasks.rules.graph import Index, Stuck, choose, stuck
from llmc.tasks.source import TaskSource, source_of
from llmc.tasks.worker_tasks import Origins, show_made


def claim_of(worker: str, assignment: Assignment) -> Claim:
    return Claim(assignment.claim, assignment.task, worker)


def about_to_land(project: Project, worker: WorkerName, assignment: Assignment, commit: str) -> None:
    """Record the commit before it lands: if the state is lost meanwhile, the task is not done twice."""
    source_of(project).about_to_land(claim_of(worker, assignment), commit)


def complete_for(project: Project, worker: WorkerName, assignment: Assignment, commit: str) -> None:
    source_of(project).finish(claim_of(worker, assignment), commit)


def release_task_of(project: Project, record: WorkerRecord, reason: str) -> None:
    """Release the task of a worker that is reset or removed, unless it was released before."""
    task = record.assignment
    if task is not None and (source := source_of(project)).books().holds(task.claim):
        release(project, source, claim_of(record.name, task), reason)


def release(project: Project, source: TaskSource, claim: Claim, reason: str) -> None:
    """Release a claim, not as a failed attempt, and report it."""
    source.release(claim, reason)
    with project.store.transaction() as tx:
        about = {"worker": claim.worker, "reason": reason, **claim.task.fields()}
        tx.emit("task_released", **about, cause="", ref=None)


class BrokenList(LlmcError):
    """The list has invalid dependencies: auto mode does not start until the user fixes them."""


def refuse_broken(wrong: Stuck, held: Collection[TaskId]) -> None:
    """Raise BrokenList with all problems of the list, except those of tasks that are held for the user."""
    problems = [said for task, said in wrong.items() if task not in held]
    if problems:
        raise BrokenList(
            f"cannot use the task list: {'; '.join(problems)}",
            hint="Fix these problems (`llmc tasks list` shows the tasks), then retry the command that failed.",
        )


class Queue(Protocol):
    """Where auto workers get their tasks. Workers may ask concurrently."""

    #: seconds until a task whose agent crashed can start, of those that the last `take_next` could take; 0: no such task
    waits_s: float

    @property
    def source(self) -> TaskSource: ...

    @property
    def unsettled(self) -> bool:
        """Whether another scan is needed."""
        ...

    def take_next(
        self,
        worker: str,
        labels_in_use: Collection[str],
        crash_backoff_s: float = 0.0,
        only: Collection[TaskKey] | None = None,
    ) -> tuple[Task, Claim] | None:
        """Claim the next task for a worker, of `only` these; None when none is ready."""
        ...

    def count_ready(self, free: int = 0) -> int:
        """Number of tasks that could start now.

        `free`: workers that would take one. In a fleet, a node with more of them than tasks is called for the next one.
        """
        ...

    def check(self) -> None:
        """Raise BrokenList with all problems, except those held because they appeared while auto mode ran."""
        ...


class TaskQueue:
    """One per daemon. Workers may ask concurrently; requests are served one at a time."""

    def __init__(self, source: TaskSource, project: Project | None = None) -> None:
        """`project`: the root whose workers may make tasks, and whose attention list is updated; None: neither."""
        self.source = source
        self._project = project
        self._origins = Origins(project, source) if project is not None else None
        #: tasks in progress by their files, but without an owner
        self._unowned: set[TaskId] = set()
        self._undecided: frozenset[TaskId] = frozenset()
        self._turn = threading.Lock()
        self._index = Index()
        #: changes that the source reported and the index does not have yet: a scan may fail at any point
        self._news: dict[TaskId, Task | None] = {}
        self._is_first_look = True
        self.waits_s = 0.0

    @property
    def unsettled(self) -> bool:
        """Whether another scan is needed: one failed, or a task was being written, may be a worker's, or has no owner."""
        return self.source.unsettled or any((self._news, self._undecided, self._unowned))

    def take_next(
        self,
        worker: str,
        labels_in_use: Collection[str],
        crash_backoff_s: float = 0.0,
        only: Collection[TaskKey] | None = None,
    ) -> tuple[Task, Claim] | None:
        """Claim the next task for a worker, of `only` these; None when none is ready.

        `crash_backoff_s`: how long a task waits after its agent crashed; `waits_s` is the time left.
        """
        with self._turn:
            books = self._look()
            ready = self._startable(books, crash_backoff_s, only)
            while chosen := choose(ready, labels_in_use):
                self.source.note(f"selected; ready tasks: {len(ready)}", worker=worker, task=chosen.id)
                key = self.source.key(chosen.id)
                task = believed(chosen, books.made.get(key))
                claim = self.source.claim(key, worker, task.subject, task.dispatch, task.part)
                if claim is not None:
                    return task, claim
                ready.remove(chosen)
            return None

    def _startable(self, books: Books, backoff_s: float, only: Collection[TaskKey] | None) -> list[Task]:
        """Ready tasks, of `only` these, that are not held back, and do not wait after a crash."""
        now, ready = now_unix(), self._index.ready - self._undecided
        keys = {task_id: self.source.key(task_id) for task_id in ready}
        if only is not None:
            keys = {task_id: key for task_id, key in keys.items() if key in only}
        waits = {i: books.waits_s(key, backoff_s, now) for i, key in keys.items() if not books.kept_back(key)}
        self.waits_s = min((wait for wait in waits.values() if wait), default=0.0)
        return [self._index.tasks[task_id] for task_id, wait in waits.items() if not wait]

    def count_ready(self, free: int = 0) -> int:
        """Number of tasks that could start now."""
        with self._turn:
            proposed = self._look().proposed_in(self.source.list_name)
            ready = self._index.ready
            return len(ready) - len(ready & (proposed | self._undecided))  # iterates over the small sets only

    def check(self) -> None:
        """Raise BrokenList with all problems, except those held because they appeared while auto mode ran."""
        with self._turn:
            self._look(starting=True)

    def _look(self, starting: bool = False) -> Books:
        """Update the index from tasks and books. Stuck tasks cannot start, but do not stop others."""
        self._news |= self.source.changes().tasks
        books = self.source.books()
        self._put_back(books)
        self._note_new()
        self._index.apply(self._news, books.completed_in(self.source.list_name))
        if self._origins is not None:
            self._undecided = self._origins.undecided(self._news, self._index.tasks)
            books = self.source.books()
        self._free_abandoned(books)
        self._news = {}
        unreadable = {bad.task_id for bad in self.source.unreadable}
        wrong = stuck(self._index.dangling, self._index.cycles, unreadable)
        held: Collection[TaskId] = ()
        if self._project is not None:
            held = task_list.tell_running(
                self._project, self.source, books, self._index.tasks, wrong, starting
            )
        if starting:
            refuse_broken(wrong, held)
        return books

    def _note_new(self) -> None:
        """Log new tasks: one line each, or their number at the start."""
        new = {i: task for i, task in self._news.items() if task is not None and i not in self._index.tasks}
        if self._is_first_look:
            self.source.note(f"tasks in {self.source.where()}: {len(new)}")
            new = {}
        self._is_first_look = False
        for task_id in sorted(new, key=in_order):
            self.source.note(f"discovered: {new[task_id].subject[:100]}", task=task_id)

    def _put_back(self, books: Books) -> None:
        """Restore our claims in the files. An agent may mark its task completed, but only landing completes it."""
        for claim in books.claims.values():
            task = self._news.get(claim.task.id) if claim.task.list == self.source.list_name else None
            if task is None or not is_ours(task, claim):
                continue
            if task.status is TaskStatus.COMPLETED or not task.claim:
                edit = partial(still_at_it, claim=claim)
                self._news[task.id] = self.source.edit(self.source.key(task.id), edit)
        for task_id, task in self._news.items():
            made = books.made.get(self.source.key(task_id)) if task is not None else None
            if task is not None and made is not None and is_out_of_date(task, made):
                self._news[task_id] = show_made(self.source, books, task_id) or task

    def _free_abandoned(self, books: Books) -> None:
        """Make tasks pending again that are in progress without an owner, as no worker would take them."""
        for task_id, task in self._news.items():
            marked = task is not None and is_unowned(task)
            (self._unowned.add if marked else self._unowned.discard)(task_id)
        at_work = self._origins.at_work() if self._unowned and self._origins is not None else ()
        abandoned = [
            task_id
            for task_id in self._unowned - self._undecided
            if is_abandoned(self._index.tasks[task_id], self.source.key(task_id), books, at_work)
        ]
        for task_id in sorted(abandoned, key=in_order):
            with contextlib.suppress(LlmcError):  # locked by a client, or gone: the next scan handles it
                self._free(task_id, books)

    def _free(self, task_id: TaskId, books: Books) -> None:
        after = self.source.edit(self.source.key(task_id), pending_again)
        self._unowned.discard(task_id)
        self._index.apply({task_id: after}, books.completed_in(self.source.list_name))
        if after.status is TaskStatus.PENDING:
            self.source.note("pending again; the task was in progress without an owner", task=task_id)
            if self._project is not None:
                reason, about = "the task was in progress without an owner", self.source.key(task_id).fields()
                with self._project.store.transaction() as tx:
                    tx.emit("task_released", **about, reason=reason, cause="", ref=None)


def no_task_list() -> UsageError:
    return UsageError(
        "auto mode needs a task list, but auto.task_list_id is not set",
        hint="Set one: llmc config set auto.task_list_id my-project",
    )


def open_queue(project: Project) -> Queue:
    if not project.config.fleet.database:
        return TaskQueue(source_of(project), project)
    from llmc.tasks.shared import open_shared
    from llmc.tasks.shared_queue import SharedQueue

    return SharedQueue(open_shared(project), project)


def contexts(project: Project) -> dict[str, draft.Context]:
    """Prologue and epilogue for each label; empty without the file."""
    path = Path(project.config.auto.context_config_path).expanduser()
    path = path if path.is_absolute() else Path(project.source) / path
    try:
        return draft.read_contexts(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, draft.BadContext) as error:
        raise LlmcError(f"cannot use the task context file {path}: {error}") from error


def text_of(project: Project, task: Task) -> str:
    """The prompt for a worker. Escape sequences from a pasted log are made visible, so that no terminal obeys them."""
    return written_out(draft.task_text(task, draft.of(task, contexts(project))))
