"""Texts of the list and the pane."""

import pytest
from msgspec.structs import replace

from llmc.tui import keys
from llmc.tui.drawing import Brush, about, header, list_lines
from llmc.tui.list_store import Store
from llmc.tui.page_texts import help_lines
from llmc.tui.plain import needs
from llmc.tui.theme import THEMES
from tests.unit.tui.test_list_store import fleet

BRUSH = Brush(THEMES["dark"])


def drawn(store: Store, width: int, now: float = 100.0) -> list[str]:
    return [line.text.plain.rstrip() for line in list_lines(store, now, width, BRUSH, wide=False)]


@pytest.mark.parametrize(("auto", "alarms"), [("finished", False), ("stopped", True)])
def test_a_run_that_ended_as_requested_is_not_shown_as_trouble(auto: str, alarms: bool) -> None:
    """Break: show every fleet without a daemon in the color of errors."""
    seen = fleet({"auto-1": "offline"})
    seen = replace(seen, health=replace(seen.health, daemon=False, auto=auto))
    line = header(seen, 100.0, 120, BRUSH, "", lambda room: "root")
    assert f"auto mode {auto}" in line.plain
    assert any(BRUSH.theme.error in str(span.style) for span in line.spans) is alarms


@pytest.mark.parametrize("width", [30, 60, 99, 200])
def test_the_help_is_wrapped(width: int) -> None:
    """Break: leave it to the screen, which cuts a line at its edge."""
    lines = [line.plain.rstrip() for line in help_lines(keys.LIST, width, BRUSH)]
    assert max(map(len, lines)) <= width
    words = " ".join(" ".join(lines).split())
    for key in keys.of(keys.LIST):
        assert key.help in words
    assert "or press M to turn the mouse off." in words


@pytest.mark.parametrize("width", [39, 79])
def test_other_nodes_are_drawn_with_what_needs_the_user(width: int) -> None:
    """Break: leave out the node of a worker that asks; or draw beyond the edge."""
    store = Store()
    store.update(fleet({"w0": "idle"}, nodes={"n0": "working", "n1": "needs_input"}))
    lines = drawn(store, width)
    assert max(map(len, lines)) <= width
    at = lines.index(" OTHER NODES 2 (1 needs you)")
    assert [line.split()[:2] for line in lines[at + 1 : at + 5]] == [
        ["●", "n0"],
        ["●", "w0"],
        ["○", "n1"],
        ["?", "w0"],
    ]
    assert "1 needs" in lines[at + 3]
    assert lines[at + 4].endswith("w0 asks")
    assert ("2.1" in lines[at + 1]) == (width > 60), "there is room for the client's version"


def test_without_a_fleet_nothing_is_drawn_of_nodes() -> None:
    """Break: draw the title of a section that is only for fleets."""
    store = Store()
    store.update(fleet({"w0": "idle"}))
    assert not any("NODES" in line for line in drawn(store, 79))


def test_what_was_seen_long_ago_is_not_shown_as_of_now() -> None:
    store = Store()
    old = fleet({"w0": "idle"}, nodes={"n0": "working"})
    assert old.others is not None
    store.update(replace(old, others=replace(old.others, stale=True)))
    assert any(line.startswith(" OTHER NODES 1  as of 5m ago") for line in drawn(store, 79, now=400.0))


def test_the_pane_of_a_worker_elsewhere_has_the_command_to_type_here() -> None:
    """Break: show the command as its own node would type it."""
    store = Store()
    store.update(fleet({}, nodes={"n1": "needs_input"}))
    store.next_that_needs()
    told = [line.plain for line in about(store.entry, 100.0, 60, BRUSH)]
    assert told[0] == "w0 asks"
    assert "llmc answer n1/w0" in told
    assert "ssh n1.lan -t 'cd /n1 && llmc attach w0'" in told
    assert "client   2.1 (Claude Code)" in told


def test_lines_for_screen_readers_name_the_node() -> None:
    found = fleet({"w1": "needs_input"}, nodes={"n1": "needs_input"})
    assert [(need.who, need.next) for need in needs(found)] == [
        ("w1", "llmc x"),
        ("n1/w0", "llmc answer n1/w0"),
    ]
