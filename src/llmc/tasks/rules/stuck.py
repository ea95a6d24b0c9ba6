"""Tasks that cannot begin before a person has changed the list: they wait for each other, or for one that does not exist. Pure."""

from collections.abc import Collection, Iterable, Mapping

from llmc.base.names import TaskId
from llmc.records.task import Task, TaskStatus, in_order
from llmc.tasks.rules.graph import Dangling, circles, dangling, needs

#: why they are stuck, by the first of those that are in it together
Stuck = Mapping[TaskId, str]


def stuck(
    round_about: Iterable[tuple[TaskId, ...]], missing: Iterable[Dangling], unreadable: Collection[TaskId]
) -> Stuck:
    """Each reason once, with every task that it is about. What waits for a file that cannot be read is told with that file."""
    why: dict[TaskId, list[str]] = {}
    for row in missing:
        if row.missing not in unreadable:
            said = f"task {row.task} waits for task {row.missing}, which does not exist"
            why.setdefault(row.task, []).append(said)
    for circle in round_about:
        said = f"these tasks wait for each other in a circle: {', '.join(circle)}"
        why.setdefault(min(circle, key=in_order), []).append(said)
    return {task: "; ".join(said) for task, said in why.items()}


def stuck_in(
    tasks: Mapping[TaskId, Task], completed: Collection[TaskId], unreadable: Collection[TaskId]
) -> Stuck:
    """The same from a look at the whole list."""
    done = {task.id for task in tasks.values() if task.status is TaskStatus.COMPLETED} | set(completed)
    opened = [task for task in tasks.values() if task.id not in done]
    edges = {
        task: waits for task, waits in needs(tasks.values()).items() if task in tasks and task not in done
    }
    return stuck(circles(edges), dangling(opened, done | set(tasks)), unreadable)
