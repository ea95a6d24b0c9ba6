"""Copies tasks between task files and the source of a root: import, export, and following a directory."""

import select
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from llmc.base.errors import NotFound, Refused
from llmc.base.names import TaskId
from llmc.base.wake import open_watch
from llmc.records.task import Task, TaskStatus, in_order
from llmc.tasks.claude_files import task_files
from llmc.tasks.source import TaskSource

#: a file that was being written is read again after this time
SETTLE_S = 1.0


def take_in(source: TaskSource, directory: Path) -> list[Task]:
    """Add the open tasks in a directory of task files that the list does not have yet.

    A task remembers its file, so that the same file is never added twice. Completed tasks are not added. A task that
    depends on a missing file is added once that file exists.
    """
    if not directory.is_dir():
        raise NotFound(
            f"no directory {directory}", hint="Pass a directory that contains task files such as 1.json."
        )
    found = task_files(directory).listing().tasks
    known = {task.pool_key: task.id for task in source.listing().tasks.values() if task.pool_key}
    made: dict[TaskId, TaskId] = {
        task_id: known[_key(directory, task_id)] for task_id in found if _key(directory, task_id) in known
    }
    needs = {
        task.id: {*task.blocked_by, *(other.id for other in found.values() if task.id in other.blocks)}
        for task in found.values()
    }
    done = {task.id for task in found.values() if task.status is TaskStatus.COMPLETED}
    added = []
    while ready := [i for i in needs if i not in made and i not in done and needs[i] <= done | made.keys()]:
        for task_id in sorted(ready, key=in_order):
            after = tuple(made[other] for other in sorted(needs[task_id] - done, key=in_order))
            new = replace(
                found[task_id], status=TaskStatus.PENDING, owner="", blocks=(), blocked_by=after
            ).with_ours(claim=None, key=_key(directory, task_id))
            task = source.add(new, "import")
            made[task_id] = task.id
            added.append(task)
    return added


def follow(source: TaskSource, directory: Path) -> Iterator[list[Task]]:
    """Keep adding tasks as files appear; yields what each round added. Never ends on its own."""
    watch = open_watch(directory)
    try:
        while True:
            yield take_in(source, directory)
            select.select([watch], [], [], SETTLE_S)
            if watch.changed() is None:  # the directory may have been replaced
                watch.close()
                watch = open_watch(directory)
    finally:
        watch.close()


def export(source: TaskSource, directory: Path) -> list[Task]:
    """Write all tasks of the list into an empty directory, as task files with their own ids. Claims are left out."""
    if directory.exists() and any(directory.iterdir()):
        raise Refused(
            f"cannot export to {directory}: the directory is not empty", hint="Pass a new or empty directory."
        )
    tasks = list(source.listing().tasks.values())
    files = task_files(directory)
    for task in tasks:
        has_worker = task.status is TaskStatus.IN_PROGRESS and bool(task.claim)
        status = TaskStatus.PENDING if has_worker else task.status
        files.put(replace(task.with_ours(claim=None), status=status, owner="" if has_worker else task.owner))
    return tasks


def _key(directory: Path, task_id: str) -> str:
    return f"file:{directory.resolve().name}/{task_id}"
