"""Copies tasks between task files and the source of a root: import, export, and following a directory."""

import hashlib
import os
import select
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import replace

from llmc.base.errors import NotFound, Refused
from llmc.base.names import TaskId
from llmc.base.wake import open_watch
from llmc.records.task import Task, TaskStatus, in_order
from llmc.tasks import task_list
from llmc.tasks.claude_files import task_files
from llmc.tasks.source import TaskSource

#: a file that was being written is read again after this time
SETTLE_S = 1.0


class Taken(Struct, frozen=True):
    added: list[Task]
    #: files and tasks that were not imported, each with the reason
    left_out: list[str]
    #: for each file, the task that it was imported as, now or before
    made: dict[TaskId, TaskId]


def take_in(
    source: TaskSource, directory: Path, followed: Mapping[TaskId, TaskId] = MappingProxyType({})
) -> Taken:
    """Add the open tasks in a directory of task files that the list does not have yet.

    A task remembers the name and text that it was made from, so that a file is added again only if its text has changed,
    and not even then if it is in `followed` (see `follow`). Completed tasks are not added. A task that depends on a
    missing file is added once that file exists.
    """
    if not directory.is_dir():
        raise NotFound(
            f"no directory {directory}", hint="Pass a directory that contains task files such as 1.json."
        )
    listing, known = task_files(directory).listing(), task_list.known_tasks(source)
    found = listing.tasks
    keys = {task.id: _key(_name(directory, task.id), task) for task in found.values()}
    old = {_key(task.pool_key, task): task.id for task in known.tasks.values() if _is_old(task.pool_key)}
    by_key = old | known.by_key
    made: dict[TaskId, TaskId] = {task_id: by_key[key] for task_id, key in keys.items() if key in by_key}
    changed = {
        task_id: task
        for task_id, task in followed.items()
        if task_id in keys and task_id not in made and known.has(task)
    }
    made |= changed
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
            ).with_ours(claim=None, key=keys[task_id])
            task = known.add(new, "import")
            made[task_id] = task.id
            added.append(task)
    left_out = [f"{bad.file}: {bad.problem}" for bad in listing.unreadable]
    left_out += [f"{name}: the file is being written" for name in sorted(listing.unsettled)]
    left_out += [
        f"{task_id}.json: its text changed after it was imported as {task}"
        for task_id, task in changed.items()
        if task_id not in done
    ]
    here = done | made.keys()
    for task_id in (task_id for task_id in needs if task_id not in here):
        missing = ", ".join(sorted(needs[task_id] - here, key=in_order))
        left_out.append(f"task {task_id} depends on tasks that were not imported: {missing}")
    return Taken(added, left_out, made)


def follow(source: TaskSource, directory: Path) -> Iterator[Taken]:
    """Keep adding tasks as files appear; yields what each round added. Never ends on its own.

    A client refines the text of a task that is being done, so a file that changes meanwhile is not another task.
    What is left out is yielded once, if the next round leaves it out too: files appear one after another.
    """
    before, told, followed = set[str](), set[str](), dict[TaskId, TaskId]()
    watch = open_watch(directory)
    try:
        while True:
            found = take_in(source, directory, followed)
            here = {task_id for task_id in followed if os.path.lexists(directory / f"{task_id}.json")}
            followed = {task_id: task for task_id, task in followed.items() if task_id in here} | found.made
            new = [line for line in found.left_out if line in before and line not in told]
            before, told = set(found.left_out), told.intersection(found.left_out).union(new)
            yield Taken(found.added, new, found.made)
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


def _name(directory: Path, task_id: str) -> str:
    return f"file:{directory.resolve().name}/{task_id}"


def _key(name: str, task: Task) -> str:
    """A key that stays the same while a file's name, its list's name and its text do, wherever the list is."""
    text = f"{task.subject}\n{task.description}"
    return f"{name}/{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:32]}"


def _is_old(key: str) -> bool:
    """Whether it is the key of an older llmc: a name without the text."""
    return key.startswith("file:") and key.count("/") == 1
