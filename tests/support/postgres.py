"""A private PostgreSQL for tests: a server in a temporary directory, on a unix socket, as a user that is not root."""

import atexit
import contextlib
import functools
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import psycopg
import pytest

from tests.support.waiting import wait_until

#: without `fsync`, only a crash of the machine loses data, and no test crashes the machine
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "",
    "max_connections": "120",
    "shared_buffers": "64MB",
    "log_min_messages": "fatal",
}
#: of a server whose data outlives a crash of the machine
DURABLE = {**SETTINGS, "fsync": "on", "full_page_writes": "on", "shared_buffers": "256MB"}


def program(name: str) -> str:
    """A program of the server: Debian keeps them out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    path = str(found[0]) if found else shutil.which(name)
    if path is None:
        pytest.skip(
            "POSTGRESQL IS NOT INSTALLED: the fleet was NOT checked; scripts/setup --client installs it"
        )
    return path


class Postgres:
    """One server. `url` names a new, empty database."""

    def __init__(self, settings: Mapping[str, str] = SETTINGS) -> None:
        self._settings = settings
        self.dir = Path(tempfile.mkdtemp(prefix="pg-"))
        self._as = "nobody" if os.geteuid() == 0 else None  # initdb refuses root
        if self._as is not None:
            os.chown(self.dir, pwd.getpwnam(self._as).pw_uid, -1)
        self._names = (f"t{number}" for number in itertools.count(1))
        self._server: subprocess.Popen[bytes] | None = None
        made = [program("initdb"), "-D", str(self.data), "-U", "llmc", "-A", "trust", "-E", "UTF8"]
        subprocess.run([*made, "--locale=C", "--no-sync"], check=True, capture_output=True, user=self._as)
        self.start()

    @property
    def pid(self) -> int:
        assert self._server is not None
        return self._server.pid

    @property
    def data(self) -> Path:
        return self.dir / "data"

    def address(self, database: str, **more: str) -> str:
        options = "".join(f"&{name}={value}" for name, value in more.items())
        return f"postgresql://llmc@/{database}?host={self.dir}{options}"

    def start(self) -> None:
        settings = [word for name, value in self._settings.items() for word in ("-c", f"{name}={value}")]
        argv = [program("postgres"), "-D", str(self.data), "-k", str(self.dir), *settings]
        log = (self.dir / "log").open("ab")
        with log:
            self._server = subprocess.Popen(argv, user=self._as, stdout=log, stderr=log, cwd="/")
        wait_until(self._answers)

    def _answers(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.address("postgres")):
            return True
        return False

    def stop(self, number: int = signal.SIGINT) -> None:
        """SIGINT ends it at once and in order; SIGQUIT is a crash."""
        if self._server is not None:
            self._server.send_signal(number)
            self._server.wait(30)
            self._server = None

    def new(self) -> str:
        """The address of a new database."""
        name = next(self._names)
        with psycopg.connect(self.address("postgres"), autocommit=True) as db:
            db.execute(f"create database {name}")
        return self.address(name)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)


@functools.cache
def server() -> Postgres:
    """One for all tests of this process."""
    made = Postgres()
    atexit.register(made.close)
    return made
