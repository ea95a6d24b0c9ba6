"""A review on the screen: every character of a change is in one of its rows, whatever the width."""

from hypothesis import given
from hypothesis import strategies as st

from llmc.api.commenting import Page
from llmc.reviews.rules.diff_rows import files_of
from llmc.tui.diff_view import GUTTER, DiffView
from llmc.tui.drawing import Brush
from llmc.tui.theme import THEMES
from tests.unit.reviews.test_diff_rows import diff_of
from tests.unit.reviews.test_unchanged import view

BRUSH = Brush(THEMES["dark"])


def view_of(*lines: str) -> DiffView:
    page = view().page
    return DiffView.of(
        Page("adam", page.review, files_of(diff_of([], list(lines))), (), (), 1, 0, frozenset())
    )


@given(st.text(st.sampled_from("ab 漢é\u0301\t\x1b"), max_size=200), st.integers(20, 90))
def test_no_character_is_lost_at_any_width(line: str, width: int) -> None:
    """Break: cut at the edge; count a wide character as one cell."""
    made = view_of(line + "end")
    made.lay_out(width, BRUSH)
    texts = [
        made.row_text(row, BRUSH) for row, (at, _) in enumerate(made.rows) if made.lines[at].kind == "row"
    ]
    assert all(text.cell_len <= width for text in texts)
    code = "".join(text.plain[min(GUTTER, max(2, width // 2)) :].rstrip(" ") for text in texts)
    wanted = (line + "end").replace("\t", "    ").replace("\x1b", "^[").replace(" ", "")
    assert code.replace(" ", "").endswith(wanted)


def test_the_cursor_goes_through_a_line_that_is_higher_than_the_screen() -> None:
    """Break: move by lines, so that the middle of a very long line is never shown;
    or go to its start each time.
    """
    made = view_of("x" * 5000, "last")
    made.lay_out(60, BRUSH)
    places = []
    for _ in made.rows:
        places.append(made.at)
        made.move(1)
        made = DiffView.of(made.page, made)
        made.lay_out(60, BRUSH)
    assert places == list(range(len(made.rows)))
    made.move(-3)
    before = made.cursor
    made.lay_out(120, BRUSH)
    assert made.cursor == before
    assert made.rows[made.at][0] == before
