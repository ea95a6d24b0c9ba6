"""A private PostgreSQL: a server in a temporary directory, on a unix socket, as a user that is not root."""

import os
import pwd
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path

from llmc.base import proc

#: without `fsync`, data is lost only if the machine crashes, which is fine in a rehearsal
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "listen_addresses": "",
    "max_connections": "120",
    "shared_buffers": "64MB",
    "log_min_messages": "fatal",
}
#: initdb refuses root
INSTEAD_OF_ROOT = "nobody"


def program(name: str) -> str:
    """The path of a server program; Debian keeps them out of PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    path = str(found[0]) if found else shutil.which(name)
    if path is None:
        raise proc.ToolMissing(
            "the PostgreSQL server is not installed",
            hint="Install it (on Debian: `sudo apt-get install postgresql`).",
        )
    return path


class Postgres:
    """One server; it runs until it is closed."""

    def __init__(self, settings: Mapping[str, str] = SETTINGS) -> None:
        initdb = program("initdb")
        self._settings = settings
        self.dir = Path(tempfile.mkdtemp(prefix="llmc-pg-"))
        self._as: list[str] = []
        self._runs = False
        try:
            if os.geteuid() == 0:
                other = pwd.getpwnam(INSTEAD_OF_ROOT)
                os.chown(self.dir, other.pw_uid, other.pw_gid)
                self._as = ["setpriv", f"--reuid={other.pw_uid}", f"--regid={other.pw_gid}", "--clear-groups"]
            made = [initdb, "-D", str(self.data), "-U", "llmc", "-A", "trust", "-E", "UTF8"]
            proc.run([*self._as, *made, "--locale=C", "--no-sync"], cwd="/", timeout_s=60)
            self.start()
        except BaseException:
            self.close()
            raise

    @property
    def data(self) -> Path:
        return self.dir / "data"

    def address(self, database: str, **more: str) -> str:
        options = "".join(f"&{name}={value}" for name, value in more.items())
        return f"postgresql://llmc@/{database}?host={self.dir}{options}"

    def start(self) -> None:
        self._runs = True
        settings = " ".join(f"-c {name}='{value}'" for name, value in self._settings.items())
        self._control("-l", str(self.dir / "log"), "-o", f"-k {self.dir} {settings}", "start")

    def stop(self, number: int = signal.SIGINT) -> None:
        """Stop the server: SIGINT shuts it down fast but cleanly, SIGQUIT simulates a crash."""
        if self._runs:
            self._runs = False
            self._control("-m", "immediate" if number == signal.SIGQUIT else "fast", "stop")

    def _control(self, *args: str) -> None:
        argv = [program("pg_ctl"), "-D", str(self.data), "-s", "-w", "-t", "30"]
        proc.run([*self._as, *argv, *args], cwd="/", timeout_s=60)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)
