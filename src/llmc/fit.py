"""Text that others wrote, made fit for a line of a terminal: nothing it would act on, and measured in cells. Pure."""

import unicodedata


def printable(text: str) -> str:
    """In one line, without what a terminal would act on: commit subjects and errors come from others."""
    return text.translate(_PRINTABLE)


#: they would turn the rest of the line around
_DIRECTIONS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f"


class _Printable(dict[int, str]):
    """What becomes of each character; found out when it comes up for the first time."""

    def __missing__(self, code: int) -> str:
        char = " " if chr(code).isspace() else chr(code)
        acts = unicodedata.category(char) in ("Cc", "Cs") or char in _DIRECTIONS
        self[code] = "" if acts else char
        return self[code]


_PRINTABLE = _Printable()


def cells(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return sum(map(_cells, text))


def _cells(char: str) -> int:
    if char.isascii():
        return 1
    if unicodedata.east_asian_width(char) in "WF":
        return 2
    # U+FE0F makes the character before it an emoji, which is wide.
    return 0 if unicodedata.category(char) in ("Mn", "Me", "Cf") and char != "\ufe0f" else 1


def shortened(text: str, width: int) -> str:
    """At most `width` cells; what was cut off is shown by an ellipsis."""
    if cells(text) <= width:
        return text
    kept = text[: max(0, width - 1)]
    while cells(kept) > width - 1:
        kept = kept[:-1]
    return kept.rstrip() + "…"


def shortened_at_start(text: str, width: int) -> str:
    """The end of a path says more than its beginning."""
    return shortened(text[::-1], width)[::-1]


def padded(text: str, width: int) -> str:
    return text + " " * (width - cells(text))


def wrap(text: str, width: int, most: int) -> list[str]:
    """At most so many lines of at most `width` cells."""
    lines: list[str] = []
    rest = text.split()
    while rest and len(lines) < most - 1:
        count = next((n for n in range(len(rest), 1, -1) if cells(" ".join(rest[:n])) <= width), 1)
        lines.append(shortened(" ".join(rest[:count]), width))
        rest = rest[count:]
    return lines + ([shortened(" ".join(rest), width)] if rest else [])
