"""Templates and their filters. All text is escaped; control characters have no effect."""

import os
import re
import shlex
from collections.abc import Iterable
from datetime import datetime
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from markupsafe import Markup, escape

from llmc.api.commenting import DiffRow, Kind
from llmc.base.text import age, moment, printable, shortened, visible
from llmc.web.rules import sgr

HERE = Path(__file__).parent
#: never in a page: control characters, characters that change the direction of text, and lone surrogates
_ODD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f\ud800-\udfff]")
#: lines of an agent's screen on a card
PREVIEW_LINES = 3
#: a line with only these characters says nothing
_FRAME = " \t─━═│┃┌┐└┘╭╮╰╯├┤>❯"


def text(value: object) -> Markup:
    """Text from agents and files, with control characters made visible."""
    return escape(visible(str(value)))


def line(value: object, most: int = 200) -> Markup:
    return escape(shortened(printable(str(value)), most))


@pass_context
def command(context: Context, value: object, most: int = 300) -> Markup:
    """A command, or our own text with commands in it. On the page of another root, they name that root."""
    return line(context["with_root"](str(value)), most)


def screen(lines: Iterable[str]) -> Markup:
    """An agent's screen, with its colors as CSS classes."""
    return Markup("\n").join(_screen_line(one) for one in lines)


def _screen_line(one: str) -> Markup:
    pieces = (
        Markup('<span class="{}">{}</span>').format(classes, piece) if classes else escape(piece)
        for piece, classes in sgr.spans(one)
    )
    return Markup("").join(pieces)


def preview(lines: Iterable[str]) -> Markup:
    """The last lines of a screen that say something."""
    said = [one for one in lines if "".join(piece for piece, _ in sgr.spans(one)).strip(_FRAME)]
    return screen(said[-PREVIEW_LINES:])


def words(row: DiffRow) -> Markup:
    """A line of a diff, with its changed words marked."""
    if not row.words:
        return text(row.text)
    tag = "ins" if row.kind is Kind.ADDED else "del"
    pieces, at = [], 0
    for start, end in row.words:
        pieces += [text(row.text[at:start]), Markup(f"<{tag}>{{}}</{tag}>").format(text(row.text[start:end]))]
        at = end
    return Markup("").join([*pieces, text(row.text[at:])])


def file_key(path: str) -> str:
    """A file's name, encoded for a form: a name may have bytes that are not text."""
    return quote(os.fsencode(path))


def clock(unix: float) -> str:
    """The local time of day."""
    return datetime.fromtimestamp(unix).strftime("%H:%M:%S")


def since(unix: float) -> Markup:
    """An age that the page keeps up to date."""
    stamp = datetime.fromtimestamp(unix).astimezone().isoformat(timespec="seconds")
    return Markup('<time datetime="{}" data-since="{}">{}</time>').format(stamp, int(unix), clock(unix)[:5])


#: a row of a diff, with its index
Numbered = tuple[int, DiffRow]


def pairs(rows: Iterable[DiffRow]) -> list[tuple[Numbered | None, Numbered | None]]:
    """The rows side by side: removed lines beside the added ones that replace them."""
    shown: list[tuple[Numbered | None, Numbered | None]] = []
    for changed, group in groupby(enumerate(rows), key=lambda one: one[1].kind in (Kind.ADDED, Kind.REMOVED)):
        block = list(group)
        if not changed:
            shown += [(one, one) for one in block]
            continue
        old = [one for one in block if one[1].kind is Kind.REMOVED]
        new = [one for one in block if one[1].kind is Kind.ADDED]
        shown += zip_longest(old, new)
    return shown


def make_environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "age": lambda unix, now: age(max(0.0, now - unix)),
        "clock": clock,
        "command": command,
        "file_key": file_key,
        "line": line,
        "moment": moment,
        "pairs": pairs,
        "preview": preview,
        "screen": screen,
        "since": since,
        "text": text,
        "words": words,
    }
    return made


environment = make_environment()


def render(name: str, context: dict[str, Any]) -> str:
    return _ODD.sub("\ufffd", environment.get_template(name).render(context))


# Commands on the page of another root: each names that root, so that it works from any directory.


class Naming:
    """Finds the commands in our own texts; `names`: the first words of all commands."""

    def __init__(self, names: Iterable[str]) -> None:
        known = "|".join(map(re.escape, names))
        # Quoted text is an argument, not one of our commands.
        self._command = re.compile(rf"(?<!\w)'[^']*'|(?<![\w/.-])llmc (?=(?:{known})\b)")

    def with_root(self, text: str, root: str) -> str:
        """The text with `--root` in each command; `root` is "" on the page of the server's own root."""
        if not root:
            return text
        named = f"llmc --root {shlex.quote(root)} "
        return self._command.sub(lambda found: named if found[0] == "llmc " else found[0], text)
