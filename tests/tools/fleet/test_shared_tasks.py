"""Tasks in PostgreSQL: what several nodes share, and what happens when one of them is lost."""

import random
import threading
import time
from functools import partial

import psycopg
import pytest
from msgspec.structs import replace

from llmc.base.errors import ClaimLost
from llmc.base.names import TaskId, TaskKey
from llmc.fleet.database import Database
from llmc.fleet.nodes import Membership
from llmc.goals.store.shared_goals import SharedGoals
from llmc.records.books import MAX_ATTEMPTS, Claim
from llmc.records.task import Task, TaskStatus
from llmc.tasks.rules import claims
from llmc.tasks.rules.draft import Draft, new_task
from llmc.tasks.shared import SharedTasks
from tests.support.fleet import in_soak
from tests.support.goal_records import GOAL, full_change
from tests.support.shared_tasks import OpenShared


def add(source: SharedTasks, subject: str = "Do it", **fields: object) -> TaskKey:
    draft = Draft(subject, **fields)  # type: ignore[arg-type]
    return source.key(source.add(new_task(draft, TaskId), "person").id)


def took(source: SharedTasks, worker: str = "auto-1", *labels: str) -> Claim:
    found = source.take_next(worker, labels)
    assert found is not None
    return found[1]


def let_leases_end(url: str) -> None:
    """As if the time had passed: tests do not wait for it."""
    with psycopg.connect(url) as db:
        db.execute("update llmc.task set lease_until = now() - interval '1 second' where claim is not null")


def test_two_nodes_have_workers_of_one_name(open_shared: OpenShared) -> None:
    """Break: identify claims by the worker's name alone."""
    one, two = open_shared("one"), open_shared("two")
    first, second = add(one), add(one)
    claim, other = took(one), took(two)
    assert (claim.task, other.task) == (first, second)
    assert one.books().claims == {"auto-1": claim}
    assert two.books().claims == {"auto-1": other}
    assert (one.one(first).owner, two.one(first).owner) == ("auto-1", "one/auto-1")
    assert two.books().claim_on(first) is None, "not a claim of this root"


def test_a_stale_holder_changes_nothing(open_shared: OpenShared, database: str) -> None:
    """Break: end or land a claim by its task alone, without its token."""
    one, two = open_shared("one"), open_shared("two")
    key = add(one)
    stale = took(one)
    let_leases_end(database)
    assert two.expire() == [(key, "one")]
    current = took(two)
    add(one)
    took(one, "auto-2")  # the node is back, and has another task
    assert int(current.id) > int(stale.id)
    assert not one.renew(stale.id)
    with pytest.raises(ClaimLost, match="out of contact with the fleet"):
        one.about_to_land(stale, "c0ffee")
    with pytest.raises(ClaimLost):
        one.finish(stale, "c0ffee")
    one.release(stale, "it fails", cause="task", counts=True)
    one.release(stale, "too expensive", hold="parked")
    assert two.renew(current.id)
    assert (two.one(key).owner, two.one(key).waits_for_a_person) == ("auto-1", "")
    assert (two.books().attempts(key), two.books().kept_back(key)) == (0, "")
    two.about_to_land(current, "beef")
    two.finish(current, "beef")
    assert one.books().landed_as("beef") == key


def test_a_lease_that_is_renewed_does_not_end(open_shared: OpenShared, database: str) -> None:
    one, two = open_shared("one"), open_shared("two")
    add(one)
    claim = took(one)
    let_leases_end(database)
    assert one.renew(claim.id), "no node took it over"
    assert two.expire() == []


def test_an_end_is_told_twice(open_shared: OpenShared) -> None:
    """Break: refuse a holder whose connection broke before it heard that the task is completed."""
    source = open_shared()
    key = add(source)
    claim = took(source)
    source.finish(claim, "c0ffee")
    source.finish(claim, "c0ffee")
    assert source.books().landed_as("c0ffee") == key
    with pytest.raises(ClaimLost):
        source.finish(claim, "beef")


def test_the_failures_of_all_nodes_count(open_shared: OpenShared) -> None:
    """Break: fold only this node's entries."""
    nodes = [open_shared(f"n{number}") for number in range(MAX_ATTEMPTS)]
    key = add(nodes[0])
    for node in nodes:
        node.release(took(node), "it fails", cause="task", counts=True)
    assert {node.books().kept_back(key) for node in nodes} == {"quarantined"}
    assert nodes[0].take_next("auto-1", ()) is None
    assert [task.id for task in nodes[1].held()] == [key.id]
    assert "auto-1" in nodes[0].books().streaks


def test_the_order_is_label_then_priority_then_number(open_shared: OpenShared) -> None:
    """Break: order by the id as text; or leave out the labels in use."""
    source = open_shared()
    keys = [add(source, f"Do {number}") for number in range(1, 11)]
    urgent = add(source, "Urgent", priority=0, label="db")
    beside = add(source, "Beside", priority=4, label="ui")
    assert took(source, "auto-1").task == urgent
    assert took(source, "auto-2", "db").task == keys[0]
    got = [took(source, f"auto-{number}", "db", "ui").task for number in range(3, 12)]
    assert got == keys[1:], "2 comes before 10"
    assert took(source, "auto-12", "ui").task == beside, "if every label is in progress, all are considered"


@pytest.mark.parametrize("wrong_s", [0, 600, -600])
def test_after_a_crash_a_task_waits(
    open_shared: OpenShared, database: str, wrong_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: leave out `not_before`; or measure with the node's clock, which may be wrong."""
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + wrong_s)
    source = open_shared(backoff_s=30.0)
    key = add(source)
    source.release(took(source), "the agent exited", cause="crash", counts=True)
    assert source.take_next("auto-1", ()) is None
    look = source.look(10)
    assert (look.ready, 25 < look.after_crash_s <= 30) == (0, True)
    with psycopg.connect(database) as db:
        db.execute("update llmc.task set not_before = now()")
    assert took(source).task == key
    assert source.look(10).after_crash_s == 0


def test_what_is_done_in_the_ledger_alone_is_not_given_out(open_shared: OpenShared) -> None:
    """Break: assign it although `tasks done` was killed halfway; or leave it that way forever."""
    source = open_shared()
    key = add(source)
    source.write("completed", Claim("", key, ""), reason="marked done by the user")
    assert source.take_next("auto-1", ()) is None
    assert source.settle() == [key]
    assert source.one(key).status is TaskStatus.COMPLETED


def test_open_dependencies_are_counted(open_shared: OpenShared, database: str) -> None:
    """Break: count them only when the task is added."""
    source = open_shared()
    one = add(source, "One")
    two = add(source, "Two", after=(one.id,))
    three = add(source, "Three", after=(one.id, two.id))
    four = add(source, "Four", before=(three.id,))
    assert waits(database) == {one.id: 0, two.id: 1, three.id: 3, four.id: 0}
    assert source.one(three).blocked_by == (one.id, two.id, four.id)
    claim = took(source)
    source.finish(claim, "c0ffee")
    assert waits(database) == {one.id: 0, two.id: 0, three.id: 2, four.id: 0}
    source.write("requeued", claim)
    source.edit(one, partial(claims.set_by_user, seen=source.one(one)))
    assert waits(database) == {one.id: 0, two.id: 1, three.id: 3, four.id: 0}
    source.edit(three, partial(_needs_only, needs=(two.id,)))
    assert waits(database)[three.id] == 1
    assert source.open_needs() == [
        {"task": two.id, "needs": one.id, "missing": False},
        {"task": three.id, "needs": two.id, "missing": False},
    ]


def test_only_its_holder_completes_a_claimed_task(open_shared: OpenShared) -> None:
    """Break: trust an edit; dependent tasks would start before its work has landed."""
    source = open_shared()
    one = add(source)
    add(source, after=(one.id,))
    took(source)
    done = source.edit(one, lambda task: replace(task, status=TaskStatus.COMPLETED, owner=""))
    assert (done.status, done.owner) == (TaskStatus.IN_PROGRESS, "auto-1")
    assert source.take_next("auto-2", ()) is None


def _needs_only(task: Task, needs: tuple[TaskId, ...]) -> Task:
    return Task(task.id, task.subject, task.description, task.status, (), needs, "", task.metadata)


def waits(url: str) -> dict[str, int]:
    with psycopg.connect(url) as db:
        return dict(db.execute("select id, waits from llmc.task order by number").fetchall())


def test_no_task_waits_for_what_completes_while_it_is_added(open_shared: OpenShared, database: str) -> None:
    """Break: count dependencies without locking them; a task without open ones would wait forever."""
    one, two = open_shared("one"), open_shared("two")
    keys = [add(one) for _ in range(30)]
    start = threading.Barrier(2)

    def finish_all() -> None:
        for _ in keys:
            claim = took(one)
            start.wait(20)
            one.finish(claim, "c0ffee")

    def add_all() -> None:
        for key in keys:
            start.wait(20)
            add(two, after=(key.id,), priority=4)

    threads = [threading.Thread(target=work) for work in (finish_all, add_all)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert set(waits(database).values()) == {0}


@pytest.mark.parametrize("seed", [0, *in_soak(1, 2)])
def test_two_nodes_work_off_a_graph_each_task_once(open_shared: OpenShared, database: str, seed: int) -> None:
    """Break: claim without `for update`; or forget to count down a dependency."""
    chance = random.Random(seed)
    first = open_shared("n0")
    needs: dict[str, list[str]] = {}
    for number in range(60):
        after = chance.sample(sorted(needs), min(number, chance.randrange(4)))
        needs[add(first, f"Do {number}", after=tuple(after)).id] = after

    def work(source: SharedTasks) -> None:
        while set(waits(database)) != {task for task, *_ in entries(database, "completed")}:
            if (found := source.take_next("auto-1", ())) is not None:
                source.finish(found[1], "c0ffee")

    threads = [threading.Thread(target=work, args=(open_shared(f"n{number}"),)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    claimed, completed = entries(database, "claimed"), dict(entries(database, "completed"))
    assert sorted(task for task, _ in claimed) == sorted(needs), "each one once"
    assert all(completed[other] < seq for task, seq in claimed for other in needs[task])


def entries(url: str, action: str) -> list[tuple[str, int]]:
    """Which tasks had this action, and when."""
    with psycopg.connect(url) as db:
        return db.execute("select task, seq from llmc.entry where action = %s", (action,)).fetchall()


def test_an_entry_that_appears_late_is_in_the_books(open_shared: OpenShared, database: str) -> None:
    """Break: continue from the highest number alone."""
    one, two = open_shared("one"), open_shared("two")
    key, other = add(one), add(one)
    with psycopg.connect(database) as slow:
        slow.execute(
            "insert into llmc.entry (node, worker, list, task, action, claim) values ('x', '', %s, %s, 'completed', '')",
            tuple(key),
        )
        two.write("completed", Claim("", other, ""))
        assert one.books().completed_in("plan") == {other.id}
        slow.commit()
    assert one.books().completed_in("plan") == {key.id, other.id}


def test_text_that_postgres_does_not_take_is_stored_all_the_same(open_shared: OpenShared) -> None:
    """Break: pass a NUL to the database."""
    source = open_shared()
    hostile = "a\0b \ud800 \\u0000 ; drop table llmc.task; -- %s %(x)s"
    task = Task(TaskId("x"), hostile, hostile, TaskStatus.PENDING, metadata={"k": hostile, "label": "db"})
    key = source.key(source.add(task, hostile).id)
    assert source.one(key).subject.startswith("a\N{REPLACEMENT CHARACTER}b")
    claim = took(source, "auto-1")
    source.release(claim, hostile, cause=hostile, counts=True)
    assert source.books().attempts(key) == 1


def test_a_node_needs_no_more_than_the_documented_rights(open_shared: OpenShared, database: str) -> None:
    """Break: use something that only the owner of the tables may do."""
    open_shared()
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("drop role if exists node_role")
        db.execute("create role node_role login")
        for schema in ("llmc", "llmc_goals"):
            db.execute(f"grant usage on schema {schema} to node_role")
            db.execute(f"grant select, insert, update, delete on all tables in schema {schema} to node_role")
            db.execute(f"grant usage on all sequences in schema {schema} to node_role")
    limited = Database(database.replace("llmc@", "node_role@"))
    source = SharedTasks(Membership(limited, "two", "id", "host:/", 60.0), "plan")
    one = add(source, "One")
    add(source, "Two", after=(one.id,))
    claim = took(source)
    source.about_to_land(claim, "c0ffee")
    source.finish(claim, "c0ffee")
    source.release(took(source), "stopped")
    assert source.expire() == []
    SharedGoals(limited).apply(full_change())
    assert SharedGoals(limited).view(GOAL).goal.goal_id == GOAL
    limited.close()
