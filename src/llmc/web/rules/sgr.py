"""Turns the colors of terminal text into spans with classes; the page's policy forbids style attributes. Pure."""

import re
from collections.abc import Iterator

from msgspec import Struct
from msgspec.structs import replace

_SGR = re.compile(r"\x1b\[([0-9;:]*)m")
#: all other control sequences, whole or cut off
_CONTROL = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
)
_PALETTE = (
    (0, 0, 0), (205, 0, 0), (0, 205, 0), (205, 205, 0), (0, 0, 238), (205, 0, 205), (0, 205, 205), (229, 229, 229),
    (127, 127, 127), (255, 0, 0), (0, 255, 0), (255, 255, 0), (92, 92, 255), (255, 0, 255), (0, 255, 255),
    (255, 255, 255),
)  # fmt: skip


class Style(Struct, frozen=True):
    """How a piece of text looks; `fg` and `bg` are numbers of the 16 basic colors."""

    bold: bool = False
    dim: bool = False
    italic: bool = False
    underline: bool = False
    inverse: bool = False
    fg: int | None = None
    bg: int | None = None

    @property
    def classes(self) -> str:
        words = [name for name in ("bold", "dim", "italic", "underline", "inverse") if getattr(self, name)]
        words += [f"fg{self.fg}"] if self.fg is not None else []
        words += [f"bg{self.bg}"] if self.bg is not None else []
        return " ".join(words)


PLAIN = Style()


def spans(line: str) -> Iterator[tuple[str, str]]:
    """The pieces of a line, each with its classes."""
    style, at = PLAIN, 0
    for found in _SGR.finditer(line):
        yield from _piece(line[at : found.start()], style)
        style, at = _after(style, found[1]), found.end()
    yield from _piece(line[at:], style)


def _piece(text: str, style: Style) -> Iterator[tuple[str, str]]:
    clean = _CONTROL.sub("", text)
    if clean:
        yield clean, style.classes


def _after(style: Style, codes: str) -> Style:
    numbers = iter([int(code) if code.isdigit() else 0 for code in codes.replace(":", ";").split(";")][:64])
    for code in numbers:
        match code:
            case 0:
                style = PLAIN
            case 1 | 2 | 3 | 4 | 7:
                name = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse"}[code]
                style = replace(style, **{name: True})
            case 22:
                style = replace(style, bold=False, dim=False)
            case 23 | 24 | 27:
                style = replace(style, **{{23: "italic", 24: "underline", 27: "inverse"}[code]: False})
            case 38 | 48:
                style = replace(style, **{"fg" if code == 38 else "bg": _colour(numbers)})
            case 39:
                style = replace(style, fg=None)
            case 49:
                style = replace(style, bg=None)
            case _ if 30 <= code <= 37 or 90 <= code <= 97:
                style = replace(style, fg=code - 30 if code < 90 else code - 82)
            case _ if 40 <= code <= 47 or 100 <= code <= 107:
                style = replace(style, bg=code - 40 if code < 100 else code - 92)
    return style


def _colour(numbers: Iterator[int]) -> int | None:
    """The basic color nearest to an extended one."""
    kind = next(numbers, 0)
    if kind == 2:
        return _nearest((next(numbers, 0), next(numbers, 0), next(numbers, 0)))
    if kind != 5:
        return None
    index = next(numbers, 0)
    if index < 16:
        return index
    if index >= 232:
        grey = 8 + 10 * (index - 232)
        return _nearest((grey, grey, grey))
    index -= 16
    steps = (0, 95, 135, 175, 215, 255)
    return _nearest((steps[index // 36 % 6], steps[index // 6 % 6], steps[index % 6]))


def _nearest(rgb: tuple[int, int, int]) -> int:
    def distance(at: int) -> int:
        return sum((mine - theirs) ** 2 for mine, theirs in zip(rgb, _PALETTE[at], strict=True))

    return min(range(16), key=distance)
