"""The place of a comment, and finding it again after the worker changed its work, or after a rebase. Pure."""

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from llmc.reviews.rules.diff_rows import DiffFile, DiffRow, Kind

#: how many lines of code are quoted with a comment, the commented one last
QUOTED = 3
#: a quote that occurs more than once counts only within this many lines of the old line
NEAR = 20


class Side(StrEnum):
    """The version of the file that a line number refers to."""

    OLD = "old"
    NEW = "new"


class Fit(StrEnum):
    """How well the place of a comment is known."""

    #: the file has the same change, or the quoted lines are still at the same line
    EXACT = "exact"
    #: the quoted lines were found elsewhere in the file
    MOVED = "moved"
    #: the lines are gone; the comment is at the top of the file
    LINE_GONE = "line_gone"
    #: the file is no longer in the diff; the comment is at the top of the page
    FILE_GONE = "file_gone"


class Anchor(Struct, frozen=True):
    """The place of a comment."""

    path: str
    side: Side
    #: None: the whole file
    line: int | None
    #: the code at that line, and up to two lines before it
    quote: tuple[str, ...]
    #: of the file's change when the comment was made
    patch_id: str
    fit: Fit = Fit.EXACT


def anchor_at(file: DiffFile, index: int) -> Anchor:
    """The anchor of a row of a file."""
    row = file.rows[index]
    side = Side.OLD if row.kind is Kind.REMOVED else Side.NEW
    line = row.old if side is Side.OLD else row.new
    if row.kind in (Kind.HUNK, Kind.NOTE) or line is None:
        return of_file(file)
    shown = [other for other in file.rows[:index] if _line(other, side) is not None]
    before = [other.text for other in shown[-(QUOTED - 1) :] if line - QUOTED < (_line(other, side) or 0)]
    return Anchor(file.path, side, line, (*before, row.text), file.patch_id)


def of_file(file: DiffFile) -> Anchor:
    """The anchor of a whole file."""
    return Anchor(file.path, Side.NEW, None, (), file.patch_id)


def placed(anchor: Anchor, files: Sequence[DiffFile]) -> Anchor:
    """The same anchor in another diff, with how well it fits."""
    file = next((one for one in files if anchor.path in (one.path, one.was)), None)
    if file is None:
        return replace(anchor, fit=Fit.FILE_GONE)
    if anchor.line is None:
        return replace(anchor, path=file.path, fit=Fit.EXACT)
    if file.patch_id == anchor.patch_id:
        found = _same_row(anchor, file)
        if found is not None:
            return replace(anchor, path=file.path, line=found, fit=Fit.EXACT)
    found = _quoted_at(anchor, file)
    if found is None:
        return replace(anchor, path=file.path, line=None, fit=Fit.LINE_GONE)
    return replace(anchor, path=file.path, line=found, fit=Fit.EXACT if found == anchor.line else Fit.MOVED)


def row_of(anchor: Anchor, file: DiffFile) -> int | None:
    """The index of its row in a file; None: at the top. Compares the text too: line numbers differ on another base."""
    if anchor.line is None or anchor.path != file.path:
        return None
    text = anchor.quote[-1:]
    return next(
        (
            n
            for n, row in enumerate(file.rows)
            if _line(row, anchor.side) == anchor.line and text in ((), (row.text,))
        ),
        None,
    )


def _line(row: DiffRow, side: Side) -> int | None:
    if row.kind in (Kind.HUNK, Kind.NOTE):
        return None
    return row.old if side is Side.OLD else row.new


def _same_row(anchor: Anchor, file: DiffFile) -> int | None:
    """The line in the same change on another base: its numbers differ, so the nearest quote counts."""
    return _quoted_at(anchor, file, nearest=True)


def _quoted_at(anchor: Anchor, file: DiffFile, *, nearest: bool = False) -> int | None:
    """The line where the quote ends: the only match, or the one nearest to the old line, if near enough."""
    rows = [(line, row.text) for row in file.rows if (line := _line(row, anchor.side)) is not None]
    for quote in (anchor.quote, anchor.quote[-1:]):
        found = [line for at, (line, _) in enumerate(rows) if _ends_here(rows, at, quote)]
        found.sort(key=lambda line: abs(line - (anchor.line or 0)))
        if not found:
            continue
        if len(found) == 1 or nearest or abs(found[0] - (anchor.line or 0)) <= NEAR:
            return found[0] if quote[-1].strip() or len(quote) > 1 else None
    return None


def _ends_here(rows: Sequence[tuple[int, str]], at: int, quote: Sequence[str]) -> bool:
    start = at + 1 - len(quote)
    if start < 0:
        return False
    window = rows[start : at + 1]
    return all(text == said for (_, text), said in zip(window, quote, strict=True))
