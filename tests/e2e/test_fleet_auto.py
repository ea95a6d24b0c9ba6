"""Auto mode on several machines: two daemons with their own roots, one database, one bare repository."""

import os
import random
import signal
import time
from collections.abc import Iterator

import psycopg
import pytest

from llmc.base.processes import is_alive
from tests.support import goals
from tests.support.auto import add as add_file
from tests.support.auto import at_work, auto, commit, task_dir, until, wait_for
from tests.support.fleet import Fleet, in_soak
from tests.support.fleet_nodes import attempts, fleet_of, in_root, landed, states, up
from tests.support.postgres import Postgres
from tests.support.waiting import wait_until


@pytest.fixture
def server() -> Iterator[Postgres]:
    """A server that a test may stop."""
    made = Postgres()
    yield made
    made.close()


def add(node: Fleet, number: int, *lines: str, after: tuple[int, ...] = ()) -> None:
    options = [word for other in after for word in ("--after", str(other))]
    in_root(node, "tasks", "add", f"Do {number}", "-d", "\n".join(lines) or commit(number), *options)


def all_done(database: str) -> bool:
    return set(states(database).values()) == {"completed"}


@pytest.mark.soak
def test_two_nodes_work_off_one_queue(database: str) -> None:
    """Break: claim without the row lock; or order by anything but the graph."""
    dice = random.Random(1)
    with fleet_of(("one", "two"), database) as nodes:
        one, two = nodes.values()
        needs = {
            number: tuple(dice.sample(range(1, number), min(number - 1, dice.randrange(3))))
            for number in range(1, 13)
        }
        for number, after in needs.items():
            add(one if number % 2 else two, number, after=after)
        for node in nodes.values():
            up(node, "--concurrency", "2")
        wait_for(one, lambda: all_done(database), 90)
        claimed = attempts(database)
        assert {task: len(by) for task, by in claimed.items()} == {str(number): 1 for number in needs}
        assert {by for nodes in claimed.values() for by in nodes} == {"one", "two"}, "both took part"
        order = [int(subject.removeprefix("Task ")) for subject in landed(one)]
        assert sorted(order) == sorted(needs), "each landed once"
        assert all(order.index(other) < order.index(number) for number in needs for other in needs[number])
        seen = {row["name"]: row for row in two.llmc("fleet", "nodes", "--json", cwd=two.root).json}
        assert {row["state"] for row in seen.values()} == {"up"}
        assert set(seen["one"]["workers"]) == {"auto-1", "auto-2"}
        assert "12 completed" in in_root(two, "fleet", "status")
        for node in nodes.values():
            in_root(node, "down")
        assert {row["state"] for row in one.llmc("fleet", "nodes", "--json", cwd=one.root).json} == {"down"}


@pytest.mark.soak
def test_the_task_of_a_killed_node_goes_to_another(database: str) -> None:
    """Break: leave out the lease; the task would wait for its node forever."""
    with fleet_of(("one", "two"), database, **{"fleet.lease_secs": "3"}) as nodes:
        one, two = nodes.values()
        add(one, 1, "@hang")
        up(one, "--concurrency", "1")
        wait_for(one, lambda: attempts(database).get("1") == ["one"])
        one.kill_daemon()
        in_root(two, "tasks", "add", "Do 2", "-d", commit(2))
        up(two, "--concurrency", "2")
        wait_for(two, lambda: attempts(database).get("1") == ["one", "two"], 30)
        assert "node one was out of contact for too long" in (two.root / "logs/auto.log").read_text()
        wait_for(two, lambda: states(database)["2"] == "completed")
        assert {
            row["name"]: row["state"] for row in two.llmc("fleet", "nodes", "--json", cwd=two.root).json
        } == {
            "one": "silent",
            "two": "up",
        }


@pytest.mark.soak
def test_a_node_that_slept_past_its_lease_lets_go(database: str) -> None:
    """Break: let a holder land without checking its token."""
    with fleet_of(("one", "two"), database, **{"fleet.lease_secs": "3"}) as nodes:
        one, two = nodes.values()
        gate = one.dir / "go"
        add(one, 1, commit(1, until(gate)))
        up(one, "--concurrency", "1")
        wait_for(one, lambda: attempts(database).get("1") == ["one"])
        pid = one.daemon_pid()
        os.kill(pid, signal.SIGSTOP)
        try:
            up(two, "--concurrency", "1")
            wait_for(two, lambda: attempts(database).get("1") == ["one", "two"], 30)
            gate.touch()
            wait_for(two, lambda: states(database) == {"1": "completed"}, 30)
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_for(one, lambda: one.record("auto-1")["assignment"] is None, 30)
        assert landed(two) == ["Task 1"], "it landed once"
        add(two, 2)
        wait_for(two, lambda: all_done(database), 30)


@pytest.mark.parametrize("kill", in_soak("remote.push:after", "remote.enter:after", "accept.verify:after"))
def test_a_node_killed_while_it_lands_leaves_a_task_that_lands_once(database: str, kill: str) -> None:
    """Break: start a claimed task without checking what its earlier holder landed."""
    with fleet_of(("one", "two"), database, **{"fleet.lease_secs": "2"}) as nodes:
        one, two = nodes.values()
        add(one, 1, again(1))
        dies_at(one, f"{kill}:kill")
        had_landed = landed(one) == ["Task 1"]
        assert had_landed is (kill != "remote.enter:after")
        assert states(database) == {"1": "in_progress"}, "its task is not finished"
        up(two, "--concurrency", "1")
        wait_for(two, lambda: all_done(database), 30)
        assert attempts(database) == {"1": ["one", "two"]}
        assert landed(two) == ["Task 1"], "it landed once"
        assert (two.user_turns() == []) is had_landed, "done again only if it had not landed"
        up(one, "--concurrency", "1")
        wait_for(one, lambda: one.record("auto-1")["assignment"] is None, 30)
        assert landed(one) == ["Task 1"]


def again(number: int, more: str = "true") -> str:
    """A commit that can be repeated, so that a task that is done twice lands twice."""
    return commit(number, f"{more}; echo done >> times-{number}; git add times-{number}")


def dies_at(node: Fleet, fault: str) -> None:
    """Start its daemon, which kills itself at a fault point."""
    started(node, fault)
    wait_until(lambda: not is_alive(node.daemon_pid()), 40, node.story)


def started(node: Fleet, fault: str) -> None:
    node.env["LLMC_FAULT"] = fault
    up(node, "--concurrency", "1")
    del node.env["LLMC_FAULT"]


@pytest.mark.soak
def test_three_nodes_with_one_killed_and_one_asleep_land_each_task_once(database: str) -> None:
    """Break: push without the fence; record without the token; take over without asking the ledger."""
    with fleet_of(("one", "two", "three"), database, **{"fleet.lease_secs": "2"}) as nodes:
        one, two, three = nodes.values()
        gate = one.dir / "go"
        needs = {number: tuple({number - 3, number // 2} if number > 3 else ()) for number in range(1, 13)}
        task_dir(one).mkdir(parents=True)
        for number, after in needs.items():
            add_file(one, number, again(number, until(gate)), after=after)
        in_root(one, "tasks", "import", "--from-files", str(task_dir(one)))
        started(one, "remote.push:after:kill")
        for node in (two, three):
            up(node, "--concurrency", "1")
        wait_for(two, lambda: {by for (by,) in attempts(database).values()} == set(nodes), 30)
        asleep = three.daemon_pid()
        os.kill(asleep, signal.SIGSTOP)
        try:
            gate.touch()
            wait_for(two, lambda: any("three" in by[:-1] for by in attempts(database).values()), 40)
        finally:
            os.kill(asleep, signal.SIGCONT)
        wait_until(lambda: not is_alive(one.daemon_pid()), 40, one.story)
        up(one, "--concurrency", "1")
        wait_for(two, lambda: all_done(database), 60)
        order = [int(subject.removeprefix("Task ")) for subject in landed(two)]
        assert sorted(order) == sorted(needs), "each landed once"
        assert all(order.index(other) < order.index(number) for number in needs for other in needs[number])
        assert two.git("rev-list", "--merges", "main") == ""
        for node in nodes.values():
            wait_for(node, lambda node=node: not at_work(node), 30)


@pytest.mark.soak
def test_without_the_database_turns_end_and_nothing_lands(server: Postgres) -> None:
    """Break: end auto mode when the database is gone; or land without it."""
    database = server.new()
    with fleet_of(("one",), database) as nodes:
        (one,) = nodes.values()
        gate = one.dir / "go"
        add(one, 1, commit(1, until(gate)))
        up(one, "--concurrency", "1")
        wait_for(one, lambda: one.record("auto-1")["status"] == "working")
        server.stop()
        wait_for(one, lambda: "database" in [item["kind"] for item in attention(one)], 30)
        gate.touch()
        wait_for(one, lambda: one.record("auto-1")["status"] == "needs_review", 30)
        assert landed(one) == []
        assert "is not responding" in one.llmc("status", cwd=one.root).out
        server.start()
        wait_for(one, lambda: all_done(database), 40)
        assert landed(one) == ["Task 1"]
        wait_until(lambda: attention(one) == [])
        assert attempts(database) == {"1": ["one"]}
        began = time.monotonic()
        add(one, 2)
        wait_for(one, lambda: "2" in attempts(database))
        assert time.monotonic() - began < 8, (
            "it is notified of new tasks again, without waiting for its next check"
        )
        in_root(one, "down")


@pytest.mark.soak
def test_a_node_whose_watch_was_cut_hears_of_changes_again(server: Postgres) -> None:
    """Break: listen again only after a failed heartbeat; a short outage may hit only the watch."""
    database = server.new()
    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    watches = "from pg_stat_activity where query like 'listen %'"
    with fleet_of(("one",), database, **{"fleet.lease_secs": "3"}) as nodes:
        (one,) = nodes.values()
        up(one, "--concurrency", "1")
        with psycopg.connect(server.address("postgres"), autocommit=True) as db:
            assert len(db.execute(f"select pid {watches}").fetchall()) == 1
            db.execute(f"alter database {name} allow_connections false")
            db.execute(f"select pg_terminate_backend(pid) {watches}")
            refused = "is not currently accepting connections"
            wait_until(
                lambda: refused in (server.dir / "log").read_text(), 10, (server.dir / "log").read_text
            )
            db.execute(f"alter database {name} allow_connections true")
            wait_until(lambda: len(db.execute(f"select pid {watches}").fetchall()) == 1, 10)
        in_root(one, "down")


@pytest.mark.soak
def test_a_wait_for_tasks_goes_on_while_another_node_is_up(database: str) -> None:
    """Break: check only whether auto mode is running on this node."""
    with fleet_of(("one", "two"), database) as nodes:
        one, two = nodes.values()
        gate = two.marks / "go"
        add(one, 1, commit(1, until(gate)))
        waits = ("wait", "--tasks-done", "--timeout", "0", "--json")
        assert "auto mode is not running" in one.llmc(*waits, cwd=one.root, code=1).json["problem"]
        up(two, "--concurrency", "1")
        wait_for(two, lambda: "1" in attempts(database))
        assert "timed out" in one.llmc(*waits, cwd=one.root, code=1).json["problem"]
        gate.touch()
        in_root(one, "wait", "--tasks-done", "--timeout", "60")


@pytest.mark.soak
def test_what_needs_a_person_is_seen_from_every_node(database: str) -> None:
    """Break: show only this node's attention list."""
    with fleet_of(("one", "two"), database, **{"fleet.lease_secs": "2"}) as nodes:
        one, two = nodes.values()
        add(one, 1, "@crash")
        up(one, "--concurrency", "1")
        wait_for(one, lambda: "quarantined" in in_root(one, "tasks", "list"), 60)

        def seen() -> str:
            return two.llmc("status", "--fleet", cwd=two.root).out

        wait_until(lambda: "one: 1: task 1 failed 3 times" in seen(), 15, lambda: seen() + one.story())
        assert "next: llmc tasks requeue 1" in seen(), "tasks are the same on all nodes"
        view = two.llmc("status", "--fleet", "--json", cwd=two.root).json
        assert {node["name"]: len(node["attention"]) for node in view["nodes"]} == {"one": 1, "two": 0}


def attention(node: Fleet) -> list[dict[str, str]]:
    return list(node.llmc("status", "--json", cwd=node.root).json["attention"])


@pytest.mark.soak
def test_a_node_drains_and_a_second_daemon_of_one_name_is_refused(database: str) -> None:
    with fleet_of(("one", "two"), database) as nodes:
        one, two = nodes.values()
        up(one, "--concurrency", "1")
        wait_until(lambda: "up" in in_root(two, "fleet", "nodes"))
        two.configure({"fleet.node": "one"})
        refused = two.llmc("up", "--detach", "--auto", "--no-canary", cwd=two.root, code=1)
        assert "the node name one belongs to another root" in refused.err
        two.configure({"fleet.node": "two"})
        in_root(two, "fleet", "drain", "one")
        wait_until(lambda: not (one.root / ".llmc/daemon.json").exists(), 30)
        assert "node one is draining" in (one.root / "logs/auto.log").read_text()
        again = up(one, "--concurrency", "1", code=None)
        assert "node one is draining" in again
        assert "llmc fleet drain one --undo" in again
        wait_until(lambda: not (one.root / ".llmc/daemon.json").exists(), 30)
        in_root(two, "fleet", "leave", "one")


@pytest.mark.soak
def test_a_goal_is_driven_by_one_node_and_worked_on_by_all(database: str) -> None:
    """Break: let every node drive the goals; or forget the goals of a lost node."""
    with fleet_of(("one", "two"), database, **goals.QUICK, **{"fleet.lease_secs": "3"}) as nodes:
        one, two = nodes.values()
        gate = one.dir / "go"
        first = [goals.leaf(number, goals.commit(number, until(gate))) for number in range(1, 4)]
        made = goals.plan([first], [[goals.leaf(4)]])
        one.configure({"overseer.goals.planner.command": goals.planner(one, made)})
        for node in nodes.values():
            up(node, "--concurrency", "1")
        goal = str(one.llmc("goal", "create", "--title", "The goal", "--json", cwd=one.root).json["goalId"])

        def part(node: Fleet) -> str:
            return str(node.llmc("goal", "show", goal, "--json", cwd=node.root).json["status"])

        wait_for(one, lambda: drivers(database) != [], 30)
        driver = nodes[drivers(database)[0]]
        other = two if driver is one else one
        wait_for(other, lambda: len(attempts(database)) == 2, 60)
        driver.kill_daemon()
        gate.touch()
        wait_for(other, lambda: part(other) == "completed", 90)
        assert sorted(landed(one)) == [f"Part {number}" for number in range(1, 5)], "each item landed once"
        assert landed(one)[-1] == "Part 4"
        assert drivers(database) == [name for name, node in nodes.items() if node is other]


def drivers(database: str) -> list[str]:
    """The node that drives the goals now."""
    with psycopg.connect(database) as db:
        rows = db.execute("select node from llmc.lease where name = 'goals' and until > now()").fetchall()
    return [node for (node,) in rows]


@pytest.mark.soak
def test_a_limit_stops_all_nodes(database: str) -> None:
    """Break: continue while the account waits for its limit to end."""
    config = {"fleet.lease_secs": "2", "auto.limit_backoff_secs": "6"}
    with fleet_of(("one", "two"), database, **config) as nodes:
        one, two = nodes.values()
        up(two, "--concurrency", "1")
        wait_until(lambda: "up" in in_root(two, "fleet", "nodes"))
        two_gate = two.dir / "go"
        add(two, 1, commit(1, until(two_gate)))
        wait_for(two, lambda: attempts(database).get("1") == ["two"])
        add(one, 2, "@limit 1", f"@on-resume {commit(2).removeprefix('@')}")
        up(one, "--concurrency", "1")
        wait_for(two, lambda: "node one:" in parked_reason(two), 30)
        two_gate.touch()
        wait_for(one, lambda: all_done(database), 60)
        assert sorted(landed(one)) == ["Task 1", "Task 2"], "work in progress landed, and the rest continued"


def parked_reason(node: Fleet) -> str:
    return str(auto(node).get("parked_reason", ""))
