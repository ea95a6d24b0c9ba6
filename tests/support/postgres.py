"""A private PostgreSQL for tests, with a new database for each of them."""

import itertools
from collections.abc import Iterator, Mapping

import psycopg
import pytest

from llmc.base.proc import ToolMissing
from llmc.rehearsal import postgres as private
from llmc.rehearsal.postgres import SETTINGS

#: of a server whose data outlives a crash of the machine
DURABLE = {**SETTINGS, "fsync": "on", "full_page_writes": "on", "shared_buffers": "256MB"}


class Postgres(private.Postgres):
    def __init__(self, settings: Mapping[str, str] = SETTINGS) -> None:
        self._names = (f"t{number}" for number in itertools.count(1))
        try:
            super().__init__(settings)
        except ToolMissing:
            pytest.skip(
                "POSTGRESQL IS NOT INSTALLED: the fleet was NOT checked; scripts/setup --client installs it"
            )

    def new(self) -> str:
        """The address of a new database."""
        name = next(self._names)
        with psycopg.connect(self.address("postgres"), autocommit=True) as db:
            db.execute(f"create database {name}")
        return self.address(name)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One server for all tests of this process."""
    server = Postgres()
    yield server
    server.close()


@pytest.fixture
def database(postgres: Postgres) -> str:
    """The address of an empty database."""
    return postgres.new()
