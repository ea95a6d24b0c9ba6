"""Help texts: lines fit 80 columns, notes are not examples, sentences are complete, and named files exist."""

import ast
import inspect
import re
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

import llmc
from llmc.api.workers import Terminal
from llmc.attention.rules import DETACH, advice, has_dialog, next_command, worker_view
from llmc.base.text import cells, fitted
from llmc.cli.app import cli, run
from llmc.cli.arguments import OPTIONAL, REQUIRED
from llmc.cli.commands import COMMANDS, READS, answer
from llmc.records.items import Facts, Registration, Seen
from llmc.records.statuses import AT_WORK
from llmc.records.worker import Status
from tests.support.command_tree import context


def commands(command: click.Command = cli, path: str = "llmc") -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        ctx = context(command)
        for name in command.list_commands(ctx):
            found = command.get_command(ctx, name)
            assert found is not None
            yield from commands(found, f"{path} {name}")


@pytest.mark.parametrize(("path", "command"), [pytest.param(*one, id=one[0]) for one in commands()])
def test_help_fits_and_is_whole(path: str, command: click.Command) -> None:
    """Break: put a note into the paragraph of the examples, or use click's own list of commands."""
    text = command.get_help(context(command, info_name=path, max_content_width=80, terminal_width=80))
    assert [line for line in text.splitlines() if cells(line) > 80] == []
    assert "docs/" not in text, "not installed"
    listed = text.partition("Commands:")[2]
    assert not re.search(r"\.\.\.$|…$", listed, re.M)


def test_what_only_reads_is_a_command() -> None:
    """Break: put a name into READS that is not a command."""
    assert {f"llmc {path}" for path in READS} <= {path for path, _ in commands()}


def test_help_lines_are_short_imperatives_and_the_same_everywhere() -> None:
    """Break: write a help line as a full sentence, or not the same in `llmc --help` and on its page."""
    for path, command in commands():
        line = inspect.cleandoc(command.help or "").partition("\n\n")[0]
        assert len(line) <= 60, path
        assert re.fullmatch(r"[A-Z].*[^.]", line), path
        if path.count(" ") == 1:
            assert line == COMMANDS[path.split()[1]], path
        for option in command.params:
            text = getattr(option, "help", None) or ""
            is_clicks = option.name == "version"
            assert is_clicks or ". " in text or not text.endswith("."), f"{path} {option.name}: {text}"


def test_every_yes_says_whether_a_script_needs_it() -> None:
    """Break: say only that llmc does not ask: is --yes then required without a terminal, or not?"""
    helps = {
        path.removeprefix("llmc "): option.help or ""
        for path, command in commands()
        for option in command.params
        if isinstance(option, click.Option) and option.name == "yes"
    }
    optional = {"accept", "goal cancel", "overseer goal cancel", "reset"}
    assert {path for path, text in helps.items() if OPTIONAL in text} == optional
    required = {"doctor", "nuke", "trash prune", "undo", "uninstall"}
    assert {path for path, text in helps.items() if REQUIRED in text} == required
    assert {*helps} == optional | required


@pytest.mark.parametrize("argv", [[], ["tasks"], ["trash"]])
def test_a_group_alone_helps(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Break: print an error, or help that a pipe does not get."""
    assert run(argv) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("Usage: llmc")
    assert shown.err == ""


def test_the_help_before_click_is_clicks_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Break: change the indent or the line length in `help_text`; add an option that only click knows."""
    for width in (*range(40, 90), 200):
        monkeypatch.setenv("COLUMNS", str(width))
        assert run(["--help"]) == 0
        by_click = capsys.readouterr()
        for argv in (["-h"], ["--help"]):
            assert answer(argv) == 0
            shown = capsys.readouterr()
            lines = unified_diff(by_click.out.splitlines(), shown.out.splitlines(), lineterm="")
            assert shown == by_click, f"{width} columns:\n" + "\n".join(lines)


def test_the_version_before_click_is_clicks_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert (run(["--version"]), answer(["--version"])) == (0, 0)
    first, second = capsys.readouterr().out.splitlines()
    assert first == second


@pytest.mark.parametrize(
    "argv", [["--help", "status"], ["--version", "--json"], ["status", "--help"], [""], []]
)
def test_anything_else_is_left_to_click(argv: list[str]) -> None:
    assert answer(argv) is None


#: files of a checkout: a wheel has none of them
_OF_A_CHECKOUT = re.compile(
    r"(?<![\w/])docs/|\b(guide|configuration|protocol|footprint|drills|architecture)\.md\b|CONTRIBUTING"
)


def test_no_text_names_a_file_that_is_not_installed() -> None:
    """Break: send a user, or an agent, to docs/guide.md, which a wheel does not have."""
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
    """Break: name the keys that detach the user's own tmux."""
    assert Terminal([], {}, inner, around, switches=False).leave == keys


def test_a_wide_screen_on_a_narrow_terminal() -> None:
    """Break: cut words off, or let rules wrap to five lines."""
    assert fitted("─" * 500, 80) == "─" * 80
    assert fitted("❯ " + " " * 490 + "bypass on", 40) == "❯" + " " * 30 + "bypass on"
    assert fitted("word " * 100, 80) == "word " * 100
    assert fitted("short", 80) == "short"
    assert fitted("a" + " " * 300 + "b" + "─" * 200 + "c", 40) == "a" + " " * 2 + "b" + "─" * 35 + "c"
    assert cells(fitted("│ 日本 " + "─" * 400 + " │", 80)) <= 80


RECORDS = st.fixed_dictionaries(
    {
        "name": st.just("adam"),
        "status": st.sampled_from([str(status) for status in Status]),
        "reason": st.sampled_from(["", "question", "blocked", "crashed", "conflicts not resolved", "dialog"]),
        "auto": st.booleans(),
        "held": st.booleans(),
        "delivery": st.sampled_from(
            [None, *({"outcome": one} for one in ("pending", "typed", "unconfirmed"))]
        ),
        "accept": st.sampled_from([None, {"step": "land"}]),
        "assignment": st.sampled_from([None, {"task_id": "1"}]),
        "conflicted_files": st.sampled_from([[], ["a"]]),
        "cause": st.sampled_from(["", "auth", "config", "disk", "git"]),
        "error_reason": st.sampled_from(["", "it fails", "not trusted; `llmc init --trust`"]),
        "commit_sha": st.sampled_from([None, "c0ffee"]),
        "reviewed_sha": st.sampled_from([None, "c0ffee"]),
    }
)
SEEN = st.builds(
    Seen,
    st.sampled_from([None, True, False]),
    st.sampled_from(["", "dialog open"]),
    st.booleans(),
    st.booleans(),
)
RUNNING = st.sampled_from(
    [Facts(1e9), Facts(1e9, running=True), Facts(1e9, running=True, daemon=Registration(auto=True))]
)
KNOWN = {path for path, _ in commands()}


@given(RECORDS, SEEN, RUNNING)
def test_one_rule_names_the_next_command(record: dict[str, Any], seen: Seen, facts: Facts) -> None:
    """Break: print something that is not a command; use a second rule after a refusal;
    say `wait` while waiting for the user.
    """
    row = worker_view(record, seen.attached)
    offered = next_command(row, seen, facts)
    for part in re.split(", then |, or | && ", offered) if offered not in ("", DETACH) else []:
        assert " ".join(part.split()[:2]) in KNOWN, offered
    said = advice(record, row, seen, facts)
    works = row["status"] in AT_WORK and not has_dialog(row, seen)
    if works or not offered:
        assert "llmc wait adam" in said
        return
    assert "llmc wait" not in said
    answers = f"llmc answer {row['name']}" in said
    assert said.endswith(f"Next: {offered}") or answers
