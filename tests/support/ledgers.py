"""The ledger of landings in PostgreSQL, with what tests do to it; and what ledgers have in common."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import psycopg

from llmc.base.names import TaskKey
from llmc.fleet.database import Database
from llmc.fleet.landings import Landings
from llmc.records.landing_ledger import LandingLedger

NOWHERE = "postgresql://nobody@/none?host=/nonexistent"
#: an agreement binds only while there are nodes
_JOIN = (
    "insert into llmc.node (name, instance, place) values ('test', 'id', 'host:/test') on conflict do nothing"
)
_CLAIM = """
insert into llmc.task (list, id, number, subject, description, status, priority, label, metadata, claim, node)
values (%(list)s, %(id)s, 0, '', '', 'in_progress', 0, '', '{}', nextval('llmc.fence'), 'test')
on conflict (list, id) do update set claim = excluded.claim returning claim"""


class AnyLedger(LandingLedger, Protocol):
    def claim(self, task: TaskKey) -> str:
        """Give a task to a new holder, as a fleet's queue does."""
        ...

    def gone(self) -> AbstractContextManager[None]:
        """Do not answer in the meantime."""
        ...

    def in_child(self) -> None:
        """In a forked process: share no connection with the parent."""
        ...


class PostgresLedger(Landings):
    def __init__(self, url: str, lease_s: float = 60) -> None:
        self.url = url
        self.lease_s = lease_s
        Database(url).migrate()
        super().__init__(Database(url), "test", "the remote", lease_s)
        self._db.rows(_JOIN)

    def claim(self, task: TaskKey) -> str:
        with psycopg.connect(self.url) as db:
            row = db.execute(_CLAIM, {"list": task.list, "id": task.id}).fetchone()
            assert row is not None
            return str(row[0])

    @contextmanager
    def gone(self) -> Iterator[None]:
        here, self._db = self._db, Database(NOWHERE)
        try:
            yield
        finally:
            self._db = here

    def in_child(self) -> None:
        self._db = Database(self.url)

    @contextmanager
    def other(self) -> "Iterator[PostgresLedger]":
        """The same ledger, as another process sees it."""
        made = PostgresLedger(self.url, self.lease_s)
        try:
            yield made
        finally:
            made.close()

    def close(self) -> None:
        self._db.close()
