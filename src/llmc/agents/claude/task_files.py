"""Claude Code's own task list: a directory of files, read and written under the client's own locks.

The client locks by making directories: `N.json.lock/` to change a task, `.lock.lock/` to make one. A lock older than
ten seconds counts as left behind, and is taken over. That protocol alone can let in two processes, so llmc's own
processes take a file lock first.
"""

import json
import os
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from llmc.agents.claude.layout import list_name
from llmc.base.clock import now_unix
from llmc.base.errors import LockTimeout, NotFound
from llmc.base.files import explain, is_shortage, private_dir, read_given, read_json, unique, write_atomic
from llmc.base.flocks import try_lock
from llmc.base.names import TaskId, TaskKey
from llmc.base.processes import wait_until
from llmc.records.task import (
    LABEL_WORDS,
    Changes,
    Edit,
    Listing,
    NoTask,
    Task,
    TaskStatus,
    Unreadable,
    in_order,
    is_id,
    is_label,
    is_number,
)

Raw = dict[str, Any]

#: a lock directory older than this was left by a process that died
STALE_S = 10.0
#: how long to wait for a lock; the client itself gives up after about three seconds
LOCK_WAIT_S = 15.0
#: a file that cannot be read and is younger than this is being written
SETTLE_S = 1.0
#: maximum size of a task's file
MOST_BYTES = 8 << 20

#: control characters; line feeds and tabs may be in a command
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_SUFFIX = ".json"
_OUR_LOCK = ".llmc.lock"


class BadTask(ValueError):
    """A file that is not a task; the message says why, in one line."""


def parse(stem: str, raw: object) -> Task:
    """The task in a file `<stem>.json`."""
    if not is_id(stem):
        raise BadTask("the file name is not a valid task ID")
    if not isinstance(raw, dict):
        raise BadTask("not a JSON object")
    for name in ("id", "subject", "description", "status"):
        if not isinstance(raw.get(name), str):
            raise BadTask(f"`{name}` is missing" if name not in raw else f"`{name}` is not a string")
    if raw["id"] != stem:
        raise BadTask(f"`id` is {raw['id'][:80]!r}, but the file is named {stem!r}")
    try:
        status = TaskStatus(raw["status"])
    except ValueError:
        raise BadTask(
            f"`status` is {raw['status'][:80]!r}; expected one of {', '.join(TaskStatus)}"
        ) from None
    owner = raw.get("owner") or ""
    metadata = raw.get("metadata") or {}
    if not isinstance(owner, str):
        raise BadTask("`owner` is not a string")
    if not isinstance(metadata, dict):
        raise BadTask("`metadata` is not an object")
    if status is not TaskStatus.COMPLETED:  # completed tasks need no label
        _check_label(metadata.get("label"))
    task = Task(
        id=TaskId(stem),
        subject=raw["subject"],
        description=raw["description"],
        status=status,
        blocks=_ids(raw, "blocks"),
        blocked_by=_ids(raw, "blockedBy"),
        owner=owner,
        metadata=metadata,
    )
    if (model := task.ours.get("model")) and not task.model:
        raise BadTask(f"`metadata.llmc.model` is {str(model)[:80]!r}, which is not a valid model name")
    if _CONTROL.search(task.verify):
        raise BadTask("`metadata.llmc.verify` contains a control character")
    return task


def _check_label(label: object) -> None:
    """A label names a table of the context file; an invalid one would count as no label."""
    if label is not None and not isinstance(label, str):
        raise BadTask("`metadata.label` is not a string")
    if label and not is_label(label):
        raise BadTask(f"`metadata.label` is {label[:80]!r}; a label may contain only {LABEL_WORDS}")


def _ids(raw: dict[str, Any], name: str) -> tuple[TaskId, ...]:
    value = raw.get(name)
    if value is None:
        raise BadTask(f"`{name}` is missing")
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadTask(f"`{name}` is not a list of task IDs")
    if odd := next((item for item in value if not is_id(item)), ""):
        raise BadTask(f"`{name}` contains {odd[:80]!r}, which is not a valid task ID")
    return tuple(TaskId(item) for item in value)


def _written(task: Task) -> Raw:
    """The fields of a task's file that llmc knows."""
    return {
        "subject": task.subject,
        "description": task.description,
        "status": task.status.value,
        "blocks": list(task.blocks),
        "blockedBy": list(task.blocked_by),
        "owner": task.owner,
        "metadata": dict(task.metadata),
    }


def edited(raw: Raw, before: Task, after: Task) -> Raw:
    """The file with the changed fields of the task; everything else stays."""
    was = _written(before)
    changed = {key: value for key, value in _written(after).items() if value != was[key]}
    found = {**raw, **changed}
    if "owner" in changed and not after.owner:
        del found["owner"]
    return found


class _Seen(Struct):
    stamp: tuple[int, int, int]
    result: Task | Unreadable


def file_name(task_id: str) -> str:
    """The file of a task in its list. The only way from an id to a path, since ids come from files, hooks and users."""
    if not is_id(task_id):
        raise NotFound(f"no task {task_id[:80]!r}", hint="Run `llmc tasks list` to see all tasks.")
    return f"{task_id}{_SUFFIX}"


class TaskFiles:
    """One task list. Listing it again reads only the files that changed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._seen: dict[str, _Seen] = {}
        self._unreadable: dict[str, Unreadable] = {}
        #: files that changed since the last answer to `changes`
        self._untold: set[str] = set()

    @property
    def list_name(self) -> str:
        return self.directory.name

    def key(self, task_id: str) -> TaskKey:
        return TaskKey(self.list_name, TaskId(task_id))

    def beside(self, name: str) -> "TaskFiles":
        """The list of that name."""
        return self if name == self.list_name else TaskFiles(self.directory.parent / list_name(name))

    def changes(self, changed: Collection[str] | None = None) -> Changes:
        """What changed since the last look. `changed`: the only files that can have changed; None: any."""
        names = self._look(None if not self._seen else changed)
        found = Changes(unsettled={name for name in names if not self._read_changed(name)})
        for name in self._untold:
            seen = self._seen.get(name)
            task = seen.result if seen is not None and isinstance(seen.result, Task) else None
            found.tasks[TaskId(name.removesuffix(_SUFFIX))] = task
        self._untold = set()
        return found

    @property
    def unreadable(self) -> list[Unreadable]:
        """The files that could not be read at the last look."""
        return [self._unreadable[name] for name in sorted(self._unreadable)]

    def listing(self, changed: Collection[str] | None = None) -> Listing:
        """All tasks. `changed`: the only files that can have changed since the last look; None: any."""
        names = self._look(None if not self._seen else changed)
        found = Listing(unsettled={name for name in names if not self._read_changed(name)})
        for name in sorted(self._seen, key=lambda file: in_order(file.removesuffix(_SUFFIX))):
            result = self._seen[name].result
            if isinstance(result, Task):
                found.tasks[result.id] = result
            else:
                found.unreadable.append(result)
        return found

    def changed_unix(self, task_id: str) -> float:
        """When the file was last written, as of the last listing."""
        seen = self._seen.get(f"{task_id}{_SUFFIX}")
        return seen.stamp[0] / 1e9 if seen else 0.0

    def get(self, task_id: str) -> Task:
        return self._parse(task_id, self._load(task_id))

    def change(self, task_id: str, edit: Edit) -> Task:
        """Change one task under its locks."""
        with self._ours(), self._clients(f"{file_name(task_id)}.lock", f"task {task_id}"):
            raw = self._load(task_id)
            before = self._parse(task_id, raw)
            after = edit(before)
            if after is None or after == before:
                return before
            return self._store(task_id, edited(raw, before, after))

    def remove(self, task_id: str, may: Callable[[Task], bool]) -> bool:
        """Remove a task under its locks, if `may` still allows it. Returns whether the task is gone."""
        try:
            with self._ours(), self._clients(f"{file_name(task_id)}.lock", f"task {task_id}"):
                if not may(self._parse(task_id, self._load(task_id))):
                    return False
                self._remember_number(task_id)
                (self.directory / file_name(task_id)).unlink()
        except NotFound:
            pass  # another process removed it
        return True

    def create(self, new: Task, above: int = 0) -> Task:
        """Add the task with the next free number above `above`, the highest that the caller knows."""
        private_dir(self.directory)
        with self._ours(), self._clients(".lock.lock", "the task list"):
            task_id = str(1 + max(self._highest(), *self._numbers(), above))
            fields = {key: value for key, value in _written(new).items() if key != "owner" or value}
            return self._store(task_id, {"id": task_id, **fields})

    def put(self, task: Task) -> None:
        """Write a task under its own id, into a list that is not used yet."""
        private_dir(self.directory)
        with self._ours(), self._clients(".lock.lock", "the task list"):
            fields = {key: value for key, value in _written(task).items() if key != "owner" or value}
            self._store(file_name(task.id).removesuffix(_SUFFIX), {"id": task.id, **fields})

    def _numbers(self) -> Iterator[int]:
        yield 0
        for name in self._names():
            stem = name.removesuffix(_SUFFIX)
            if is_number(stem):
                yield int(stem)

    def _highest(self) -> int:
        """The highest number ever assigned, which the client stores when it removes files."""
        try:
            found = read_given(self.directory / ".highwatermark", 1 << 10).decode().strip()
        except (FileNotFoundError, ValueError):
            return 0
        except OSError as error:  # 0 would give a new task an old number
            raise explain(error, f"cannot read {self.directory / '.highwatermark'}") from error
        return int(found) if is_number(found) else 0

    def _remember_number(self, task_id: str) -> None:
        """Store the number before its file is removed, as the client does: no new task gets an old number."""
        if is_number(task_id) and int(task_id) > self._highest():
            write_atomic(self.directory / ".highwatermark", task_id.encode())

    def _names(self) -> list[str]:
        try:
            return [name for name in os.listdir(self.directory) if _is_listed(name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise explain(error, f"cannot read the task list {self.directory}") from error

    def _look(self, changed: Collection[str] | None) -> Collection[str]:
        """The files to look at. Forgets those that are gone."""
        if changed is not None:
            return [name for name in changed if _is_listed(name)]
        names = self._names()
        for gone in self._seen.keys() - set(names):
            self._know(gone, None)
        return names

    def _know(self, name: str, seen: "_Seen | None") -> None:
        if seen is not None:
            self._seen[name] = seen
        elif self._seen.pop(name, None) is None:
            return
        self._unreadable.pop(name, None)
        if seen is not None and isinstance(seen.result, Unreadable):
            self._unreadable[name] = seen.result
        self._untold.add(name)

    def _read_changed(self, name: str) -> bool:
        """Read a file if it changed. Returns whether it has settled; until then its last known content stays."""
        path = self.directory / name
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            self._know(name, None)
            return True
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        seen = self._seen.get(name)
        if seen is not None and seen.stamp == stamp:
            return True
        try:
            task = parse(name.removesuffix(_SUFFIX), read_json(path, MOST_BYTES))
            self._know(name, _Seen(stamp, task))
        except FileNotFoundError:
            self._know(name, None)
        except (OSError, ValueError) as error:
            if now_unix() - status.st_mtime < SETTLE_S or is_shortage(error):
                return False
            shown = _shown(name)
            where, task_id = str(self.directory / shown), TaskId(shown.removesuffix(_SUFFIX))
            self._know(name, _Seen(stamp, Unreadable(shown, where, task_id, _in_words(error))))
        return True

    def _load(self, task_id: str) -> Raw:
        try:
            raw = read_json(self.directory / file_name(task_id), MOST_BYTES)
        except FileNotFoundError as error:
            raise NotFound(f"no task {task_id}", hint="Run `llmc tasks list` to see all tasks.") from error
        except (OSError, ValueError) as error:
            raise NoTask(f"cannot read task {task_id}: {_in_words(error)}") from error
        if not isinstance(raw, dict):
            raise NoTask(f"cannot read task {task_id}: not a JSON object")
        return raw

    def _parse(self, task_id: str, raw: Raw) -> Task:
        try:
            return parse(task_id, raw)
        except BadTask as error:
            raise NoTask(f"cannot read task {task_id}: {error}") from error

    def _store(self, task_id: str, raw: Raw) -> Task:
        task = self._parse(task_id, raw)
        name = file_name(task_id)
        data = json.dumps(raw, indent=2, ensure_ascii=False).encode()
        write_atomic(self.directory / name, data, temp_name=f"{name}.tmp.{os.getpid()}")
        return task

    @contextmanager
    def _ours(self) -> Iterator[None]:
        """Lock out all other llmc processes, in any root."""
        try:
            fd = os.open(self.directory / _OUR_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError as error:
            raise NotFound(f"no task list in {self.directory}") from error
        except OSError as error:
            raise explain(error, f"cannot lock the task list {self.directory}") from error
        try:
            _wait(lambda: try_lock(fd), "the task list has been locked by another llmc process")
            yield
        finally:
            os.close(fd)

    @contextmanager
    def _clients(self, lock: str, what: str) -> Iterator[None]:
        """Hold one of the client's own locks."""
        path = self.directory / lock
        try:
            _wait(lambda: _make(path), f"{what} has been locked by Claude Code")
        except OSError as error:
            raise explain(error, f"cannot lock {what}") from error
        try:
            yield
        finally:
            with suppress(FileNotFoundError):
                path.rmdir()


def _shown(name: str) -> str:
    return name if name.isprintable() else ascii(name)


def _is_listed(name: str) -> bool:
    return name.endswith(_SUFFIX) and not name.startswith(".")


def _in_words(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def _wait(attempt: Callable[[], bool], problem: str) -> None:
    if not wait_until(attempt, LOCK_WAIT_S, interval_s=0.005):
        raise LockTimeout(f"{problem} for over {LOCK_WAIT_S:g} s", hint="Run the command again.")


def _make(path: Path) -> bool:
    """Take the client's lock; one that was left behind is moved away first."""
    try:
        path.mkdir()
        return True
    except FileExistsError:
        pass
    try:
        left = path.stat()
        if now_unix() - left.st_mtime < STALE_S:
            return False
        aside = path.with_name(f"{path.name}.stale{unique()}")
        path.rename(aside)
        if aside.stat().st_ino != left.st_ino:
            aside.rename(path)  # taken over between our two looks: another process has it
        else:
            aside.rmdir()
    except OSError:
        pass  # gone, or taken over meanwhile: the next attempt sees what is there
    return False
