"""The fleet's tasks as a queue for auto workers: the database chooses the next task and claims it in one step."""

from collections.abc import Collection

from llmc.base.clock import monotonic
from llmc.base.names import TaskId, TaskKey
from llmc.records.books import Claim
from llmc.records.task import Task
from llmc.repo.project import Project
from llmc.tasks import task_list
from llmc.tasks.queue import refuse_broken
from llmc.tasks.rules.claims import believed
from llmc.tasks.rules.graph import Dangling, Stuck, cycles, stuck
from llmc.tasks.shared import SharedTasks

#: most ready tasks counted: more than a node has workers
MOST_READY = 1000
#: how soon to claim a task again that could start, but another transaction had it, or its wait has just ended
AGAIN_S = 0.2
#: how old the attention list may get
TELL_S = 5.0


class SharedQueue:
    """One per daemon. Nodes may ask at the same time: no two of them get the same task."""

    def __init__(self, source: SharedTasks, project: Project) -> None:
        self.source = source
        self._project = project
        self.waits_s = 0.0
        self._tell_at = 0.0
        self._is_due = False

    @property
    def unsettled(self) -> bool:
        """Whether the attention list is still to be updated."""
        return self._is_due

    def take_next(
        self,
        worker: str,
        labels_in_use: Collection[str],
        crash_backoff_s: float = 0.0,
        only: Collection[TaskKey] | None = None,
    ) -> tuple[Task, Claim] | None:
        """Claim the next task for a worker, of `only` these; None when none is ready.

        The wait after a crash is in the task's row.
        """
        if only is not None:
            return self._take_one_of(only, worker)
        found = self.source.take_next(worker, labels_in_use)
        if found is None:
            look = self.source.look(MOST_READY, free=1)
            self.waits_s = look.after_crash_s
            found = self.source.take_next(worker, labels_in_use) if look.ready else None
        if found is None:
            return None
        task, claim = found
        return believed(task, self.source.books().made.get(claim.task)), claim

    def _take_one_of(self, tasks: Collection[TaskKey], worker: str) -> tuple[Task, Claim] | None:
        """The database says how long they wait: this node's clock may be wrong."""
        for key in tasks:
            if (claim := self.source.claim(key, worker)) is not None:
                return believed(self.source.one(key), self.source.books().made.get(key)), claim
        wait_s = self.source.wait_of(tasks)
        self.waits_s = 0.0 if wait_s is None else max(wait_s, AGAIN_S)
        return None

    def count_ready(self, free: int = 0) -> int:
        """Number of tasks that could start now; also updates the attention list."""
        self._is_due = True
        if monotonic() >= self._tell_at:
            self._tell_at = monotonic() + TELL_S
            self._tell(self._stuck(), starting=False)
            self._is_due = False
        return self.source.look(MOST_READY, free).ready

    def check(self) -> None:
        """Raise BrokenList with all problems, except those held because they appeared while auto mode ran."""
        wrong = self._stuck()
        refuse_broken(wrong, self._tell(wrong, starting=True))

    def _tell(self, wrong: Stuck, *, starting: bool) -> Collection[TaskId]:
        """Update the attention list; returns the stuck tasks that are held."""
        held = {task.id: task for task in self.source.held()}
        books = self.source.books()
        return task_list.tell_running(self._project, self.source, books, held, wrong, starting)

    def _stuck(self) -> Stuck:
        rows = self.source.open_needs()
        needs: dict[TaskId, set[TaskId]] = {}
        for row in rows:
            needs.setdefault(row["task"], set()).add(row["needs"])
        circles = cycles({task: frozenset(others) for task, others in needs.items()})
        return stuck([Dangling(row["task"], row["needs"]) for row in rows if row["missing"]], circles)
