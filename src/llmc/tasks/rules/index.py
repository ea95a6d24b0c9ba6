"""The whole list with its edges, kept up to date change by change: a look costs what changed, not what exists."""

from collections.abc import Collection, Iterable, Mapping

from llmc.base.names import TaskId
from llmc.records.task import Task, TaskStatus, in_order
from llmc.tasks.rules.graph import Dangling, circles

#: so many changes at once are cheaper to judge together than one by one
_MANY = 64


class Index:
    """What can be begun, and what is wrong; the same as choose.eligible, graph.dangling and graph.circles would say."""

    def __init__(self) -> None:
        self.tasks: dict[TaskId, Task] = {}
        #: completed by the ledger, whatever the files say
        self._ledger: frozenset[TaskId] = frozenset()
        #: who names a task in its `blockedBy`, and who in its `blocks`
        self._waiting: dict[TaskId, set[TaskId]] = {}
        self._blocking: dict[TaskId, set[TaskId]] = {}
        self._ready: set[TaskId] = set()
        self._dangling: dict[TaskId, list[TaskId]] = {}
        self._circles: tuple[tuple[TaskId, ...], ...] = ()

    @property
    def ready(self) -> list[Task]:
        """Tasks that could be begun now."""
        return [self.tasks[task] for task in self._ready]

    @property
    def count_ready(self) -> int:
        return len(self._ready)

    def is_ready(self, task_id: TaskId) -> bool:
        return task_id in self._ready

    @property
    def dangling(self) -> list[Dangling]:
        """Dependencies that are nowhere."""
        found = sorted(self._dangling.items(), key=lambda item: in_order(item[0]))
        return [Dangling(task, other) for task, others in found for other in others]

    @property
    def circles(self) -> tuple[tuple[TaskId, ...], ...]:
        """The ids of the tasks that wait for each other, circle by circle."""
        return self._circles

    def apply(self, changes: Mapping[TaskId, Task | None], completed: Collection[TaskId]) -> None:
        """Tasks as they are now (None: gone), and what the ledger knows as completed."""
        ledger = frozenset(completed)
        touched = set(ledger ^ self._ledger)
        self._ledger = ledger
        for known in list(touched):
            touched |= self._waiters(known)
        for task_id, task in changes.items():
            touched |= self._replace(task_id, task)
        for task_id in touched:
            self._judge(task_id)
        self._find_circle(touched)

    def _replace(self, task_id: TaskId, task: Task | None) -> set[TaskId]:
        """Put the task in the place of what it was; everybody whom that concerns."""
        touched = {task_id} | self._waiters(task_id)
        old = self.tasks.pop(task_id, None)
        if old is not None:
            for other in old.blocked_by:
                self._waiting[other].discard(task_id)
            for other in old.blocks:
                self._blocking[other].discard(task_id)
        if task is not None:
            self.tasks[task_id] = task
            for other in task.blocked_by:
                self._waiting.setdefault(other, set()).add(task_id)
            for other in task.blocks:
                self._blocking.setdefault(other, set()).add(task_id)
        return touched | self._waiters(task_id)

    def _waiters(self, task_id: TaskId) -> set[TaskId]:
        task = self.tasks.get(task_id)
        return self._waiting.get(task_id, set()) | set(task.blocks if task is not None else ())

    def _needs(self, task_id: TaskId) -> set[TaskId]:
        task = self.tasks.get(task_id)
        return self._blocking.get(task_id, set()) | set(task.blocked_by if task is not None else ())

    def _is_completed(self, task_id: TaskId) -> bool:
        task = self.tasks.get(task_id)
        return task_id in self._ledger or (task is not None and task.status is TaskStatus.COMPLETED)

    def _judge(self, task_id: TaskId) -> None:
        self._ready.discard(task_id)
        self._dangling.pop(task_id, None)
        task = self.tasks.get(task_id)
        if task is None or self._is_completed(task_id):
            return
        missing = [o for o in task.blocked_by if o not in self.tasks and o not in self._ledger]
        if missing:
            self._dangling[task_id] = missing
        free = task.status is TaskStatus.PENDING and not task.owner and not task.waits_for_a_person
        if free and all(map(self._is_completed, self._needs(task_id))):
            self._ready.add(task_id)

    def _find_circle(self, touched: Collection[TaskId]) -> None:
        """A new circle goes through something that changed; while there is one, every change is judged with all."""
        if not touched:
            return
        if self._circles or len(touched) > _MANY or any(task in self._reach(task) for task in touched):
            self._circles = circles(self._edges(self.tasks))

    def _edges(self, tasks: Iterable[TaskId]) -> dict[TaskId, frozenset[TaskId]]:
        open_ = [task for task in tasks if not self._is_completed(task)]
        return {task: frozenset(self._needs(task)) for task in open_}

    def _reach(self, start: TaskId) -> set[TaskId]:
        """What a task waits for, directly or not, as far as that is there and open; with itself only if it is in a circle."""
        if self._is_completed(start):
            return set()
        seen: set[TaskId] = set()
        todo = list(self._needs(start))
        while todo:
            task = todo.pop()
            if task in self.tasks and task not in seen and not self._is_completed(task):
                seen.add(task)
                todo.extend(self._needs(task))
        return seen
