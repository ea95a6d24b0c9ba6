"""What a key copies is a command that can be run."""

import pytest

from llmc.api.said import command_in


@pytest.mark.parametrize(
    ("suggestion", "command"),
    [
        ("llmc review adam", "llmc review adam"),
        ("llmc logs daemon, then llmc up --auto --detach", "llmc logs daemon && llmc up --auto --detach"),
        ("llmc accept adam, or llmc reject adam", "llmc accept adam"),
        ("llmc console adam (resolve the conflicts there), or llmc message adam", "llmc console adam"),
        ("detach from its terminal first (C-b d, or C-b C-b d inside another tmux)", ""),
        ("", ""),
    ],
)
def test_a_suggestion_is_copied_as_a_command(suggestion: str, command: str) -> None:
    """Break: copy the sentence around the commands."""
    assert command_in(suggestion) == command
