"""A fleet's database: claims that two nodes race for, a million tasks, growth, and an idle node.

The growth is in fleet_growth.py. The server writes to disk as in production.
Its clients are threads of one process on the same machine.
"""

import contextlib
import time
from functools import partial

import psycopg
from tests.support.fleet_nodes import fleet_of, up
from tests.support.postgres import DURABLE, Postgres
from tests.support.waiting import wait_until

from bench import fleet_growth
from bench.fleet_growth import nodes, together
from bench.measure import Row, clock_ms, row
from llmc.fleet.nodes import Membership
from llmc.tasks.shared import SharedTasks

NAME = "fleet"
RACED, MANY, CONNECTIONS, CLAIMS = 10_000, 1_000_000, 100, 5_000
IDLE_S, MOST_QUERIES = 40.0, 2.0


def run() -> list[Row]:
    with contextlib.closing(Postgres(DURABLE)) as server:
        idle, connections = _idle(server.new())
        return [
            _raced(server.new()),
            _among_many(server.new()),
            *fleet_growth.rows(server, connections),
            idle,
        ]


def _raced(url: str) -> Row:
    """Two nodes claim all tasks; no task has two holders."""
    with nodes(url, 2, 2, RACED) as (_, members):
        floor = _floor(members[0])
        won, took_s = _claim(RACED, members)
        assert len(won) == len(set(won)) == RACED, f"{len(won)} claims of {len(set(won))} tasks"
    return _judged(f"{RACED:,} claims raced by 2 nodes, none twice", took_s, RACED, floor)


def _among_many(url: str) -> Row:
    with nodes(url, CONNECTIONS, CONNECTIONS, MANY) as (_, members):
        floor = _floor(members[0])
        won, took_s = _claim(CLAIMS, members)
        assert len(set(won)) == len(won)
    return _judged(f"a claim among {MANY:,} tasks, {CONNECTIONS} connections", took_s, len(won), floor)


def _idle(url: str) -> tuple[Row, int]:
    """What an idle node asks of the database, and how many connections it has."""
    with fleet_of(("one",), url, **{"defaults.patrol_interval_secs": "120"}) as made:
        up(made["one"], "--concurrency", "3")
        wait_until(lambda: _transactions(url) > 0)
        time.sleep(12)  # past the start
        before, began = _transactions(url), time.monotonic()
        time.sleep(IDLE_S)
        asked = _transactions(url) - before - 1  # our own query
        per_10_s = asked * 10 / (time.monotonic() - began)
        connections = _connections(url)
    case, note = (
        "an idle node with 3 workers",
        f"queries per 10 s, instead of a time; {connections} connections",
    )
    return row(NAME, case, [per_10_s], "2 queries", MOST_QUERIES, target=1.0, note=note), connections


def _connections(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as db:
        found = db.execute(
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
        )
        return int((found.fetchone() or (0,))[0])


def _transactions(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("select pg_stat_force_next_flush()")
        found = db.execute("select xact_commit from pg_stat_database where datname = current_database()")
        return int((found.fetchone() or (0,))[0])


def _judged(case: str, took_s: float, count: int, floor_ms: float) -> Row:
    note = f"{count / took_s:,.0f} claims/s"
    return row(NAME, case, [took_s * 1000 / count], "one durable update", floor_ms, target=3.0, note=note)


def _floor(own: Membership) -> float:
    """A statement that changes one row and is on disk when it returns."""
    own.database.rows("create table if not exists floor (n int)")
    own.database.rows("insert into floor values (0)")
    times = [clock_ms(lambda: own.database.rows("update floor set n = n + 1")) for _ in range(200)]
    return sorted(times)[len(times) // 2]


def _claim(count: int, members: list[Membership]) -> tuple[list[str], float]:
    """All nodes claim at once, until `count` tasks are claimed."""
    won: list[str] = []

    def work(own: Membership) -> None:
        source = SharedTasks(own, "plan")
        while len(won) < count and (found := source.take_next("auto-1", ())) is not None:
            won.append(found[0].id)

    return won, together([partial(work, own) for own in members])
