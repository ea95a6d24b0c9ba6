"""`llmc events --follow` shows the last events, then the new ones, as `tail -f` does."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc.config.paths import Root
from llmc.records.store import Store
from tests.support.waiting import wait_until

EVENTS = 25


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "config.toml").write_text('[repo]\nsource = "/none"\n')
    store = Store(Root(tmp_path))
    store.create()
    for number in range(1, EVENTS + 1):
        emit(store, "adam" if number % 5 else "baker")
    return store


def emit(store: Store, worker: str, reason: str = "") -> None:
    with store.transaction() as tx:
        tx.emit("held", worker=worker, reason=reason)


def command(store: Store, *args: str) -> list[str]:
    return [sys.executable, "-m", "llmc", "--root", str(store.root.path), "events", *args]


@pytest.fixture
def follow(store: Store) -> Iterator["Follow"]:
    one = Follow(store)
    yield one
    one.end()


class Follow:
    """A command that follows, and what it printed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._out = store.root.path / "out"

    def begin(self, *args: str) -> None:
        with self._out.open("wb") as sink:
            self._process = subprocess.Popen(command(self._store, "--follow", *args), stdout=sink)

    def lines(self) -> list[str]:
        return self._out.read_text().splitlines()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.mark.parametrize(
    ("args", "before"),
    [
        ("", 10),
        ("--lines 3", 3),
        ("--since 0", EVENTS),
        ("--worker baker", 5),
        ("--worker baker -n 2", 2),
        ("--json", EVENTS),
        ("--json --lines 3", 3),
        ("--json --since 0", EVENTS),
    ],
)
def test_it_begins_with_the_last_events(store: Store, follow: Follow, args: str, before: int) -> None:
    """Break: print the whole log first; or count the events of other workers. Scripts that read JSON get all events."""
    follow.begin(*args.split())
    wait_until(lambda: len(follow.lines()) >= before, 30)
    emit(store, "baker", "new")
    wait_until(lambda: "new" in follow.lines()[-1], 30)
    assert len(follow.lines()) == before + 1


def test_it_can_begin_with_new_events(store: Store, follow: Follow) -> None:
    """Break: take no lines for all lines."""
    follow.begin("-n", "0")
    wait_until(lambda: emit(store, "adam", "new") or follow.lines(), 30)  # it may not have opened the log yet
    assert "new" in follow.lines()[0]


@pytest.mark.parametrize("option", [[], ["--json"]], ids=["text", "json"])
def test_without_follow_all_events_are_printed_unless_lines_are_counted(
    store: Store, option: list[str]
) -> None:
    """Break: show ten events by default."""

    def printed(*args: str) -> list[str]:
        done = subprocess.run(
            command(store, *option, *args), capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout.splitlines()

    assert len(printed()) == EVENTS
    assert printed("--lines", "4") == printed()[-4:]
    assert len(printed("-n", "2", "--worker", "baker")) == 2


def test_a_start_is_chosen_once(store: Store) -> None:
    done = subprocess.run(
        command(store, "--since", "1h", "--lines", "3", "--json"), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"] == "--since and --lines cannot be used together"
