"""A fleet's database: claims that two nodes race for, a million tasks, a thousand nodes, and a node with nothing to do.

The server writes to disk as in earnest. Its clients are threads of one process beside it on the same machine.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import psycopg
from tests.support.fleet_nodes import fleet_of, up
from tests.support.postgres import DURABLE, Postgres
from tests.support.waiting import wait_until

from bench.measure import Row, clock_ms, row
from llmc.fleet import statements
from llmc.fleet.database import Database
from llmc.fleet.nodes import Beating, Life, Membership
from llmc.tasks.shared import SharedTasks

NAME = "fleet"
RACED, MANY, CONNECTIONS, CLAIMS = 10_000, 1_000_000, 100, 5_000
#: a thousand nodes that beat every ten seconds
NODES, BEATS_PER_S = (10, 100, 1_000), 100
BEATS, POOL = 1_000, 50
IDLE_S, MOST_QUERIES = 40.0, 2.0

_FILL = """
insert into llmc.task (list, id, number, subject, description, status, priority, label, metadata)
select 'plan', i::text, i, 'Do ' || i, 'text', 'pending', i %% 5, '', '{}' from generate_series(1, %(count)s) i"""


def run() -> list[Row]:
    with contextlib.closing(Postgres(DURABLE)) as server:
        return [_raced(server.new()), _among_many(server.new()), *_beats(server.new()), _idle(server.new())]


def _raced(url: str) -> Row:
    """Two nodes claim all there is; no task has two holders."""
    with _nodes(url, 2) as (one, two):
        _fill(url, RACED)
        floor = _floor(one)
        won, took_s = _claim(RACED, [one, two])
        assert len(won) == len(set(won)) == RACED, f"{len(won)} claims of {len(set(won))} tasks"
    return _judged(f"{RACED:,} claims raced by 2 nodes, none twice", took_s, RACED, floor)


def _among_many(url: str) -> Row:
    with _nodes(url, CONNECTIONS) as sources:
        _fill(url, MANY)
        floor = _floor(sources[0])
        won, took_s = _claim(CLAIMS, sources)
        assert len(set(won)) == len(won)
    return _judged(f"a claim among {MANY:,} tasks, {CONNECTIONS} connections", took_s, len(won), floor)


def _beats(url: str) -> Iterator[Row]:
    """Heartbeats of so many nodes, over a few connections: each has to take less than the time between two."""
    with _nodes(url, POOL) as sources:
        _fill(url, 1_000)
        for count in NODES:
            members = [
                Membership(sources[n % POOL]._db, f"n{n}", f"id-{n}", "host:/", 60.0) for n in range(count)
            ]
            for own in members:
                own.database.rows(statements.JOIN, own.values)
            beating = [Beating(own, "plan") for own in members]
            for one in beating:
                one.start()
            todo = iter([beating[n % count] for n in range(BEATS)])
            took_s = _together([partial(_beat_all, todo)] * min(count, POOL))
            per_beat_ms = took_s * 1000 / BEATS
            note = f"{BEATS / took_s:,.0f}/s; {count:,} nodes need {count / 10:,.0f}/s"
            yield row(
                NAME,
                f"a heartbeat of {count:,} nodes, {min(count, POOL)} connections",
                [per_beat_ms],
                "10 s for all",
                10_000 / count,
                target=1.0,
                note=note,
            )


def _idle(url: str) -> Row:
    """What a node with nothing to do asks of the database."""
    with fleet_of(("one",), url, **{"defaults.patrol_interval_secs": "120"}) as nodes:
        up(nodes["one"], "--concurrency", "3")
        wait_until(lambda: _transactions(url) > 0)
        time.sleep(12)  # past the start
        before, began = _transactions(url), time.monotonic()
        time.sleep(IDLE_S)
        asked = _transactions(url) - before - 1  # our own look
        per_10_s = asked * 10 / (time.monotonic() - began)
    note = "queries per 10 s, instead of a time"
    return row(
        NAME, "an idle node with 3 workers", [per_10_s], "2 queries", MOST_QUERIES, target=1.0, note=note
    )


def _transactions(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("select pg_stat_force_next_flush()")
        found = db.execute("select xact_commit from pg_stat_database where datname = current_database()")
        return int((found.fetchone() or (0,))[0])


def _judged(case: str, took_s: float, count: int, floor_ms: float) -> Row:
    note = f"{count / took_s:,.0f} claims/s"
    return row(NAME, case, [took_s * 1000 / count], "one durable update", floor_ms, target=3.0, note=note)


def _floor(source: SharedTasks) -> float:
    """A statement that changes one row and is on disk when it returns."""
    source._db.rows("create table if not exists floor (n int)")
    source._db.rows("insert into floor values (0)")
    times = [clock_ms(lambda: source._db.rows("update floor set n = n + 1")) for _ in range(200)]
    return sorted(times)[len(times) // 2]


def _claim(count: int, sources: list[SharedTasks]) -> tuple[list[str], float]:
    """All nodes claim at once, until so many tasks are claimed."""
    won: list[str] = []

    def work(source: SharedTasks) -> None:
        while len(won) < count and (found := source.take_next("auto-1", ())) is not None:
            won.append(found[0].id)

    return won, _together([partial(work, source) for source in sources])


def _beat_all(todo: Iterator[Beating]) -> None:
    for one in todo:
        one.beat(Life())


def _together(works: list[Callable[[], None]]) -> float:
    start = threading.Barrier(len(works) + 1)

    def begin(work: Callable[[], None]) -> None:
        start.wait()
        work()

    threads = [threading.Thread(target=begin, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    start.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


@contextlib.contextmanager
def _nodes(url: str, count: int) -> Iterator[list[SharedTasks]]:
    databases = [Database(url) for _ in range(count)]
    databases[0].migrate()
    members = [Membership(db, f"n{n}", f"id-{n}", "host:/", 3600.0) for n, db in enumerate(databases)]
    try:
        yield [SharedTasks(own, "plan") for own in members]
    finally:
        for db in databases:
            db.close()


def _fill(url: str, count: int) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(_FILL, {"count": count})
        db.execute("analyze llmc.task")
