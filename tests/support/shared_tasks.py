"""A database for a test, and its tasks as a node of the fleet sees them."""

from collections.abc import Iterator
from typing import Protocol

import pytest

from llmc.fleet.database import Database
from llmc.fleet.nodes import Membership
from llmc.tasks.shared import SharedTasks
from tests.support.postgres import Postgres, server


@pytest.fixture(scope="session")
def postgres() -> Postgres:
    return server()


@pytest.fixture
def database(postgres: Postgres) -> str:
    """The address of an empty database."""
    return postgres.new()


class OpenShared(Protocol):
    def __call__(
        self, node: str = "one", *, lease_s: float = 60.0, backoff_s: float = 0.0, list_name: str = "plan"
    ) -> SharedTasks: ...


@pytest.fixture
def open_shared(database: str) -> Iterator[OpenShared]:
    """Opens the tasks of a node, with its own connection, like another process."""
    opened: list[Database] = []

    def shared(
        node: str = "one", *, lease_s: float = 60.0, backoff_s: float = 0.0, list_name: str = "plan"
    ) -> SharedTasks:
        own = Membership(Database(database), node, f"id-of-{node}", f"host:/{node}", lease_s)
        opened.append(own.database)
        own.database.migrate()
        return SharedTasks(own, list_name, backoff_s)

    yield shared
    for one in opened:
        one.close()
