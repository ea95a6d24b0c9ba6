"""Nodes: leases held by one at a time, heartbeats, and a name with a second daemon."""

import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from llmc.base.errors import Refused
from llmc.fleet import nodes, statements
from llmc.fleet.database import Database
from llmc.fleet.nodes import Beating, Life, Membership, Park, Used
from llmc.fleet.rules import Need

OpenNode = Callable[[str], Membership]


@pytest.fixture
def member(database: str) -> Iterator[OpenNode]:
    made: list[Database] = []

    def joined(name: str) -> Membership:
        made.append(Database(database))
        made[-1].migrate()
        own = Membership(made[-1], name, f"id-of-{name}", f"host:/{name}", 60.0)
        own.database.rows(statements.JOIN, own.values)
        return own

    yield joined
    for one in made:
        one.close()


def let_time_pass(database: str) -> None:
    with psycopg.connect(database) as db:
        db.execute("update llmc.lease set until = now() - interval '1 second'")
        db.execute("update llmc.node set seen = now() - interval '1 hour'")


def test_one_node_at_a_time_has_a_lease(member: OpenNode, database: str) -> None:
    """Break: give it to every node; or never pass it on."""
    one, two = member("one"), member("two")
    assert [nodes.has_lease(own, "goals") for own in (one, two, one)] == [True, False, True]
    assert nodes.has_lease(two, "another")
    let_time_pass(database)
    assert nodes.has_lease(two, "goals")
    assert not nodes.has_lease(one, "goals")


def test_a_heartbeat_keeps_leases_and_an_end_gives_them_back(member: OpenNode, database: str) -> None:
    """Break: leave the leases out of the heartbeat, or out of a daemon's shutdown."""
    one, two = member("one"), member("two")
    beating = Beating(one, "plan")
    beating.start()
    assert nodes.has_lease(one, "goals")
    with psycopg.connect(database) as db:
        db.execute("update llmc.lease set until = now() + interval '1 second'")
    pulse = beating.beat(Life(workers={"auto-1": "idle"}))
    assert (pulse.state, pulse.expired, pulse.ready, pulse.drives) == ("joined", False, False, True)
    with psycopg.connect(database) as db:
        left = db.execute("select until - now() > interval '50 seconds' from llmc.lease").fetchone()
    assert left == (True,)
    beating.stop()
    assert nodes.has_lease(two, "goals")
    assert nodes.find(two, "one").state == "down"


def test_a_lease_that_has_run_out_is_not_kept_by_a_late_heartbeat(member: OpenNode, database: str) -> None:
    """Break: renew what another node may have by now."""
    one, two = member("one"), member("two")
    beating = Beating(one, "plan")
    beating.start()
    nodes.has_lease(one, "goals")
    let_time_pass(database)
    beating.beat(Life())
    assert nodes.has_lease(two, "goals")


def test_a_second_daemon_of_a_name_is_refused_until_the_first_is_silent(
    member: OpenNode, database: str
) -> None:
    """Break: let the latest daemon have the name; two would claim and land as one."""
    one = member("one")
    first, second = Beating(one, "plan"), Beating(_moved(one), "plan")
    first.start()
    with pytest.raises(Refused, match="is running in a copy of this root"):
        second.start()
    let_time_pass(database)
    second.start()
    assert first.beat(Life()).state == "", "it is told"
    assert second.beat(Life()).state == "joined"


def test_a_daemon_that_was_killed_starts_again_at_once(member: OpenNode) -> None:
    one = member("one")
    Beating(one, "plan").start()
    again = Beating(one, "plan")
    again.start()
    assert again.beat(Life()).state == "joined"


def test_a_drain_lasts_until_it_is_undone(member: OpenNode) -> None:
    """Break: let a start or a second `fleet join` end it; a daemon that crashed would take tasks again."""
    one = member("one")
    assert Beating(one, "plan").start() is False
    one.database.rows(statements.DRAIN, {"node": "one", "state": nodes.DRAINING})
    again = Beating(one, "plan")
    assert again.start() is True
    one.database.rows(statements.JOIN, one.values)
    assert again.beat(Life()).state == nodes.DRAINING
    assert nodes.is_draining(one)
    one.database.rows(statements.DRAIN, {"node": "one", "state": "joined"})
    assert Beating(one, "plan").start() is False


def test_a_node_that_did_not_join_does_not_start(member: OpenNode) -> None:
    one = member("one")
    one.database.rows(statements.LEAVE, {"node": "one"})
    with pytest.raises(Refused, match="has not joined") as refused:
        Beating(one, "plan").start()
    assert refused.value.hint == "Join the fleet: llmc fleet join"


def test_a_node_is_judged_by_its_own_lease(member: OpenNode, database: str) -> None:
    """Break: use the lease of the node that looks: it could remove one that runs, and start a second of its name."""
    one = member("one")
    hasty = Membership(one.database, "two", "id-of-two", "host:/two", 2.0)
    Beating(one, "plan").start()
    with psycopg.connect(database) as db:
        db.execute("update llmc.node set seen = now() - interval '30 seconds'")
    assert nodes.find(hasty, "one").state == "up"
    with pytest.raises(Refused, match="is running in a copy of this root"):
        Beating(Membership(one.database, "one", one.instance, "host:/copy", 2.0), "plan").start()
    with psycopg.connect(database) as db:
        db.execute("update llmc.node set seen = now() - interval '61 seconds'")
    assert nodes.find(hasty, "one").state == "silent"


def test_what_the_other_nodes_used_is_summed_up(member: OpenNode) -> None:
    """Break: count a node twice, or another day's usage."""
    one, two, three = (Beating(member(name), "plan") for name in ("one", "two", "three"))
    for beating in (one, two, three):
        beating.start()
    one.beat(Life(day="2026-01-02", used=Used(1.5, 10, 0.5, 5)))
    two.beat(Life(day="2026-01-01", used=Used(9.0, 90, 0.25, 2)))
    assert three.beat(Life(day="2026-01-02", used=Used(7, 7, 7, 7))).used == Used(1.5, 10, 0.75, 7)
    two.stop()
    assert three.beat(Life(day="2026-01-01")).used == Used(9.0, 90, 0.5, 5), "its run is over, its day is not"


def test_a_park_is_told_to_the_others_while_it_lasts(member: OpenNode, database: str) -> None:
    one, two = (Beating(member(name), "plan") for name in ("one", "two"))
    for beating in (one, two):
        beating.start()
    until = round(time.time()) + 90.0
    one.beat(Life(park=Park("limit", "resets 3pm", until)))
    assert two.beat(Life()).park == Park("limit", "resets 3pm", until, "one")
    assert one.beat(Life()).park is None
    assert two.beat(Life()).park is None, "it is over"
    one.beat(Life(park=Park("limit", "resets 3pm", time.time() - 1)))
    assert two.beat(Life()).park is None, "it is over by the database's clock"


def _moved(own: Membership) -> Membership:
    """A copy of the root, elsewhere."""
    return Membership(own.database, own.node, own.instance, "host:/copy", own.lease_s)


def test_a_heartbeat_brings_the_other_nodes(member: OpenNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: include this node; or list first the nodes that need no user."""
    one, *others = (Beating(member(name), "plan") for name in ("one", "alone", "asks", "off"))
    for beating in (one, *others):
        beating.start()
    need = Need("waiting", "auto-1", "auto-1 asks", "llmc answer auto-1")
    others[0].beat(Life(client="2.1", workers={"auto-1": "working"}))
    others[1].beat(Life(workers={"auto-1": "needs_input"}, attention=[need]))
    others[2].stop()
    pulse = one.beat(Life())
    assert [(node.name, node.state) for node in pulse.nodes] == [
        ("asks", "up"),
        ("alone", "up"),
        ("off", "down"),
    ]
    assert (pulse.nodes[0].attention, pulse.nodes[1].workers) == ([need], {"auto-1": "working"})
    assert (pulse.nodes[1].client, pulse.more) == ("2.1", 0)
    monkeypatch.setattr(nodes, "MOST_NODES", 1)
    pulse = one.beat(Life())
    assert ([node.name for node in pulse.nodes], pulse.more) == (["asks"], 2)
