"""The ledger of a fleet in one file, for tests: each call is a transaction under a lock, across processes."""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from llmc.base.errors import ClaimLost, LockTimeout, Unreachable
from llmc.base.names import TaskKey
from llmc.base.processes import wait_until
from llmc.records.landing_ledger import Entry


class FileLedger:
    """`claim` gives a task to a new holder, like a fleet's queue. Any other claim counts as a later one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def claim(self, task: TaskKey) -> str:
        claim = f"claim-{os.urandom(8).hex()}"
        with self._data() as data:
            data["newest"][_key(task)] = _token(data, claim)
        return claim

    @contextmanager
    def gone(self) -> Iterator[None]:
        away = self.path.parent.rename(self.path.parent.with_name("away"))
        try:
            yield
        finally:
            away.rename(self.path.parent)

    def in_child(self) -> None:
        """It has no connection that a child would share."""

    def token_of(self, claim: str) -> int:
        with self._data() as data:
            return _token(data, claim)

    def agree(self, fence: str, branch: str) -> tuple[str, str]:
        with self._data() as data:
            given_fence, given_branch = data.setdefault("agreement", [fence, branch])
        return given_fence, given_branch

    def enter(self, entry: Entry) -> None:
        with self._data() as data:
            if entry.task is not None:
                if entry.token < data["newest"].get(_key(entry.task), 0):
                    raise ClaimLost(f"another machine has task {entry.task}", hint="llmc status")
                data["newest"][_key(entry.task)] = entry.token
            if entry.commit not in {row["commit"] for row in data["entries"]}:
                new = msgspec.structs.replace(entry, at_unix=time.time())
                data["entries"].append(msgspec.to_builtins(new))

    def entered(self, task: TaskKey) -> list[Entry]:
        entries = self.entries()
        commits = {entry.commit for entry in entries if entry.task == task}
        return [entry for entry in entries if entry.commit in commits or entry.reverts in commits]

    def among(self, commits: Sequence[str]) -> list[Entry]:
        return [entry for entry in self.entries() if entry.commit in commits]

    @contextmanager
    def turn(self, timeout_s: float, stopping: Callable[[], bool] | None = None) -> Iterator[None]:
        self._reach()
        with self.path.with_suffix(".turn").open("a") as file:
            if not wait_until(lambda: _taken(file.fileno()), timeout_s, interval_s=0.01):
                raise LockTimeout("another machine lands", hint="llmc status")
            yield

    def take_post_accept(self, task: TaskKey) -> str | None:
        """Each machine runs its own."""
        return ""

    def end_post_accept(self, task: TaskKey) -> None:
        pass

    def entries(self) -> list[Entry]:
        with self._data() as data:
            return msgspec.convert(data["entries"], list[Entry])

    @contextmanager
    def _data(self) -> Iterator[dict[str, Any]]:
        self._reach()
        with self.path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            data = json.loads(file.read() or '{"claims": [], "newest": {}, "entries": []}')
            before = json.dumps(data)
            yield data
            if json.dumps(data) != before:
                file.seek(0)
                file.truncate()
                json.dump(data, file)

    def _reach(self) -> None:
        if not self.path.parent.is_dir():
            raise Unreachable("the ledger is not responding", hint="llmc status")


def _taken(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _token(data: dict[str, Any], claim: str) -> int:
    """A higher number for each new claim."""
    if claim not in data["claims"]:
        data["claims"].append(claim)
    return int(data["claims"].index(claim)) + 1


def _key(task: TaskKey) -> str:
    return f"{task.list}/{task.id}"
