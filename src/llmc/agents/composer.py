"""The composer at the bottom of the client's screen, read from captured text.

Only `services/submit.py` may look at it: what it shows decides about keys, never about a status. Pure.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

_RULE = re.compile(r"^[─━]{20,}")
_PLACEHOLDER = re.compile(r"\[Pasted text #\d+")


class Box(StrEnum):
    """What the composer on the screen holds."""

    EMPTY = "empty"
    DRAFT = "draft"
    #: there is no composer: a dialog, or something is drawn over it
    ABSENT = "absent"


@dataclass(frozen=True)
class Composer:
    box: Box
    text: str = ""


def composer(screen: str) -> Composer:
    """What is in the input box: the lines between the last two rules, the first of which starts with ❯."""
    lines = screen.rstrip().split("\n")
    rules = [i for i, line in enumerate(lines) if _RULE.match(line)]
    if len(rules) < 2:
        return Composer(Box.ABSENT)
    inside = lines[rules[-2] + 1 : rules[-1]]
    if not inside or not inside[0].startswith("❯"):
        return Composer(Box.ABSENT)
    first = inside[0].removeprefix("❯").lstrip("\u00a0 ")
    text = "\n".join([first, *(line.removeprefix("  ") for line in inside[1:])]).rstrip()
    if not text or text == "Press up to edit queued messages":
        return Composer(Box.EMPTY)
    return Composer(Box.DRAFT, text)


def holds(box: Composer, header: str) -> bool:
    """Whether the box holds the text we pasted: its header line, or the placeholder of a long paste."""
    return box.box is Box.DRAFT and (header in box.text or _PLACEHOLDER.match(box.text) is not None)
