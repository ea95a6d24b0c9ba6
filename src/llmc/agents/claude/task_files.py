"""Claude Code's own task list: a directory of files, read and written under the client's own locks.

The client locks by making directories: `N.json.lock/` to change a task, `.lock.lock/` to make one. A lock older than
ten seconds counts as left behind, and is taken over. That protocol alone lets two takers in, so llmc's own processes
keep each other out with a file lock first.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from llmc.agents.claude.layout import list_name
from llmc.base.clock import monotonic, now_unix
from llmc.base.errors import LlmcError, LockTimeout, NotFound
from llmc.base.files import explain, private_dir, read_given, read_json, write_atomic
from llmc.base.names import TaskId, TaskKey
from llmc.records.task import BadTask, Task, in_order, is_id, is_number, parse

Raw = dict[str, Any]

#: a lock directory older than this was left behind by somebody who died
STALE_S = 10.0
#: how long to wait for a lock; the client itself gives up after about three seconds
LOCK_WAIT_S = 15.0
#: a file that cannot be read and is younger than this is being written
SETTLE_S = 1.0
#: of a task's file
MOST_BYTES = 8 << 20

_SUFFIX = ".json"
_OUR_LOCK = ".llmc.lock"


class NoTask(LlmcError):
    """The file is no valid task; nothing can be written into it either."""


class Unreadable(Struct, frozen=True):
    """A file of the list that is no task."""

    file: str
    problem: str

    @property
    def task_id(self) -> TaskId:
        return TaskId(self.file.removesuffix(_SUFFIX))


class Listing(Struct):
    """The tasks as they are now, and the files that are none."""

    tasks: dict[TaskId, Task] = field(default_factory=dict)
    unreadable: list[Unreadable] = field(default_factory=list)
    #: files that somebody is writing at this moment: to be looked at again
    unsettled: set[str] = field(default_factory=set)


class Changes(Struct):
    """What is different since the last look: tasks (None: gone, or no task any more), and files that are none."""

    tasks: dict[TaskId, Task | None] = field(default_factory=dict)
    unsettled: set[str] = field(default_factory=set)


class _Seen(Struct):
    stamp: tuple[int, int, int]
    result: Task | Unreadable


def file_name(task_id: str) -> str:
    """The file of a task in its list. The only way from an id to a path: ids come from files, hooks and people."""
    if not is_id(task_id):
        raise NotFound(f"there is no task {task_id[:80]!r}", hint="`llmc tasks list` shows them.")
    return f"{task_id}{_SUFFIX}"


class TaskFiles:
    """One task list. Listing it again reads only the files that changed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._seen: dict[str, _Seen] = {}
        self._unreadable: dict[str, Unreadable] = {}
        #: files that became different since the last answer to `changes`, whoever looked at them
        self._untold: set[str] = set()

    @property
    def list_name(self) -> str:
        return self.directory.name

    def key(self, task_id: str) -> TaskKey:
        return TaskKey(self.list_name, TaskId(task_id))

    def of(self, name: str) -> "TaskFiles":
        """The list of that name beside this one; this one for "", which is in records of an older llmc."""
        if name in ("", self.list_name):
            return self
        return TaskFiles(self.directory.parent / list_name(name))

    def changes(self, changed: Collection[str] | None = None) -> Changes:
        """What is different since the last look. `changed`: the only files that can be; None: any."""
        names = self._look(None if not self._seen else changed)
        found = Changes(unsettled={name for name in names if not self._read_changed(name)})
        for name in self._untold:
            self._note(name, self._seen.get(name), found)
        self._untold = set()
        return found

    @property
    def unreadable(self) -> list[Unreadable]:
        """The files that were no task at the last look."""
        return [self._unreadable[name] for name in sorted(self._unreadable)]

    def _note(self, name: str, after: "_Seen | None", found: Changes) -> None:
        result = after.result if after is not None else None
        found.tasks[TaskId(name.removesuffix(_SUFFIX))] = result if isinstance(result, Task) else None
        self._unreadable.pop(name, None)
        if isinstance(result, Unreadable):
            self._unreadable[name] = result

    def listing(self, changed: Collection[str] | None = None) -> Listing:
        """All tasks. `changed`: the only files that can be different since the last time; None: any."""
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

    def raw(self, task_id: str) -> Raw:
        """Everything the file says, also what llmc does not know."""
        return self._load(task_id)

    def change(self, task_id: str, edit: Callable[[Task, Raw], Raw | None]) -> Task:
        """Change one task under its locks. `edit` gets it as it is now, and returns it as it shall be; None: leave it."""
        with self._ours(), self._clients(f"{file_name(task_id)}.lock", f"task {task_id}"):
            raw = self._load(task_id)
            edited = edit(self._parse(task_id, raw), dict(raw))
            if edited is None or edited == raw:
                return self._parse(task_id, raw)
            return self._store(task_id, edited)

    def remove(self, task_id: str, may: Callable[[Task], bool]) -> bool:
        """Take a task out of the list, under its locks, if it still may be; whether it is gone."""
        try:
            with self._ours(), self._clients(f"{file_name(task_id)}.lock", f"task {task_id}"):
                if not may(self._parse(task_id, self._load(task_id))):
                    return False
                self._remember_number(task_id)
                (self.directory / file_name(task_id)).unlink()
        except NotFound:
            pass  # somebody else did
        return True

    def create(self, fields: Raw, above: int = 0) -> Task:
        """A new task with the next free number, greater than `above`: the highest that the caller knows of."""
        private_dir(self.directory)
        with self._ours(), self._clients(".lock.lock", "the task list"):
            task_id = str(1 + max(self._highest(), *self._numbers(), above))
            return self._store(task_id, {"id": task_id, **fields})

    def _numbers(self) -> Iterator[int]:
        yield 0
        for name in self._names():
            stem = name.removesuffix(_SUFFIX)
            if is_number(stem):
                yield int(stem)

    def _highest(self) -> int:
        """The last number ever given: the client keeps it when it removes files."""
        try:
            found = read_given(self.directory / ".highwatermark", 1 << 10).decode().strip()
        except (OSError, ValueError):
            return 0
        return int(found) if is_number(found) else 0

    def _remember_number(self, task_id: str) -> None:
        """As the client does before it removes a file: a new task must not be taken for the one that is gone."""
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
        """The files to look at; those that are gone are forgotten."""
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
        self._untold.add(name)

    def _read_changed(self, name: str) -> bool:
        """Whether the file has settled; one that is being written stays what was known of it."""
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
            if now_unix() - status.st_mtime < SETTLE_S:
                return False
            self._know(name, _Seen(stamp, Unreadable(_shown(name), _in_words(error))))
        return True

    def _load(self, task_id: str) -> Raw:
        try:
            raw = read_json(self.directory / file_name(task_id), MOST_BYTES)
        except FileNotFoundError as error:
            raise NotFound(f"there is no task {task_id}", hint="`llmc tasks list` shows them.") from error
        except (OSError, ValueError) as error:
            raise NoTask(f"task {task_id} cannot be read: {_in_words(error)}") from error
        if not isinstance(raw, dict):
            raise NoTask(f"task {task_id} cannot be read: it is no JSON object")
        return raw

    def _parse(self, task_id: str, raw: Raw) -> Task:
        try:
            return parse(task_id, raw)
        except BadTask as error:
            raise NoTask(f"task {task_id} cannot be read: {error}") from error

    def _store(self, task_id: str, raw: Raw) -> Task:
        task = self._parse(task_id, raw)
        name = file_name(task_id)
        data = json.dumps(raw, indent=2, ensure_ascii=False).encode()
        write_atomic(self.directory / name, data, temp_name=f"{name}.tmp.{os.getpid()}")
        return task

    @contextmanager
    def _ours(self) -> Iterator[None]:
        """One process of llmc at a time, of whichever root."""
        try:
            fd = os.open(self.directory / _OUR_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError as error:
            raise NotFound(f"there is no task list in {self.directory}") from error
        except OSError as error:
            raise explain(error, f"cannot lock the task list {self.directory}") from error
        try:
            _wait(lambda: _flock(fd), "the task list is locked by another llmc")
            yield
        finally:
            os.close(fd)

    @contextmanager
    def _clients(self, lock: str, what: str) -> Iterator[None]:
        """The client's own lock."""
        path = self.directory / lock
        _wait(lambda: _make(path), f"{what} is locked by a client")
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
    deadline = monotonic() + LOCK_WAIT_S
    while not attempt():
        if monotonic() > deadline:
            raise LockTimeout(f"{problem} for over {LOCK_WAIT_S:g} s", hint="Try again.")
        time.sleep(0.005)


def _flock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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
        aside = path.with_name(f"{path.name}.stale.{os.getpid()}")
        path.rename(aside)
        if aside.stat().st_ino != left.st_ino:
            aside.rename(path)  # it was taken over between our two looks: it is somebody's
        else:
            aside.rmdir()
    except OSError:
        pass  # gone, or taken over meanwhile: the next attempt sees what is there
    return False
