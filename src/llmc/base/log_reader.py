"""Reads a log from its first line on, across rotation: what was renamed, then the file that grows. Light, for hot commands.

A log that is rotated (base/rotation.py) is `daemon.jsonl.000001`, `daemon.jsonl.000002`, ..., and `daemon.jsonl`, which is
the newest.
"""

import os
from collections.abc import Iterator

_DIGITS = 6
_CHUNK = 1 << 20
#: longer than any line llmc writes
MOST_LINE = 8 << 20


def archives(path: str) -> list[tuple[int, str]]:
    """What was rotated away of a log: number and path, oldest first."""
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
    """Each byte of a log once, in order. The file it has come to is held open, so that it can be renamed or removed."""

    def __init__(self, path: str, after: int = 0, offset: int = 0) -> None:
        """`after`: the number of the last archive that is of no interest; `offset`: how much of the next file is none."""
        self._path = path
        self._done = after
        self._skip = offset
        self._fd = -1
        self._ends_open = False
        self._rest = b""
        #: the line that has begun is longer than any of ours, and is left out
        self._is_too_long = False
        #: somebody emptied the file: it was read from its beginning again
        self.truncated = False

    def chunks(self) -> Iterator[bytes]:
        """What is new. A file that ended within a line gets its newline: nothing is glued to a torn line."""
        while self._fd >= 0 or self._open():
            yield from self._read_on()
            if not self._was_rotated():
                return
            yield from self._read_on()  # what came between the look and the rename
            if self._ends_open:
                yield b"\n"
            self._leave()

    def read(self) -> bytes:
        return b"".join(self.chunks())

    def lines(self) -> Iterator[bytes]:
        """The whole lines that are new, without their newline."""
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
        """The next file in order; False when there is none yet."""
        while True:
            waiting = [path for number, path in archives(self._path) if number > self._done]
            try:
                fd = os.open(waiting[0] if waiting else self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                if waiting or self._newer():
                    continue  # removed as the oldest, or renamed, at this moment
                return False
            if waiting or not self._newer():
                self._fd = fd
                self._ends_open = False
                os.lseek(fd, min(self._skip, os.fstat(fd).st_size), os.SEEK_SET)
                self._skip = 0
                return True
            os.close(fd)  # rotated between the two looks: what was renamed comes first

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
        """Whether another file has the log's name now. One that is gone altogether may be on its way to a new name."""
        try:
            return not os.path.samestat(os.stat(self._path), os.fstat(self._fd))
        except FileNotFoundError:
            return self._number() is not None

    def _number(self) -> int | None:
        """The number that the open file has got."""
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
    """Every line of a log that is complete, from the oldest file on."""
    return LogReader(path).lines()
