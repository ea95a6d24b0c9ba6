"""The unchanged lines that a diff leaves out: numbers of both sides, and what is expanded."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from llmc.api.commenting import Page
from llmc.landing.review import Review
from llmc.reviews.rules.diff_rows import Kind, files_of, gap_before
from llmc.tui.diff_view import CONTEXT_STEP, DiffView
from llmc.tui.drawing import Brush
from llmc.tui.theme import THEMES
from tests.unit.reviews.test_diff_rows import diff_of

BRUSH = Brush(THEMES["dark"])
OLD = [f"line {number}" for number in range(1, 61)]
NEW = [*OLD[:9], "ten", *OLD[10:29], "more", *OLD[29:49], "fifty", *OLD[50:]]


@given(st.lists(st.integers(0, 79), max_size=8), st.lists(st.integers(0, 79), max_size=8))
def test_rows_and_gaps_are_the_whole_file_up_to_the_last_hunk(changed: list[int], deleted: list[int]) -> None:
    """Break: count the lines of a gap from the previous hunk instead of from its last row."""
    old = [f"line {number}" for number in range(80)]
    new = [f"new {n}" if n in changed else line for n, line in enumerate(old) if n not in deleted]
    for file in files_of(diff_of(old, new)):
        found: list[str] = []
        for at, row in enumerate(file.rows):
            if row.kind is Kind.HUNK:
                gap = gap_before(file, at)
                hidden = gap.rows(new, range(gap.first, gap.last + 1))
                assert [old[(one.old or 0) - 1] for one in hidden] == [one.text for one in hidden]
                found += [one.text for one in hidden]
            elif row.kind in (Kind.CONTEXT, Kind.ADDED):
                found.append(row.text)
        assert found == new[: len(found)]


def view() -> DiffView:
    shown = Review("adam", Path("/w"), "", 0.0, "b", "h", 1, 0, (), (), (), "")
    files = files_of(diff_of(OLD, NEW))
    return DiffView.of(Page("adam", shown, files, (), (), 1, 0, frozenset()))


def drawn(made: DiffView) -> list[str]:
    made.lay_out(60, BRUSH)
    return [made.row_text(row, BRUSH).plain for row in range(len(made.rows))]


def test_a_stretch_says_how_long_it_is_and_opens() -> None:
    """Break: fold the file instead."""
    made = view()
    assert sum("13 unchanged lines (f unfolds)" in line for line in drawn(made)) == 1
    made.cursor = next(n for n, line in enumerate(drawn(made)) if "13 unchanged lines" in line)
    assert made.unread is made.page.files[0]
    made.texts["f.py"] = NEW
    assert made.unread is None
    before = len(made.lines)
    made.fold()
    assert len(made.lines) == before + 13
    assert "13 unchanged" not in "".join(drawn(made))
    assert [line.split() for line in drawn(made) if "line 20" in line] == [["20", "20", "line", "20"]]
    made.fold()
    assert len(made.lines) == before


def test_more_context_is_shown_on_both_sides_and_never_twice() -> None:
    """Break: show the lines of a short stretch from both its ends."""
    made = view()
    made.texts["f.py"] = NEW
    for _ in range(6):
        made.widen(CONTEXT_STEP)
    numbers = [
        row.new
        for line in made.lines
        if (row := line.unchanged or (made.page.files[0].rows[line.row] if line.kind == "row" else None))
        and row.kind in (Kind.CONTEXT, Kind.ADDED)
    ]
    assert numbers == list(range(1, 55))
    for _ in range(9):
        made.widen(-CONTEXT_STEP)
    assert drawn(made) == drawn(view())
