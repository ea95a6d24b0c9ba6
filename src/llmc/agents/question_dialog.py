"""The dialog in which a client asks a question, read from a captured screen. Only workers/answering.py looks at it. Pure.

A key in the wrong dialog could allow what nobody allowed. So this one counts as recognised only when all of it is there, in
order: the question's own text, every option with its number and label, the line for another answer, and the keys that the
client itself names below. Whatever differs is not recognised, and nothing is typed.
"""

import re
from typing import NamedTuple

_OPTION = re.compile(r"^(?P<cursor>❯| ) +(?P<number>\d+)\. (?P<label>.*)$")
_FREE = "Type something"
_FOOT = ("Enter to select", "Esc to cancel")


class Shown(NamedTuple):
    """A question that is on the screen."""

    #: what stands in the line for another answer; "" while nothing does
    typed: str
    #: the cursor is in that line
    in_free_line: bool


def recognise(screen: str, question: str, options: tuple[str, ...]) -> Shown | None:
    """The dialog of exactly this question, or nothing."""
    lines = [line.rstrip() for line in screen.rstrip().split("\n")]
    if not lines or not all(words in lines[-1] for words in _FOOT):
        return None
    rows = [(at, found) for at, line in enumerate(lines) if (found := _OPTION.match(line)) is not None]
    first = next((i for i in reversed(range(len(rows))) if rows[i][1]["number"] == "1"), None)
    if first is None or not options:
        return None
    mine = rows[first : first + len(options) + 1]
    labels = [found["label"].strip() for _, found in mine]
    numbers = [found["number"] for _, found in mine]
    if numbers != [str(n + 1) for n in range(len(options) + 1)] or labels[:-1] != [
        _line(one) for one in options
    ]:
        return None
    if not _line(" ".join(lines[: mine[0][0]])).endswith(_line(question)):
        return None
    in_free_line = mine[-1][1]["cursor"] == "❯"
    typed = "" if labels[-1].startswith(_FREE) else labels[-1]
    return Shown(typed, in_free_line)


def _line(text: str) -> str:
    """In one line, however a terminal wrapped it."""
    return " ".join(text.split())
