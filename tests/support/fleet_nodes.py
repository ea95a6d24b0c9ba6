"""Nodes of a fleet: roots with their own daemons, one bare repository and one database."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.support.fleet import Fleet
from tests.support.plans import auto_config


@contextmanager
def fleet_of(names: tuple[str, ...], database: str, **config: str) -> Iterator[dict[str, Fleet]]:
    """A node for each name; the first one's source is cloned to a bare repository on which all land."""
    nodes = {name: Fleet("scripted") for name in names}
    try:
        first = next(iter(nodes.values()))
        bare = first.dir / "shared.git"
        first.git("clone", "-q", "--bare", str(first.source), str(bare))
        for name, node in nodes.items():
            node.source = bare
            node.llmc("init", "--source", str(bare), "--target", str(node.root), cwd=node.dir)
            own = {"fleet.database": database, "fleet.node": name, "defaults.patrol_interval_secs": "5"}
            node.configure(auto_config(node, **{**own, **config}))
            in_root(node, "fleet", "init" if node is first else "join")
        yield nodes
        for name, node in nodes.items():
            log = node.root / "logs/daemon.jsonl"
            assert not log.exists() or '"bug' not in log.read_text(), f"{name}: {log.read_text()}"
    finally:
        for node in nodes.values():
            node.close()


def in_root(node: Fleet, *command: str, code: int | None = 0) -> str:
    return node.llmc(*command, cwd=node.root, code=code).out


def up(node: Fleet, *args: str, code: int | None = 0) -> str:
    """Start its daemon; returns its output."""
    done = node.llmc("up", "--detach", "--auto", "--no-canary", *args, cwd=node.root, code=code)
    return done.out + done.err


def attempts(database: str) -> dict[str, list[str]]:
    """For each task, the nodes that claimed it, in order."""
    with psycopg.connect(database) as db:
        rows = db.execute(
            "select task, node from llmc.entry where action = 'claimed' order by seq"
        ).fetchall()
    found: dict[str, list[str]] = {}
    for task, node in rows:
        found.setdefault(task, []).append(node)
    return found


def states(database: str) -> dict[str, str]:
    with psycopg.connect(database) as db:
        return dict(db.execute("select id, status from llmc.task order by number").fetchall())


def landed(node: Fleet) -> list[str]:
    """The subjects on the shared branch, oldest first."""
    return node.git("log", "--reverse", "--format=%s", "main").splitlines()[1:]
