"""Commands that a user may paste from llmc's messages:
each filled-in value is one shell word, whatever it is.
"""

import ast
import re
import shlex
import string
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import llmc
from llmc.cli.commands import COMMANDS
from llmc.config.options import check_node, check_worker_name, is_auto_name
from llmc.repo.git import WaitsForPipe

SOURCE = Path(llmc.__file__).parent
#: scripts of agents and remedies that llmc runs in a scratch root; and a module that is changing elsewhere
LEFT_OUT = ("rehearsal/drills/", "rehearsal/sample.py", "repo/submodules.py")

#: programs that llmc names, where a command line starts; for git, what takes names; llmc commands anywhere
_BEGINS = r"(?:^|`|: |\b[Rr]un |&& |  )"
_PROGRAMS = r"(?:sudo )?(?:rm|mv|cp|cd|cat|less|chown|chmod|kill|ssh) |export [A-Z_]+="
_GIT = r"git (?:-C|ls-remote|push|fetch|log|show|diff|merge|revert|reflog|switch|checkout|submodule) "
_LLMC = rf"llmc (?:--[a-z]|(?:{'|'.join(COMMANDS)})\b)"
#: up to its end
LINE = re.compile(
    rf"({_BEGINS}(?:{_PROGRAMS}|{_GIT})|(?<![\w./-]){_LLMC})((?:[^`;,()\n]|\$\([^)]*\))*)", re.MULTILINE
)
#: expressions that are not names, or names that need no quotes (see below)
SAFE = {
    "numbers, and words of llmc": r"2 \* .*|enough_usd|by|verb|pid|by\.split\(\)\[1\]|done\.returncode|because|command|why",
    "commits": r"(?:.*\.)?commit(?:\[:12\])?|before\.commit\[:12\]",
    "workers": r"(?:.*\.)?(?:name|worker|asker|meant)|self\.record\.name|row\['name'\]|waiting\[0\]|record\.branch",
    "nodes": r"node|own\.node|(?:node|key)\.name",
    "goals and questions": r"(?:.*\.)?(?:goal_id|assignment_id|question_id)|one\.id",
    "trash": r"trash\.short\(.*\)|(?:removals|acceptance)\.short\(.*\)|entry\.name|item\.ref\.removeprefix\(TRASH\)",
    "settings": r"key|key\.action|PUBLIC|UP_AUTO|facts\.up_auto|project\.start_command\(record\)",
}


def is_quoted(node: ast.expr, quoted: set[str]) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="quote" | "join", value=ast.Name(id="shlex"))):
            return True
        case ast.Call(func=ast.Name(id="quote" | "shell_join")):
            return True
        case ast.Name(id=name):
            return name in quoted
    return False


def filled(path: Path) -> Iterator[tuple[str, str]]:
    """Where a message names a command line with an unquoted value, and that value."""
    tree = ast.parse(path.read_text())
    given = (node for node in ast.walk(tree) if isinstance(node, ast.Assign) and is_quoted(node.value, set()))
    quoted = {name.id for node in given for name in node.targets if isinstance(name, ast.Name)}
    for text in (node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)):
        parts = [part.value if isinstance(part, ast.FormattedValue) else None for part in text.values]
        said = "".join(
            f"\0{number}\0" if isinstance(part, ast.FormattedValue) else str(getattr(part, "value", ""))
            for number, part in enumerate(text.values)
        )
        for _, line in LINE.findall(said):
            for number in re.findall(r"\0(\d+)\0", line):
                part = parts[int(number)]
                if part is not None and not is_quoted(part, quoted):
                    yield f"{path.relative_to(SOURCE)}:{text.lineno}", ast.unparse(part)


def test_what_is_filled_into_a_command_is_quoted() -> None:
    """Paths, branches, addresses, task ids and typed text need quotes; other kinds of names are listed above.

    Seen to fail for: `rm '{path}'` with a directory named `a'$(cmd)'b`,
    and `llmc tasks show {task}` for a file `$(cmd).json`.
    """
    safe = re.compile("|".join(SAFE.values()))
    found = [
        f"{where}: {{{what}}}"
        for path in sorted(SOURCE.rglob("*.py"))
        if not str(path.relative_to(SOURCE)).startswith(LEFT_OUT)
        for where, what in filled(path)
        if not safe.fullmatch(what)
    ]
    assert found == []


#: the rules for names that are in commands without quotes
NAMES: dict[str, Callable[[str], bool]] = {
    "worker": lambda name: check_worker_name(name) is None or is_auto_name(name),
    "node": lambda name: check_node(name) is None,
}


@pytest.mark.parametrize("kind", NAMES)
def test_names_that_are_not_quoted_need_no_quotes(kind: str) -> None:
    """Break: allow a character in such names that has a meaning in the shell."""
    odd = [chr(code) for code in (*range(0x20), 0x7F, 0xA0, 0xE9, 0x2028)]
    tried = [f"a{char}1" for char in (*string.printable, *odd)] + [f"{char}a1" for char in string.punctuation]
    taken = [name for name in tried if NAMES[kind](name)]
    assert len(taken) > 30
    assert [name for name in taken if shlex.quote(name) != name] == []


@pytest.mark.parametrize("name", ["a'$(touch pwned)'b", "a b", "$(x)", "-rf"])
def test_a_pipe_is_removed_by_the_command_that_is_named(name: str) -> None:
    """Break: put the path between our own quotes."""
    hint = WaitsForPipe(Path("/root of mine/w1"), f"{name}/.gitignore").hint
    assert hint is not None
    assert shlex.split(hint.partition(": ")[2]) == ["rm", f"/root of mine/w1/{name}/.gitignore"]
