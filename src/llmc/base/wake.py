"""Wake the daemon: a socket for messages that name a worker, and a watch for changed files in a directory."""

import contextlib
import errno
import os
import socket
import struct
import threading
from pathlib import Path
from typing import Protocol

from llmc.hook_client import PORTABLE

#: how often a directory is polled without inotify
POLL_S = 0.25

_CREDENTIALS = struct.Struct("3i")


def wake(path: Path, worker: str = "") -> None:
    """Wake the daemon, if there is one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)
        try:
            sock.sendto(worker.encode(), str(path))
        except OSError:
            pass


def listen(path: Path) -> socket.socket:
    """The daemon's end; replaces a socket file left by a dead daemon."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    # Before the name exists: an earlier wake-up would have no credentials and be dropped.
    if not PORTABLE:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    sock.setblocking(False)
    try:
        # Not with the umask: it applies to the whole process, and other threads create files.
        sock.bind(str(path))
        path.chmod(0o600)
    except BaseException:
        sock.close()
        raise
    return sock


def inode(path: Path) -> int:
    """The inode of the socket at this path, which changes when the file is replaced; 0 if there is none."""
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def receive(sock: socket.socket) -> str | None:
    """The worker that a wake-up names ("" for all); None if none is pending. Those of other users are dropped.

    If the kernel does not report the sender, only the socket's mode keeps others out.
    """
    while True:
        try:
            room = 0 if PORTABLE else socket.CMSG_SPACE(_CREDENTIALS.size)
            data, ancillary, _, _ = sock.recvmsg(256, room)
        except BlockingIOError:
            return None
        if PORTABLE:
            return data.decode(errors="replace")
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


class Watch(Protocol):
    """A watched directory. `fileno()` becomes readable when something changed."""

    def fileno(self) -> int: ...

    def changed(self) -> set[str] | None:
        """The names written, moved or removed since the last call; None: unknown, check all."""

    def close(self) -> None: ...


def open_watch(directory: Path) -> Watch:
    return _Polling(directory) if PORTABLE else _Inotify(directory)


class _Polling:
    """Polling, for systems without inotify."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[str, tuple[int, int, int]] | None = self._look()
        self._names: set[str] = set()
        self._sure = True
        self._lock = threading.Lock()
        self._read_fd, self._write_fd = os.pipe()
        os.set_blocking(self._read_fd, False)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="watch", daemon=True)
        self._thread.start()

    def _look(self) -> dict[str, tuple[int, int, int]]:
        found = {}
        for entry in os.scandir(self._directory):
            with contextlib.suppress(FileNotFoundError):
                info = entry.stat(follow_symlinks=False)
                found[entry.name] = (info.st_ino, info.st_mtime_ns, info.st_size)
        return found

    def _compare(self) -> bool:
        """Whether something changed; the caller holds the lock."""
        try:
            now: dict[str, tuple[int, int, int]] | None = self._look()
        except OSError:
            now = None  # the directory is gone
        if now == self._known:
            return False
        self._sure = self._sure and now is not None
        self._names |= {name for name, _ in (now or {}).items() ^ (self._known or {}).items()}
        self._known = now
        return True

    def _poll(self) -> None:
        while not self._ended.wait(POLL_S):
            with self._lock:
                if self._compare():
                    os.write(self._write_fd, b".")

    def fileno(self) -> int:
        return self._read_fd

    def changed(self) -> set[str] | None:
        with self._lock:
            with contextlib.suppress(BlockingIOError):
                os.read(self._read_fd, 4096)
            self._compare()  # what the caller reads next is not older than this result
            names, self._names = self._names, set()
            sure, self._sure = self._sure, True
            return names if sure else None

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        os.close(self._read_fd)
        os.close(self._write_fd)


class _Inotify:
    """A watch with inotify, on Linux."""

    def __init__(self, directory: Path) -> None:
        import ctypes  # 2 ms, needed only by a daemon

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
