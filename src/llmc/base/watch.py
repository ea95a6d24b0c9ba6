"""Which files of a directory changed: the kernel tells (inotify), so that nobody has to look at all of them."""

import ctypes
import errno
import os
import struct
from pathlib import Path

_CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _DELETE = 0x8, 0x40, 0x80, 0x200
_DELETE_SELF, _MOVE_SELF, _OVERFLOW, _IGNORED = 0x400, 0x800, 0x4000, 0x8000
_WATCHED = _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _DELETE | _DELETE_SELF | _MOVE_SELF
_UNSURE = _DELETE_SELF | _MOVE_SELF | _OVERFLOW | _IGNORED
_HEADER = struct.Struct("iIII")


class Watch:
    """A directory under watch. `fileno()` becomes readable when something changed."""

    def __init__(self, directory: Path) -> None:
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
