"""The tests of auto mode and goals on PostgreSQL: with LLMC_TEST_POSTGRES=1, each root is a node.

Each root has its own database. A test about a root that works alone has a mark (see below), and is skipped.
"""

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from msgspec.structs import replace
from psycopg.rows import dict_row

from llmc.agents.claude.task_files import parse
from llmc.config.paths import Root
from llmc.fleet import nodes, statements
from llmc.fleet.database import Database
from llmc.fleet.nodes import Membership
from llmc.goals.store.shared_goals import SharedGoals
from llmc.records.task import Task, in_order
from llmc.repo.project import Project, bare_project
from llmc.tasks.shared import SharedTasks
from tests.support.postgres import server

if TYPE_CHECKING:
    from llmc.fleet.database import Rows as DbRows
    from tests.support.fleet import Fleet

SWITCH = "LLMC_TEST_POSTGRES"
NODE = "one"
#: users push what they commit: all nodes land there
PUSH = "#!/bin/sh\nexec git push -q {remote} main\n"

# What is skipped, and why
TASK_FILES = pytest.mark.alone("task files, as people and agents write them")
SHARED_FILES = pytest.mark.alone("one list of files for several roots, and for the agents")
CHECKOUT = pytest.mark.alone("it lands on a checkout that is in use; a node lands on the remote")
PLAYED = pytest.mark.alone("its clock and its workers are played, and claim from files")
GOAL_FILE = pytest.mark.alone("the file of goals; test_store_contract.py has both stores")


def is_on() -> bool:
    return bool(os.environ.get(SWITCH))


def config(fleet: "Fleet") -> dict[str, str]:
    """For a root that is the only node of its fleet; it lands on a clone of its source, which follows."""
    remote = fleet.dir / "shared.git"
    fleet.git("clone", "-q", "--bare", str(fleet.source), str(remote))
    hook = fleet.source / ".git/hooks/post-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(PUSH.format(remote=remote))
    hook.chmod(0o755)
    return {"fleet.database": server().new(), "fleet.node": NODE, "fleet.remote": str(remote)}


def bare(folder: Path) -> Project:
    """A root without its files: standalone, or a node with the switch."""
    made = bare_project(Root(folder))
    if is_on():
        fleet = replace(made.config.fleet, database=_database_of(folder), node=NODE)
        made = replace(made, config=replace(made.config, fleet=fleet))
        made.root.private.mkdir(mode=0o700, parents=True, exist_ok=True)
        nodes.init(made)
        nodes.join(made, str(folder), ["0" * 40])
    return made


#: as a task is numbered that comes with its own id
AT_LEAST_NUMBER = """
insert into llmc.list as l (name, highest) values (%(list)s, %(number)s)
on conflict (name) do update set highest = greatest(l.highest, %(number)s)"""


class Seeded(SharedTasks):
    """Tasks under the ids that a test gives them, as in files."""

    def insert(self, task: Task, by: str) -> bool:
        """Whether the list did not have that id."""

        def work(rows: "DbRows") -> bool | None:
            key = self.key(task.id)
            if rows.execute(statements.TASK, self._values(key)).fetchall():
                return None
            rows.execute(AT_LEAST_NUMBER, self._values(number=in_order(task.id)[1]))
            return self._insert(rows, key, task, by)

        is_ready = self._db.do(work)
        self._tell_of_new(bool(is_ready))
        return is_ready is not None


@functools.cache
def _database_of(folder: Path) -> str:
    return server().new()


class Rows:
    """What a node has in its database, seen from outside."""

    def __init__(self, url: str, list_name: str = "plan") -> None:
        self._url = url
        self._opened = (Database(url), Database(url))
        own = Membership(self._opened[0], NODE, "a test", "a test", 60.0)
        self._tasks = Seeded(own, list_name)
        self.goals = SharedGoals(self._opened[1])

    def close(self) -> None:
        for one in self._opened:
            one.close()

    def tasks(self) -> dict[str, dict[str, Any]]:
        """As their files would have them."""
        return {task_id: _as_file(task) for task_id, task in self._tasks.listing().tasks.items()}

    def put(self, raw: dict[str, Any]) -> None:
        """A new task, or the user's change to one."""
        task = parse(raw["id"], raw)
        if not self._tasks.insert(task, "a person"):
            self._tasks.edit(self._tasks.key(task.id), lambda _: task)

    def remove(self, task_id: str) -> None:
        self._tasks.remove(self._tasks.key(task_id), lambda _: True)

    def where(self, task_id: str) -> str:
        return self._tasks.where(self._tasks.key(task_id))

    def ledger(self) -> list[dict[str, Any]]:
        """The entries that the file of a standalone root has, too."""
        with psycopg.connect(self._url, row_factory=dict_row) as db:
            found = db.execute(
                "select extract(epoch from at)::float8 as ts, worker, list, task, action, claim, details"
                " from llmc.entry where action <> 'edited' order by seq"
            ).fetchall()
        return [{**row.pop("details"), **row} for row in found]


def _as_file(task: Task) -> dict[str, Any]:
    return {
        "id": task.id,
        "subject": task.subject,
        "description": task.description,
        "status": str(task.status),
        "blocks": list(task.blocks),
        "blockedBy": list(task.blocked_by),
        "metadata": dict(task.metadata),
        **({"owner": task.owner} if task.owner else {}),
    }
