"""The task list as a queue for auto workers: what comes next, claimed so that nobody else has it."""

import threading
import tomllib
from collections.abc import Collection
from functools import partial
from pathlib import Path

from llmc.agents.task_files import Listing, TaskFiles
from llmc.errors import LlmcError
from llmc.services import claims
from llmc.services.project import Project
from llmc.services.task_list import open_list
from llmc.state.ledger import Ledger
from llmc.tasks import context
from llmc.tasks.books import Books, Claim
from llmc.tasks.choose import choose, eligible
from llmc.tasks.claims import still_at_it
from llmc.tasks.graph import Needs, cycle, dangling, needs
from llmc.tasks.model import Task, TaskStatus


class BrokenList(LlmcError):
    """The list says something that cannot be followed: nobody is given a task before a person has mended it."""


class TaskQueue:
    """One for each daemon. Several workers ask at the same moment; they are answered one after another."""

    def __init__(self, files: TaskFiles, ledger: Ledger) -> None:
        self.files = files
        self.ledger = ledger
        self._turn = threading.Lock()
        self._changed: set[str] | None = None
        self._needs: tuple[list[Task], Needs] = ([], {})

    def note_changed(self, names: Collection[str] | None) -> None:
        """Only these files can be different since the last look; None: any."""
        with self._turn:
            self._changed = None if names is None or self._changed is None else self._changed | set(names)

    @property
    def unsettled(self) -> bool:
        """Whether a file was being written at the last look, so that it has to be looked at again."""
        return bool(self._changed)

    def take_next(self, worker: str, labels_in_use: Collection[str]) -> tuple[Task, Claim] | None:
        """The next task, claimed for a worker; None when there is none it could begin."""
        with self._turn:
            ready = self._ready()
            while task := choose(ready, labels_in_use):
                claim = claims.take(self.files, self.ledger, worker, task.id)
                if claim is not None:
                    return task, claim
                ready.remove(task)
            return None

    def count_ready(self) -> int:
        """How many tasks could be begun now."""
        with self._turn:
            return len(self._ready())

    def holds(self, claim_id: str) -> bool:
        return self.ledger.books().holds(claim_id)

    def check(self) -> None:
        """Raises BrokenList with everything that is wrong."""
        with self._turn:
            self._ready()

    def _ready(self) -> list[Task]:
        changed, self._changed = self._changed, set()
        try:
            found = self.files.listing(changed)
        except BaseException:
            self._changed = None
            raise
        self._changed |= found.unsettled
        books = self.ledger.books()
        self._put_back(found, books)
        tasks = list(found.tasks.values())
        edges = self._edges(tasks)
        completed = _completed(tasks, books)
        _refuse_broken(found, tasks, edges, completed)
        return [task for task in eligible(tasks, edges, completed) if not books.is_quarantined(task.id)]

    def _edges(self, tasks: list[Task]) -> Needs:
        if self._needs[0] != tasks:
            self._needs = (tasks, needs(tasks))
        return self._needs[1]

    def _put_back(self, found: Listing, books: Books) -> None:
        """An agent that marks its own task completed says that it is done; whether it is, the merge decides."""
        for claim in books.claims.values():
            task = found.tasks.get(claim.task)
            if task is not None and task.claim == claim.id and task.status is TaskStatus.COMPLETED:
                found.tasks[claim.task] = self.files.change(claim.task, partial(still_at_it, claim=claim))


def open_queue(project: Project) -> TaskQueue:
    return TaskQueue(open_list(project), claims.open_ledger(project))


def _completed(tasks: list[Task], books: Books) -> frozenset[str]:
    held = {claim.task for claim in books.claims.values()}
    by_files = {task.id for task in tasks if task.status is TaskStatus.COMPLETED and task.id not in held}
    return frozenset(books.completed) | by_files


def _refuse_broken(found: Listing, tasks: list[Task], edges: Needs, completed: frozenset[str]) -> None:
    problems = [f"{bad.file}: {bad.problem}" for bad in found.unreadable]
    problems += [
        f"task {row.task} waits for task {row.missing}, which does not exist"
        for row in dangling(
            [task for task in tasks if task.id not in completed], completed | set(found.tasks)
        )
    ]
    if circle := cycle({task: waits for task, waits in edges.items() if task not in completed}):
        problems.append(f"these tasks wait for each other in a circle: {', '.join(circle)}")
    if problems:
        raise BrokenList(
            "the task list cannot be used: " + "; ".join(problems), hint="See `llmc tasks list`."
        )


def contexts(project: Project) -> dict[str, context.Context]:
    """What is said before and after the tasks of each label; nothing without the file."""
    path = Path(project.config.auto.context_config_path).expanduser()
    path = path if path.is_absolute() else Path(project.source) / path
    try:
        return context.read(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, context.BadContext) as error:
        raise LlmcError(f"the task context {path} cannot be used: {error}") from error


def text_of(project: Project, task: Task) -> str:
    """What a worker is told to do."""
    return context.task_text(task, context.of(task, contexts(project)))
