"""The task list as a queue for auto workers: what comes next, claimed so that nobody else has it."""

import contextlib
import threading
import tomllib
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, NotFound, UsageError
from llmc.base.faults import step as fault_step
from llmc.base.given import written_out
from llmc.base.names import TaskId, TaskKey, WorkerName
from llmc.records.books import Books, Claim
from llmc.records.task import Changes, Task, TaskStatus, in_order
from llmc.records.worker import Assignment, WorkerRecord
from llmc.repo.project import Project
from llmc.tasks import task_list
from llmc.tasks.rules import claims, draft
from llmc.tasks.rules.claims import (
    believed,
    is_nobodys,
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
    """Should the state get lost while it lands, this finds the commit, and nobody does the task again."""
    source_of(project).about_to_land(claim_of(worker, assignment), commit)


def complete_for(project: Project, worker: WorkerName, assignment: Assignment, commit: str) -> None:
    source_of(project).finish(claim_of(worker, assignment), commit)


def let_go(project: Project, record: WorkerRecord, reason: str) -> None:
    """A person takes a worker from its task: the task is free again, unless it was given back before."""
    task = record.assignment
    if task is not None and source_of(project).books().holds(task.claim):
        free(project, claim_of(record.name, task), reason)


def free(project: Project, claim: Claim, reason: str) -> None:
    """A claim that nobody goes on with is given back, and that is told."""
    source_of(project).release(claim, reason)
    with project.store.transaction() as tx:
        about = {"worker": claim.worker, "reason": reason, **claim.task.fields()}
        tx.emit("task_released", **about, cause="", ref=None)


def take_back(project: Project, task: TaskKey, reason: str) -> Task | None:
    """A task whose work was undone is pending again, in books and list; can be repeated after a crash.

    None, and it stays completed, where the task is gone: nothing is left to do it from, and what waits for it goes on.
    """
    source = source_of(project)
    task = source.books().whole(task)
    try:
        seen = source.one(task)
    except NotFound:
        return None
    if source.books().is_completed(task):
        with fault_step("claim.take_back"):
            source.write("requeued", Claim(seen.claim, task, seen.owner), reason=reason)
    if seen.status is not TaskStatus.COMPLETED:
        return seen  # done before a crash, or somebody has begun it since
    return source.edit(task, partial(claims.freed, seen=seen))


#: is shown the list at each look, and what is stuck in it; says which of that is held for a person
Tell = Callable[[TaskSource, Books, Mapping[TaskId, Task], Stuck, bool], Collection[TaskId]]
#: is told of a task that is pending again because nobody had it
Freed = Callable[[TaskSource, Task], None]


class BrokenList(LlmcError):
    """Its tasks name each other in a way that cannot be followed: auto mode does not begin before a person has looked."""


class TaskQueue:
    """One for each daemon. Several workers ask at the same moment; they are answered one after another."""

    def __init__(
        self,
        source: TaskSource,
        origins: Origins | None = None,
        tell: Tell | None = None,
        on_freed: Freed | None = None,
    ) -> None:
        """`origins`: who tells which tasks may be a worker's; None: none is. `tell`: puts what needs a person on the attention list."""
        self.source = source
        self._origins = origins
        self._tell = tell
        self._on_freed = on_freed
        #: in progress by their files, and nobody's by name
        self._unowned: set[TaskId] = set()
        self._undecided: frozenset[TaskId] = frozenset()
        self._turn = threading.Lock()
        self._index = Index()
        self._is_first_look = True
        #: what the last `take_next` left to wait
        self._waits_s = 0.0

    @property
    def unsettled(self) -> bool:
        """Whether something has to be looked at again: a task was being written, may be a worker's, or is nobody's."""
        return self.source.unsettled or bool(self._undecided) or bool(self._unowned)

    def take_next(
        self, worker: str, labels_in_use: Collection[str], crash_backoff_s: float = 0.0
    ) -> tuple[Task, Claim] | None:
        """The next task, claimed for a worker; None when there is none it could begin.

        `crash_backoff_s`: how long a task waits after its agent crashed; `waits_s` says what is left of that then.
        """
        with self._turn:
            books = self._look()
            ready = [
                task
                for task in self._index.ready
                if task.id not in self._undecided and not books.kept_back(self.source.key(task.id))
            ]
            ready = self._without_waiting(ready, books, crash_backoff_s)
            while chosen := choose(ready, labels_in_use):
                self.source.note(f"selected, of {len(ready)} ready", worker=worker, task=chosen.id)
                key = self.source.key(chosen.id)
                task = believed(chosen, books.made.get(key))
                claim = self.source.claim(key, worker, task.subject, task.dispatch, task.part)
                if claim is not None:
                    return task, claim
                ready.remove(chosen)
            return None

    def _without_waiting(self, ready: list[Task], books: Books, backoff_s: float) -> list[Task]:
        now = now_unix()
        waits = {task.id: books.waits_s(self.source.key(task.id), backoff_s, now) for task in ready}
        self._waits_s = min((wait for wait in waits.values() if wait), default=0.0)
        return [task for task in ready if not waits[task.id]]

    @property
    def waits_s(self) -> float:
        """In how long a task can be begun whose agent crashed, as of the last `take_next`; 0: there is none."""
        return self._waits_s

    def count_ready(self) -> int:
        """How many tasks could be begun now."""
        with self._turn:
            proposed = self._look().proposed_in(self.source.list_name)
            held = self._undecided | proposed
            return self._index.count_ready - sum(map(self._index.is_ready, held))

    def check(self) -> None:
        """Raises BrokenList with everything that is wrong, but for what appeared while auto mode ran: that is held."""
        with self._turn:
            self._look(starting=True)

    def _look(self, starting: bool = False) -> Books:
        """The index is what tasks and books say now. What is stuck in it cannot begin, and stops nobody else."""
        found = self.source.changes()
        books = self.source.books()
        self._put_back(found, books)
        self._note_new(found)
        self._index.apply(found.tasks, books.completed_in(self.source.list_name))
        if self._origins is not None:
            self._undecided = self._origins.undecided(found.tasks, self._index.tasks)
            books = self.source.books()
        self._free_nobodys(found, books)
        unreadable = {bad.task_id for bad in self.source.unreadable}
        wrong = stuck(self._index.circles, self._index.dangling, unreadable)
        held: Collection[TaskId] = ()
        if self._tell is not None:
            held = self._tell(self.source, books, self._index.tasks, wrong, starting)
        if starting:
            _refuse_broken([said for task, said in wrong.items() if task not in held])
        return books

    def _note_new(self, found: Changes) -> None:
        """New tasks are noted: each, or how many there are at the beginning."""
        new = {i: task for i, task in found.tasks.items() if task is not None and i not in self._index.tasks}
        if self._is_first_look:
            self.source.note(f"tasks in {self.source.where()}: {len(new)}")
            new = {}
        self._is_first_look = False
        for task_id in sorted(new, key=in_order):
            self.source.note(f"discovered: {new[task_id].subject[:100]}", task=task_id)

    def _put_back(self, found: Changes, books: Books) -> None:
        """What is ours says so. An agent may mark its own task completed; whether it is, the merge decides."""
        for claim in books.claims.values():
            task = found.tasks.get(claim.task.id) if claim.task.list == self.source.list_name else None
            if task is None or not is_ours(task, claim):
                continue
            if task.status is TaskStatus.COMPLETED or not task.claim:
                edit = partial(still_at_it, claim=claim)
                found.tasks[task.id] = self.source.edit(self.source.key(task.id), edit)
        for task_id, task in found.tasks.items():
            made = books.made.get(self.source.key(task_id)) if task is not None else None
            if task is not None and made is not None and is_out_of_date(task, made):
                found.tasks[task_id] = show_made(self.source, books, task_id) or task

    def _free_nobodys(self, found: Changes, books: Books) -> None:
        """What somebody marked as in progress and nobody has is pending again: it would be done by nobody."""
        for task_id, task in found.tasks.items():
            marked = task is not None and is_unowned(task)
            (self._unowned.add if marked else self._unowned.discard)(task_id)
        at_work = self._origins.at_work() if self._unowned and self._origins is not None else ()
        nobodys = [
            task_id
            for task_id in self._unowned - self._undecided
            if is_nobodys(self._index.tasks[task_id], self.source.key(task_id), books, at_work)
        ]
        for task_id in sorted(nobodys, key=in_order):
            with contextlib.suppress(LlmcError):  # a client has it locked, or it is gone: the next look sees
                self._free(task_id, books)

    def _free(self, task_id: TaskId, books: Books) -> None:
        after = self.source.edit(self.source.key(task_id), pending_again)
        self._unowned.discard(task_id)
        self._index.apply({task_id: after}, books.completed_in(self.source.list_name))
        if after.status is TaskStatus.PENDING:
            self.source.note("was in progress without an owner: pending again", task=task_id)
            if self._on_freed is not None:
                self._on_freed(self.source, after)


def no_task_list() -> UsageError:
    return UsageError(
        "auto mode needs a task list, and auto.task_list_id is not set",
        hint="Name one: llmc config set auto.task_list_id my-project",
    )


def open_queue(project: Project) -> TaskQueue:
    source = source_of(project)
    tell = partial(task_list.tell_running, project)
    freed = partial(task_list.note_freed, project)
    return TaskQueue(source, Origins(project, source), tell, freed)


def _refuse_broken(problems: list[str]) -> None:
    if problems:
        raise BrokenList(
            "the task list cannot be used: " + "; ".join(problems), hint="See `llmc tasks list`."
        )


def contexts(project: Project) -> dict[str, draft.Context]:
    """What is said before and after the tasks of each label; nothing without the file."""
    path = Path(project.config.auto.context_config_path).expanduser()
    path = path if path.is_absolute() else Path(project.source) / path
    try:
        return draft.read_contexts(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, draft.BadContext) as error:
        raise LlmcError(f"the task context {path} cannot be used: {error}") from error


def text_of(project: Project, task: Task) -> str:
    """What a worker is told to do; escape sequences of a pasted log are shown, and act on no terminal."""
    return written_out(draft.task_text(task, draft.of(task, contexts(project))))
