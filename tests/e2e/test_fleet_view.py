"""A fleet as one sees it from one of its nodes: workers that are elsewhere, and the screens."""

from tests.support.fleet_nodes import fleet_of, in_root, up
from tests.support.postgres import Postgres
from tests.support.waiting import wait_until


def test_a_command_for_a_worker_of_another_node_says_where_it_is(postgres: Postgres) -> None:
    """Break: ask the database for a worker that is here; or say only that there is none."""
    with fleet_of(("one", "two"), postgres.new(), **{"fleet.lease_secs": "2"}) as nodes:
        one, two = nodes.values()
        in_root(one, "add", "adam")
        up(two, "--concurrency", "1")
        wait_until(lambda: '"auto-1"' in in_root(one, "fleet", "nodes", "--json"), 15, two.story)
        there = f"cd {two.root} && llmc"
        for command in ("attach", "peek", "review", "hold", "accept", "logs"):
            for name in ("auto-1", "two/auto-1"):
                refused = one.llmc(command, name, cwd=one.root, code=4)
                assert "auto-1 is on node two (" in refused.err, refused
                assert f"{there} {command} auto-1" in refused.err, refused
        refused = one.llmc("message", "two/auto-1", "be quick", cwd=one.root, code=4)
        assert f"{there} message auto-1 'be quick'" in refused.err
        assert "auto-1 is on node two" in one.llmc("answer", "auto-1", "yes", cwd=one.root, code=4).err
        assert "auto-1 is on node two" in one.llmc("reject", "two/auto-1", cwd=one.root, code=4).err
        from_here = one.llmc("--root", str(one.root), "peek", "two/auto-1", code=4)
        assert f"{there} peek auto-1" in from_here.err
        assert "no worker 'clara'" in one.llmc("attach", "clara", cwd=one.root, code=4).err
        one.configure({"fleet.database": "postgresql://llmc@/gone?host=/nowhere"})
        assert "on hold" in one.llmc("hold", "one/adam", cwd=one.root).out, "it is here: no database is asked"
        unknown = one.llmc("hold", "clara", cwd=one.root, code=4)
        assert "the other nodes are unknown: the fleet's database does not answer" in unknown.err
