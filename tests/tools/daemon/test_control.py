"""Starting the daemon in the background."""

import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from llmc.base import locks
from llmc.base.files import write_atomic
from llmc.daemon import control
from llmc.repo.project import Project
from tests.support.repos import Mold, Repo, make_project, project_at
from tests.support.waiting import wait_until


def make(place: Path) -> None:
    source = Repo(place / "src")
    source.commit("a.txt")
    make_project(str(source.path), place / "root")


class SlowDaemon:
    """A process that holds the daemon's lock and is registered, while its workers are still being set up."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.process = subprocess.Popen(["sleep", "300"])
        self.place: int | None = None

    def spawn(self, *_: object) -> tuple[Any, int]:
        self.place = locks.hold_forever(self.project.root.lock("daemon"))
        self.register(ready=False)
        return self.process, 0

    def register(self, *, ready: bool) -> None:
        body = json.dumps({"pid": self.process.pid, "ready": ready})
        write_atomic(self.project.root.daemon, body.encode())

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.place is not None:
            os.close(self.place)


@pytest.fixture
def slow(mold: Mold, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDaemon]:
    made = SlowDaemon(project_at(mold.place(make) / "root"))
    monkeypatch.setattr(control, "spawn", made.spawn)
    monkeypatch.setattr(control, "READY_LIMIT_S", 0.3)
    yield made
    made.end()


def begin(pool: ThreadPoolExecutor, slow: SlowDaemon) -> "Future[Any]":
    """A start that has waited for longer than the limit."""
    started = pool.submit(control.start_detached, slow.project, [])
    with pytest.raises(TimeoutError):
        started.result(1.5)
    return started


def test_a_daemon_that_sets_up_its_workers_is_waited_for(slow: SlowDaemon) -> None:
    """Break: return a registration that is not ready: `up` calls workers failed that are still being set up."""
    with ThreadPoolExecutor(1) as pool:
        started = begin(pool, slow)
        slow.register(ready=True)
        assert (started.result(30).pid, started.result(30).ready) == (slow.process.pid, True)


def test_a_daemon_that_ends_while_it_sets_up_its_workers(slow: SlowDaemon) -> None:
    """Break: wait for `ready` only: `up` would hang for ever."""
    with ThreadPoolExecutor(1) as pool:
        started = begin(pool, slow)
        slow.process.kill()
        wait_until(started.done)
        assert "the daemon exited" in str(started.exception())
