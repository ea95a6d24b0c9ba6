"""`llmc fleet`: a root joins, is listed, drains and leaves; a refusal names the next command."""

import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.fleet import Fleet
from tests.support.fleet_nodes import fleet_of, up
from tests.support.postgres import Postgres

SECRET = "hunter2"


@pytest.fixture
def second(scripted: Fleet) -> Iterator[Fleet]:
    """Another machine, with a clone of the same repository."""
    made = Fleet("scripted")
    shutil.rmtree(made.source)
    made.git("clone", "-q", str(scripted.source), str(made.source), cwd=made.dir)
    yield made
    made.close()


def with_password(url: str) -> str:
    return url.replace("llmc@", f"llmc:{SECRET}@")


def set_up(fleet: Fleet, database: str, node: str, **config: str) -> None:
    """A root on the user's checkout, which lands on a bare clone of it."""
    remote = str(fleet.dir / "shared.git")
    fleet.git("clone", "-q", "--bare", str(fleet.source), remote)
    own = {"fleet.database": database, "fleet.node": node, "fleet.remote": remote}
    fleet.set_up(config={**own, **config})


def join(fleet: Fleet, database: str, node: str, *command: str) -> None:
    set_up(fleet, with_password(database), node, **{"auto.task_list_id": "plan"})
    fleet.llmc("fleet", *(command or ("join",)))


def test_a_root_joins_is_seen_and_leaves(scripted: Fleet, second: Fleet, database: str) -> None:
    set_up(scripted, with_password(database), "one")
    refused = scripted.llmc("fleet", "join", code=3)
    assert "is not set up" in refused.err
    assert "llmc fleet init" in refused.err
    made = scripted.llmc("fleet", "init", "--json").json
    assert (made["node"], made["migrations"] > 0) == ("one", True)
    assert "the tables are up to date" in scripted.llmc("fleet", "init").out, "safe to repeat"
    join(second, database, "two")
    assert [node["name"] for node in scripted.llmc("fleet", "nodes", "--json").json] == ["one", "two"]
    listed = scripted.llmc("fleet", "nodes").out
    assert "one" in listed
    assert "(this node)" in listed.splitlines()[0]
    seen = second.llmc("fleet", "status", "--json").json
    assert (seen["node"], seen["problem"], seen["tasks"]) == ("two", "", {})
    drained = scripted.llmc("fleet", "drain", "two").out
    assert "node two no longer accepts new tasks" in drained
    assert "accepts new tasks again" in scripted.llmc("fleet", "drain", "two", "--undo").out
    assert "no node three" in scripted.llmc("fleet", "drain", "three", code=4).err
    assert "node two left" in scripted.llmc("fleet", "leave", "two").out
    assert [node["name"] for node in scripted.llmc("fleet", "nodes", "--json").json] == ["one"]


def test_a_node_that_would_land_apart_is_refused(database: str) -> None:
    """Break: let each node have its own fence and branch; none would refuse a late push of another."""
    with fleet_of(("one", "two"), database) as nodes:
        one, two = nodes.values()
        one.git("branch", "other", "main")
        two.configure({"fleet.fence_ref": "llmc-fence"})
        right = "llmc config set fleet.fence_ref refs/llmc/fence"
        assert right in two.llmc("fleet", "join", cwd=two.root, code=3).err
        assert right in up(two, "--concurrency", "1", code=None)
        two.configure({"fleet.fence_ref": "refs/llmc/fence", "repo.default_branch": "other"})
        assert "llmc config set repo.default_branch main" in up(two, "--concurrency", "1", code=None)


def test_a_remote_on_which_nodes_cannot_land_is_refused(scripted: Fleet, database: str) -> None:
    """The source is the user's checkout. Break: join without the probe; the first landing would fail."""
    scripted.set_up(config={"fleet.database": database, "fleet.node": "one"})
    for command in ("init", "join"):
        refused = scripted.llmc("fleet", command, code=3)
        assert f"{scripted.source} cannot be shared: the branch main is protected" in refused.err
        assert "fleet.remote" in refused.err
    with psycopg.connect(database) as db:
        assert db.execute("select to_regclass('llmc.node')").fetchone() == (None,), "nothing was set up"
    assert [ref for ref in scripted.git("for-each-ref").splitlines() if "refs/llmc" in ref] == []


def test_a_root_of_another_repository_is_refused(scripted: Fleet, database: str) -> None:
    """Break: join without checking the history; its tasks would land in the wrong repository."""
    join(scripted, database, "one", "init")
    stranger = Fleet("scripted")
    try:
        # Made in the same second, both would start with the same commit.
        stranger.git("commit", "-q", "--amend", "-m", "Another beginning")
        set_up(stranger, with_password(database), "two")
        own, shared = stranger.dir / "shared.git", scripted.dir / "shared.git"
        refused = stranger.llmc("fleet", "join", code=3)
        assert f"{own} is not the fleet's repository" in refused.err
        assert f"llmc init --source {shared} --target DIR" in refused.err
        stranger.configure({"fleet.remote": str(shared)})
        refused = stranger.llmc("fleet", "join", code=3)
        assert f"{shared} cannot be shared: it is a different repository" in refused.err
        assert "llmc config set fleet.remote URL" in refused.err
    finally:
        stranger.close()
    assert [node["name"] for node in scripted.llmc("fleet", "nodes", "--json").json] == ["one"]


def test_two_roots_of_one_name(scripted: Fleet, second: Fleet, database: str) -> None:
    """Break: let the second root overwrite the first one's row."""
    join(scripted, database, "laptop", "init")
    set_up(second, database, "laptop")
    refused = second.llmc("fleet", "join", code=3)
    assert f"the node name laptop belongs to another root: {_host()}:{scripted.root}" in refused.err
    assert "llmc config set fleet.node NAME" in refused.err
    second.llmc("config", "set", "fleet.node", "server")
    second.llmc("fleet", "join")


def test_a_copy_of_a_root_that_runs_is_refused(scripted: Fleet, database: str, tmp_path: Path) -> None:
    """Break: identify a root only by its ID; both would answer for one name."""
    join(scripted, database, "laptop", "init")
    copy = tmp_path / "copy"
    shutil.copytree(scripted.root, copy, symlinks=True)
    with psycopg.connect(database) as db:
        db.execute("update llmc.node set daemon = 'x'")
    refused = scripted.llmc("--root", str(copy), "fleet", "join", code=3)
    assert f"node laptop is running in a copy of this root: {_host()}:{scripted.root}" in refused.err
    with psycopg.connect(database) as db:
        db.execute("update llmc.node set seen = now() - interval '10 minutes'")
    scripted.llmc("--root", str(copy), "fleet", "join")


def _host() -> str:
    return socket.gethostname()


def test_the_password_is_shown_nowhere(scripted: Fleet, database: str) -> None:
    """Break: print the configuration as it is."""
    join(scripted, database, "one", "init")
    said = [
        scripted.llmc(*command, code=None, quotes=True)
        for command in (
            ["config", "get"],
            ["config", "get", "--json"],
            ["config", "get", "fleet.database"],
            ["config", "get", "fleet"],
            ["config", "get", "fleet", "--json"],
            ["config", "set", "fleet.database", with_password(database)],
            ["config", "set", "fleet.database", f"mysql://llmc:{SECRET}@host/db"],
            ["config", "check", "--json"],
            ["fleet", "status"],
            ["fleet", "status", "--json"],
            ["fleet", "nodes", "--json"],
            ["doctor"],
            ["doctor", "--json"],
            ["tasks", "list"],
            ["--debug", "tasks", "show", "99"],
            ["events", "--json"],
        )
    ]
    assert [one for one in said if SECRET in one.out + one.err] == []
    assert said[2].out.strip() == database, "the rest of it is shown"
    scripted.llmc("config", "set", "fleet.database", f"postgresql://llmc:{SECRET}@127.0.0.1:1/none")
    gone = [
        scripted.llmc(*command, code=None, quotes=True)
        for command in (
            ["--debug", "fleet", "status"],
            ["--debug", "tasks", "list"],
            ["doctor"],
            ["up", "--auto"],
        )
    ]
    assert [one for one in gone if SECRET in one.out + one.err] == []
    written = [path for path in scripted.root.rglob("*") if path.is_file() and path.name != "config.toml"]
    assert [path for path in written if SECRET.encode() in path.read_bytes()] == []


def test_without_its_database_a_command_says_so(scripted: Fleet, postgres: Postgres) -> None:
    set_up(scripted, "postgresql://llmc@127.0.0.1:1/none", "one")
    status = scripted.llmc("fleet", "status", "--json", code=1)
    assert "is not responding" in json.loads(status.out)["problem"]
    for command in (["tasks", "list"], ["fleet", "join"], ["tasks", "add", "Do it"]):
        assert "the fleet's database is not responding" in scripted.llmc(*command, code=1).err


def test_alone_there_is_no_fleet(scripted: Fleet) -> None:
    scripted.set_up()
    refused = scripted.llmc("fleet", "status", code=2)
    assert "this root is not in a fleet" in refused.err
    assert "llmc config set fleet.database" in refused.err
