"""The statements of 10, 100 and 1,000 nodes over a bounded number of connections,
and which limit comes first.

A node beats every ten seconds, claims a task for a free worker, and waits for a call if there is none. A task
that ends calls one node for each task that it makes ready; the server wakes every connection that listens.
The cost of a statement is its processor time on the server, whatever else the machine does.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from math import sqrt
from pathlib import Path

import psycopg
from msgspec import Struct
from tests.support.postgres import Postgres

from bench.measure import Row, clock_ms, row
from llmc.fleet import statements
from llmc.fleet.database import Database, Listening
from llmc.fleet.nodes import Beating, Life, Membership
from llmc.tasks.shared import SharedTasks
from llmc.tasks.shared_queue import MOST_READY

NAME = "fleet"
SIZES, POOL = (10, 100, 1_000), 50
TASKS, TIMES = 20_000, 1_500
BEAT_S = 10.0
#: how much slower a statement may be with many nodes than with ten, besides taking turns on connections
GROWTH = 2.0
#: a node with three workers, whose tasks take five minutes
CLAIMS_PER_S = 3 / 300
LOOK_S = 0.02
#: connections that listen while calls are measured
LISTENING = 40

_FILL = """
insert into llmc.task (list, id, number, subject, description, status, priority, label, metadata)
select 'plan', i::text, i, 'Do ' || i, 'text', 'pending', i %% 5, '', '{}' from generate_series(1, %(count)s) i"""
_WAITS = """
select wait_event_type from pg_stat_activity
where state = 'active' and datname = current_database() and pid <> pg_backend_pid()"""


class Measured(Struct):
    """One kind of statement, executed by some number of nodes."""

    latencies_ms: list[float]
    per_s: float
    #: processor time of the server for one statement
    server_ms: float
    #: share of samples in which the statement was waiting for a lock
    lock_waits: float


def rows(server: Postgres, per_node: int) -> Iterator[Row]:
    """`per_node`: connections per node."""
    heard_ms = _heard_ms(server)
    last: dict[str, Measured] = {}
    first: dict[str, Measured] = {}
    for count in SIZES:
        connections = min(count, POOL)
        with nodes(server.new(), count, connections) as (url, members):
            for kind, act in _kinds(members).items():
                if kind == "call":
                    _all_done(url)
                last[kind] = found = _measure(server, url, act, members, connections)
                first.setdefault(kind, found)
                yield _judged(kind, count, connections, found, first[kind])
    yield _first_limit(server, last, heard_ms, per_node)


def _kinds(members: list[Membership]) -> dict[str, Callable[[int], object]]:
    """What each node does, by node number."""
    tasks = [SharedTasks(own, "plan") for own in members]
    beating = [Beating(own, "plan") for own in members]
    for one in beating:
        one.start()
    return {
        "heartbeat": lambda n: beating[n].beat(Life()),
        "claim": lambda n: tasks[n].take_next("auto-1", ()),
        "call": lambda n: _wait_and_call(tasks[n]),
    }


def _wait_and_call(node: SharedTasks) -> None:
    """A node finds no task, and a waiting node is called."""
    node.look(MOST_READY, free=1)
    node.call_waiting()


def _heard_ms(server: Postgres) -> float:
    """Processor time of the server to wake one more listening connection, per call."""
    found = []
    for listening in (0, LISTENING):
        with nodes(server.new(), 1, 1) as (url, members), contextlib.ExitStack() as ears:
            for number in range(listening):
                ear = Listening(members[0].database, f"ear-{number}", lambda reason: None)
                ears.callback(ear.close)
            act = _kinds(members)["call"]
            _all_done(url)
            found.append(_measure(server, url, act, members, 1).server_ms)
    return max(0.0, found[1] - found[0]) / LISTENING


def _judged(kind: str, count: int, connections: int, found: Measured, first: Measured) -> Row:
    """Heartbeats must be on time; for the other kinds, many nodes get as much done as ten."""
    name, floor_ms = f"{kind} of 10 nodes", _median(found.latencies_ms)
    target, judged = None, "median"
    if kind == "heartbeat":
        name, floor_ms, target, judged = "10 s for all nodes", connections * BEAT_S * 1000 / count, 1.0, "p95"
    elif found is not first:
        waits = connections / SIZES[0]
        name, floor_ms, target = f"{name}, {waits:.0f} in turn", _median(first.latencies_ms) * waits, GROWTH
    note = f"{found.per_s:,.0f}/s; server {found.server_ms:.2f} ms each"
    case = f"{kind}, {count:,} nodes, {connections} connections"
    return row(NAME, case, found.latencies_ms, name, floor_ms, target=target, judged=judged, note=note)


def _first_limit(server: Postgres, found: dict[str, Measured], heard_ms: float, per_node: int) -> Row:
    """How many nodes each resource carries if every finished task calls a node; the load with 1,000."""
    cores = os.cpu_count() or 1
    cost = {kind: one.server_ms / 1000 for kind, one in found.items()}
    each = cost["heartbeat"] / BEAT_S + (cost["claim"] + cost["call"]) * CLAIMS_PER_S
    pair = heard_ms / 1000 * CLAIMS_PER_S
    by_cpu = (sqrt(each**2 + 4 * pair * cores) - each) / (2 * pair)
    with psycopg.connect(server.address("postgres")) as db:
        most = int((db.execute("show max_connections").fetchone() or ("0",))[0])
    carried = {
        f"connections ({per_node} a node, {most} allowed)": most / per_node,
        f"processor of the server ({cores} cores)": by_cpu,
    }
    ranked = sorted((count, what) for what, count in carried.items())
    note = ", then ".join(f"{what} at {count:,.0f} nodes" for count, what in ranked)
    locked, kind = max((one.lock_waits, kind) for kind, one in found.items())
    note = f"{note}; {locked:.0%} of running statements of the kind {kind!r} wait for a lock; {heard_ms:.3f} ms to wake a connection"
    used_ms = (each * SIZES[-1] + pair * SIZES[-1] ** 2) * 1000
    return row(NAME, "the first limit", [used_ms], "a core for a second", 1000.0, note=note)


def _measure(
    server: Postgres,
    url: str,
    act: Callable[[int], object],
    members: list[Membership],
    connections: int,
) -> Measured:
    """Each connection serves its share of the nodes, one after the other."""
    latencies: list[float] = []
    waits: list[str | None] = []
    over = threading.Event()

    def serve(number: int) -> None:
        own = range(number, len(members), connections)
        for turn in range(TIMES // connections):
            latencies.append(clock_ms(partial(act, own[turn % len(own)])))

    def watch() -> None:
        with psycopg.connect(url, autocommit=True) as db:
            while not over.wait(LOOK_S):
                waits.extend(kind for (kind,) in db.execute(_WAITS).fetchall())

    watching = threading.Thread(target=watch)
    watching.start()
    before = _server_ms(server)
    took_s = together([partial(serve, number) for number in range(connections)])
    server_ms = sum(ms - before.get(pid, 0.0) for pid, ms in _server_ms(server).items())
    over.set()
    watching.join()
    done = len(latencies)
    locked = waits.count("Lock") / len(waits) if waits else 0.0
    return Measured(latencies, done / took_s, server_ms / done, locked)


def _server_ms(server: Postgres) -> dict[str, float]:
    """Processor time of the server and of every process it started."""
    started = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    found = {}
    for pid in (str(server.pid), *started):
        with contextlib.suppress(OSError):  # it may have exited
            found[pid] = int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6
    return found


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def together(works: list[Callable[[], None]]) -> float:
    """Seconds until all of them are done; they start at the same moment."""
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
def nodes(
    url: str, count: int, connections: int, tasks: int = TASKS
) -> Iterator[tuple[str, list[Membership]]]:
    """Nodes that have joined and share connections."""
    databases = [Database(url) for _ in range(connections)]
    databases[0].migrate()
    members = [
        Membership(databases[n % connections], f"n{n}", f"id-{n}", "host:/", 3600.0) for n in range(count)
    ]
    try:
        for own in members:
            own.database.rows(statements.JOIN, own.values)
        fill(url, tasks)
        yield url, members
    finally:
        for db in databases:
            db.close()


def _all_done(url: str) -> None:
    """No task is ready anymore."""
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("update llmc.task set status = 'completed' where status = 'pending'")
        db.execute("vacuum analyze llmc.task")


def fill(url: str, count: int) -> None:
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(_FILL, {"count": count})
        db.execute("analyze llmc.task")
        db.execute("analyze llmc.node")
