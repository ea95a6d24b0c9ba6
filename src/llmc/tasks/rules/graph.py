"""Dependencies between tasks: which tasks are ready, come next or can never start; and the graph as text. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from msgspec import Struct

from llmc.base.names import TaskId
from llmc.records.task import Task, TaskStatus, in_order
from llmc.tasks.rules.claims import is_free

Needs = Mapping[TaskId, frozenset[TaskId]]

#: how many cycles are reported at once
MOST_CYCLES = 10


class Dangling(Struct, frozen=True):
    """A task that depends on one that does not exist."""

    task: TaskId
    missing: TaskId

    def __str__(self) -> str:
        return f"task {self.task} depends on task {self.missing}, which does not exist"


def needs(tasks: Iterable[Task]) -> Needs:
    """For each task, the ids it depends on: its own `blocked_by`, and the `blocks` of other tasks."""
    found: dict[TaskId, set[TaskId]] = {}
    for task in tasks:
        found.setdefault(task.id, set()).update(task.blocked_by)
        for blocked in task.blocks:
            found.setdefault(blocked, set()).add(task.id)
    return {task: frozenset(waits) for task, waits in found.items()}


def cycle(edges: Needs) -> tuple[TaskId, ...]:
    """The ids of one cycle, each depending on the next; () if there is none."""
    graph = TopologicalSorter[TaskId]()
    in_sequence = sorted(edges, key=in_order)
    for task in in_sequence:
        graph.add(task)
    for task in in_sequence:
        for other in sorted(edges[task], key=in_order):
            graph.add(other, task)  # the other way round, so that the cycle follows the dependencies
    try:
        graph.prepare()
    except CycleError as error:
        found: list[TaskId] = error.args[1]
        return tuple(found[:-1])
    return ()


def cycles(edges: Needs) -> tuple[tuple[TaskId, ...], ...]:
    """Disjoint cycles, at most as many as are reported."""
    found: list[tuple[TaskId, ...]] = []
    while len(found) < MOST_CYCLES and (one := cycle(edges)):
        found.append(one)
        edges = {task: waits for task, waits in edges.items() if task not in one}
    return tuple(found)


def dangling(tasks: Collection[Task], completed: Collection[str]) -> list[Dangling]:
    """Dependencies on unknown tasks; those of completed tasks do not matter."""
    known = {task.id for task in tasks} | set(completed)
    return [
        Dangling(task.id, other)
        for task in tasks
        if task.status is not TaskStatus.COMPLETED
        for other in task.blocked_by
        if other not in known
    ]


def unblocks(edges: Needs, of: Collection[TaskId] | None = None) -> dict[TaskId, int]:
    """How many tasks depend on each task, directly or indirectly. `of`: count only for these."""
    waiting: dict[TaskId, set[TaskId]] = {}
    for task, others in edges.items():
        for other in others:
            waiting.setdefault(other, set()).add(task)

    return {
        task: len(_reach(task, lambda other: waiting.get(other, ())))
        for task in (waiting if of is None else of)
    }


def _reach(start: TaskId, next_of: Callable[[TaskId], Iterable[TaskId]]) -> set[TaskId]:
    """All tasks on the paths from a task; includes the task itself only if it is in a cycle."""
    seen: set[TaskId] = set()
    todo = list(next_of(start))
    while todo:
        task = todo.pop()
        if task not in seen:
            seen.add(task)
            todo.extend(next_of(task))
    return seen


#: why tasks are stuck, by the first task of each group
Stuck = Mapping[TaskId, str]


def stuck(
    missing: Iterable[Dangling], circles: Iterable[tuple[TaskId, ...]], unreadable: Collection[TaskId] = ()
) -> Stuck:
    """Each reason once, by its first task. Tasks that depend on an unreadable file are reported with that file."""
    why: dict[TaskId, list[str]] = {}
    for row in missing:
        if row.missing not in unreadable:
            why.setdefault(row.task, []).append(str(row))
    for found in circles:
        why.setdefault(min(found, key=in_order), []).append(f"dependency cycle: {', '.join(found)}")
    return {task: "; ".join(said) for task, said in why.items()}


def completed_ids(
    tasks: Iterable[Task], ledger: Collection[str], held: Collection[str] = ()
) -> frozenset[str]:
    """Completed tasks, by the files or by the ledger, which outlives files that the client deletes.

    `held`: tasks claimed by llmc's workers; for those only the ledger counts.
    """
    by_files = {task.id for task in tasks if task.status is TaskStatus.COMPLETED and task.id not in held}
    return frozenset(ledger) | by_files


def choose(candidates: Iterable[Task], labels_in_use: Collection[str]) -> Task | None:
    """The next task: labels not in progress first, then the lower priority value, then the lower number.

    Tasks without a label never share one. If every label is in progress, all are considered.
    """

    def rank(task: Task) -> tuple[bool, int, tuple[int, int, str]]:
        taken = bool(task.label) and task.label in labels_in_use
        return (taken, task.priority, in_order(task.id))

    return min(candidates, key=rank, default=None)


#: with more changed tasks than this, one search for all cycles is cheaper than one search from each
_MANY = 64


class Index:
    """Ready tasks and problems, updated incrementally; agrees with `states`, `dangling` and `cycles`."""

    def __init__(
        self, tasks: Mapping[TaskId, Task] | None = None, completed: Collection[TaskId] = ()
    ) -> None:
        self.tasks: dict[TaskId, Task] = {}
        #: completed by the ledger, regardless of the files
        self._ledger: frozenset[TaskId] = frozenset()
        #: dependents of a task, and tasks that say they block it
        self._waiting: dict[TaskId, set[TaskId]] = {}
        self._blocking: dict[TaskId, set[TaskId]] = {}
        #: tasks that could start now
        self.ready: set[TaskId] = set()
        self._dangling: dict[TaskId, list[TaskId]] = {}
        #: the ids of the tasks in each cycle
        self.cycles: tuple[tuple[TaskId, ...], ...] = ()
        self.apply(tasks or {}, completed)

    @property
    def dangling(self) -> list[Dangling]:
        """Dependencies on unknown tasks."""
        found = sorted(self._dangling.items(), key=lambda item: in_order(item[0]))
        return [Dangling(task, other) for task, others in found for other in others]

    def apply(self, changes: Mapping[TaskId, Task | None], completed: Collection[TaskId]) -> None:
        """Update with changed tasks (None: gone) and the tasks completed by the ledger."""
        ledger = frozenset(completed)
        touched = set(ledger ^ self._ledger)
        self._ledger = ledger
        for known in list(touched):
            touched |= self._waiters(known)
        for task_id, task in changes.items():
            touched |= self._replace(task_id, task)
        for task_id in touched:
            self._judge(task_id)
        self._find_cycles(touched)

    def _replace(self, task_id: TaskId, task: Task | None) -> set[TaskId]:
        """Replace a task; return all affected tasks."""
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
        self.ready.discard(task_id)
        self._dangling.pop(task_id, None)
        task = self.tasks.get(task_id)
        if task is None or self._is_completed(task_id):
            return
        missing = [o for o in task.blocked_by if o not in self.tasks and o not in self._ledger]
        if missing:
            self._dangling[task_id] = missing
        if (
            is_free(task)
            and not task.waits_for_a_person
            and all(map(self._is_completed, self._needs(task_id)))
        ):
            self.ready.add(task_id)

    def _find_cycles(self, touched: Collection[TaskId]) -> None:
        """Update the cycles. A new one contains a changed task; while there is a cycle, search the whole list."""
        if not touched:
            return
        in_cycle = (task in _reach(task, self._open_needs) for task in touched)
        if self.cycles or len(touched) > _MANY or any(in_cycle):
            open_ = [task for task in self.tasks if not self._is_completed(task)]
            self.cycles = cycles({task: frozenset(self._needs(task)) for task in open_})

    def _open_needs(self, task_id: TaskId) -> list[TaskId]:
        """The open dependencies of an open task."""
        if self._is_completed(task_id):
            return []
        return [o for o in self._needs(task_id) if o in self.tasks and not self._is_completed(o)]


#: the state of a task that the user must decide about
QUESTION = "question"


def is_in_question(task: Task, completed: Collection[str]) -> bool:
    """Pending by its file, completed by the ledger: it was reopened, or its number was reused."""
    return task.id in completed and is_free(task) and not task.claim


def states(
    tasks: Collection[Task],
    edges: Needs,
    completed: Collection[str],
    kept_back: Callable[[TaskId], str] = lambda task_id: "",
    landed: Collection[str] = (),
) -> dict[TaskId, str]:
    """The state of each task: `completed`, `in_progress`, `ready`, `waits`, or why the user has to act.

    `kept_back`: holds from the ledger, where the file has none. `landed`: completed by the ledger.
    """
    found = {}
    for task in tasks:
        if is_in_question(task, landed):
            state = QUESTION
        elif task.id in completed:
            state = TaskStatus.COMPLETED.value
        elif not is_free(task):
            state = TaskStatus.IN_PROGRESS.value
        else:
            is_ready = all(other in completed for other in edges.get(task.id, ()))
            waits = "ready" if is_ready else "waits"
            state = kept_back(task.id) or task.waits_for_a_person or waits
        found[task.id] = state
    return found


def tree(tasks: Collection[Task], edges: Needs, state_of: dict[TaskId, str]) -> list[str]:
    """One line per task, below one of its dependencies; its other dependencies are named on the line."""
    by_id = {task.id: task for task in tasks}
    depth = _depths(by_id, edges)
    parent = {}
    children: dict[TaskId | None, list[TaskId]] = {}
    for task_id in sorted(by_id, key=in_order):
        known = [
            other for other in edges.get(task_id, ()) if depth.get(other, depth[task_id]) < depth[task_id]
        ]
        # Below the deepest one, so that a task comes after all its dependencies.
        parent[task_id] = max(known, key=lambda other: (depth[other], in_order(other)), default=None)
        children.setdefault(parent[task_id], []).append(task_id)
    lines: list[str] = []
    stack: list[tuple[TaskId, str, str]] = [(root, "", "") for root in reversed(children.get(None, []))]
    while stack:
        task_id, indent, branch = stack.pop()
        others = sorted((o for o in edges.get(task_id, ()) if o != parent[task_id]), key=in_order)
        word = "after" if parent[task_id] is None else "also after"
        also = f"  ({word} {', '.join(others)})" if others else ""
        lines.append(f"{indent}{branch}{task_id} {state_of[task_id]}  {by_id[task_id].subject}{also}")
        below = indent + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
        last = True
        for child in reversed(children.get(task_id, [])):
            stack.append((child, below, "└─ " if last else "├─ "))
            last = False
    return lines


def mermaid(tasks: Iterable[Task], edges: Needs, state_of: dict[TaskId, str]) -> list[str]:
    """A Mermaid flowchart for a Markdown page."""
    lines = ["flowchart TD"]
    names: dict[TaskId, str] = {}
    for number, task in enumerate(sorted(tasks, key=lambda task: in_order(task.id))):
        names[task.id] = f"t{number}"
        text = f"{task.id}: {task.subject} ({state_of[task.id]})".replace('"', "#quot;").replace("\n", " ")
        lines.append(f'    t{number}["{text}"]')
    lines += [
        f"    {names[other]} --> {names[task_id]}"
        for task_id in names
        for other in sorted(edges.get(task_id, ()), key=in_order)
        if other in names
    ]
    return lines


def _depths(known: Collection[TaskId], edges: Needs) -> dict[TaskId, int]:
    """The distance of each task from one without dependencies; tasks in a cycle are at the top."""
    depth: dict[TaskId, int] = {}
    left = set(known)
    while left:
        free = {task for task in left if not edges.get(task, frozenset()) & left}
        for task in sorted(free or left, key=in_order):
            depth[task] = 1 + max((depth.get(other, -1) for other in edges.get(task, ())), default=-1)
        left -= free or left
    return depth
