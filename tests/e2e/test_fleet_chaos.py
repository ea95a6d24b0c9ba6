"""A fleet in a storm: nodes are killed, sleep and start twice, the database and the remote go away and come back.

Every task lands exactly once, after those that it waits for, on one straight history, and nothing is left to do for anyone.
"""

import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.auto import add, at_work, commit, task_dir, wait_for
from tests.support.fleet import Fleet
from tests.support.fleet_nodes import fleet_of, in_root, landed, states, up
from tests.support.plans import Plan, random_plan
from tests.support.postgres import Postgres
from tests.support.waiting import wait_until

LEASE_S = 3


@pytest.fixture
def server() -> Iterator[Postgres]:
    made = Postgres()
    yield made
    made.close()


class Storm:
    """One fault after the other; each is over before the next, and work goes on between them."""

    def __init__(self, nodes: dict[str, Fleet], server: Postgres, database: str, dice: random.Random) -> None:
        self.nodes = nodes
        self.server = server
        self.database = database
        self.dice = dice
        self.any = next(iter(nodes.values()))
        self.hook = Path(self.any.source) / "hooks/pre-receive"

    def blow(self, count: int, of: int) -> None:
        """`count` faults while the first of `of` tasks land."""
        faults: list[Callable[[], None]] = [
            *(self.kill, self.sleep, self.restart, self.crash, self.refuse, self.slow, self.start_twice)
        ]
        for number in range(count):
            enough = min(of, 1 + number * of // count)
            wait_for(self.any, lambda enough=enough: len(landed(self.any)) >= enough, 180)
            faults[number % len(faults)]() if number < len(faults) else self.dice.choice(faults)()

    def one(self) -> tuple[str, Fleet]:
        return self.dice.choice(list(self.nodes.items()))

    def kill(self) -> None:
        _, node = self.one()
        node.kill_daemon()
        start(node)

    def sleep(self) -> None:
        name, node = self.one()
        pid = node.daemon_pid()
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_until(lambda: self.is_silent(name), 30)
        finally:
            os.kill(pid, signal.SIGCONT)

    def is_silent(self, name: str) -> bool:
        with psycopg.connect(self.database) as db:
            row = db.execute(
                "select seen < now() - make_interval(secs => %s) from llmc.node where name = %s",
                (LEASE_S + 1, name),
            ).fetchone()
        return row == (True,)

    def restart(self) -> None:
        self.server.stop(signal.SIGINT)
        self.server.start()

    def crash(self) -> None:
        self.server.stop(signal.SIGQUIT)
        self.server.start()

    def refuse(self) -> None:
        self.with_hook("exit 1")

    def slow(self) -> None:
        self.with_hook("sleep 2")

    def with_hook(self, text: str) -> None:
        """Until it has run."""
        ran = self.hook.with_name("ran")
        ran.unlink(missing_ok=True)
        self.hook.parent.mkdir(exist_ok=True)
        self.hook.write_text(f"#!/bin/sh\ntouch {ran}\n{text}\n")
        self.hook.chmod(0o755)
        wait_until(lambda: ran.exists() or self.is_over(), 60)
        self.hook.unlink()

    def is_over(self) -> bool:
        return set(states(self.database).values()) == {"completed"}

    def start_twice(self) -> None:
        _, node = self.one()
        pid = node.daemon_pid()
        node.llmc("up", "--detach", "--auto", "--no-canary", cwd=node.root, code=None)
        assert node.daemon_pid() == pid


def start(node: Fleet) -> None:
    up(node, "--concurrency", "3")


def needs_you(node: Fleet) -> list[dict[str, str]]:
    return list(node.llmc("status", "--json", cwd=node.root).json["attention"])


def assert_each_landed_once(node: Fleet, plan: Plan) -> None:
    order = [int(subject.removeprefix("Task ")) for subject in landed(node)]
    assert sorted(order) == sorted(plan), "each task lands exactly once"
    place = {number: index for index, number in enumerate(order)}
    assert {n: after for n, after in plan.items() if any(place[other] > place[n] for other in after)} == {}
    assert node.git("rev-list", "--merges", "main") == ""


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(1, 21))
def test_a_fleet_in_a_storm_lands_each_task_once(server: Postgres, seed: int) -> None:
    """Break: push without the fence, enter without the token, or take over without asking the ledger."""
    storm(server, random.Random(seed), nodes=5, tasks=200, faults=20)


def storm(server: Postgres, dice: random.Random, *, nodes: int, tasks: int, faults: int) -> None:
    database = server.new()
    names = tuple(f"node-{number}" for number in range(nodes))
    with fleet_of(names, database, **{"fleet.lease_secs": str(LEASE_S)}) as fleet:
        first = fleet[names[0]]
        plan = random_plan(tasks, dice)
        task_dir(first).mkdir(parents=True)
        for number, after in plan.items():
            # It can be done any number of times: done twice, it would land twice.
            more = f"echo done >> times-{number}; git add times-{number}"
            add(first, number, commit(number, more), after=tuple(after))
        in_root(first, "tasks", "import", "--from-files", str(task_dir(first)))
        for node in fleet.values():
            start(node)
        Storm(fleet, server, database, dice).blow(faults, tasks)
        wait_for(first, lambda: set(states(database).values()) == {"completed"}, 300)
        assert_each_landed_once(first, plan)
        for node in fleet.values():
            wait_for(node, lambda node=node: not at_work(node), 60)
            wait_until(lambda node=node: needs_you(node) == [], 60, lambda node=node: str(needs_you(node)))
            in_root(node, "down")
