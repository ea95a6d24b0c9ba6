"""A git server on the loopback address, like a remote machine: what a client leaves behind runs on there."""

import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class GitDaemon(threading.Thread):
    """Serves every repository below a directory, each connection with git's own daemon."""

    def __init__(self, directory: Path) -> None:
        super().__init__(daemon=True)
        self.directory = directory
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.open: list[socket.socket] = []
        self.children: list[subprocess.Popen[bytes]] = []

    def url(self, name: str) -> str:
        return f"git://127.0.0.1:{self.socket.getsockname()[1]}/{name}"

    def run(self) -> None:
        git = shutil.which("git")
        assert git
        flags = ["--inetd", "--export-all", "--enable=receive-pack", "--log-destination=none"]
        with suppress(OSError):  # closed
            while True:
                connection, _ = self.socket.accept()
                self.open.append(connection)
                child = subprocess.Popen(
                    [git, "daemon", *flags, f"--base-path={self.directory}"],
                    stdin=connection.fileno(),
                    stdout=connection.fileno(),
                    stderr=subprocess.DEVNULL,
                )
                self.children.append(child)

    def cut(self) -> None:
        """Break every connection; the programs on this side keep running."""
        for connection in self.open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.join()
        self.cut()
        for child in self.children:
            child.wait(30)
        for connection in self.open:
            connection.close()


@contextmanager
def serving(directory: Path) -> Iterator[GitDaemon]:
    daemon = GitDaemon(directory)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.close()
