"""Tasks in memory: a source like any other, for tests. No task is in a file; the books are a list of rows."""

import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from llmc.base.clock import now_unix
from llmc.base.errors import NotFound
from llmc.base.names import TaskId, TaskKey
from llmc.records.books import Action, Books, Claim, entry, fold
from llmc.records.task import Changes, Edit, Listing, Task, Unreadable, in_order
from llmc.tasks.rules import claims
from llmc.tasks.source import TaskSource


class MemoryWatch:
    def __init__(self, heard: Callable[[int], None]) -> None:
        self._read, self.write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._ended = heard

    def fileno(self) -> int:
        return self._read

    def heard(self) -> bool:
        os.read(self._read, 1 << 16)
        return True

    def close(self) -> None:
        self._ended(self.write)
        os.close(self._read)
        os.close(self.write)


class MemoryTasks(TaskSource):
    """One lock makes each operation all or nothing."""

    def __init__(self, list_name: str = "plan") -> None:
        self._name = list_name
        self._lock = threading.RLock()
        self._tasks: dict[TaskKey, Task] = {}
        self._written: dict[TaskKey, float] = {}
        self._untold: set[TaskId] = set()
        self._highest: dict[str, int] = {}
        self._books = Books()
        self.rows: list[dict[str, Any]] = []
        self._watches: list[int] = []

    @property
    def list_name(self) -> str:
        return self._name

    def put(self, key: TaskKey, task: Task | None) -> None:
        """Like an edit from outside, without llmc."""
        with self._lock:
            if task is None:
                self._tasks.pop(key, None)
            else:
                self._tasks[key], self._written[key] = task, now_unix()
            if key.list == self._name:
                self._untold.add(key.id)
            for watch in self._watches:
                os.write(watch, b".")

    def listing(self, list_name: str = "") -> Listing:
        with self._lock:
            found = {
                key.id: task for key, task in self._tasks.items() if key.list == (list_name or self._name)
            }
        return Listing({task_id: found[task_id] for task_id in sorted(found, key=in_order)})

    def changes(self) -> Changes:
        with self._lock:
            untold, self._untold = self._untold, set()
            return Changes({task_id: self._tasks.get(self.key(task_id)) for task_id in untold})

    @property
    def unsettled(self) -> bool:
        return False

    @property
    def unreadable(self) -> list[Unreadable]:
        return []

    def one(self, task: TaskKey) -> Task:
        with self._lock:
            found = self._tasks.get(task if task.list else self.key(task.id))
        if found is None:
            raise NotFound(f"no task {task.id[:80]!r}", hint="Run `llmc tasks list` to see all tasks.")
        return found

    def written_unix(self, task_id: str) -> float:
        return self._written.get(self.key(task_id), 0.0)

    def prepare(self) -> None:
        pass

    def watch(self) -> MemoryWatch:
        watch = MemoryWatch(self._watches.remove)
        self._watches.append(watch.write)
        return watch

    def add(self, new: Task, by: str) -> Task:
        with self._lock:
            number = self._highest[self._name] = self._highest.get(self._name, 0) + 1
            task = replace(new, id=TaskId(str(number)))
            self.put(self.key(task.id), task)
            about = (("dispatch", task.dispatch), ("part", task.part), ("key", task.pool_key))
            given = {name: value for name, value in about if value}
            self.write("created", Claim("", self.key(task.id), ""), by=by, **given)
            return task

    def edit(self, task: TaskKey, edit: Edit) -> Task:
        with self._lock:
            before = self.one(task)
            after = edit(before)
            if after is None or after == before:
                return before
            self.put(task if task.list else self.key(task.id), after)
            return after

    def remove(self, task: TaskKey, may: Callable[[Task], bool]) -> bool:
        with self._lock:
            if task not in self._tasks:
                return True
            if not may(self._tasks[task]):
                return False
            self.put(task, None)
            return True

    def claim(
        self, task: TaskKey, worker: str, subject: str = "", dispatch: str = "", part: str = ""
    ) -> Claim | None:
        claim = Claim(os.urandom(6).hex(), task, worker)
        said = {name: value for name, value in (("dispatch", dispatch), ("part", part)) if value}
        with self._lock:
            try:
                if self.edit(task, partial(claims.taken, claim=claim)).claim != claim.id:
                    return None
            except NotFound:
                return None
            self.write("claimed", claim, subject=subject, **said)
            return claim

    def renew(self, claim_id: str) -> bool:
        return self._books.holds(claim_id)

    def about_to_land(self, claim: Claim, commit: str) -> None:
        self.write("landing", claim, commit=commit)

    def finish(self, claim: Claim, commit: str) -> None:
        with self._lock:
            self.write("completed", claim, commit=commit)
            self._edit_if_there(claim.task, partial(claims.done, claim=claim))

    def release(
        self, claim: Claim, reason: str, *, cause: str = "", counts: bool = False, hold: str = ""
    ) -> Books:
        said = {"reason": reason, "cause": cause, **({"hold": hold} if hold else {})}
        with self._lock:
            self.write("failed" if counts else "released", claim, **said)
            kept = self._books.kept_back(claim.task)
            self._edit_if_there(claim.task, partial(claims.released, claim=claim, hold=kept))
            return self._books

    def settle(self) -> list[TaskKey]:
        return []  # nothing is ever half done

    def _edit_if_there(self, task: TaskKey, edit: Edit) -> None:
        if task in self._tasks:
            self.edit(task, edit)

    def books(self) -> Books:
        return self._books

    @property
    def lost_its_books(self) -> bool:
        return False

    def write(self, action: Action, claim: Claim, **details: Any) -> None:
        with self._lock:
            row = entry(action, claim, now_unix(), **details)
            self.rows.append(row)
            self._books = fold(self._books.copy(), [row])

    def note(self, text: str, *, worker: str = "", task: str = "") -> None:
        pass

    def where(self, task: TaskKey | None = None) -> str:
        return f"memory of this process: {task or self._name}"

    @property
    def how_to_unblock(self) -> str:
        return "change it with `edit`"

    @property
    def agents_write_here(self) -> bool:
        return False
