"""A fleet seen from one of its nodes: workers on other nodes, and the screens."""

import threading
from contextlib import closing

import pytest

from llmc.api.subscription import Change, FleetSeen, Subscription
from llmc.api.views import Others
from llmc.repo.project import open_project
from tests.support.fleet import Fleet
from tests.support.fleet_nodes import fleet_of, in_root, up
from tests.support.postgres import Postgres
from tests.support.terminal import Terminal
from tests.support.waiting import wait_until


@pytest.mark.soak
def test_a_command_for_a_worker_of_another_node_says_where_it_is(postgres: Postgres) -> None:
    """Break: ask the database about a worker on this node; or say only that there is none."""
    with fleet_of(("one", "two"), postgres.new(), **{"fleet.lease_secs": "2"}) as nodes:
        one, two = nodes.values()
        in_root(one, "add", "adam")
        up(two, "--concurrency", "1")
        wait_until(lambda: '"auto-1"' in in_root(one, "fleet", "nodes", "--json"), 15, two.story)
        there = f"cd {two.root} && llmc"
        for command in ("attach", "review", "accept two/", "hold two/", "logs two/"):
            refused = one.llmc(*f"{command} auto-1".replace("/ ", "/").split(), cwd=one.root, code=4)
            assert "auto-1 is on node two (" in refused.err, refused
            assert f"{there} {command.split()[0]} auto-1" in refused.err, refused
        refused = one.llmc("message", "two/auto-1", "be quick", cwd=one.root, code=4)
        assert f"{there} message auto-1 'be quick'" in refused.err
        assert "auto-1 is on node two" in one.llmc("answer", "auto-1", "yes", cwd=one.root, code=4).err
        assert "auto-1 is on node two" in one.llmc("reject", "two/auto-1", cwd=one.root, code=4).err
        from_here = one.llmc("--root", str(one.root), "peek", "two/auto-1", code=4)
        assert f"{there} peek auto-1" in from_here.err
        assert "no worker 'clara'" in one.llmc("attach", "clara", cwd=one.root, code=4).err
        one.configure({"fleet.database": "postgresql://llmc@/gone?host=/nowhere"})
        assert "on hold" in one.llmc("hold", "one/adam", cwd=one.root).out, "on this node: no database query"
        unknown = one.llmc("hold", "clara", cwd=one.root, code=4)
        assert (
            "llmc cannot look for it on the other nodes: the fleet's database is not responding"
            in unknown.err
        )


@pytest.mark.soak
def test_a_screen_shows_the_other_nodes_without_asking_the_database(postgres: Postgres) -> None:
    """Break: leave the nodes out of the heartbeat; or query the database for each screen."""
    with fleet_of(("one", "two"), postgres.new(), **{"fleet.lease_secs": "2"}) as nodes:
        one, two = nodes.values()
        in_root(one, "tasks", "add", "Ask", "-d", "@hang")
        up(two, "--concurrency", "1")
        up(one, "--concurrency", "1")
        wait_until(lambda: '"working"' in seen_by(one), 20, two.story)
        for node in nodes.values():
            node.configure({"fleet.database": "postgresql://llmc@/gone?host=/nowhere"})
        others = on_screen(one)
        assert (others.node, [node.name for node in others.nodes]) == ("one", ["two"])
        (found,) = others.nodes
        assert (found.state, found.busy, found.workers) == ("up", 1, 1)
        (worker,) = found.there
        assert (worker.who, worker.status) == ("auto-1", "working")
        assert worker.attach == f"cd {two.root} && llmc attach auto-1"
        with closing(Terminal(one, "ui", columns=80, rows=24)) as screen:
            screen.sees("OTHER NODES 1", "up, 1/1 busy", "auto-1       working")
            screen.press(">", "m")
            screen.sees("this worker is on node two; press Enter")
            screen.press("Enter")
            screen.sees("Another node", "To attach from here:", "llmc attach auto-1", "client   2.1")


@pytest.mark.soak
def test_a_question_of_another_node_is_answered_on_the_screen(postgres: Postgres) -> None:
    """Break: open no form for a worker on another node; or answer this node's worker of the same name."""
    with fleet_of(("one", "two"), postgres.new(), **{"fleet.lease_secs": "2"}) as nodes:
        one, two = nodes.values()
        for node in nodes.values():
            in_root(node, "add", "adam")
            up(node, "--concurrency", "1")
        in_root(two, "message", "adam", "@ask Which colour?")
        wait_until(lambda: "Which colour?" in seen_by(one), 20, two.story)
        with closing(Terminal(one, "ui", columns=120, rows=30)) as screen:
            screen.sees("OTHER NODES 1", "Which colour?")
            screen.press("Space", "A")
            screen.sees("two/adam asks: Which colour?")
            screen.type("1")
            screen.press("Enter")
            screen.sees("two/adam: acknowledged")
        assert [row["answer"] for row in two.events("question_answered")] == ["Yes"]
        assert one.events("question_answered") == []


def seen_by(node: Fleet) -> str:
    path = node.root / ".llmc/nodes.json"
    return path.read_text() if path.exists() else ""


def on_screen(node: Fleet) -> Others:
    """What a new screen gets first."""
    told: list[Others] = []
    came = threading.Event()

    def hear(change: Change) -> None:
        if isinstance(change, FleetSeen) and change.fleet.others is not None:
            told.append(change.fleet.others)
            came.set()

    subscription = Subscription(open_project(str(node.root)), hear).start()
    try:
        assert came.wait(20), node.story()
    finally:
        subscription.stop()
    return told[0]
