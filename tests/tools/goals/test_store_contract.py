"""What every goal store must do, whatever it is made of: a SQLite file, or the fleet's PostgreSQL."""

import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from llmc.base.errors import LlmcError, NotFound, Refused, StateError
from llmc.fleet.database import Database
from llmc.goals.drive.moves import move_node
from llmc.goals.model import AssignmentStatus, Change, Event, GoalStatus, GoalView, NodeStatus, Result
from llmc.goals.report.handoff import export
from llmc.goals.store import rows as goal_rows
from llmc.goals.store.goal_store import AnyGoalStore, GoalStore
from llmc.goals.store.rows import MILESTONE
from llmc.goals.store.shared_goals import SharedGoals
from tests.support.goal_records import GOAL, assignment, dispatch, full_change, goal, node

Opened = Callable[[], AnyGoalStore]


@pytest.fixture(params=["file", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    """Opens the same store again, as another process does."""
    if request.param == "file":
        yield partial(GoalStore, tmp_path / "overseer", busy_s=5)
        return
    url, made = request.getfixturevalue("database"), list[Database]()

    def shared() -> AnyGoalStore:
        made.append(Database(url))
        made[-1].migrate()
        return SharedGoals(made[-1])

    yield shared
    for one in made:
        one.close()


@pytest.fixture
def store(opened: Opened) -> AnyGoalStore:
    return opened()


def filled(store: AnyGoalStore) -> AnyGoalStore:
    store.apply(full_change())
    return store


def event(kind: str = "x", goal_id: str = GOAL, **fields: Any) -> Event:
    return Event(ts=1.0, type=kind, goal_id=goal_id, **fields)


def changed_since(store: AnyGoalStore, revision: int) -> tuple[int, list[str]]:
    """The current revision, and the goals written since `revision`."""
    with store.reading() as found:
        return found.revision(), found.changed_since(revision)


def whole(store: AnyGoalStore) -> tuple[object, ...]:
    """Everything in it."""
    with store.reading() as found:
        return found.revision(), found.raw(GOAL), found.events()


@pytest.mark.req("3-066", "3-074", "3-076")
def test_every_field_of_every_record_comes_back(store: AnyGoalStore, opened: Opened) -> None:
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
        assert unset <= {"agent_id", "position"}, "the sample sets every field to its own value"
    store.apply(change)
    again = opened()
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
def test_the_export_has_the_shape_of_the_document(store: AnyGoalStore) -> None:
    """Break: put a plan's nodes beside the goal instead of inside it."""
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
    assert not any("assignment" in key.lower() for key in leaf), "its worker is not part of the plan"
    assert whole["assignments"]["A_1"]["dispatchHistory"][0]["result"] == "timeout"
    assert whole["dispatchIndex"]["D_1"]["assignmentId"] == "A_1"
    assert whole["crystallizations"]["C_1"]["evidence"]["commits"] == ["1a2b3c4"]
    assert whole["events"][0] == {"ts": 1.0, "type": "goal.created", "goalId": GOAL, "data": {}}
    assert whole["events"][1]["workNodeId"] == "S1.1.1"


@pytest.mark.req("3-070")
def test_work_is_given_to_somebody_else_without_a_change_of_the_plan(store: AnyGoalStore) -> None:
    filled(store)
    before = store.view(GOAL)
    given = replace(before.assignments["A_1"], agent_id="eve", session_key="agent:eve:worker:eve")
    store.apply(Change(assignments=(given,), events=(event("assignment.reassigned"),)))
    assert store.view(GOAL).nodes == before.nodes
    assert store.view(GOAL).assignments["A_1"].agent_id == "eve"


@pytest.mark.req("3-074", "3-017")
def test_histories_are_only_added_to(store: AnyGoalStore) -> None:
    """Break: take a trigger out of rows._SECOND, or the comparison out of `_put_assignment`."""
    filled(store)
    one = store.view(GOAL).assignments["A_1"]
    first, second = one.dispatch_history
    answered = replace(second, result=Result.ACCEPTED, result_at=9.0, attempts=2)
    store.apply(Change(assignments=(replace(one, dispatch_history=(first, answered, dispatch("D_3"))),)))
    assert store.view(GOAL).assignments["A_1"].dispatch_history == (first, answered, dispatch("D_3"))
    for wrong in ((first,), (second, first), (replace(first, ts=99.0), answered, dispatch("D_3"))):
        with pytest.raises(StateError):
            store.apply(Change(assignments=(replace(one, dispatch_history=wrong),)))
    with pytest.raises(StateError):  # an id is delivered at most once, across assignments
        store.apply(
            Change(assignments=(assignment(assignment_id="A_2", dispatch_history=(dispatch("D_1"),)),))
        )
    for sql in ("DELETE FROM events", "UPDATE events SET ts = 0", "DELETE FROM dispatches"):
        with pytest.raises(LlmcError, match="stays"), store.writing() as tx:
            tx.db.execute(sql)
    assert len(store.view(GOAL).assignments["A_1"].dispatch_history) == 3


@pytest.mark.req("3-017")
def test_old_events_are_summed_up_and_none_is_forgotten(
    store: AnyGoalStore, monkeypatch: pytest.MonkeyPatch
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
    assert rows[-1][1].type == "tick", "the latest are as they were"


@pytest.mark.req("3-013", "3-051", "3-052", "3-129")
def test_an_update_is_whole_or_not_there(store: AnyGoalStore) -> None:
    """Break: COMMIT in a `finally`."""
    filled(store)
    before = whole(store)

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
    assert whole(store) == before

    def queued(view: GoalView) -> Change:
        moved, told = move_node(view.nodes["S1.1.2"], NodeStatus.QUEUED, 5.0)
        return Change(nodes=(moved,), events=(told,))

    store.update(GOAL, queued)
    assert store.view(GOAL).nodes["S1.1.2"].status is NodeStatus.QUEUED
    with store.reading() as found:
        assert found.events()[-1][1].type == "work.queued"


def test_a_reader_loads_only_the_goals_that_changed(store: AnyGoalStore) -> None:
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
    assert changed_since(store, seen)[0] == seen + 2, "an empty change is not a write"


def test_nodes_that_left_the_plan_are_kept(store: AnyGoalStore) -> None:
    """Break: DELETE instead of the mark."""
    filled(store)
    store.apply(Change(goal=goal(), removed_nodes=("S1.1.3",)))
    assert "S1.1.3" not in store.view(GOAL).nodes
    with store.reading() as found:
        assert found.goals_with("S1.1.3") == []
        assert found.db.execute("SELECT count(*) FROM nodes").fetchone() == (5,)
    store.apply(Change(nodes=(node("S1.1.3", name="again"),)))
    assert store.view(GOAL).nodes["S1.1.3"].name == "again"


@pytest.mark.req("3-X18", "3-012")
def test_updates_of_many_writers_do_not_mix(store: AnyGoalStore, opened: Opened) -> None:
    """Break: let several hold the lock of `_writers`, and use a plain `BEGIN`; or leave out ALONE."""
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
        own = opened()
        for _ in range(10):
            own.update(GOAL, add)

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


def test_a_goal_that_is_gone_leaves_its_assignments_visible(store: AnyGoalStore) -> None:
    """They are reported, not forgotten: llmc deletes no goal, but a store may have been repaired by hand."""
    filled(store)
    with store.writing() as tx:
        tx.db.execute("DELETE FROM goals")
        if isinstance(store, SharedGoals):
            tx.db.execute("commit")
    with store.reading() as found:
        assert [(one.assignment_id, one.goal_id) for one in found.open_assignments()] == [("A_1", GOAL)]
        assert found.view(GOAL) is None


def test_done_assignments_are_not_open(store: AnyGoalStore) -> None:
    given = [assignment(status, assignment_id=f"A_{status}") for status in AssignmentStatus]
    store.apply(Change(goal=goal(), assignments=tuple(given)))
    with store.reading() as found:
        assert {str(one.status) for one in found.open_assignments()} == {
            *("queued", "dispatched", "active", "stalled", "blocked")
        }
