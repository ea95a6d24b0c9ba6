"""Reads a log across rotation: the archives, then the current file. Light, for the hot commands.

A rotated log (base/rotation.py) is `daemon.jsonl.000001`, `daemon.jsonl.000002`, ..., and the current `daemon.jsonl`.
"""

import os
from collections.abc import Iterator

_DIGITS = 6
_CHUNK = 1 << 20
#: longer than any line llmc writes
MOST_LINE = 8 << 20


def archives(path: str) -> list[tuple[int, str]]:
    """The archives of a log: number and path, oldest first."""
    folder, name = os.path.split(path)
    try:
        names = os.listdir(folder or ".")
    except OSError:
        return []
    numbered = ((other[len(name) + 1 :], other) for other in names if other.startswith(f"{name}."))
    found = [(int(mark), other) for mark, other in numbered if len(mark) >= _DIGITS and mark.isdecimal()]
    return [(number, os.path.join(folder, other)) for number, other in sorted(found)]


def archive_name(path: str, number: int) -> str:
    return f"{path}.{number:0{_DIGITS}}"


class LogReader:
    """Reads each byte of a log once, in order. Keeps the current file open, so that it may be renamed or removed."""

    def __init__(self, path: str, after: int = 0, offset: int = 0) -> None:
        """`after`: the number of the last archive to skip; `offset`: how much of the next file to skip."""
        self._path = path
        self._done = after
        self._skip = offset
        self._fd = -1
        self._ends_open = False
        self._rest = b""
        #: the current line is longer than any of ours and is skipped
        self._is_too_long = False
        #: the file was truncated: read from the beginning again
        self.truncated = False

    def chunks(self) -> Iterator[bytes]:
        """New bytes. A file that ended within a line gets a newline, so that nothing is appended to a torn line."""
        while self._fd >= 0 or self._open():
            yield from self._read_on()
            if not self._was_rotated():
                return
            yield from self._read_on()  # what was written between the check and the rename
            if self._ends_open:
                yield b"\n"
            self._leave()

    def read(self) -> bytes:
        return b"".join(self.chunks())

    def lines(self) -> Iterator[bytes]:
        """The new complete lines, without their newline."""
        for chunk in self.chunks():
            *whole, rest = chunk.split(b"\n")
            if whole and not self._is_too_long:
                yield self._rest + whole[0]
            yield from whole[1:]
            self._is_too_long = (self._is_too_long and not whole) or len(self._rest) + len(rest) > MOST_LINE
            self._rest = b"" if self._is_too_long else rest if whole else self._rest + rest

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()

    def _open(self) -> bool:
        """Go to the next file; False if there is none yet."""
        while True:
            waiting = [path for number, path in archives(self._path) if number > self._done]
            try:
                fd = os.open(waiting[0] if waiting else self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                if waiting or self._newer():
                    continue  # just removed as the oldest, or renamed
                return False
            if waiting or not self._newer():
                self._fd = fd
                self._ends_open = False
                os.lseek(fd, min(self._skip, os.fstat(fd).st_size), os.SEEK_SET)
                self._skip = 0
                return True
            os.close(fd)  # rotated between the two checks: the archive comes first

    def _newer(self) -> bool:
        return any(number > self._done for number, _ in archives(self._path))

    def _read_on(self) -> Iterator[bytes]:
        at, size = os.lseek(self._fd, 0, os.SEEK_CUR), os.fstat(self._fd).st_size
        if size < at:
            os.lseek(self._fd, 0, os.SEEK_SET)
            self._rest, self._is_too_long, self.truncated = b"", False, True
        while data := os.read(self._fd, _CHUNK):
            self._ends_open = not data.endswith(b"\n")
            yield data

    def _was_rotated(self) -> bool:
        """Whether another file has the log's name now. A missing one may be in the middle of a rename."""
        try:
            return not os.path.samestat(os.stat(self._path), os.fstat(self._fd))
        except FileNotFoundError:
            return self._number() is not None

    def _number(self) -> int | None:
        """The archive number of the open file."""
        mine = os.fstat(self._fd)
        for number, path in archives(self._path):
            try:
                if os.path.samestat(os.stat(path), mine):
                    return number
            except FileNotFoundError:
                continue
        return None

    def _leave(self) -> None:
        number = self._number()
        if number is not None:
            self._done = max(self._done, number)
        self.close()


def whole_lines(path: str) -> Iterator[bytes]:
    """Every complete line of a log, from the oldest file on."""
    return LogReader(path).lines()
