"""Read event logs by time or backwards, at a cost that depends on the answer, not on the size of the log.

`ts` is not strictly increasing, because a clock can be set. So a search goes backwards and stops only after a long run
of rows that are too old. Light, for the hot commands.
"""

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

from llmc.base import given
from llmc.base.log_reader import LogReader, archives

Row = dict[str, Any]

#: most readers want only the last lines
_FIRST_BLOCK, _BLOCK = 1 << 12, 1 << 16
#: a search stops after this many bytes of rows that are too old
_QUIET = 1 << 18
#: the start of each row that the store writes
_TS = re.compile(rb'\{"seq": ?\d+, ?"ts": ?(\d+(?:\.\d+)?)[,}]')


class EventLog:
    """An `events.jsonl` with its rotated files."""

    def __init__(self, path: str) -> None:
        self._path = path

    def all(self) -> Iterator[Row]:
        """Every row, oldest first."""
        return rows_of(LogReader(self._path).lines())

    def since(self, at: float) -> Iterator[Row]:
        """Rows from this time on, oldest first."""
        return (row for row in rows_of(self.lines_since(at)) if ts_of(row) >= at)

    def lines_since(self, at: float) -> Iterator[bytes]:
        """Unparsed lines from this time on; some may be older if a clock was set."""
        return self.reader(at).lines()

    def reader(self, at: float) -> LogReader:
        """Follow the log from this time on."""
        return LogReader(self._path, *self._find(at)) if at > 0 else LogReader(self._path)

    def reader_after(self, seq: int) -> LogReader:
        """Follow the log from the first row with a higher number; numbers only grow."""
        place = self._end()
        for before, offset, line in self._backwards():
            if any(seq_of(row) <= seq for row in rows_of([line])):
                break
            place = before, offset
        return LogReader(self._path, *place)

    def reader_of_last(self, count: int, worker: str | None = None) -> LogReader:
        """Follow the log from the last `count` rows on, or from those of a worker; others may be between them."""
        place = self._end()
        mark = f'"{worker}"'.encode() if worker else b""
        for before, offset, line in self._backwards() if count else ():
            if mark in line and any(worker in (None, row.get("worker")) for row in rows_of([line])):
                place, count = (before, offset), count - 1
                if not count:
                    break
        return LogReader(self._path, *place)

    def newest(self, *marks: bytes) -> Iterator[Row]:
        """Rows, latest first; with marks only those whose line contains one."""
        for _, _, line in self._backwards():
            if not marks or any(mark in line for mark in marks):
                yield from rows_of([line])

    def last_seq(self) -> int:
        """The number of the latest row; 0 for a new log. For the writer: a last line without its newline counts."""
        rows = rows_of(line for _, _, line in self._backwards(with_tail=True))
        return next(filter(None, map(seq_of, rows)), 0)

    def _find(self, at: float) -> tuple[int, int]:
        """The position of the first row from this time on: the archive before its file, and the offset."""
        place: tuple[int, int] | None = None
        quiet = 0
        for before, offset, line in self._backwards():
            ts = _line_ts(line)
            if ts >= at:
                place, quiet = (before, offset), 0
            elif ts:
                quiet += len(line)
                if quiet > _QUIET:
                    break
        return place or self._end()

    def _end(self) -> tuple[int, int]:
        newest = max((number for number, _ in archives(self._path)), default=0)
        try:
            return newest, os.stat(self._path).st_size
        except FileNotFoundError:
            return newest, 0

    def _backwards(self, *, with_tail: bool = False) -> Iterator[tuple[int, int, bytes]]:
        """Every complete line, latest first, with the number of the archive before its file and its offset."""
        old = archives(self._path)
        numbers = [0, *(number for number, _ in old)]
        paths = [*(path for _, path in old), self._path]
        for before, path in zip(reversed(numbers), reversed(paths), strict=True):
            for offset, line in _lines_backwards(path, with_tail):
                yield before, offset, line


def _lines_backwards(path: str, with_tail: bool) -> Iterator[tuple[int, bytes]]:
    """The complete lines of a file, last first. `with_tail`: also what follows the last newline."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        end, size = os.fstat(fd).st_size, _FIRST_BLOCK
        tail = b""
        complete = with_tail
        while end > 0:
            start = max(0, end - size)
            block = os.pread(fd, end - start, start) + tail
            tail, *lines = block.split(b"\n")
            at = start + len(block)
            for line in reversed(lines):
                at -= len(line)
                if complete and line:
                    yield at, line
                complete = True
                at -= 1
            end, size = start, _BLOCK
        if complete and tail:
            yield 0, tail
    finally:
        os.close(fd)


def ts_of(row: Row) -> float:
    """The time of a row; 0 if it has none."""
    return given.number(row.get("ts")) or 0.0


def seq_of(row: Row) -> int:
    """The number of a row; 0 if it has none, because the state was edited by hand."""
    value = row.get("seq")
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _line_ts(line: bytes) -> float:
    """The time of a line; 0 if it has none, which proves nothing about earlier lines."""
    if found := _TS.match(line):
        return float(found[1])
    return next((ts_of(row) for row in rows_of([line])), 0.0)


def rows_of(lines: Iterable[bytes]) -> Iterator[Row]:
    """The rows that can be parsed; a full disk may tear a line, which is then written again."""
    return (row for line in lines if (row := given.row(line)) is not None)
