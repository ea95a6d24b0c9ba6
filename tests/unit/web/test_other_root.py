"""Commands that name their root."""

import re

import pytest

from llmc.cli.commands import COMMANDS
from llmc.web.html import HERE, Naming

NAMING = Naming(COMMANDS)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("llmc accept w1", "llmc --root '/a b' accept w1"),
        (
            "llmc reject w1, or llmc console w1 (commit there)",
            "llmc --root '/a b' reject w1, or llmc --root '/a b' console w1 (commit there)",
        ),
        ("llmc down && llmc up", "llmc --root '/a b' down && llmc --root '/a b' up"),
        ("Run `llmc doctor`.", "Run `llmc --root '/a b' doctor`."),
        (
            "in the worker's terminal: llmc attach w1",
            "in the worker's terminal: llmc --root '/a b' attach w1",
        ),
        ("llmc message w1 'then run: llmc undo'", "llmc --root '/a b' message w1 'then run: llmc undo'"),
        ("on hold: llmc leaves this worker alone", "on hold: llmc leaves this worker alone"),
        ("ssh far -t 'cd /r && llmc attach w1'", "ssh far -t 'cd /r && llmc attach w1'"),
        ("llmc --root /other web", "llmc --root /other web"),
        (
            "Set `llmc goal` to .llmc tasks or /bin/llmc tasks",
            "Set `llmc --root '/a b' goal` to .llmc tasks or /bin/llmc tasks",
        ),
        ("upgrade llmc, or wait", "upgrade llmc, or wait"),
    ],
)
def test_each_command_of_a_text_names_its_root(text: str, named: str) -> None:
    """Break: change only the first command of a text; or also a command in an argument."""
    assert NAMING.with_root(text, "/a b") == named
    assert NAMING.with_root(text, "") == text


def test_no_template_shows_a_command_without_its_root() -> None:
    """All except the page for signed-out users, which is about the server's own root.

    Break: use `| line` for a field that is a command; or write a command as plain text.
    """
    forgotten = []
    for path in (HERE / "templates").rglob("*.html"):
        if path.name == "login.html":
            continue
        source = re.sub(r"\{\{[^}]*\| command[^}]*\}\}", "", path.read_text())
        shown = re.findall(
            r"\{\{[^}]*\b(?:next|command|start|attach|hint|outcome|undriven|trouble)\b *(?:\||\}\})[^}]*",
            source,
        )
        forgotten += [f"{path.name}: {one}" for one in [*re.findall(r"\bllmc [a-z]+", source), *shown]]
    assert forgotten == []
