"""One table of keys: every key has one action per view, and every action is there."""

import pytest

from llmc.base.errors import UsageError
from llmc.tui import keys
from llmc.tui.diff_view import DiffView
from llmc.tui.drawing import Brush
from llmc.tui.fleet_app import FleetApp
from llmc.tui.page_texts import help_lines, title
from llmc.tui.theme import THEMES
from tests.unit.tui.test_diff_view import view_of


@pytest.mark.parametrize("where", [keys.LIST, keys.DIFF])
def test_every_key_does_one_thing(where: str) -> None:
    """Break: give a key to two actions of one view."""
    found = keys.actions(where, {})
    assert len(found) == sum(len(key.keys) for key in keys.of(where))
    for action in found.values():
        assert callable(getattr(FleetApp, f"do_{action}"))


def test_no_letter_destroys_anything() -> None:
    """`reset`, `nuke` and `down` are typed: a slip of a key must not run them."""
    assert not {"reset", "nuke", "down_fleet", "remove"} & {key.action for key in keys.KEYS}


def test_keys_can_be_changed_and_a_clash_is_refused() -> None:
    assert keys.actions(keys.LIST, {"accept": "ctrl+a"})["ctrl+a"] == "accept"
    assert "a" not in keys.actions(keys.LIST, {"accept": "ctrl+a"})
    with pytest.raises(UsageError, match="both diff and accept"):
        keys.actions(keys.LIST, {"accept": "d"})
    with pytest.raises(UsageError, match="unknown action 'acept'"):
        keys.actions(keys.LIST, {"acept": "x"})


@pytest.mark.parametrize("width", [20, 40, 78, 200])
def test_the_footer_fits(width: int) -> None:
    assert len(keys.footer(keys.LIST, width)) <= width


def test_the_footer_of_a_small_terminal_leads_to_all_keys() -> None:
    """Break: fill it from the left until it is full."""
    shown = keys.footer(keys.LIST, 78)
    assert all(part in shown for part in ("Enter attach", "s start", ": command", "? help"))
    assert keys.footer(keys.LIST, 20) == ": command  ? help"
    assert keys.footer(keys.DIFF, 78).startswith(": command  ? help")


def test_a_changed_key_is_the_one_that_is_shown() -> None:
    """Break: build the footer, the help page or a hint from the table alone."""
    remapped = {"message": "ctrl+g", "fold": "v", "help": "f1", "back": "b", "mouse": "f2"}
    shown = {key.action: key.shown for key in keys.of(keys.LIST, remapped)}
    assert (shown["message"], shown["accept"]) == ("C-g", "a")
    assert "C-g message" in keys.footer(keys.LIST, 200, remapped)
    assert "f1 help" in keys.footer(keys.DIFF, 200, remapped)
    assert "m message" not in keys.footer(keys.LIST, 200, remapped)
    named = keys.names(remapped)
    assert (named["message"], named["accept"], named["down"]) == ("C-g", "a", "j")
    in_list = keys.actions(keys.LIST, remapped)
    assert keys.why_nothing("tab", keys.DIFF, in_list, named).endswith("press b to go back to the list")
    assert keys.why_nothing("m", keys.LIST, in_list, named) == "m does nothing here; press f1 to see the keys"
    lines = " ".join(line.plain for line in help_lines(keys.LIST, 200, Brush(THEMES["dark"]), remapped))
    assert "or press f2 to turn the mouse off." in lines
    assert "  C-g " in lines
    assert title("node", keys.names({"copy": "c"})) == "Another node (press c to copy the command)"
    view = view_of("one")
    assert DiffView.of(view.page, view, named["fold"]).unfolds == "v"
