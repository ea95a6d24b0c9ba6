"""An account limit parks every node until the same moment, by the database's clock."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from llmc.auto import parks
from llmc.auto.auto_run import Run
from llmc.auto.rules.waiting import AFTER_RESET_S
from llmc.config.paths import Root
from llmc.daemon.node import own_park
from llmc.fleet import statements
from llmc.fleet.database import Database
from llmc.fleet.nodes import Beating, Life, Membership
from llmc.records.worker import Cause, Status
from llmc.repo.project import Project, bare_project
from tests.support.records import worker

SetClock = Callable[[float], None]


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Makes this machine's clock wrong by that many seconds."""
    real = time.time

    def wrong_by(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: real() + seconds)

    return wrong_by


class Node:
    """A root with its heartbeats, and nothing else."""

    def __init__(self, database: Database, folder: Path, name: str) -> None:
        root = Root(folder / name)
        root.state.parent.mkdir(parents=True)
        self.project: Project = bare_project(root)
        self.project.store.create()
        own = Membership(database, name, f"id-of-{name}", f"host:/{name}", 60.0)
        database.rows(statements.JOIN, own.values)
        self.beating = Beating(own, "plan")
        self.beating.start()
        self.run = cast(Run, _Quiet())

    def beat(self) -> None:
        pulse = self.beating.beat(Life(park=own_park(self.project.store.read().auto)))
        assert pulse.ahead_s is not None
        parks.compare_clock(self.project, pulse.ahead_s)
        if (park := pulse.park) is not None:
            about = park.node, Cause(park.cause), park.reason, park.until_unix
            parks.follow(self.run, self.project, *about)

    @property
    def ends_in_s(self) -> float:
        return self.project.store.read().auto.parked_until_unix - time.time()


class _Quiet:
    def say(self, text: str) -> None:
        pass


@pytest.fixture
def nodes(database: str, tmp_path: Path) -> Iterator[list[Node]]:
    db = Database(database)
    db.migrate()
    yield [Node(db, tmp_path, name) for name in ("one", "two")]
    db.close()


def test_a_wrong_clock_changes_no_park(nodes: list[Node], set_clock: SetClock) -> None:
    """Break: read the reset time by the node's clock; or keep the end when that clock is set."""
    one, two = nodes
    resets = (time.time() // 60 + 6) * 60
    left_s = resets + AFTER_RESET_S - time.time()
    words = f"You've hit your limit, resets {time.strftime('%I:%M%p', time.localtime(resets)).lower()}"
    set_clock(600)
    one.beat()
    stopped = worker(Status.NEEDS_INPUT, since_unix=time.time())
    parks.park(one.run, one.project, stopped, Cause.LIMIT, words)
    assert one.ends_in_s == pytest.approx(left_s, abs=5), "not at once: it is in the past by this clock"
    one.beat()
    set_clock(0)
    two.beat()
    assert two.ends_in_s == pytest.approx(left_s, abs=5)
    set_clock(-600)
    one.beat()
    assert one.ends_in_s == pytest.approx(left_s, abs=5), "its clock was set"
    two.beat()
    assert two.ends_in_s == pytest.approx(left_s, abs=5), "also for a node that follows"
