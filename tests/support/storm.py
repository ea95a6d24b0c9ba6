"""Faults of a fleet, some of them at the same time: nodes, their clocks, the database and the remote."""

import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg

from llmc.base.processes import is_alive
from tests.support.auto import state
from tests.support.fleet import Fleet, process_state
from tests.support.fleet_nodes import landed, up
from tests.support.postgres import Postgres
from tests.support.skewed_clock import set_clock
from tests.support.waiting import wait_until

LEASE_S = 3
#: how long a fleet may land nothing
STALL_S = 120
SKEW_S = 600

Fault = Callable[[], None]


class Storm:
    """In each gust, a node fails, and at the same time something that all nodes use."""

    def __init__(
        self,
        nodes: dict[str, Fleet],
        workers: int,
        spare: Fleet,
        server: Postgres,
        database: str,
        dice: random.Random,
    ) -> None:
        """`workers`: per node; `spare`: a root that may take any of the names."""
        self.nodes = nodes
        self.workers = workers
        self.spare = spare
        self.server = server
        self.database = database
        self.any = next(iter(nodes.values()))
        self.hook = Path(self.any.source) / "hooks/pre-receive"
        #: one per thread, so that a seed gives the same faults
        self.dice, self.dice_of_all = (random.Random(dice.random()) for _ in range(2))
        self.of_nodes: list[Fault] = [self.kill, self.lose, self.sleep, self.start_twice, self.skew]
        self.of_all: list[Fault] = [self.restart, self.crash, self.outage, self.refuse, self.slow]
        self.count: Counter[str] = Counter()
        self._turns = [_in_turn(self.of_nodes, self.dice), _in_turn(self.of_all, self.dice_of_all)]

    def blow(self, gusts: int, of: int) -> None:
        """That many gusts while the first of `of` tasks land."""
        with ThreadPoolExecutor(2) as threads:
            for number in range(gusts):
                self.wait_for_landed(min(of, 1 + number * of // gusts))
                for over in [threads.submit(self._fault, next(turns)) for turns in self._turns]:
                    over.result()

    def _fault(self, fault: Fault) -> None:
        self.count[fault.__name__] += 1
        fault()

    def wait_for_landed(self, count: int) -> None:
        """Fails when nothing lands for too long, however long the whole takes."""
        while (now := len(landed(self.any))) < count:
            wait_until(lambda now=now: len(landed(self.any)) > now, STALL_S, self.story)

    def story(self) -> str:
        with psycopg.connect(self.database) as db:
            left = db.execute("select * from llmc.task where status <> 'completed' and waits = 0").fetchall()
        return "\n".join([*map(str, left), self.said()])

    def said(self) -> str:
        return "\n".join(f"--- {name}\n{said(node)}" for name, node in self.nodes.items())

    # Of a node

    def one(self) -> tuple[str, Fleet]:
        return self.dice.choice(list(self.nodes.items()))

    def kill(self) -> None:
        _, node = self.one()
        node.kill_daemon()
        self.start(node)

    def start(self, node: Fleet) -> None:
        """Once the database answers; without it no node starts, and a daemon that just started exits."""
        wait_until(
            lambda: self.try_start(node) and node.has_daemon() and is_ready(node), 60, lambda: said(node)
        )

    def try_start(self, node: Fleet) -> str:
        return up(node, "--concurrency", str(self.workers), code=None)

    def lose(self) -> None:
        """Killed, and others take its tasks before it is back; then it is started twice at once."""
        name, node = self.one()
        node.kill_daemon()
        wait_until(lambda: self.is_silent(name), 60)
        with ThreadPoolExecutor(2) as threads:
            for begun in [threads.submit(self.try_start, node) for _ in range(2)]:
                begun.result()
        self.start(node)

    def sleep(self) -> None:
        name, node = self.one()
        pid = node.daemon_pid()
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_until(lambda: self.is_silent(name), 60)
        finally:
            os.kill(pid, signal.SIGCONT)

    def is_silent(self, name: str) -> bool:
        """Whether the node's leases have expired; unknown while the database is gone."""
        silent = "select seen < now() - make_interval(secs => %s) from llmc.node where name = %s"
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.database) as db:
            return db.execute(silent, (LEASE_S + 1, name)).fetchone() == (True,)
        return False

    def start_twice(self) -> None:
        """The same root again; and another root under its name."""
        name, node = self.one()
        pid = node.daemon_pid()
        up(node, code=None)
        self.spare.configure({"fleet.node": name})
        refused = up(self.spare, code=1)
        assert f"the node name {name} belongs to another root" in refused or "is not responding" in refused
        assert node.daemon_pid() == pid
        assert is_alive(pid)

    def skew(self) -> None:
        """Its clock is set to the future, to the past, or right."""
        node = self.dice.choice([node for node in self.nodes.values() if "LD_PRELOAD" in node.env])
        set_clock(node, self.dice.choice((-SKEW_S, 0, SKEW_S)))

    # Of all

    def restart(self) -> None:
        self.server.stop(signal.SIGINT)
        self.server.start()

    def crash(self) -> None:
        self.server.stop(signal.SIGKILL)
        self.server.start()

    def outage(self) -> None:
        """The database is gone for longer than a lease; every running node says so."""
        self.server.stop(signal.SIGQUIT)
        began = time.monotonic()
        wait_until(
            lambda: all(map(says_database_is_gone, filter(is_awake, self.nodes.values()))), 60, self.said
        )
        wait_until(lambda: time.monotonic() - began > LEASE_S, LEASE_S + 1)
        self.server.start()

    def refuse(self) -> None:
        self.with_hook("exit 1", times=self.dice_of_all.randint(1, 3))

    def slow(self) -> None:
        self.with_hook(f"sleep {LEASE_S + 1}", times=1)

    def with_hook(self, text: str, times: int) -> None:
        """Until it has run that often, or nothing is left to land."""
        ran = self.hook.with_name("ran")
        ran.write_text("")
        self.hook.parent.mkdir(exist_ok=True)
        new = self.hook.with_name("new")
        new.write_text(f"#!/bin/sh\necho ran >> {ran}\n{text}\n")
        new.chmod(0o755)
        new.rename(self.hook)
        wait_until(lambda: len(ran.read_text().split()) >= times or self.is_over(), 60)
        self.hook.unlink()

    def is_over(self) -> bool:
        left = "select from llmc.task where status <> 'completed'"
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.database) as db:
            return db.execute(left).fetchone() is None
        return False


def _in_turn(faults: list[Fault], dice: random.Random) -> Iterator[Fault]:
    """Each once, in random order, and again."""
    while True:
        yield from dice.sample(faults, len(faults))


def is_awake(node: Fleet) -> bool:
    """Whether its daemon is running, and not stopped."""
    try:
        return process_state(node.daemon_pid()) not in "TZ"
    except OSError:
        return False


def is_ready(node: Fleet) -> bool:
    registration = node.root / ".llmc/daemon.json"
    return registration.exists() and json.loads(registration.read_text())["ready"]


def says_database_is_gone(node: Fleet) -> bool:
    return "fleet:database" in state(node).get("attention", {})


def said(node: Fleet) -> str:
    logs = (node.root / "logs" / name for name in ("auto.log", "daemon.jsonl"))
    return "\n".join(log.read_text()[-4000:] for log in logs if log.exists())


def attention(node: Fleet) -> list[dict[str, Any]]:
    return list(node.llmc("status", "--json", cwd=node.root).json["attention"])
