"""A fleet in a storm: nodes die, sleep and start twice, clocks are wrong, database and remote come and go.

Every task lands exactly once, after its dependencies, on one linear history, and no work is left.
"""

import random
from collections.abc import Iterator

import psycopg
import pytest

from llmc.base.processes import is_alive
from tests.support.auto import add, at_work, commit, task_dir
from tests.support.fleet import Fleet
from tests.support.fleet_nodes import fleet_of, in_root, landed, states
from tests.support.plans import Plan, random_plan
from tests.support.postgres import Postgres
from tests.support.skewed_clock import set_clock
from tests.support.storm import LEASE_S, SKEW_S, Storm, attention, said
from tests.support.waiting import wait_until

#: this seed has those faults
SMALL = 79


@pytest.fixture
def server() -> Iterator[Postgres]:
    made = Postgres()
    yield made
    made.close()


@pytest.mark.soak
def test_a_small_storm(server: Postgres) -> None:
    """One of two nodes has a wrong clock; a node is lost, one sleeps, the database is killed, the remote refuses."""
    storm(server, random.Random(SMALL), nodes=2, workers=1, tasks=6, gusts=2)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(1, 21))
def test_a_fleet_in_a_storm_lands_each_task_once(server: Postgres, seed: int) -> None:
    """130 to 210 s of CPU time each.

    Break: push without the fence, record without the token, or take over without asking the ledger.
    """
    storm(server, random.Random(seed), nodes=5, workers=3, tasks=200, gusts=10)


def storm(server: Postgres, dice: random.Random, *, nodes: int, workers: int, tasks: int, gusts: int) -> None:
    database = server.new()
    names = tuple(f"node-{number}" for number in range(nodes))
    quick = {"fleet.lease_secs": str(LEASE_S), "auto.dirty_backoff_secs": "0.5"}
    with fleet_of((*names, "spare"), database, **quick) as roots:
        fleet = {name: roots[name] for name in names}
        first = fleet[names[0]]
        plan = random_plan(tasks, dice)
        task_dir(first).mkdir(parents=True)
        for number, after in plan.items():
            # It can be repeated: done twice, it would land twice.
            more = f"echo done >> times-{number}; git add times-{number}"
            add(first, number, commit(number, more), after=tuple(after))
        in_root(first, "tasks", "import", "--from-files", str(task_dir(first)))
        for name, offset_s in zip(names[1:], (SKEW_S, -SKEW_S), strict=False):
            set_clock(fleet[name], offset_s)
        weather = Storm(fleet, workers, roots["spare"], server, database, dice)
        for node in fleet.values():
            weather.start(node)
        weather.blow(gusts, tasks)
        weather.wait_for_landed(tasks)
        wait_until(lambda: set(states(database).values()) == {"completed"}, 60, weather.story)
        assert_each_landed_once(first, plan)
        assert_nothing_is_left(fleet, database)


def assert_each_landed_once(node: Fleet, plan: Plan) -> None:
    order = [int(subject.removeprefix("Task ")) for subject in landed(node)]
    assert sorted(order) == sorted(plan), "each task lands exactly once"
    place = {number: index for index, number in enumerate(order)}
    assert {n: after for n, after in plan.items() if any(place[other] > place[n] for other in after)} == {}
    assert node.git("rev-list", "--merges", "main") == ""
    done = node.git("grep", "-c", "done", "main", "--", "times-*").splitlines()
    assert sorted(done) == sorted(f"main:times-{number}:1" for number in plan)


def assert_nothing_is_left(fleet: dict[str, Fleet], database: str) -> None:
    """No node is busy, none needs the user, none holds anything back, and all of them say so."""
    for name, node in fleet.items():
        wait_until(lambda node=node: not at_work(node), 60, lambda node=node: said(node))
        assert is_alive(node.daemon_pid()), f"{name} ended by itself\n{said(node)}"
        wait_until(
            lambda node=node: attention(node) == [], 60, lambda node=node: f"{attention(node)}\n{said(node)}"
        )
    first = next(iter(fleet.values()))

    def needs() -> dict[str, list[object]]:
        seen = first.llmc("status", "--fleet", "--json", cwd=first.root).json["nodes"]
        return {node["name"]: node["attention"] for node in seen}

    wait_until(lambda: not any(needs().values()), 15, lambda: str(needs()))
    with psycopg.connect(database) as db:
        assert db.execute("select id from llmc.task where claim is not null or owner <> ''").fetchall() == []
        often = "select task from llmc.entry where action = 'completed' group by task having count(*) <> 1"
        assert db.execute(often).fetchall() == []
    # Each node withdraws its offers at its next patrol, even if a push has removed them from the remote.
    kept = ("for-each-ref", "refs/llmc/unsent", "refs/llmc/offered")
    for node in fleet.values():
        wait_until(lambda node=node: node.git(*kept, cwd=node.root) == "", 30, lambda node=node: said(node))
    wait_until(lambda: first.git("for-each-ref", "refs/llmc/work") == "", 30)
    for node in fleet.values():
        in_root(node, "down")
