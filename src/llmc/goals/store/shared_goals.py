"""The goal store in the fleet's database: the same rows and statements as in the file, shared by all nodes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from llmc.base.faults import step as fault_step
from llmc.fleet.database import Database
from llmc.goals.store.goal_store import AnyGoalStore
from llmc.goals.store.rows import Reader, Writer

SCHEMA = "llmc_goals"
#: keeps out other writers, but not readers
ALONE = "lock table counters in exclusive mode"


class SharedGoals(AnyGoalStore):
    def __init__(self, database: Database) -> None:
        self._db = database

    @property
    def name(self) -> str:
        return self._db.address

    def exists(self) -> bool:
        return True

    def is_in(self, root: Path) -> bool:
        return False

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        with self._db.session(SCHEMA, read_only=True) as sql:
            yield Reader(sql)

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        self.before_writing()
        with self._db.session(SCHEMA) as sql:
            sql.execute(ALONE)
            yield Writer(sql)
            with fault_step("goals.write"):
                sql.commit()
