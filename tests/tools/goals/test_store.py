"""The goals' store: every field, one writer at a time, older, newer and damaged files, no other errors."""

import os
import sqlite3
import stat
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llmc.base.errors import LlmcError, LockTimeout, NotFound
from llmc.base.files import second_name
from llmc.goals.model import Change, Event
from llmc.goals.store import goal_store
from llmc.goals.store import rows as goal_rows
from llmc.goals.store.goal_store import CORRUPT, Damaged, GoalStore, NewerStore
from llmc.goals.store.rows import VERSION
from tests.support import on_postgres
from tests.support.goal_records import GOAL, full_change, goal

pytestmark = on_postgres.GOAL_FILE


@pytest.fixture
def store(tmp_path: Path) -> GoalStore:
    return GoalStore(tmp_path / "overseer", busy_s=5)


def filled(store: GoalStore) -> GoalStore:
    store.apply(full_change())
    return store


def event(kind: str = "x", goal_id: str = GOAL, **fields: Any) -> Event:
    return Event(ts=1.0, type=kind, goal_id=goal_id, **fields)


def test_an_empty_file_is_damage_and_never_a_new_store(
    store: GoalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: treat version 0 as "no goals", or create the file before its tables."""
    seen: list[int] = []

    def named(fresh: Path, path: Path) -> None:
        assert not path.exists()
        seen.append(fresh.stat().st_size)
        second_name(fresh, path)

    monkeypatch.setattr(goal_store, "second_name", named)
    filled(store)
    assert seen[0] > 0, "complete before it has its name"
    assert [path.name for path in store.directory.iterdir()] == ["store.db"]
    store.path.write_bytes(b"")
    looking = GoalStore(store.directory)
    with looking.reading() as found:
        assert found.views() == []
    assert "is empty" in looking.damage
    with pytest.raises(Damaged, match="is empty"):
        looking.view(GOAL)
    store.apply(Change(goal=goal()))
    with store.reading() as found:
        assert found.safe_mode() is not None


@pytest.mark.req("3-008", "3-132")
def test_no_file_is_an_empty_store_and_no_safe_mode(store: GoalStore) -> None:
    """Break: create a file before there is anything to write."""
    with store.reading() as found:
        assert (found.views(), found.safe_mode(), found.revision()) == ([], None, 0)
    assert not store.path.exists(), "reading creates nothing"
    with pytest.raises(NotFound, match="no goal"):
        store.view(GOAL)
    filled(store)
    with store.reading() as found:
        assert found.safe_mode() is None
    other = filled(GoalStore(store.directory / "deeper"))
    assert stat.S_IMODE(other.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(other.directory.stat().st_mode) == 0o700
    db = sqlite3.connect(store.path)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    db.close()


def changed_since(store: GoalStore, revision: int) -> tuple[int, list[str]]:
    """The current revision, and the goals written since `revision`."""
    with store.reading() as found:
        return found.revision(), found.changed_since(revision)


def older(store: GoalStore) -> dict[str, Any]:
    """A store of version 1, as it could have been written: dispatches inside their assignments."""
    filled(store)
    with store.reading() as found:
        rows = {
            table: found.db.execute(f"SELECT * FROM {table}").fetchall()
            for table in ("goals", "nodes", "crystallizations", "events", "counters")
        }
        given = found.assignment("A_1")
    assert given is not None
    view = store.view(GOAL)
    store.path.unlink()
    db = sqlite3.connect(store.path, isolation_level=None)
    db.execute("BEGIN")
    goal_rows._make(db)
    db.execute("DELETE FROM counters")
    for table, found_rows in rows.items():
        width = len(db.execute(f"PRAGMA table_info({table})").fetchall())  # later columns were appended
        for row in found_rows:
            db.execute(f"INSERT INTO {table} VALUES ({','.join('?' * width)})", row[:width])
    values = ("A_1", GOAL, "S1.1.1", "blocked", msgspec.json.encode(given).decode())
    db.execute("INSERT INTO assignments VALUES (?, ?, ?, ?, ?)", values)
    db.execute("PRAGMA user_version = 1")
    db.execute("COMMIT")
    db.close()
    return {"view": view, "events": rows["events"]}


def version(store: GoalStore) -> int:
    db = sqlite3.connect(f"{store.path.as_uri()}?mode=ro", uri=True)
    found = db.execute("PRAGMA user_version").fetchone()[0]
    db.close()
    return int(found)


@pytest.mark.req("3-003", "3-004", "3-132")
@pytest.mark.parametrize("by", ["reader", "writer"])
def test_an_older_store_becomes_a_newer_one_with_all_it_had(store: GoalStore, by: str) -> None:
    """Break: let `_dispatches_apart` only create the table."""
    old = older(store)
    assert version(store) == 1
    if by == "writer":
        store.apply(Change(events=(event("after"),)))
    assert store.view(GOAL) == old["view"]
    assert version(store) == VERSION, "written back"
    with store.reading() as found:
        assert len(found.events()) == len(old["events"]) + (by == "writer")
        assert found.safe_mode() is None


@pytest.mark.req("3-004", "3-018")
def test_an_older_store_that_cannot_be_written_is_read_all_the_same(store: GoalStore) -> None:
    """Break: let an error of the write-back out of `_migrated`."""
    old = older(store)
    holder = sqlite3.connect(store.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")  # another process writes, and does not finish
    patient = GoalStore(store.directory, busy_s=0.2)
    assert patient.view(GOAL) == old["view"]
    assert version(store) == 1
    holder.close()
    assert store.view(GOAL) == old["view"]


@pytest.mark.req("3-X20", "3-132")
def test_a_newer_store_is_only_looked_at(store: GoalStore) -> None:
    """Break: treat `version > VERSION` as damage, or ignore it."""
    filled(store)
    db = sqlite3.connect(store.path)
    db.execute(f"PRAGMA user_version = {VERSION + 1}")
    db.close()
    before = store.path.read_bytes()
    assert store.view(GOAL).goal.title == "Import CSV files"
    with pytest.raises(
        NewerStore, match=f"has format version {VERSION + 1}, but this llmc supports versions up to {VERSION}"
    ):
        store.apply(Change(events=(event(),)))
    assert store.path.read_bytes() == before
    assert os.listdir(store.directory) == ["store.db"]


def spoiled(data: bytes, how: str) -> bytes:
    if how == "text":
        return b"{ this is no database"
    if how == "header":
        return b"\0" * 100 + data[100:]
    if how == "cut":
        return data[: len(data) // 2]
    middle = len(data) // 2 // 4096 * 4096
    return data[:middle] + b"\xff" * 8192 + data[middle + 8192 :]


@pytest.mark.req("3-005", "3-006", "3-007", "3-X21", "3-132", "3-018")
@pytest.mark.parametrize("how", ["text", "header", "cut", "pages"])
def test_a_damaged_file_is_set_aside_by_a_writer_only(store: GoalStore, how: str) -> None:
    """Break: rename it in `_open_to_read`; or let `_make` leave out safe mode; or drop quick_check."""
    filled(store)
    broken = spoiled(store.path.read_bytes(), how)
    store.path.write_bytes(broken)

    looking = GoalStore(store.directory)
    with looking.reading() as found:
        assert found.views() == []
    assert "damaged" in looking.damage or "not a goal database" in looking.damage
    assert (store.path.read_bytes(), os.listdir(store.directory)) == (broken, ["store.db"])

    writing = GoalStore(store.directory)
    writing.apply(Change(goal=goal(goal_id="goal_new")))
    (kept,) = store.directory.glob("store.corrupt-*.db")
    assert kept.read_bytes() == broken
    with GoalStore(store.directory).reading() as found:
        assert found.goal_ids() == ["goal_new"]
        mode = found.safe_mode()
        assert mode is not None
        assert mode.file == kept.name
        assert [one.type for _, one in found.events()] == [CORRUPT]
        assert found.events()[0][1].data["file"] == kept.name

    # It lasts until the user ends it.
    GoalStore(store.directory).apply(Change(events=(event(goal_id="goal_new"),)))
    with GoalStore(store.directory).reading() as found:
        assert found.safe_mode() == mode
    assert GoalStore(store.directory).clear_safe_mode() == mode
    with GoalStore(store.directory).reading() as found:
        assert found.safe_mode() is None
    assert store.clear_safe_mode() is None
    leftovers = {name for name in os.listdir(store.directory) if name.startswith(".")}
    assert leftovers == set()


@pytest.mark.req("3-018", "3-005")
def test_damage_that_shows_late_is_an_error_of_our_own_and_set_aside_next(store: GoalStore) -> None:
    """Break: let sqlite3's own errors out of `_explained`."""
    for number in range(200):
        store.apply(Change(goal=goal(goal_id=f"goal_{number}", problem_statement="x" * 2000)))
    with store.reading():
        pass  # checked while it was intact
    store.path.write_bytes(spoiled(store.path.read_bytes(), "pages"))
    with pytest.raises(Damaged, match="is damaged"), store.reading() as found:
        found.views()
    store.apply(Change(goal=goal()))
    assert len(list(store.directory.glob("store.corrupt-*.db"))) == 1


@pytest.mark.req("3-018")
@pytest.mark.parametrize("how", ["directory is a file", "file is a directory"])
def test_whatever_is_wrong_with_the_place_is_an_error_of_our_own(store: GoalStore, how: str) -> None:
    """Break: connect outside `_explained`."""
    if how == "directory is a file":
        store.directory.write_text("")
    else:
        store.path.mkdir(parents=True)
    with pytest.raises(LlmcError) as refused:
        store.apply(full_change())
    assert str(store.directory) in refused.value.message


@pytest.mark.req("3-009", "3-010", "3-011")
def test_a_living_writer_is_waited_for_and_named(store: GoalStore) -> None:
    """Break: `BEGIN` instead of `BEGIN IMMEDIATE`; or leave the pid out of `_busy`."""
    filled(store)
    holder = sqlite3.connect(store.path, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(LockTimeout, match=rf"pid {os.getpid()} \(.*\) has been writing"):
        GoalStore(store.directory, busy_s=0.2).apply(Change(events=(event(),)))
    with store.reading() as found:
        assert found.views(), "reading continues in the meantime"
    threading.Timer(0.2, holder.execute, ("COMMIT",)).start()
    GoalStore(store.directory, busy_s=30).apply(Change(events=(event("after"),)))
    holder.close()
    with store.reading() as found:
        assert found.events()[-1][1].type == "after"
