"""The single entry point to the terminal: what it lets through, and that nothing bypasses it."""

import ast
import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import llmc
from llmc.base.text import json_text, printable, some_files, uncoloured, visible
from llmc.cli import output
from llmc.daemon.log import say
from tests.support.texts import HOSTILE, acts_on_a_terminal

SOURCE = Path(llmc.__file__).parent
#: what prints and is not a command: the entry point itself, separate programs, daemon lines, the bell
PRINTS = {
    *("cli/output.py", "__main__.py", "daemon/log.py", "notifications/notifiers.py", "launch.py"),
    "rehearsal/drills/__main__.py",
}
FORBIDDEN = frozenset(
    {
        *("print", "CompletionItem", "traceback.print_exception", "traceback.print_exc"),
        *(f"click.{name}" for name in ("echo", "secho", "style", "clear", "confirm", "prompt", "pause")),
        *("click.echo_via_pager", "click.progressbar", "click.get_text_stream", "click.get_binary_stream"),
        *(
            f"sys.{s}.{name}"
            for s in ("stdout", "stderr")
            for name in ("write", "writelines", "buffer", "flush")
        ),
        *("sys.__stdout__", "sys.__stderr__"),
    }
)


def modules() -> list[str]:
    found = (str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py"))
    return sorted(name for name in found if name not in PRINTS and not name.startswith("agents/scripted/"))


def printing(tree: ast.AST, forbidden: frozenset[str] = FORBIDDEN) -> Iterator[str]:
    """The ways in which a module bypasses it, by the names it uses."""
    ends = {name.rpartition(".")[2] for name in forbidden}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ends and ast.unparse(node) in forbidden:
            yield f"line {node.lineno}: {ast.unparse(node)}"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in forbidden:
            yield f"line {node.lineno}: {node.func.id}"
        if isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{one.name}" for one in node.names} & forbidden
            yield from (f"line {node.lineno}: from {node.module} import {name}" for name in names)
        if isinstance(node, ast.ImportFrom) and node.module == "sys":
            yield f"line {node.lineno}: from sys import: write sys.stdout, so that this test sees it"


@pytest.mark.parametrize("name", modules())
def test_nothing_prints_past_the_door(name: str) -> None:
    """Break: click.echo in any command. Use `say`, `say_lines`, `note`, `print_json` of cli/output.py."""
    forbidden = FORBIDDEN | {"os.write"} if name.startswith("cli/") else FORBIDDEN
    assert list(printing(ast.parse((SOURCE / name).read_text()), forbidden)) == []


@pytest.mark.parametrize(
    "code",
    ["print(1)", "click.echo('x')", "import sys\nsys.stdout.write('x')", "from click import echo\necho('x')"],
)
def test_the_gate_sees_a_way_past(code: str) -> None:
    assert list(printing(ast.parse(code)))


class _Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def shown_by(act: Callable[[], None]) -> str:
    """What is written to a terminal with colors."""
    stream = _Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        patch.delenv("NO_COLOR", raising=False)
        act()
    return stream.getvalue()


def test_colours_are_ours_alone() -> None:
    """A text cannot hide itself (`ESC[8m`), nor contain our marks.

    Break: let `ESC[...m` through in _cleaned.
    """
    shown = shown_by(lambda: output.say(output.paint("done", "green") + " \x1b[8mhidden\ufdd00\ufdd1"))
    assert shown == "\x1b[32mdone\x1b[0m [8mhidden\ufdd00\ufdd1\n"


def test_what_is_painted_is_cleaned_too() -> None:
    """Break: clean only the text between painted parts."""
    shown = shown_by(lambda: output.say(output.paint(f"a{HOSTILE}b", "red", bold=True)))
    shown = shown.removeprefix("\x1b[31;1m").removesuffix("\x1b[0m\n")
    assert not acts_on_a_terminal(shown)
    assert shown.startswith("a]0;title")


@given(st.text(), st.text())
def test_a_line_is_one_line(before: str, after: str) -> None:
    """Break: visible() in say()."""
    shown = shown_by(lambda: output.say(before + HOSTILE + after))
    assert shown.endswith("\n")
    assert len(shown.splitlines()) == 1
    assert not acts_on_a_terminal(shown)


@given(st.text())
def test_a_text_keeps_its_lines(text: str) -> None:
    shown = visible(text)
    assert shown.count("\n") == text.count("\n")
    assert not acts_on_a_terminal(shown)
    shown.encode()


def test_nothing_is_hidden() -> None:
    """Break: drop what acts, as `printable` does: a reviewer would not see that it is there."""
    shown = visible("a\x1b]52;c;aGk=\x07\r\u202eb\u2028\x9b1m\udcff\ud800\x7f\u200b")
    assert shown == "a^[]52;c;aGk=^G^M<U+202E>b<U+2028><U+009B>1m<FF><U+D800>^?<U+200B>"
    assert visible("ein Tür\tgeht 👩‍💻\n") == "ein Tür\tgeht 👩‍💻\n"


def test_colours_of_programs_are_dropped_from_their_logs() -> None:
    assert visible(uncoloured("\x1b[1;31mFAIL\x1b[0m \x1b[8mx\x1b[2J")) == "FAIL x^[[2J"


@given(
    st.recursive(
        st.text() | st.floats() | st.integers(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
    )
)
def test_json_is_valid_whatever_the_data(value: object) -> None:
    """Break: plain json.dumps(ensure_ascii=False): a lone surrogate cannot be encoded, NaN is invalid."""
    text = json_text(value)
    assert not acts_on_a_terminal(text)
    json.loads(text.encode(), parse_constant=pytest.fail)


def test_json_keeps_the_text() -> None:
    """Break: clean the text as for people: scripts would get changed data."""
    assert json.loads(json_text({HOSTILE: [HOSTILE]})) == {HOSTILE: [HOSTILE]}
    assert json_text({"a": "Tür", "b": float("nan"), "c": (1.5, float("inf"))}) == (
        '{"a": "Tür", "b": null, "c": [1.5, null]}'
    )


def test_a_stream_that_is_not_utf8_gets_what_it_can_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: always call stream.write(text)."""
    buffer = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(buffer, encoding="ascii"))
    output.say("Tür …")
    output.print_json({"a": "ü"})
    assert buffer.getvalue() == b'T?r ?\n{"a": "\\u00fc"}\n'


def test_a_name_is_offered_to_the_shell_in_one_line() -> None:
    offered = output.completion("1\x1b[2J", "two\nlines\x07")
    assert (offered.value, offered.help) == ("1[2J", "two lines")


def test_printable_takes_out_what_turns_a_line_around() -> None:
    assert printable("a\u202eb\u061cc\u2069d\x1b[0me\u206af") == "abcd[0mef"


def test_the_daemons_lines_are_cleaned_too() -> None:
    """Break: print(text) in daemon/log.py. The bell is ours."""
    shown = shown_by(lambda: say(f"12:00 adam: error ({HOSTILE})", bell=True))
    assert shown.endswith("\a\n")
    assert not acts_on_a_terminal(shown.removesuffix("\a\n"))


def test_a_file_in_an_error_takes_one_line() -> None:
    """An error may have several lines, like a program's output.

    Break: put file names into it as git prints them.
    """
    assert some_files(["a\nb", "c\td", "\x1b[2J"]) == "a^Jb, c^Id, ^[[2J"
    assert some_files([*"abcdef"]) == "a, b, c, d, e ..."
    assert some_files([*"abc"], 2) == "a, b ..."
    joined = re.compile(r"""["'], ["']\.join\([^\n]*\[:5\]""")
    found = [path for path in SOURCE.rglob("*.py") if joined.search(path.read_text())]
    assert found == [], "some_files() does that"
