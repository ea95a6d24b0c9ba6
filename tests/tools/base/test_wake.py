"""The wake-up socket."""

import os
import socket
import struct
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from llmc.base.wake import listen, receive, wake
from llmc.hook_client import PORTABLE


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="llmc-w-") as directory:
        yield Path(directory) / "wake.sock"


def test_a_wake_up_names_its_worker(path: Path) -> None:
    with closing(listen(path)) as sock:
        assert receive(sock) is None
        wake(path, "w1")
        wake(path)
        assert (receive(sock), receive(sock), receive(sock)) == ("w1", "", None)


def test_nobody_listens(path: Path) -> None:
    """Breaks when an error of sendto is let out: every command would fail without a daemon."""
    wake(path, "w1")
    listen(path).close()
    assert path.exists()
    wake(path, "w1")
    wake(path.with_name("x" * 200), "w1")
    wake(path.parent / "no" / "such" / "dir", "w1")


def test_a_daemon_that_does_not_listen_blocks_nobody(path: Path) -> None:
    """Breaks when the sender blocks: a stuck daemon would stop every command."""
    with closing(listen(path)):
        for _ in range(2000):
            wake(path, "w1")


def test_a_dead_daemon_s_socket_is_replaced(path: Path) -> None:
    listen(path).close()
    with closing(listen(path)) as sock:
        wake(path, "w2")
        assert receive(sock) == "w2"


def test_the_socket_is_private(path: Path) -> None:
    """Breaks when the umask is not set."""
    mask = os.umask(0)
    try:
        with closing(listen(path)):
            assert path.stat().st_mode & 0o777 == 0o600
        assert os.umask(0) == 0, "the umask was not restored"
    finally:
        os.umask(mask)


@pytest.mark.skipif(PORTABLE, reason="only on Linux")
@pytest.mark.skipif(os.getuid() != 0, reason="only root may send as somebody else")
def test_other_people_s_wake_ups_are_dropped(path: Path) -> None:
    """Breaks when the sender's uid is not checked."""
    with closing(listen(path)) as sock, closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as other:
        credentials = struct.pack("3i", os.getpid(), os.getuid() + 4321, os.getgid())
        other.connect(str(path))
        other.sendmsg([b"evil"], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, credentials)])
        wake(path, "w1")
        assert (receive(sock), receive(sock)) == ("w1", None)
