"""Which nodes are called for a task: as many waiting ones as there are tasks for them, and no others."""

from collections.abc import Iterator

import psycopg
import pytest

from llmc.base.names import TaskId, TaskKey
from llmc.fleet import statements
from llmc.fleet.database import Database, Listening
from llmc.fleet.nodes import Beating, Membership
from llmc.records.books import MAX_ATTEMPTS, Claim
from llmc.tasks.rules.draft import Draft, new_task
from llmc.tasks.shared import SharedTasks
from tests.support.waiting import wait_until

NAMES = ("one", "two", "three")


class Fleet:
    """Nodes with running daemons, and what each of them hears."""

    def __init__(self, url: str) -> None:
        self.databases: list[Database] = []
        self.tasks: dict[str, SharedTasks] = {}
        self.beating: dict[str, Beating] = {}
        for name in NAMES:
            self.join(url, name)
        self.ear = psycopg.connect(url, autocommit=True)
        for channel in (statements.CHANNEL, *map(statements.channel_of, NAMES)):
            self.ear.execute(f'listen "{channel}"')

    def join(self, url: str, name: str) -> None:
        own = Membership(Database(url), name, f"id-of-{name}", f"host:/{name}", 60.0)
        own.database.migrate()
        own.database.rows(statements.JOIN, own.values)
        self.databases.append(own.database)
        self.tasks[name] = SharedTasks(own, "plan")
        self.beating[name] = Beating(own, "plan")
        self.beating[name].start()

    def heard(self) -> list[str]:
        """The nodes called since the last time; "all" for what every node hears."""
        self.ear.execute("select")
        found = [note.channel for note in self.ear.notifies(timeout=0)]
        return [channel.partition(":")[2] or "all" for channel in found]

    def wait(self, *names: str, free: int = 1) -> None:
        for name in names:
            assert self.tasks[name].look(10, free).ready == 0

    def close(self) -> None:
        self.ear.close()
        for one in self.databases:
            one.close()


@pytest.fixture
def fleet(database: str) -> Iterator[Fleet]:
    made = Fleet(database)
    yield made
    made.close()


def add(source: SharedTasks, *after: TaskKey) -> TaskKey:
    draft = Draft("Do it", after=tuple(key.id for key in after))
    return source.key(source.add(new_task(draft, TaskId), "person").id)


def took(source: SharedTasks) -> Claim:
    found = source.take_next("auto-1", ())
    assert found is not None
    return found[1]


def test_a_task_that_ends_calls_as_many_nodes_as_it_makes_tasks_ready(fleet: Fleet) -> None:
    """Break: notify all nodes when a task ends; or call one that has not checked since its last call."""
    one = fleet.tasks["one"]
    first = add(one)
    second = add(one, first)
    for _ in range(2):
        add(one, second)
    claim = took(one)
    fleet.wait(*NAMES)
    assert fleet.heard() == ["all"] * 4, (
        "none waited for the first; the others may be stuck: each node lists that"
    )
    one.finish(claim, "c1")
    assert len(fleet.heard()) == 1
    one.finish(took(one), "c2")
    assert len(fleet.heard()) == 2, "the two that were not called before"
    claim, _ = took(one), took(one)
    fleet.wait("two")
    one.finish(claim, "c3")
    assert fleet.heard() == [], "nothing became ready"


def test_a_new_task_and_one_that_is_released_call_one_node(fleet: Fleet, database: str) -> None:
    """Break: leave one of them out; its task would wait for a heartbeat."""
    one, two = fleet.tasks["one"], fleet.tasks["two"]
    fleet.wait("two")
    add(one)
    assert fleet.heard() == ["two"]
    claim = took(one)
    fleet.wait("two")
    one.release(claim, "the daemon was stopped")
    assert fleet.heard() == ["two"]
    took(one)
    fleet.wait("two")
    with psycopg.connect(database) as db:
        db.execute("update llmc.task set lease_until = now() - interval '1 second'")
    assert len(two.expire()) == 1
    assert fleet.heard() == ["two"]
    for _ in range(MAX_ATTEMPTS):
        one.release(took(one), "it fails", cause="task", counts=True)
    assert fleet.heard() == ["all"], "it is held: each node lists it"


def test_who_has_more_free_workers_than_tasks_is_called_again(fleet: Fleet) -> None:
    """Break: forget that a node with three free workers, called for one task, still has two."""
    one, two = fleet.tasks["one"], fleet.tasks["two"]
    fleet.wait("two", free=3)
    for _ in range(3):
        add(one)
        assert fleet.heard() == ["two"]
        assert two.look(10, free=3).ready == 1
        took(two)
    assert one.look(10, free=0).ready == 0
    two.call_waiting()
    assert fleet.heard() == ["two"], "the mark that its last check left"
    add(one)
    assert fleet.heard() == ["all"], "a node without a free worker does not wait"


@pytest.mark.parametrize("end", ["stop", "start", "silence"])
def test_a_node_that_ends_starts_or_is_silent_does_not_wait(fleet: Fleet, database: str, end: str) -> None:
    """Break: call a missing node in place of one that is there."""
    fleet.wait("one", "two")
    if end == "silence":
        with psycopg.connect(database) as db:
            db.execute("update llmc.node set seen = now() - interval '1 hour' where name = 'one'")
    else:
        getattr(fleet.beating["one"], end)()
    add(fleet.tasks["three"])
    assert fleet.heard() == ["two"]
    add(fleet.tasks["three"])
    assert fleet.heard() == ["all"]


def test_another_list_calls_nobody(fleet: Fleet) -> None:
    """Break: leave out the list; a node would be called for tasks that it cannot take."""
    fleet.wait("two")
    other = SharedTasks(fleet.tasks["one"]._own, "another")
    add(other)
    assert fleet.heard() == ["all"]
    other.release(took(other), "the daemon was stopped")
    assert fleet.heard() == []


def test_a_task_that_appears_while_a_node_begins_to_wait_is_seen(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: count once; the adder did not know that the node waits, and the node did not see the task."""
    one, two = fleet.tasks["one"], fleet.tasks["two"]
    real = two._db.rows

    def late(statement: str, values: object = None) -> list[dict[str, object]]:
        found = real(statement, values)  # type: ignore[arg-type]
        if statement == statements.LOOK:
            monkeypatch.undo()
            add(one)
        return found

    monkeypatch.setattr(two._db, "rows", late)
    assert two.look(10, free=1).ready == 1


def test_a_call_wakes_only_its_node(fleet: Fleet, database: str) -> None:
    """Break: let every node listen to all calls; one call would wake a thousand processes."""
    heard: dict[str, list[str]] = {name: [] for name in NAMES}
    ears = {name: Listening(Database(database), name, heard[name].append) for name in NAMES}
    fleet.wait("two")
    add(fleet.tasks["one"])
    wait_until(lambda: ears["two"].heard() and heard["two"] == ["task"])
    assert all(ear.heard() for ear in ears.values())
    assert (heard["one"], heard["three"]) == ([], [])
    for ear in ears.values():
        ear.close()
