"""What a tick remembers about the goals: always what is in the store, and only what is new is read."""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from llmc.goals.desk import Desk
from llmc.goals.model import (
    AssignmentStatus,
    Change,
    Crystallization,
    Event,
    GoalStatus,
    Node,
    NodeStatus,
    Result,
)
from llmc.goals.plan.plan import shape_of
from llmc.goals.store import rows as goal_rows
from llmc.goals.store.goal_store import GoalStore
from llmc.goals.store.rows import VERSION
from tests.support import on_postgres
from tests.support.goal_records import assignment, crystallization, dispatch, goal, node
from tests.support.goal_workshop import Workshop

pytestmark = on_postgres.GOAL_FILE

GOALS = ("goal_0", "goal_1", "goal_2")
PLAN = ("P1", "T1.1", "S1.1.1", "S1.1.2", "T1.2", "S1.2.1")


@pytest.fixture
def store(tmp_path: Path) -> GoalStore:
    made = GoalStore(tmp_path / "overseer", busy_s=5)
    for goal_id in GOALS:
        nodes = tuple(node(one, goal_id=goal_id) for one in PLAN)
        made.apply(Change(goal=goal(goal_id=goal_id), nodes=nodes))
    return made


def read(desk: Desk, store: GoalStore) -> bool:
    with store.reading() as found:
        return desk.read(found)


def check(desk: Desk, store: GoalStore) -> None:
    """Whether everything is as a new reader finds it, in the same order."""
    with store.reading() as found:
        assert sorted(desk.goals()) == sorted(found.goal_ids())
        for goal_id, view in desk.views().items():
            now = found.view(goal_id)
            assert now is not None
            assert view == now
            assert (list(view.nodes), list(view.assignments)) == (list(now.nodes), list(now.assignments))
            newest = {one.work_node_id: one for one in found.crystallizations(goal_id)}
            assert desk.crystals(goal_id) == newest
            assert desk.shape(goal_id) == shape_of(now.nodes)


class Somebody:
    """Another process, which changes goals as commands, workers' reports and new plans do."""

    def __init__(self, store: GoalStore, seed: int) -> None:
        self.store = GoalStore(store.directory, busy_s=5)
        self.random = random.Random(seed)
        self.made = 0

    def name(self, kind: str) -> str:
        self.made += 1
        return f"{kind}_{self.made}"

    def change(self) -> Change:
        """Any change to any goal."""
        goal_id = self.random.choice(GOALS)
        view = self.store.view(goal_id)
        deeds = (self._move, self._hang, self._new_plan, self._give, self._send, self._sum_up, self._pause)
        return self.random.choice(deeds)(goal_id, list(view.nodes.values()))

    def _move(self, goal_id: str, nodes: list[Node]) -> Change:
        some = self.random.sample(nodes, k=self.random.randint(1, min(3, len(nodes))))
        return Change(
            nodes=tuple(replace(one, status=self.random.choice(list(NodeStatus))) for one in some),
            events=(Event(ts=1.0, type="work.queued", goal_id=goal_id),),
        )

    def _hang(self, goal_id: str, nodes: list[Node]) -> Change:
        """The same items, but one now waits for another, or moved among its siblings."""
        one, other = self.random.choice(nodes), self.random.choice(nodes)
        waits = replace(one, depends_on=() if one is other else (other.node_id,))
        return Change(nodes=(self.random.choice((waits, replace(one, position=self.random.randint(1, 5)))),))

    def _new_plan(self, goal_id: str, nodes: list[Node]) -> Change:
        gone = [one.node_id for one in nodes if one.node_id[0] == "S" and self.random.random() < 0.3]
        more = node(f"S1.{self.random.randint(1, 2)}.{self.random.randint(1, 9)}", goal_id=goal_id)
        return Change(
            goal=self.store.view(goal_id).goal,
            nodes=(more,) if self.random.random() < 0.7 else (),
            removed_nodes=tuple(one for one in gone if one != more.node_id),
        )

    def _give(self, goal_id: str, nodes: list[Node]) -> Change:
        one = self.random.choice(nodes).node_id
        return Change(
            assignments=(assignment(assignment_id=self.name("A"), goal_id=goal_id, work_node_id=one),)
        )

    def _send(self, goal_id: str, nodes: list[Node]) -> Change:
        """One more dispatch, or the outcome of the last one."""
        given = list(self.store.view(goal_id).assignments.values())
        if not given:
            return self._give(goal_id, nodes)
        one = self.random.choice(given)
        history = one.dispatch_history
        if history and self.random.random() < 0.5:
            history = (*history[:-1], replace(history[-1], result=self.random.choice(list(Result))))
        else:
            history = (*history, dispatch(self.name("D")))
        return Change(assignments=(replace(one, dispatch_history=history),))

    def _sum_up(self, goal_id: str, nodes: list[Node]) -> Change:
        """By a clock that is sometimes set back."""
        return Change(crystallizations=(self._crystal(goal_id, self.random.choice(nodes).node_id),))

    def _crystal(self, goal_id: str, node_id: str) -> Crystallization:
        at = float(self.random.randint(1, 9))
        return crystallization(
            crystallization_id=self.name("C"), goal_id=goal_id, work_node_id=node_id, created_at=at
        )

    def _pause(self, goal_id: str, nodes: list[Node]) -> Change:
        status = self.random.choice(list(GoalStatus))
        return Change(goal=replace(self.store.view(goal_id).goal, status=status))


@pytest.mark.parametrize("seed", range(3))
def test_what_is_kept_is_what_anybody_wrote(store: GoalStore, seed: int) -> None:
    """Break: leave `revision = excluded.revision` out of the UPDATE of nodes or assignments, or `revision =
    ?` out of the mark of removed nodes; or `depends_on` out of `_place`;
    or do not compare `created_at` in `latest_crystals`.
    """
    desk, somebody = Desk(), Somebody(store, seed)
    read(desk, store)
    check(desk, store)
    for _ in range(40):
        for _ in range(somebody.random.randint(1, 3)):
            somebody.store.apply(somebody.change())
        assert read(desk, store)
        check(desk, store)
    assert not read(desk, store), "nothing was written since"


@contextmanager
def decoded_rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    rows: list[str] = []
    real = goal_rows.decoded

    def counting(kind: type, payload: str) -> object:
        rows.append(kind.__name__)
        return real(kind, payload)

    with monkeypatch.context() as patched:
        patched.setattr(goal_rows, "decoded", counting)
        yield rows


def test_what_is_read_grows_with_what_changed_alone(
    store: GoalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: `found.view(goal_id)` in `_read_goal` even for a known goal."""
    old = tuple(
        assignment(assignment_id=f"A_{number}", dispatch_history=(dispatch(f"D_{number}"),))
        for number in range(50)
    )
    told = tuple(crystallization(crystallization_id=f"C_{number}") for number in range(50))
    store.apply(Change(assignments=old, crystallizations=told))
    desk = Desk()
    with decoded_rows(monkeypatch) as rows:
        read(desk, store)
        assert len(rows) == 3 * (1 + len(PLAN)) + 100, "no handoff before it is requested"
    store.apply(Change(assignments=(replace(old[7], retry_count=1),)))
    with decoded_rows(monkeypatch) as rows:
        read(desk, store)
        assert sorted(rows) == ["Assignment", "Dispatch", "Goal"]
    more = crystallization(crystallization_id="C_more")
    store.apply(Change(nodes=(node("S1.1.1", NodeStatus.DONE),), crystallizations=(more,)))
    with decoded_rows(monkeypatch) as rows:
        read(desk, store)
        assert sorted(rows) == ["Goal", "Node"]
    check(desk, store)


def test_what_ended_is_not_read_and_what_is_owed_is(store: GoalStore) -> None:
    """Break: leave `_OWED` out of `live_view`: a failed withdrawal is never retried after a restart."""
    given = {
        "A_open": assignment(assignment_id="A_open", status=AssignmentStatus.ACTIVE),
        "A_over": assignment(
            assignment_id="A_over",
            status=AssignmentStatus.DONE,
            dispatch_history=(dispatch("D_1", result=Result.ACCEPTED),),
        ),
        "A_owed": assignment(
            assignment_id="A_owed",
            status=AssignmentStatus.CANCELLED,
            dispatch_history=(dispatch("D_2", purpose="withdraw", result=Result.ERROR),),
        ),
    }
    store.apply(Change(assignments=tuple(given.values())))
    desk = Desk()
    read(desk, store)
    assert list(desk.views()["goal_1"].assignments) == ["A_open", "A_owed"]
    store.apply(Change(goal=replace(store.view("goal_1").goal, budget_usd=5.0)))
    read(desk, store)
    assert list(desk.views()["goal_1"].assignments) == list(given), "its cost is computed from all of them"


def without_stamps(store: GoalStore) -> None:
    """What version 2 was."""
    with closing(sqlite3.connect(store.path, isolation_level=None)) as db:
        for table in ("nodes", "assignments", "crystallizations"):
            db.execute(f"DROP INDEX {table}_by_revision")
            db.execute(f"ALTER TABLE {table} DROP COLUMN revision")
        db.execute("PRAGMA user_version = 2")


def test_of_an_older_store_that_cannot_be_migrated_everything_new_is_seen_too(store: GoalStore) -> None:
    """Break: leave the UPDATE out of `_rows_stamped`: what an older llmc writes then looks already known."""
    assert VERSION == 3
    without_stamps(store)
    store = GoalStore(store.directory, busy_s=0.1)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as older:
        older.execute("BEGIN IMMEDIATE")
        desk = Desk()
        read(desk, store)
        check(desk, store)
        done = goal_rows.encoded(node("S1.1.1", NodeStatus.DONE))
        older.execute("UPDATE nodes SET payload = ? WHERE node_id = 'S1.1.1' AND goal_id = 'goal_1'", (done,))
        older.execute("UPDATE counters SET value = value + 1 WHERE name = 'revision'")
        older.execute(
            "UPDATE goals SET revision = (SELECT value FROM counters WHERE name = 'revision') WHERE goal_id = 'goal_1'"
        )
        older.execute("COMMIT")
        older.execute("BEGIN IMMEDIATE")
        assert read(desk, store)
        assert desk.views()["goal_1"].nodes["S1.1.1"].status is NodeStatus.DONE
        check(desk, store)


@pytest.mark.parametrize("another", ["older", "new"])
def test_another_store_in_its_place_is_read_from_the_beginning(tmp_path: Path, another: str) -> None:
    """Break: no check of `identity` in `_opened`; for an older one, `revision < self._revision` in `read`."""
    shop = Workshop(tmp_path / "root")
    copy = shop.store.path.read_bytes()
    assert shop.runner.tick(shop.project, "test").did_work
    if another == "older":
        shop.store.path.write_bytes(copy)  # the same file, as it was before
    else:
        revision = _revision(shop.store)
        fresh = GoalStore(tmp_path / "fresh")
        fresh.apply(Change(goal=goal(goal_id="goal_9"), nodes=(node("P1", goal_id="goal_9"),)))
        while _revision(fresh) < revision:
            fresh.apply(Change(events=(Event(ts=1.0, type="x"),)))
        fresh.path.rename(shop.store.path)
    assert shop.runner.tick(shop.project, "test").ok
    check(shop.runner._desk, shop.store)
    assert list(shop.runner._desk.goals()) == ["goal_1" if another == "older" else "goal_9"]


def _revision(store: GoalStore) -> int:
    with store.reading() as found:
        return found.revision()
