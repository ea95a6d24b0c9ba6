"""The commands that llmc's messages name: the same thing has one form everywhere."""

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click

from llmc.cli.app import cli
from tests.support.command_tree import context

SOURCE = Path(__file__).parents[2] / "src" / "llmc"
#: the command line that the supervisor itself runs, and texts about it
OF_THE_SUPERVISOR = "supervisor/daemon_process.py"
#: stands for what is only known at run time
FILLED = "FILLED"


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Every text in a file except docstrings, which describe a command but do not tell anyone to run it."""
    text = path.read_text()
    tree = ast.parse(text if "llmc " in text else "")
    described = {
        node.body[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if node.body and isinstance(node.body[0], ast.Expr)
    }
    whole = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = {part for node in whole for part in node.values}
    for node in whole:
        said = (part.value if isinstance(part, ast.Constant) else FILLED for part in node.values)
        yield node.lineno, "".join(map(str, said))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in described | parts:
            yield node.lineno, node.value


@cache
def said_in_source() -> list[tuple[str, str]]:
    """Where a text is, and what it says."""
    return [
        (f"{path.relative_to(SOURCE)}:{line}", said)
        for path in sorted(SOURCE.rglob("*.py"))
        for line, said in texts(path)
        if "llmc " in said
    ]


#: where the text is about one worker, whose record says how its agent is started
ABOUT_A_WORKER = (
    *("sessions/", "workers/", "landing/"),
    *("api/workers.py", "doctor/checks/of_worker.py", "repo/worktrees.py"),
)


def test_how_to_start_an_agent_is_said_by_its_record() -> None:
    """Break: `llmc up --detach` in the text: it starts no auto worker."""
    other = [
        f"{where}: {said}"
        for where, said in said_in_source()
        if where.startswith(ABOUT_A_WORKER) and "llmc up --detach" in said and "llmc add " not in said
    ]
    assert other == []


def test_what_starts_the_daemon_gives_the_terminal_back_wherever_it_is_named() -> None:
    """Break: `next: llmc up` in one place, `llmc up --detach` in another: the first blocks the terminal."""
    other = [
        f"{where}: {said}"
        for where, said in said_in_source()
        if not where.startswith(OF_THE_SUPERVISOR)
        if re.search(r"llmc up\b(?! (--auto )?--detach)", said)
    ]
    assert other == []


#: a command line ends at its quote; without quotes at punctuation, or where another starts
QUOTED = re.compile(r"([`'])(llmc(?: [^`]*?)?)\1(?!\w)")
BARE = re.compile(
    r"(?<![\w`'/.-])llmc (?:[^,;:()`\n]|`[^`]*`)*?(?=[,;:()`\n]|[.] |[.]$| && | or | and |   |$)"
)
#: what may stand for an argument without quotes
ARGUMENT = re.compile(rf"-|[A-Z]{{2,}}|.*{FILLED}|[\"'.]|\d|\w+[.=]\w+|adam$")


def command_lines(said: str) -> Iterator[list[str]]:
    for _, line in QUOTED.findall(said):
        yield shlex.split(line.replace("...", ""))
    for line in BARE.findall(QUOTED.sub("", said)):
        yield _without_prose(re.sub(r"[\"']|[.]{2,3}", "", line).split())


def _without_prose(words: list[str]) -> list[str]:
    """Up to the first word that is not a command, an option, its value, or an argument."""
    command, at = _command(words[1:])
    takes = {name for one in command.params if not getattr(one, "is_flag", True) for name in one.opts}
    kept = words[: 1 + at]
    for before, word in zip(["", *words[1 + at :]], words[1 + at :], strict=False):
        if not ARGUMENT.match(word) and before not in takes:
            break
        kept.append(word)
    return kept


def _command(words: list[str]) -> tuple[click.Command, int]:
    """The command that the first words name, and how many they are."""
    command: click.Command = cli
    for at, word in enumerate(words):
        found = command.get_command(context(command), word) if isinstance(command, click.Group) else None
        if found is None:
            return command, at
        command = found
    return command, len(words)


def wrong_with(words: list[str]) -> str:
    """Why a command line would be refused before it does anything; "" if it would not.
    Placeholders count as values.
    """
    command, at = _command(words[1:])
    if at == 0 and words[1:2] and words[1] != FILLED and not words[1].startswith("-"):
        return f"there is no command {words[1]}"
    ctx = context(command)
    try:
        given, left, _ = command.make_parser(ctx).parse_args([*words[1 + at :]])
    except click.BadOptionUsage:
        return ""  # its value is left out
    except click.UsageError as error:
        return error.format_message()
    if left and not command.allow_extra_args and not isinstance(command, click.Group):
        return f"unexpected {left}"
    for one in command.params:
        value = given.get(one.name or "")
        known = one.type.choices if isinstance(one.type, click.Choice) else ()
        if known and isinstance(value, str) and value.islower() and not {*value.split("|")} <= {*known}:
            return f"{value} is none of {known}"
    return ""


def test_every_command_that_is_named_could_be_run() -> None:
    """Break: `llmc events adam`: that argument does not exist; a renamed option; a removed command."""
    wrong = [
        f"{where}: {' '.join(words)}: {why}"
        for where, said in said_in_source()
        for words in command_lines(said)
        if (why := wrong_with(words))
    ]
    assert wrong == []
