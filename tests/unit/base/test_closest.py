"""What an unknown name is taken for: one that begins with it, else the one that is most alike."""

import pytest

from llmc.base.text import closest
from llmc.cli.commands import COMMANDS


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("stat", "status"),  # by edit distance alone: start
        ("rel", "release"),
        ("stauts", "status"),
        ("stats", "status"),
        ("frobnicate", ""),
        ("", ""),
    ],
)
def test_a_beginning_is_completed_before_a_typing_error_is_guessed(name: str, meant: str) -> None:
    """Break: compare with every command, not first with those that begin with the name."""
    assert closest(name, COMMANDS) == meant
