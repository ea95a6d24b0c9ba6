"""The unchanged lines before a hunk of a diff, which git leaves out. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from llmc.reviews.rules.diff_rows import DiffFile, DiffRow, Kind


class Gap(Struct, frozen=True):
    """Lines that are left out, by their numbers in the new file."""

    first: int
    last: int
    #: what to add for the numbers in the old file
    to_old: int

    @property
    def size(self) -> int:
        return max(0, self.last - self.first + 1)

    def rows(self, lines: Sequence[str], numbers: range) -> list[DiffRow]:
        """Some of them as rows; `lines`: the whole new file."""
        return [
            DiffRow(Kind.CONTEXT, lines[number - 1], number + self.to_old, number)
            for number in numbers
            if number <= len(lines)
        ]


def gap_before(file: DiffFile, at: int) -> Gap:
    """What is left out before the hunk in this row."""
    hunk = file.rows[at]
    before = (row.new for row in reversed(file.rows[:at]) if row.kind is not Kind.HUNK and row.new)
    end, start = next(before, 0), hunk.new or 0
    return Gap(end + 1, start - 1, (hunk.old or 0) - start)
