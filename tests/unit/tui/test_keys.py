"""One table of keys: every key has one action per view, and every action is there."""

import pytest

from llmc.base.errors import UsageError
from llmc.tui import keys
from llmc.tui.fleet_app import FleetApp


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
