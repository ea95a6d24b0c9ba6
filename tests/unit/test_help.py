"""Help texts: every line fits 80 columns, notes are no examples, sentences are whole, and no file is named that is not installed."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import llmc
from llmc.cli.app import cli, run
from llmc.cli.attach import detach_keys
from llmc.fit import cells, fitted
from llmc.workers.advice import advice
from llmc.workers.model import Status
from tests.support.records import worker


def commands(command: click.Command = cli, path: str = "llmc") -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            found = command.get_command(ctx, name)
            assert found is not None
            yield from commands(found, f"{path} {name}")


@pytest.mark.parametrize(("path", "command"), [pytest.param(*one, id=one[0]) for one in commands()])
def test_help_fits_and_is_whole(path: str, command: click.Command) -> None:
    """Break: a note in the paragraph of the examples, or click's own list of commands."""
    text = command.get_help(click.Context(command, info_name=path, max_content_width=80, terminal_width=80))
    assert [line for line in text.splitlines() if cells(line) > 80] == []
    assert "docs/" not in text, "not installed"
    listed = text.partition("Commands:")[2]
    assert not re.search(r"\.\.\.$|…$", listed, re.M)


@pytest.mark.parametrize("argv", [[], ["tasks"], ["trash"]])
def test_a_group_alone_helps(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Break: an error, or help where a pipe does not get it."""
    assert run(argv) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("Usage: llmc")
    assert shown.err == ""


#: files of a checkout: a wheel has none of them
_OF_A_CHECKOUT = re.compile(
    r"(?<![\w/])docs/|\b(guide|configuration|protocol|footprint|drills|architecture)\.md\b|CONTRIBUTING"
)


def test_no_text_names_a_file_that_is_not_installed() -> None:
    """Break: send a person, or an agent, to docs/guide.md, which a wheel does not have."""
    package = Path(llmc.__file__).parent
    suspects = [path for path in package.rglob("*.py") if _OF_A_CHECKOUT.search(path.read_text())]
    for path in suspects:  # a comment may
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not _OF_A_CHECKOUT.search(node.value), f"{path}:{node.lineno}: {node.value}"
    for path in [*package.rglob("*.j2"), *package.rglob("*.json")]:
        assert not _OF_A_CHECKOUT.search(path.read_text()), path


@pytest.mark.parametrize(
    ("inner", "around", "keys"),
    [
        ("C-b", None, "C-b d"),
        ("C-b", "C-b", "C-b C-b d"),
        ("C-b", "C-a", "C-b d"),
        ("C-a", "C-a", "C-a C-a d"),
    ],
)
def test_keys_that_leave_the_inner_tmux(inner: str, around: str | None, keys: str) -> None:
    """Break: name the keys that detach the person's own tmux."""
    assert detach_keys(inner, around) == keys


def test_a_wide_screen_on_a_narrow_terminal() -> None:
    """Break: cut words off, or leave rules that wrap to five lines."""
    assert fitted("─" * 500, 80) == "─" * 80
    assert fitted("❯ " + " " * 490 + "bypass on", 40) == "❯" + " " * 30 + "bypass on"
    assert fitted("word " * 100, 80) == "word " * 100
    assert fitted("short", 80) == "short"
    assert fitted("a" + " " * 300 + "b" + "─" * 200 + "c", 40) == "a" + " " * 2 + "b" + "─" * 35 + "c"
    assert cells(fitted("│ 日本 " + "─" * 400 + " │", 80)) <= 80


@pytest.mark.parametrize("status", list(Status))
def test_advice_is_a_command_that_helps(status: Status) -> None:
    """Break: `wait for needs_review` to somebody whose worker waits for them."""
    said = advice(worker(status))
    waits = status in (Status.WORKING, Status.REVIEWING, Status.REJECTED, Status.REBASING)
    assert ("llmc wait" in said) == waits
    assert "llmc " in said
    if status is Status.NEEDS_INPUT:
        assert "llmc message" in said
