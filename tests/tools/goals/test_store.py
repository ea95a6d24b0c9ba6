"""The goals' store: every field, one writer at a time, older and newer and damaged files, and no other errors."""

import json
import os
import sqlite3
import stat
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from llmc.base.errors import LlmcError, LockTimeout, NotFound, Refused, StateError
from llmc.goals.drive.moves import move_node
from llmc.goals.model import AssignmentStatus, Change, Event, GoalStatus, GoalView, NodeStatus, Result
from llmc.goals.report.handoff import export
from llmc.goals.store import goal_store
from llmc.goals.store import rows as goal_rows
from llmc.goals.store.goal_store import CORRUPT, Damaged, GoalStore, NewerStore
from llmc.goals.store.rows import MILESTONE, VERSION
from tests.support.goal_records import GOAL, assignment, dispatch, full_change, goal, node


@pytest.fixture
def store(tmp_path: Path) -> GoalStore:
    return GoalStore(tmp_path / "overseer", busy_s=5)


def filled(store: GoalStore) -> GoalStore:
    store.apply(full_change())
    return store


def event(kind: str = "x", goal_id: str = GOAL, **fields: Any) -> Event:
    return Event(ts=1.0, type=kind, goal_id=goal_id, **fields)


@pytest.mark.req("3-066", "3-074", "3-076")
def test_every_field_of_every_record_comes_back(store: GoalStore) -> None:
    """Break: leave a field out of the payload, or the dispatches out of `_assignments`."""
    change = full_change()
    for record in (change.goal, change.nodes[2], *change.assignments, *change.crystallizations):
        assert record is not None
        plain = {f.name: getattr(record, f.name) for f in msgspec.structs.fields(type(record))}
        unset = {
            f.name
            for f in msgspec.structs.fields(type(record))
            if f.default is not msgspec.NODEFAULT and plain[f.name] == f.default
        }
        assert unset <= {"agent_id", "position"}, "the sample sets every field to something of its own"
    store.apply(change)
    again = GoalStore(store.directory)
    view = again.view(GOAL)
    assert view.goal == change.goal
    assert list(view.nodes.values()) == sorted(change.nodes, key=lambda one: one.node_id)
    assert list(view.assignments.values()) == list(change.assignments)
    with again.reading() as found:
        assert found.crystallizations(GOAL) == list(change.crystallizations)
        assert [one for _, one in found.events()] == list(change.events)
        assert found.assignment("A_1") == change.assignments[0]
        assert [one.assignment_id for one in found.open_assignments()] == ["A_1"]


@pytest.mark.req("3-002", "3-066", "3-070", "3-074", "3-076")
def test_the_export_has_the_shape_of_the_document(store: GoalStore) -> None:
    """Break: a plan's nodes beside the goal instead of inside it."""
    filled(store)
    with store.reading() as found:
        log = [one for _, one in found.events()]
        whole = json.loads(json.dumps(export([store.view(GOAL)], found.crystallizations(GOAL), log)))
    assert list(whole) == ["version", "goals", "assignments", "crystallizations", "dispatchIndex", "events"]
    assert whole["version"] == 1
    plan = whole["goals"][GOAL]
    assert {"goalId", "problemStatement", "successCriteria", "planRevisionHistory"} <= plan.keys()
    leaf = plan["phases"][0]["tasks"][0]["subtasks"][0]
    assert (leaf["subtaskId"], leaf["parentId"], leaf["path"]) == ("S1.1.1", "T1.1", "P1/T1.1/S1.1.1")
    assert leaf["acceptanceCriteria"] == ["pytest tests/test_csv.py passes"]
    assert plan["phases"][0]["phaseId"] == "P1"
    assert not any("assignment" in key.lower() for key in leaf), "who works on it is not part of the plan"
    assert whole["assignments"]["A_1"]["dispatchHistory"][0]["result"] == "timeout"
    assert whole["dispatchIndex"]["D_1"]["assignmentId"] == "A_1"
    assert whole["crystallizations"]["C_1"]["evidence"]["commits"] == ["1a2b3c4"]
    assert whole["events"][0] == {"ts": 1.0, "type": "goal.created", "goalId": GOAL, "data": {}}
    assert whole["events"][1]["workNodeId"] == "S1.1.1"


@pytest.mark.req("3-070")
def test_work_is_given_to_somebody_else_without_a_change_of_the_plan(store: GoalStore) -> None:
    filled(store)
    before = store.view(GOAL)
    given = replace(before.assignments["A_1"], agent_id="eve", session_key="agent:eve:worker:eve")
    store.apply(Change(assignments=(given,), events=(event("assignment.reassigned"),)))
    assert store.view(GOAL).nodes == before.nodes
    assert store.view(GOAL).assignments["A_1"].agent_id == "eve"


@pytest.mark.req("3-074", "3-017")
def test_histories_are_only_added_to(store: GoalStore) -> None:
    """Break: take a trigger out of goal_schema._SECOND, or the comparison out of `_put_assignment`."""
    filled(store)
    one = store.view(GOAL).assignments["A_1"]
    first, second = one.dispatch_history
    answered = replace(second, result=Result.ACCEPTED, result_at=9.0, attempts=2)
    store.apply(Change(assignments=(replace(one, dispatch_history=(first, answered, dispatch("D_3"))),)))
    assert store.view(GOAL).assignments["A_1"].dispatch_history == (first, answered, dispatch("D_3"))
    for wrong in ((first,), (second, first), (replace(first, ts=99.0), answered, dispatch("D_3"))):
        with pytest.raises(StateError):
            store.apply(Change(assignments=(replace(one, dispatch_history=wrong),)))
    with pytest.raises(StateError):  # an id is delivered at most once, whoever's it is
        store.apply(
            Change(assignments=(assignment(assignment_id="A_2", dispatch_history=(dispatch("D_1"),)),))
        )
    db = sqlite3.connect(store.path)
    for sql in ("DELETE FROM events", "UPDATE events SET ts = 0", "DELETE FROM dispatches"):
        with pytest.raises(sqlite3.IntegrityError, match="stays"):
            db.execute(sql)
    db.close()
    assert len(store.view(GOAL).assignments["A_1"].dispatch_history) == 3


@pytest.mark.req("3-017")
def test_old_events_are_summed_up_and_none_is_forgotten(
    store: GoalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: delete the old events without inserting the sums; or drop `counts.update` for a milestone."""
    monkeypatch.setattr(goal_rows, "MOST_EVENTS", 40)
    monkeypatch.setattr(goal_rows, "KEPT_EVENTS", 20)
    store.apply(Change(goal=goal(), events=(event("goal.created"),)))
    store.apply(Change(goal=goal(goal_id="goal_2"), events=(event("goal.created", "goal_2"),)))
    for number in range(100):
        rows = (event("work.done", work_node_id=f"S{number}"), event("tick", "goal_2"))
        store.apply(Change(events=rows))
    with store.reading() as found:
        rows = found.events()
        counted = found.db.execute("SELECT value FROM counters WHERE name = 'events'").fetchone()[0]
    assert len(rows) == counted <= 40
    assert [seq for seq, _ in rows] == sorted(seq for seq, _ in rows)
    sums = [one for _, one in rows if one.type == MILESTONE]
    assert {one.goal_id for one in sums} == {GOAL, "goal_2"}
    plain = len(rows) - len(sums)
    assert sum(one.data["count"] for one in sums) + plain == 202
    mine = next(one for one in sums if one.goal_id == GOAL)
    assert mine.data["types"]["goal.created"] == 1
    assert mine.data["done"][:3] == ["S0", "S1", "S2"]
    assert len(mine.data["done"]) == mine.data["types"]["work.done"]
    assert rows[-1][1].type == "tick", "the newest are as they were"


@pytest.mark.req("3-013", "3-051", "3-052", "3-129")
def test_an_update_is_whole_or_not_there(store: GoalStore) -> None:
    """Break: COMMIT in a `finally`."""
    filled(store)
    before = store.path.read_bytes()

    def refused(view: GoalView) -> Change:
        move_node(view.nodes["S1.1.2"], NodeStatus.IN_PROGRESS, 5.0)
        raise AssertionError("not reached")

    with pytest.raises(Refused, match="from todo to in_progress"):
        store.update(GOAL, refused)

    def half() -> None:
        """The second of two changes is wrong: neither is there."""
        with store.writing() as tx:
            tx.apply(Change(events=(event("half"),)))
            tx.apply(Change(events=(event("half", "goal_9"),)))

    with pytest.raises(NotFound):
        half()
    assert store.path.read_bytes() == before

    def queued(view: GoalView) -> Change:
        moved, told = move_node(view.nodes["S1.1.2"], NodeStatus.QUEUED, 5.0)
        return Change(nodes=(moved,), events=(told,))

    store.update(GOAL, queued)
    assert store.view(GOAL).nodes["S1.1.2"].status is NodeStatus.QUEUED
    with store.reading() as found:
        assert found.events()[-1][1].type == "work.queued"


def test_a_reader_loads_only_the_goals_that_changed(store: GoalStore) -> None:
    """Break: leave the UPDATE of goals.revision out of `_put_goals`."""
    for number in range(3):
        store.apply(Change(goal=goal(goal_id=f"goal_{number}")))
    seen, changed = changed_since(store, 0)
    assert changed == ["goal_0", "goal_1", "goal_2"]
    assert changed_since(store, seen) == (seen, [])
    store.apply(Change(events=(event(goal_id="goal_1"),)))
    store.apply(Change(assignments=(assignment(goal_id="goal_2"),)))
    assert changed_since(store, seen) == (seen + 2, ["goal_1", "goal_2"])
    store.apply(Change())
    assert changed_since(store, seen)[0] == seen + 2, "nothing to write is no write"


def test_nodes_that_left_the_plan_are_kept(store: GoalStore) -> None:
    """Break: DELETE instead of the mark."""
    filled(store)
    store.apply(Change(goal=goal(), removed_nodes=("S1.1.3",)))
    assert "S1.1.3" not in store.view(GOAL).nodes
    with store.reading() as found:
        assert found.goals_with("S1.1.3") == []
        assert found.db.execute("SELECT count(*) FROM nodes").fetchone() == (5,)
    store.apply(Change(nodes=(node("S1.1.3", name="again"),)))
    assert store.view(GOAL).nodes["S1.1.3"].name == "again"


def test_an_empty_file_is_damage_and_never_a_new_store(
    store: GoalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: take version 0 for "no goals", or make the file before its tables."""
    seen: list[int] = []
    real = goal_store.second_name

    def named(fresh: Path, path: Path) -> None:
        assert not path.exists()
        seen.append(fresh.stat().st_size)
        real(fresh, path)

    monkeypatch.setattr(goal_store, "second_name", named)
    filled(store)
    assert seen[0] > 0, "whole before it has its name"
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
    """Break: make a file before there is anything to write."""
    with store.reading() as found:
        assert (found.views(), found.safe_mode(), found.revision()) == ([], None, 0)
    assert not store.path.exists(), "who only reads makes nothing"
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
        width = len(db.execute(f"PRAGMA table_info({table})").fetchall())  # later columns came to its end
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
    """Break: `_dispatches_apart` only makes the table."""
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
    """Break: let the error of the write-back out of `_migrated`."""
    old = older(store)
    holder = sqlite3.connect(store.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")  # somebody writes, and does not end
    patient = GoalStore(store.directory, busy_s=0.2)
    assert patient.view(GOAL) == old["view"]
    assert version(store) == 1
    holder.close()
    assert store.view(GOAL) == old["view"]


@pytest.mark.req("3-X20", "3-132")
def test_a_newer_store_is_only_looked_at(store: GoalStore) -> None:
    """Break: `version > VERSION` counts as damaged, or is ignored."""
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
    """Break: rename it in `_open_to_read`; or let `_make` leave out the safe mode; or drop quick_check."""
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

    # It lasts until a person ends it.
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
        pass  # examined while it was whole
    store.path.write_bytes(spoiled(store.path.read_bytes(), "pages"))
    with pytest.raises(Damaged, match="is damaged"), store.reading() as found:
        found.views()
    store.apply(Change(goal=goal()))
    assert len(list(store.directory.glob("store.corrupt-*.db"))) == 1


@pytest.mark.req("3-018")
@pytest.mark.parametrize("how", ["directory is a file", "file is a directory"])
def test_whatever_is_wrong_with_the_place_is_an_error_of_our_own(store: GoalStore, how: str) -> None:
    """Break: connect outside of `_explained`."""
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
        assert found.views(), "reading goes on meanwhile"
    threading.Timer(0.2, holder.execute, ("COMMIT",)).start()
    GoalStore(store.directory, busy_s=30).apply(Change(events=(event("after"),)))
    holder.close()
    with store.reading() as found:
        assert found.events()[-1][1].type == "after"


@pytest.mark.req("3-X18", "3-012")
def test_updates_of_many_threads_do_not_mix(store: GoalStore) -> None:
    """Break: make `_writers` locks that several may hold, and `BEGIN` a plain one."""
    store.apply(Change(goal=goal(budget_usd=0.0)))
    inside: list[int] = []
    most: list[int] = []

    def add(view: GoalView) -> Change:
        inside.append(1)
        most.append(len(inside))
        new = replace(view.goal, budget_usd=view.goal.budget_usd + 1)
        inside.pop()
        return Change(goal=new, events=(event("count"),))

    def work() -> None:
        for _ in range(10):
            store.update(GOAL, add)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    assert store.view(GOAL).goal.budget_usd == 60
    assert max(most) == 1
    with store.reading() as found:
        assert len(found.events()) == 60
    with pytest.raises(AssertionError, match="nested transaction"), store.writing():
        store.apply(Change(goal=goal()))
    store.apply(Change(goal=goal(status=GoalStatus.PAUSED)))
    assert store.view(GOAL).goal.status is GoalStatus.PAUSED


def test_a_goal_that_is_gone_leaves_its_assignments_visible(store: GoalStore) -> None:
    """They are reported, not forgotten: nobody deletes a goal, but a store may have been mended by hand."""
    filled(store)
    db = sqlite3.connect(store.path)
    db.execute("DELETE FROM goals")
    db.commit()
    db.close()
    with store.reading() as found:
        assert [(one.assignment_id, one.goal_id) for one in found.open_assignments()] == [("A_1", GOAL)]
        assert found.view(GOAL) is None


def test_done_assignments_are_not_open(store: GoalStore) -> None:
    given = [assignment(status, assignment_id=f"A_{status}") for status in AssignmentStatus]
    store.apply(Change(goal=goal(), assignments=tuple(given)))
    with store.reading() as found:
        assert {str(one.status) for one in found.open_assignments()} == {
            *("queued", "dispatched", "active", "stalled", "blocked")
        }
