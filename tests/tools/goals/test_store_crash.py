"""The goals' store under fire: writers in several processes, and kill -9 at any moment."""

import multiprocessing
import os
import random
import signal
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from msgspec.structs import replace

from llmc.base import faults
from llmc.goals.model import Change, Event, GoalView
from llmc.goals.store.goal_store import CORRUPT, GoalStore
from tests.support import on_postgres
from tests.support.goal_records import GOAL, assignment, dispatch, goal, node

#: Python 3.12 warns of threads (the test runner has some); the children only use files
pytestmark = [
    on_postgres.GOAL_FILE,
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[GoalStore]:
    """In memory if possible: a kill, unlike a power cut, does not care, and fsync costs 10 ms."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else str(tmp_path)
    with tempfile.TemporaryDirectory(prefix="llmc-t-", dir=memory) as directory:
        yield GoalStore(Path(directory) / "overseer")


def start(act: Callable[[], None]) -> BaseProcess:
    process = FORK.Process(target=act, daemon=True)
    process.start()
    return process


#: enough that a commit takes more than a moment
PARTS = [f"S1.1.{number}" for number in range(1, 41)]


def set_up(store: GoalStore) -> None:
    store.apply(Change(goal=goal(), nodes=tuple(map(node, PARTS)), assignments=(assignment(),)))


def count_up(store: GoalStore) -> None:
    """Goal, nodes, history and log have the same number, or the store is half written."""

    def add(view: GoalView) -> Change:
        count = int(view.goal.budget_usd) + 1
        given = view.assignments["A_1"]
        history = (*given.dispatch_history, dispatch(f"D_{count}"))
        return Change(
            goal=replace(view.goal, budget_usd=float(count), problem_statement="x" * (count * 997 % 9000)),
            nodes=tuple(
                replace(one, name=f"{count}", objective=f"{count} " * 600) for one in view.nodes.values()
            ),
            assignments=(replace(given, retry_count=count, dispatch_history=history),),
            events=(Event(ts=1.0, type="count", goal_id=GOAL, data={"count": count}),),
        )

    store.update(GOAL, add)


def check_whole(store: GoalStore, seen: int) -> int:
    """Everything agrees, and nothing is lost; returns the current count."""
    view = store.view(GOAL)
    count = int(view.goal.budget_usd)
    given = view.assignments["A_1"]
    assert count >= seen
    assert given.retry_count == count
    if count:
        assert {one.name for one in view.nodes.values()} == {f"{count}"}
    assert [one.dispatch_id for one in given.dispatch_history] == [f"D_{n}" for n in range(1, count + 1)]
    with store.reading() as found:
        assert [one.data["count"] for _, one in found.events()] == list(range(1, count + 1))
        assert found.safe_mode() is None
    return count


@pytest.mark.req("3-012", "3-009")
def test_writers_of_several_processes_lose_nothing(store: GoalStore) -> None:
    """Break: BEGIN instead of BEGIN IMMEDIATE, in `_open_to_write`."""
    set_up(store)

    def work() -> None:
        for _ in range(25):
            count_up(store)

    writers = [start(work) for _ in range(4)]
    for writer in writers:
        writer.join(100)
        assert writer.exitcode == 0
    assert check_whole(store, 100) == 100


@pytest.mark.req("3-077", "3-X19", "3-011")
@pytest.mark.parametrize("kills", [15, pytest.param(50, marks=pytest.mark.soak)])
def test_kills_at_random_lose_nothing(store: GoalStore, kills: int) -> None:
    """Break: a COMMIT in the middle of Writer.apply."""
    chance = random.Random(20261115)
    set_up(store)
    count = 0
    for _ in range(kills):
        reader, writer = FORK.Pipe(duplex=False)

        def save(ready: "multiprocessing.connection.Connection" = writer) -> None:
            count_up(store)
            ready.send_bytes(b"one is written")
            while True:
                count_up(store)

        child = start(save)
        assert reader.poll(60)
        time.sleep(chance.uniform(0, 0.03))  # the random moment itself, not a wait for anything
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join(20)
        reader.close()
        writer.close()
        count = check_whole(store, count + 1)
    assert count >= kills
    began = time.monotonic()
    count_up(store)
    assert time.monotonic() - began < 5, "the dead process's locks are free immediately"
    assert check_whole(store, count + 1) == count + 1
    db = sqlite3.connect(store.path)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


def killed_at(store: GoalStore, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    monkeypatch.setenv("LLMC_FAULT", f"{point}:kill")

    def save() -> None:
        faults._passed.clear()
        count_up(store)

    child = start(save)
    child.join(20)
    assert child.exitcode == -signal.SIGKILL
    monkeypatch.delenv("LLMC_FAULT")


@pytest.mark.req("3-077", "3-X19")
@pytest.mark.parametrize(("point", "saved"), [("goals.write:before", 1), ("goals.write:after", 2)])
def test_a_kill_around_the_commit_leaves_the_old_or_the_new(
    store: GoalStore, monkeypatch: pytest.MonkeyPatch, point: str, saved: int
) -> None:
    """Break: COMMIT before the fault point."""
    set_up(store)
    count_up(store)
    killed_at(store, monkeypatch, point)
    assert check_whole(store, 1) == saved


@pytest.mark.req("3-077", "3-X19")
def test_a_kill_after_half_of_the_pages_leaves_the_old(
    store: GoalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: `PRAGMA journal_mode = OFF`. A change larger than the cache is written before its commit."""
    set_up(store)
    count_up(store)
    size = store.path.stat().st_size
    long = "x" * 4000
    more = [
        node(f"S2.1.{n}", objective=long, expected_outcome=long, definition_of_done=long) for n in range(400)
    ]
    monkeypatch.setenv("LLMC_FAULT", "goals.write:before:kill")

    def save() -> None:
        faults._passed.clear()
        store.apply(Change(nodes=tuple(more)))

    child = start(save)
    child.join(20)
    assert child.exitcode == -signal.SIGKILL
    monkeypatch.delenv("LLMC_FAULT")
    assert store.path.stat().st_size > size + 1_000_000, "half of it is in the file"
    assert check_whole(store, 1) == 1
    assert store.path.stat().st_size == size


@pytest.mark.req("3-006", "3-007", "3-X21")
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_kill_while_a_damaged_file_is_set_aside_forgets_no_safe_mode(
    store: GoalStore, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    """Break: rename the damaged file first, and create the new one afterwards."""
    set_up(store)
    broken = b"no database " * 1000
    store.path.write_bytes(broken)
    killed_at(store, monkeypatch, f"goals.set_aside:{side}")
    store.apply(Change(goal=goal()))
    kept = list(store.directory.glob("store.corrupt-*.db"))
    assert [path.read_bytes() for path in kept] == [broken]
    with store.reading() as found:
        assert found.safe_mode() is not None
        assert [one.type for _, one in found.events()] == [CORRUPT]


@pytest.mark.req("3-006")
def test_two_who_find_the_damage_set_it_aside_once(store: GoalStore) -> None:
    """Break: do not compare the file's identity under the lock in `set_aside`."""
    set_up(store)
    store.path.write_bytes(b"no database " * 1000)
    finders = [start(lambda: store.apply(Change(goal=goal()))) for _ in range(6)]
    for one in finders:
        one.join(60)
        assert one.exitcode == 0
    assert len(list(store.directory.glob("store.corrupt-*.db"))) == 1
    with store.reading() as found:
        assert [one.type for _, one in found.events()] == [CORRUPT]
        assert found.safe_mode() is not None
