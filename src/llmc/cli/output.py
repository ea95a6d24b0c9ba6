"""How commands print: JSON for scripts, lines for the user, one line for an error.

Most output holds text from agents, repositories and programs. It is cleaned here, so that no command can forget to;
`tests/unit/cli/test_output.py` fails when a command prints any other way. `paint` marks colors with a secret; the
marks become colors after the cleaning.
"""

import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from llmc.base.text import json_text, printable, visible

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_Command = TypeVar("_Command", bound=Callable[..., Any])

#: random and secret, so that no text can bring its own colors
_SIGN = os.urandom(6).hex()
_STYLE = re.compile(f"\ufdd0{_SIGN}([0-9;]*)\ufdd1")
_CODES = {"bold": "1", "dim": "2"} | {
    f"{bright}{name}": str(base + number)
    for bright, base in (("", 30), ("bright_", 90))
    for number, name in enumerate(("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"))
}


def json_option(command: _Command) -> _Command:
    import click  # the hot commands print without it

    decorate: Callable[[_Command], _Command] = click.option(
        "--json", "as_json", is_flag=True, help="Print JSON"
    )
    return decorate(command)


def say(text: str, *, err: bool = False, flush: bool = True) -> None:
    """Print one line; control characters are escaped."""
    _write(_cleaned(text, printable) + "\n", err, flush)


def say_lines(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text of several lines; control characters are escaped."""
    _write(_cleaned(text, visible) + ("\n" if nl else ""), err)


def note(text: str) -> None:
    """Print progress or advice to standard error; standard output is for results."""
    say(text, err=True)


def warn(text: str) -> None:
    note(paint("warning: ", "yellow", err=True) + text)


def print_json(value: Any, *, indent: int | None = None, flush: bool = True) -> None:
    _write(json_text(value, indent=indent, ascii_only=not is_utf8()) + "\n", False, flush)


def say_or_json(text: str, body: Any, as_json: bool) -> None:
    """Print the result of a command, as a line or as JSON."""
    print_json(body) if as_json else say(text)


def plain(result: Any, *names: str) -> dict[str, Any]:
    """The fields of a result as JSON data; with `names`, only these. A path becomes text."""
    from msgspec import to_builtins  # the hot commands print without it

    names = names or result.__struct_fields__
    return {name: to_builtins(getattr(result, name), enc_hook=str) for name in names}


def print_error(
    message: str, hint: str, exit_code: int, as_json: bool, details: dict[str, Any] | None = None
) -> None:
    """Print an error and its hint to standard error; with --json also an object to standard output."""
    if as_json:
        print_json({"error": message, "hint": hint, "exit_code": int(exit_code), **(details or {})})
    # A message of several lines ends with output of a program: the hint gets its own line.
    between = "\n" if "\n" in message else " " if message.endswith((".", "!", "?")) else ". "
    separator = between if hint else ""
    say_lines(paint("llmc: ", "red", err=True) + f"{message}{separator}{hint}", err=True)


def show_frame(lines: Sequence[str]) -> None:
    """Draw a screen over the last one, without flicker."""
    shown = "".join(f"{_cleaned(line, printable)}\033[K\n" for line in lines)
    _write(f"\033[H{shown}\033[J", False)


def clear_screen() -> None:
    if is_terminal():
        _write("\033[2J\033[H", False)


def ask(question: str, *, default: bool = False, abort: bool = False) -> bool:
    """Ask a yes/no question on standard error; with `abort`, "no" ends the command."""
    import click

    return click.confirm(printable(question), default=default, abort=abort, err=True)


def read_line(question: str) -> str:
    """Ask the user for a line, on standard error."""
    import click

    return str(click.prompt(printable(question), err=True))


def completion(value: str, help: str = "") -> "CompletionItem":
    """A completion, cleaned because the shell prints it."""
    from click.shell_completion import CompletionItem

    return CompletionItem(printable(value), help=printable(help) or None)


def is_terminal(*, err: bool = False) -> bool:
    return (sys.stderr if err else sys.stdout).isatty()


def columns() -> int:
    """$COLUMNS, the width of the terminal, or 80; like `shutil.get_terminal_size`, which is slow to import."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said):
        return int(said)
    try:
        return os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1).columns or 80
    except (OSError, ValueError):
        return 80


def has_colours(*, err: bool = False) -> bool:
    return is_terminal(err=err) and not os.environ.get("NO_COLOR")


def paint(text: str, color: str, *, err: bool = False, bold: bool = False) -> str:
    """Color a text on a terminal, unless NO_COLOR is set; "" is the default color. Only for `say` and the like."""
    codes = ([_CODES[color]] if color else []) + ["1"] * bold
    if not codes or not has_colours(err=err):
        return text
    return f"{_mark(';'.join(codes))}{text}{_mark('0')}"


def _mark(codes: str) -> str:
    return f"\ufdd0{_SIGN}{codes}\ufdd1"


def cleaned(text: str) -> bytes:
    """The output of `say_lines`, for a pager."""
    return _cleaned(text, visible).encode("utf-8", "replace")


def write_cleaned(data: bytes) -> None:
    """Print bytes that are known to be safe: from `cleaned`, or checked by the caller."""
    _write(data.decode("utf-8", "replace"), False)


def _cleaned(text: str, clean: Callable[[str], str]) -> str:
    """Clean the text between our marks, and turn the marks into colors."""
    parts = _STYLE.split(text)
    return "".join(f"\033[{part}m" if odd % 2 else clean(part) for odd, part in enumerate(parts))


#: functions that end an open line before anything else is printed
_before: list[Callable[[], None]] = []


def before_next(act: Callable[[], None]) -> None:
    """Call `act` once, before the next text is printed."""
    while _before:
        _before.pop()()
    _before.append(act)


def draw_line(text: str) -> None:
    """Draw over the last line of standard error, which stays open."""
    _put(f"\r{_cleaned(text, printable)}\033[K", True, True)


def end_line(*, keep: bool) -> None:
    """End the open line of standard error, or remove it."""
    _put("\n" if keep else "\r\033[K", True, True)


def _write(text: str, err: bool, flush: bool = True) -> None:
    while _before:
        _before.pop()()
    _put(text, err, flush)


def _put(text: str, err: bool, flush: bool) -> None:
    stream: TextIO = sys.stderr if err else sys.stdout
    if not is_utf8(stream):  # replace what the encoding cannot represent
        text = text.encode(stream.encoding, "replace").decode(stream.encoding)
    stream.write(text)
    if flush:
        stream.flush()


def is_utf8(stream: TextIO | None = None) -> bool:
    """Whether a stream (default: standard output) can print every character."""
    return ((stream or sys.stdout).encoding or "utf-8").lower() in ("utf-8", "utf8")
