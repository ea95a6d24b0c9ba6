"""Comments find their line again: after a rebase, after more work; and they are never dropped."""

from hypothesis import given
from hypothesis import strategies as st

from llmc.reviews.rules.anchors import Anchor, Fit, Side, anchor_at, placed, row_of
from llmc.reviews.rules.diff_rows import DiffFile, Kind, files_of
from tests.unit.reviews.test_diff_rows import diff_of

BASE = [f"line {number}" for number in range(40)]


def file_of(old: list[str], new: list[str], path: str = "f.py") -> DiffFile:
    return files_of(diff_of(old, new, path))[0]


def at(file: DiffFile, text: str) -> Anchor:
    return anchor_at(file, next(n for n, row in enumerate(file.rows) if row.text == text))


def with_line(number: int, text: str, base: list[str] = BASE) -> list[str]:
    return [*base[:number], text, *base[number + 1 :]]


def test_the_same_diff_has_it_at_the_same_line() -> None:
    file = file_of(BASE, with_line(20, "changed"))
    anchor = at(file, "changed")
    assert (anchor.line, anchor.side, anchor.quote) == (21, Side.NEW, ("line 18", "line 19", "changed"))
    assert placed(anchor, [file]) == anchor
    assert file.rows[row_of(anchor, file) or -1].text == "changed"


def test_a_rebase_moves_it_and_nothing_else() -> None:
    """Break: keep the old number although the base has more lines."""
    new = ["first", *BASE]
    after = file_of(new, with_line(21, "changed", new))
    found = placed(at(file_of(BASE, with_line(20, "changed")), "changed"), [after])
    assert (found.line, found.fit) == (22, Fit.EXACT)


def test_more_work_above_moves_it() -> None:
    before = file_of(BASE, with_line(20, "changed"))
    after = file_of(BASE, ["new", "new 2", *with_line(20, "changed")])
    found = placed(at(before, "changed"), [after])
    assert (found.line, found.fit) == (23, Fit.MOVED)


def test_a_removed_line_counts_in_the_old_file() -> None:
    file = file_of(BASE, [*BASE[:20], *BASE[21:]])
    anchor = at(file, "line 20")
    assert (anchor.side, anchor.line) == (Side.OLD, 21)
    assert placed(anchor, [file]) == anchor


def test_a_line_that_is_gone_stands_at_the_top_of_its_file() -> None:
    before = file_of(BASE, with_line(20, "changed"))
    after = file_of(BASE, with_line(20, "quite another"))
    found = placed(at(before, "changed"), [after])
    assert (found.line, found.fit, found.path) == (None, Fit.LINE_GONE, "f.py")
    assert found.quote[-1] == "changed"
    assert row_of(found, after) is None


def test_a_file_that_is_gone_keeps_its_comment() -> None:
    found = placed(at(file_of(BASE, with_line(20, "changed")), "changed"), [file_of(["a"], ["b"], "other")])
    assert (found.fit, found.line) == (Fit.FILE_GONE, 21)


def test_a_renamed_file_is_followed() -> None:
    anchor = at(file_of(BASE, with_line(20, "changed"), "old.py"), "changed")
    moved = file_of(BASE, with_line(20, "changed"), "new.py")
    renamed = DiffFile("new.py", "old.py", 1, 1, moved.patch_id, moved.rows)
    found = placed(anchor, [renamed])
    assert (found.path, found.line) == ("new.py", 21)


def test_a_quote_that_occurs_twice_far_away_is_not_guessed() -> None:
    """Break: use the first place with this text."""
    before = file_of(BASE, with_line(20, "return"))
    far = [*("x" for _ in range(100)), "return", *("y" for _ in range(100)), "return"]
    assert placed(at(before, "return"), [file_of([], far)]).fit is Fit.LINE_GONE


def test_a_comment_on_a_file_stays_on_it() -> None:
    before, after = file_of(BASE, with_line(20, "a")), file_of(BASE, with_line(3, "b"))
    anchor = anchor_at(before, 0)
    assert anchor.line is None
    assert placed(anchor, [after]).fit is Fit.EXACT


LINES = st.lists(st.sampled_from(["", "a", "b", "  c", "}"]), min_size=1, max_size=15)


@given(LINES, LINES, LINES)
def test_a_comment_is_never_lost_and_never_on_other_code(
    old: list[str], one: list[str], two: list[str]
) -> None:
    """Break: place it only by its number."""
    if one == old:
        return
    before = file_of(old, one)
    later = files_of(diff_of(old, two))
    for index, row in enumerate(before.rows):
        anchor = anchor_at(before, index)
        found = placed(anchor, later)
        assert found.quote == anchor.quote
        if found.fit in (Fit.EXACT, Fit.MOVED) and found.line is not None:
            at = row_of(found, later[0])
            assert at is not None
            assert later[0].rows[at].text == row.text
            assert row.kind not in (Kind.HUNK, Kind.NOTE)


def test_an_old_line_is_not_another_line_with_its_number() -> None:
    """Break: show a comment on a removed line below whatever has that number in a diff from another base."""
    anchor = at(file_of(["one", "two", "three"], ["one", "three"]), "two")
    assert (anchor.side, anchor.line) == (Side.OLD, 2)
    since = file_of(["one", "three"], ["one", "three", "four"])
    assert row_of(anchor, since) is None
