"""What wakes the daemon: a socket that names a worker, and the kernel's word that files of a directory changed."""

import errno
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
    try:
        # Not by the umask: that is the whole process's, and other threads make files meanwhile.
        sock.bind(str(path))
        path.chmod(0o600)
    except BaseException:
        sock.close()
        raise
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


_CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _DELETE = 0x8, 0x40, 0x80, 0x200
_DELETE_SELF, _MOVE_SELF, _OVERFLOW, _IGNORED = 0x400, 0x800, 0x4000, 0x8000
_WATCHED = _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _DELETE | _DELETE_SELF | _MOVE_SELF
_UNSURE = _DELETE_SELF | _MOVE_SELF | _OVERFLOW | _IGNORED
_HEADER = struct.Struct("iIII")


class Watch:
    """A directory under watch. `fileno()` becomes readable when something changed."""

    def __init__(self, directory: Path) -> None:
        import ctypes  # 2 ms that only a daemon needs

        self._libc = ctypes.CDLL(None, use_errno=True)
        fd: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if fd < 0:
            raise OSError(ctypes.get_errno(), "cannot watch files")
        self._fd = fd
        if self._libc.inotify_add_watch(fd, os.fsencode(directory), _WATCHED) < 0:
            number = ctypes.get_errno()
            self.close()
            raise OSError(number, os.strerror(number), str(directory))

    def fileno(self) -> int:
        return self._fd

    def changed(self) -> set[str] | None:
        """The names that were written, moved or removed since the last call; None: it cannot be told, look at all."""
        names: set[str] = set()
        sure = True
        while data := self._read():
            offset = 0
            while offset < len(data):
                _, mask, _, length = _HEADER.unpack_from(data, offset)
                offset += _HEADER.size
                name = data[offset : offset + length].rstrip(b"\0")
                offset += length
                sure = sure and not mask & _UNSURE
                if name:
                    names.add(os.fsdecode(name))
        return names if sure else None

    def close(self) -> None:
        os.close(self._fd)

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, 64 * 1024)
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return b""
            raise
