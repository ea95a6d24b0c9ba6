"""A private PostgreSQL for tests, with a new database for each of them."""

import atexit
import functools
import itertools
import os
import signal
from collections.abc import Mapping

import psycopg
import pytest

from llmc.base.errors import ToolFailed
from llmc.base.proc import ToolMissing
from llmc.base.processes import is_alive
from llmc.rehearsal import postgres as private
from llmc.rehearsal.postgres import SETTINGS
from tests.support.waiting import wait_until

#: for a server whose data survives a crash of the machine
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

    @property
    def pid(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split()[0])

    def start(self) -> None:
        wait_until(self._starts)

    def _starts(self) -> bool:
        try:
            super().start()
        except ToolFailed:  # refused while a killed server's processes are exiting
            return False
        return True

    def stop(self, number: int = signal.SIGINT) -> None:
        """Also by SIGKILL, which leaves its other processes to notice."""
        if number != signal.SIGKILL:
            super().stop(number)
        elif self._runs:
            self._runs = False
            pid = self.pid
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: not is_alive(pid))

    def new(self) -> str:
        """The address of a new database."""
        name = next(self._names)
        with psycopg.connect(self.address("postgres"), autocommit=True) as db:
            db.execute(f"create database {name}")
        return self.address(name)


@functools.cache
def server() -> Postgres:
    """One for all tests of this process."""
    made = Postgres()
    atexit.register(made.close)
    return made
