"""Read JSON lines that an agent may have written: within a budget, one row in memory at a time."""

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from llmc.base import given

Row = dict[str, Any]

#: how much is read at once: more than clients write in months
MOST_BYTES = 256 << 20
#: how many rows are parsed at once; a row may have only a few bytes
MOST_ROWS = 100_000
_CHUNK = 1 << 20


class Budget:
    """How much may be read at once, from one file or several."""

    def __init__(self, most_bytes: int = MOST_BYTES, most_rows: int = MOST_ROWS) -> None:
        self.bytes = most_bytes
        self.rows = most_rows


class Rows:
    """The complete rows after byte `offset` that contain all `needles`. Others are not parsed.

    A file that cannot be read has none. After the last row, `end` says where to continue.
    """

    def __init__(
        self, open_file: Callable[[], BinaryIO], needles: tuple[bytes, ...], offset: int, budget: Budget
    ) -> None:
        self._open = open_file
        self._first, *self._others = needles
        self._budget = budget
        self.end = offset
        #: the budget ran out before the end of the file
        self.is_cut = False

    def __iter__(self) -> Iterator[Row]:
        try:
            with self._open() as file:
                file.seek(self.end)
                for line in self._lines(file):
                    if (row := given.row(line)) is not None:
                        yield row
        except OSError:
            return

    def _lines(self, file: BinaryIO) -> Iterator[bytes]:
        rest, is_too_long = b"", False
        while not self.is_cut and (chunk := self._chunk(file)):
            data = rest + chunk
            begin = data.find(b"\n") + 1 if is_too_long else 0
            complete = data.rfind(b"\n") + 1
            if complete:
                yield from self._holding(data, begin, complete)
                is_too_long = False
            rest = data[complete:]
            if is_too_long or len(rest) > given.MOST_LINE:  # no client writes such a row; not read again
                self.end += 0 if self.is_cut else len(rest)
                rest, is_too_long = b"", True

    def _chunk(self, file: BinaryIO) -> bytes:
        self.is_cut = self._budget.bytes <= 0
        chunk = b"" if self.is_cut else file.read(_CHUNK)
        self._budget.bytes -= len(chunk)
        return chunk

    def _holding(self, data: bytes, begin: int, complete: int) -> Iterator[bytes]:
        """The lines with all needles. Searches for the first one, so that other lines cost next to nothing."""
        at = begin
        while (hit := data.find(self._first, at, complete)) >= 0:
            line = data.rfind(b"\n", at, hit) + 1 or at
            if self._budget.rows <= 0:
                self.end += line
                self.is_cut = True
                return
            at = data.index(b"\n", hit) + 1
            self._budget.rows -= 1
            if all(data.find(needle, line, at) >= 0 for needle in self._others):
                yield data[line : at - 1]
        self.end += complete
