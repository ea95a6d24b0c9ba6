"""state.json under fire: many writers at once, and kill -9 at any moment."""

import json
import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from llmc.base import faults
from llmc.base.names import SessionName, WorkerName
from llmc.config.paths import Root
from llmc.records.store import Store
from llmc.records.worker import WorkerRecord

#: Python 3.12 warns of threads (the test runner has some); the children only use files
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

# Forked from this warm process: a start costs a millisecond, so hundreds of kills fit into seconds.
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """In memory if possible: a kill, unlike a power cut, does not care, and fsync costs 10 ms."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else str(tmp_path)
    with tempfile.TemporaryDirectory(prefix="llmc-t-", dir=memory) as directory:
        yield _filled(Store(Root(Path(directory))))


def _filled(made: Store) -> Store:
    made.create()
    with made.transaction() as tx:
        for name in ("adam", "eve"):
            tx.put(
                WorkerRecord(
                    name=WorkerName(name),
                    worktree_path=f"/w/{name}",
                    branch=f"llmc/{name}",
                    session_id=SessionName(name),
                    created_at_unix=1.0,
                )
            )
    return made


def count_up(store: Store, name: str) -> None:
    with store.transaction() as tx:
        tx.update(name, crash_count=tx.worker(name).crash_count + 1)
        tx.emit("held", worker=name)


def start(act: Callable[[], None]) -> BaseProcess:
    process = FORK.Process(target=act, daemon=True)
    process.start()
    return process


def numbers(store: Store) -> list[int]:
    found = []
    for line in store.root.events.read_bytes().splitlines():
        try:
            found.append(json.loads(line)["seq"])
        except ValueError:
            continue  # truncated by the kill: it is written again on its own line, and readers skip it
    return found


def test_a_thousand_transactions_of_two_processes_are_all_there(store: Store) -> None:
    """Break: no lock in Store.transaction."""

    def work(name: str) -> None:
        for _ in range(500):
            count_up(store, name)

    writers = [start(lambda name=name: work(name)) for name in ("adam", "eve")]  # type: ignore[misc]
    for writer in writers:
        writer.join(60)
        assert writer.exitcode == 0
    state = store.read()
    assert [record.crash_count for record in state.workers.values()] == [500, 500]
    assert state.event_seq == 1000
    assert numbers(store) == list(range(1, 1001))


def check_whole(store: Store, seen: int) -> int:
    """The state and its backup are readable, and nothing is lost; returns the current count."""
    state = store.read()
    count = state.workers[WorkerName("adam")].crash_count
    assert count >= seen
    assert state.event_seq == count
    if store.root.state_backup.exists():
        backup = Store(_backup_as_state(store)).read()
        assert count - 1 <= backup.workers[WorkerName("adam")].crash_count <= count
    return count


def _backup_as_state(store: Store) -> Root:
    copy = store.root.path / "copy"
    copy.mkdir(exist_ok=True)
    (copy / "state.json").write_bytes(store.root.state_backup.read_bytes())
    return Root(copy)


@pytest.mark.req("1-044")
@pytest.mark.parametrize("kills", [50, pytest.param(200, marks=pytest.mark.soak)])
def test_kills_at_random_lose_nothing(store: Store, kills: int) -> None:
    """Break: write state.json in place instead of temp and rename."""
    chance = random.Random(20240611)
    count_up(store, "adam")
    count = 1
    for _ in range(kills):
        reader, writer = FORK.Pipe(duplex=False)

        def save(ready: "multiprocessing.connection.Connection" = writer) -> None:
            ready.send_bytes(b"go")
            while True:
                count_up(store, "adam")

        child = start(save)
        assert reader.poll(20)
        time.sleep(chance.uniform(0, 0.004))  # the random moment itself, not a wait for anything
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join(20)
        reader.close()
        writer.close()
        count = check_whole(store, count)
    assert count > kills / 4
    count_up(store, "adam")
    assert numbers(store) == list(range(1, count + 2))
    litter = [name for name in os.listdir(store.root.path) if name.endswith(".tmp")]
    assert litter == []


@pytest.mark.req("1-044")
@pytest.mark.parametrize(
    ("point", "saved"),
    [
        ("state.write:before", False),
        ("state.replace:before", False),
        ("state.replace:after", True),
        ("state.write:after", True),
    ],
)
def test_a_kill_at_each_point_leaves_the_old_or_the_new(
    store: Store, monkeypatch: pytest.MonkeyPatch, point: str, saved: bool
) -> None:
    """Break: write_atomic before the point `state.replace:before`."""
    count_up(store, "adam")
    monkeypatch.setenv("LLMC_FAULT", f"{point}:kill")

    def save() -> None:
        faults._passed.clear()
        count_up(store, "adam")

    child = start(save)
    child.join(20)
    assert child.exitcode == -signal.SIGKILL
    monkeypatch.delenv("LLMC_FAULT")
    assert check_whole(store, 1) == (2 if saved else 1)
    count_up(store, "adam")
    assert numbers(store) == ([1, 2, 3] if saved else [1, 2])
    assert [name for name in os.listdir(store.root.path) if name.endswith(".tmp")] == []
