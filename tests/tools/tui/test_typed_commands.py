"""Typed commands as click reads them: what they complete, which need the terminal, and which are refused."""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc.base.errors import LlmcError
from llmc.cli import show_screen
from llmc.repo.project import Project
from llmc.tui.plain import Plain
from llmc.tui.typed import Typed


@pytest.fixture
def typed(project: Project) -> Typed:
    return show_screen.typed(project)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    before = Path.cwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("hol", "hold "),
        ("hold w", "hold w1 "),
        ("start --worker=w", "start --worker=w1 "),
        ('accept "w', "accept w1 "),
        ("llmc hold ta", "llmc hold take "),
    ],
)
def test_what_is_known_is_completed(typed: Typed, line: str, completed: str) -> None:
    """Break: split the line at its spaces; or replace the option by its value."""
    assert typed.completed(line)[0] == completed


def test_files_are_completed_from_the_directory_of_the_user(typed: Typed, folder: Path) -> None:
    """Break: take the word that click hands back for a file as the whole name."""
    (folder / "plan.json").touch()
    (folder / "my tasks").mkdir()
    (folder / "my tasks/one.json").touch()
    (folder / ".hidden").touch()
    (folder / "zloop").symlink_to("zloop")  # nobody can say what it is
    assert typed.completed("tasks import pl")[0] == "tasks import plan.json "
    assert typed.completed("tasks import my")[0] == "tasks import 'my tasks/'"
    assert typed.completed("tasks import 'my tasks/'")[0] == "tasks import 'my tasks/one.json' "
    assert typed.completed("start --prompt-file=pl")[0] == "start --prompt-file=plan.json "
    assert typed.completed("--root pl") == ("--root pl", [])
    assert typed.completed("tasks import ") == ("tasks import ", ["my tasks/", "plan.json", "zloop"])
    assert typed.completed("tasks import nowhere/p") == ("tasks import nowhere/p", [])


@pytest.mark.parametrize(
    ("line", "needs"),
    [
        ("status --watch", True),
        ("status -w", True),
        ("status --json -w", True),
        ("status --json", False),
        ("events -F", True),
        ("logs w1 --follow", True),
        ("attach w1", True),
        ("--root X attach w1", True),
        ("--debug --root=X status -w", True),
        ("config edit", True),
        ("config get", False),
        ("message w1", True),
        ("message w1 hello", False),
        ("message server/w1", True),
        ("message server/w1 hello", False),
        ("message w1 --file notes.md", False),
        ("message w1 -- --watch", False),
        ("start", True),
        ("start --worker w1", True),
        ("start -p 'Do it'", False),
        ("start --prompt-file task.md", False),
        ("reject", True),
        ("reject w1", True),
        ("reject --worker w1", True),
        ("reject 'Do it again'", False),
        ("reject w1 'Do it again'", False),
        ("reject w1 --comments", False),
        ("reject w1 --file notes.md", False),
        ("start --help", False),
        ("nonsense --watch", False),
        ("status --nonsense", False),
        ("", False),
    ],
)
def test_which_commands_need_the_terminal(typed: Typed, line: str, needs: bool) -> None:
    """Break: look for the command and its options at fixed places in the line."""
    assert typed.needs_terminal(shlex.split(line)) is needs


@pytest.mark.parametrize("line", ["up", "up --auto", "--root X up", "web", "web --address 127.0.0.1"])
def test_a_server_is_refused(typed: Typed, line: str) -> None:
    """Break: look for the command in the first word only."""
    code, told = typed.run(line.split(), lambda: True)
    assert code != 0
    assert "run it in the background" in told


def test_a_command_runs_when_its_directory_is_gone(typed: Typed, project: Project, folder: Path) -> None:
    """Break: start it in `Path.cwd()`, which raises."""
    gone = folder / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    code, told = typed.run(["hold", "w1"], lambda: False)
    assert (code, "on hold" in told) == (0, True), told


@pytest.mark.parametrize(
    ("limit", "value", "told"),
    [("OUTPUT_BYTES", 10, "printed more than"), ("COMMAND_S", 0.001, "took longer than")],
)
def test_a_command_without_end_says_why_it_was_stopped(
    typed: Typed, monkeypatch: pytest.MonkeyPatch, limit: str, value: float, told: str
) -> None:
    """Break: name the Python that runs it."""
    monkeypatch.setattr(show_screen, limit, value)
    with pytest.raises(LlmcError, match=f"stopped `llmc status`: it {told}"):
        typed.run(["status"], lambda: False)


def test_the_plain_screen_says_why_a_command_did_not_run(project: Project, typed: Typed) -> None:
    """Break: let the error end the screen."""

    def run(words: object, stopping: object) -> tuple[int, str]:
        raise LlmcError("it printed too much", hint="Run it in a terminal.")

    said: list[str] = []
    screen = Plain(project, Typed(typed.argv, run, typed.needs_terminal, typed.completions), said.append)
    screen._run_command("status")
    assert said == ["it printed too much. Run it in a terminal."]
