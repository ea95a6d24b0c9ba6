"""The user's roots: in the header, and to choose from."""

from llmc.api.other_roots import RootSeen
from llmc.api.views import Counts
from llmc.tui.drawing import Brush
from llmc.tui.root_list import RootList
from llmc.tui.theme import THEMES

BRUSH = Brush(THEMES["dark"])


def three() -> RootList:
    roots = RootList(("/r/api", "/r/blog", "/r/shop"), "/r/shop")
    roots.update(RootSeen("/r/shop", Counts(3, 1, 0, 0)))
    roots.update(RootSeen("/r/blog", Counts(1, 0, 2, 0)))
    return roots


def test_the_header_counts_every_root_and_marks_the_shown_one() -> None:
    """Break: show only roots with something to do."""
    assert three().title(60, BRUSH) == "api · blog 1 · [shop 3]"
    roots = three()
    roots.update(RootSeen("/r/api", problem="cannot read state.json"))
    assert roots.title(60, BRUSH) == "api ! · blog 1 · [shop 3]"


def test_without_room_the_others_are_a_sum() -> None:
    """Break: cut the line, so that a root that needs you is hidden."""
    assert three().title(20, BRUSH) == "[shop 3] +2 roots 1"


def test_roots_with_the_same_name_are_told_apart() -> None:
    roots = RootList(("/a/llmc", "/b/llmc", "/b/shop"), "/a/llmc")
    assert roots.title(60, BRUSH) == "[a/llmc] · b/llmc · shop"


def test_the_cursor_begins_at_the_shown_root_and_stops_at_the_ends() -> None:
    roots = three()
    roots.begin()
    assert roots.paths[roots.cursor] == "/r/shop"
    roots.move(1)
    assert roots.paths[roots.cursor] == "/r/shop"
    roots.move(-5)
    assert roots.paths[roots.cursor] == "/r/api"
    assert (roots.beside(1), roots.beside(-1)) == ("/r/api", "/r/blog")


def test_a_line_of_the_list() -> None:
    shown = [three().text_of(index, 70, BRUSH).plain for index in range(3)]
    assert shown[0].split() == [">", "api", "...", "/r/api"]
    assert shown[1].split() == ["blog", "1", "needs", "you", "0", "working", "2", "idle", "/r/blog"]
    assert "3 need you" in shown[2]
