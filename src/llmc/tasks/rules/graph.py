"""What waits for what: an edge counts whether the blocking task names it, or the blocked one."""

from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct

from llmc.base.names import TaskId
from llmc.records.task import Task, TaskStatus, in_order

Needs = Mapping[TaskId, frozenset[TaskId]]

#: so many circles are named; the next ones when these are gone
MOST_CIRCLES = 10


class Dangling(Struct, frozen=True):
    """A task that waits for one that does not exist."""

    task: TaskId
    missing: TaskId


def needs(tasks: Iterable[Task]) -> Needs:
    """For each task the ids it waits for, from `blockedBy` and from the others' `blocks`."""
    found: dict[TaskId, set[TaskId]] = {}
    for task in tasks:
        found.setdefault(task.id, set()).update(task.blocked_by)
        for blocked in task.blocks:
            found.setdefault(blocked, set()).add(task.id)
    return {task: frozenset(waits) for task, waits in found.items()}


def cycle(edges: Needs) -> tuple[TaskId, ...]:
    """The ids of one circle, each waiting for the next; none: ()."""
    done: set[TaskId] = set()
    for start in sorted(edges, key=in_order):
        path: list[TaskId] = []
        on_path: set[TaskId] = set()
        # (task, whether we come back from what it waits for): an explicit stack, for chains of any length
        stack = [(start, False)]
        while stack:
            task, returning = stack.pop()
            if returning:
                on_path.discard(path.pop())
                done.add(task)
            elif task in on_path:
                return tuple(path[path.index(task) :])
            elif task not in done:
                path.append(task)
                on_path.add(task)
                stack.append((task, True))
                stack.extend(
                    (other, False) for other in sorted(edges.get(task, ()), key=in_order, reverse=True)
                )
    return ()


def circles(edges: Needs) -> tuple[tuple[TaskId, ...], ...]:
    """One circle after another, each of tasks that are in none before it; not more than a person would read."""
    found: list[tuple[TaskId, ...]] = []
    while len(found) < MOST_CIRCLES and (circle := cycle(edges)):
        found.append(circle)
        edges = {task: waits for task, waits in edges.items() if task not in circle}
    return tuple(found)


def dangling(tasks: Collection[Task], completed: Collection[str]) -> list[Dangling]:
    """Dependencies that are nowhere; a completed task's own are history, and no problem."""
    known = {task.id for task in tasks} | set(completed)
    return [
        Dangling(task.id, other)
        for task in tasks
        if task.status is not TaskStatus.COMPLETED
        for other in task.blocked_by
        if other not in known
    ]


def unblocks(edges: Needs, of: Collection[TaskId] | None = None) -> dict[TaskId, int]:
    """How many tasks wait for each one, directly or not: what to look at first. `of`: only these are asked for."""
    waiting: dict[TaskId, set[TaskId]] = {}
    for task, others in edges.items():
        for other in others:
            waiting.setdefault(other, set()).add(task)

    def reach(task: TaskId) -> int:
        seen: set[TaskId] = set()
        todo = list(waiting.get(task, ()))
        while todo:
            other = todo.pop()
            if other not in seen:
                seen.add(other)
                todo.extend(waiting.get(other, ()))
        return len(seen)

    return {task: reach(task) for task in (waiting if of is None else of)}
