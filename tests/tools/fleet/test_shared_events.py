"""Events of all nodes in PostgreSQL: sent once, ordered by the database's clock, and removed in time."""

import json
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import psycopg
import pytest

from llmc.fleet import shared_events, statements
from llmc.fleet.database import Database
from llmc.fleet.nodes import Membership
from llmc.fleet.shared_events import Outbox
from tests.support.waiting import wait_until


@pytest.fixture
def nodes(database: str) -> Iterator[list[Membership]]:
    db = Database(database)
    db.migrate()
    members = [Membership(db, name, f"id-of-{name}", f"host:/{name}", 60.0) for name in ("one", "two")]
    for own in members:
        db.rows(statements.JOIN, own.values)
    yield members
    db.close()


def outbox(own: Membership, folder: Path) -> Outbox:
    return Outbox(own, folder / f"{own.node}.jsonl", {"accepted"})


def log(folder: Path, node: str, seq: int, ts: float, action: str = "accepted") -> None:
    row = {"seq": seq, "ts": ts, "action": action, "worker": "auto-1", "prompt": "a \0 b"}
    with (folder / f"{node}.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


def test_a_wrong_clock_does_not_change_the_order(
    nodes: list[Membership], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: store the time of the node's own log."""
    one, two = nodes
    now = time.time()
    log(tmp_path, "one", 1, now + 3600 - 20)
    log(tmp_path, "one", 2, now + 3600 - 5, "hook_received")
    log(tmp_path, "two", 1, now - 10)
    with monkeypatch.context() as patch:
        patch.setattr(shared_events, "now_unix", lambda: now + 3600)
        outbox(one, tmp_path).send()
    outbox(two, tmp_path).send()
    found = shared_events.since(two, now - 60)
    assert [row["worker"] for row in found] == ["one/auto-1", "two/auto-1"]
    assert [round(row["ts"] - now) for row in found] == [-20, -10]
    assert found[0]["prompt"] == "a \N{REPLACEMENT CHARACTER} b"
    assert shared_events.since(one, now - 15) == found[1:]


def test_an_event_is_stored_once(nodes: list[Membership], tmp_path: Path) -> None:
    """Break: leave out the number of the last row; a restarted daemon would send it again."""
    one, now = nodes[0], time.time()
    log(tmp_path, "one", 1, now - 2 * shared_events.PAST_S)
    log(tmp_path, "one", 2, now - 2)
    with (tmp_path / "one.jsonl").open("a") as file:  # edited by hand
        file.write('{"seq": 9, "ts": 1e300, "action": "accepted", "cost": NaN}\n')
        file.write('{"seq": 99999999999999999999, "ts": 1, "action": "accepted"}\n')
    sending = outbox(one, tmp_path)
    sending.send()
    assert [round(row["ts"] - now) for row in shared_events.since(one, 0)] == [-2], (
        "for a new node, the last day"
    )
    log(tmp_path, "one", 3, now - 1)
    for box in (sending, outbox(one, tmp_path), sending):
        box.send()
    assert len(shared_events.since(one, 0)) == 2


def test_the_last_events_are_those_of_the_wanted_worker(
    nodes: list[Membership], database: str, tmp_path: Path
) -> None:
    """Break: count the events of other workers; or cut the new events, too."""
    one, two = nodes
    for seq in (1, 2, 3):
        log(tmp_path, "one", seq, time.time() - 60 + seq)
    log(tmp_path, "two", 1, time.time() - 10)
    for own in nodes:
        outbox(own, tmp_path).send()
    assert [row["seq"] for row in shared_events.since(two, 0, most=2)] == [3, 4]
    assert [row["seq"] for row in shared_events.since(two, 0, "one/auto-1", 2)] == [2, 3]
    assert shared_events.since(two, 0, most=0) == []
    reader = Membership(Database(database), "reader", "id", "host:/", 60.0)
    following = shared_events.follow(reader, 0, "one/auto-1", 1)
    assert next(following)["seq"] == 3
    for seq in (4, 5):
        log(tmp_path, "one", seq, time.time())
    outbox(one, tmp_path).send()
    assert [row["seq"] for row in islice(following, 2)] == [5, 6]
    following.close()
    reader.database.close()


def test_who_follows_gets_each_event_once_and_at_once(
    nodes: list[Membership], database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: do not notify; or forget a number whose row appears after a higher one."""
    monkeypatch.setattr(shared_events, "LOOK_S", 1000.0)
    one, two = nodes
    log(tmp_path, "one", 1, time.time() - 2 * 3600)
    log(tmp_path, "one", 2, time.time() - 60)
    outbox(one, tmp_path).send()
    got: list[tuple[str, int]] = []
    reader = Membership(Database(database), "reader", "id", "host:/", 60.0)

    def read() -> None:
        for row in islice(shared_events.follow(reader, time.time() - 3600), 4):
            got.append((row["node"], row["seq"]))
        reader.database.close()

    following = threading.Thread(target=read)
    following.start()
    wait_until(lambda: got == [("one", 2)])
    with psycopg.connect(database) as late:  # its number is taken, but its row is not visible yet
        insert = "insert into llmc.event (node, at, payload) values (%s, now(), %s)"
        late.execute(insert, ("one", '{"worker": "auto-1", "action": "accepted"}'))
        log(tmp_path, "two", 1, time.time())
        outbox(two, tmp_path).send()
        wait_until(lambda: got[1:] == [("two", 4)])
    log(tmp_path, "two", 2, time.time())
    outbox(two, tmp_path).send()
    following.join(20)
    assert got == [("one", 2), ("two", 4), ("one", 3), ("two", 5)]


def test_a_node_notifies_only_those_who_follow(
    nodes: list[Membership], database: str, tmp_path: Path
) -> None:
    """Break: notify with each heartbeat that has events; every listening connection would wake."""
    one = nodes[0]
    with psycopg.connect(database, autocommit=True) as ear:
        ear.execute("listen llmc_event")
        log(tmp_path, "one", 1, time.time())
        outbox(one, tmp_path).send()
        ear.execute("select")
        assert list(ear.notifies(timeout=0)) == []


def test_old_events_are_removed(
    nodes: list[Membership], database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: leave out `old`."""
    one, now = nodes[0], time.time()
    sending = outbox(one, tmp_path)
    for seq in range(1, 4):
        log(tmp_path, "one", seq, now - 10 + seq)
    sending.send()
    with psycopg.connect(database) as db:
        db.execute("update llmc.event set at = now() - interval '31 days' where id < 3")
    log(tmp_path, "one", 4, now - 6)
    sending.send()
    assert [row["seq"] for row in shared_events.since(one, 0)] == [3, 4]
    monkeypatch.setattr(shared_events, "MOST_ROWS", 1)
    log(tmp_path, "one", 5, now - 5)
    sending.send()
    assert [row["seq"] for row in shared_events.since(one, 0)] == [4, 5]
