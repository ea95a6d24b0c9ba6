"""The wake-up socket: says "look at this worker", and carries nothing else."""

import os
import socket
import struct
from pathlib import Path

_CREDENTIALS = struct.Struct("3i")


def wake(path: Path, worker: str = "") -> None:
    """Wake the daemon if there is one; that there is none is fine."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        try:
            sock.sendto(worker.encode(), str(path))
        except OSError:
            pass


def listen(path: Path) -> socket.socket:
    """The daemon's end; a socket file left by a dead daemon is replaced."""
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    # Before the name exists: a wake-up that came first would carry no credentials and be dropped.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    sock.setblocking(False)
    old_mask = os.umask(0o177)
    try:
        sock.bind(str(path))
    except BaseException:
        sock.close()
        raise
    finally:
        os.umask(old_mask)
    return sock


def inode(path: Path) -> int:
    """Which socket wake-ups to this path reach: another one once somebody removed or replaced the file; 0: none."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def receive(sock: socket.socket) -> str | None:
    """The worker a wake-up names ("" for all); None when nothing waits. Other people's are dropped."""
    while True:
        try:
            data, ancillary, _, _ = sock.recvmsg(256, socket.CMSG_SPACE(_CREDENTIALS.size))
        except BlockingIOError:
            return None
        for level, kind, value in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                _, uid, _ = _CREDENTIALS.unpack(value[: _CREDENTIALS.size])
                if uid in (os.getuid(), 0):
                    return data.decode(errors="replace")
