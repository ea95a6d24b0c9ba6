"""Untrusted text for a terminal: control characters made visible, width measured in cells. Pure, and light."""

import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast


class _Later:
    """A pattern that is compiled on first use."""

    def __init__(self, text: str, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, found)
        return found


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Like `re.compile`, which takes up to a millisecond."""
    return cast("re.Pattern[str]", _Later(text, flags))


def printable(text: str) -> str:
    """One line without control characters: commit subjects and errors are untrusted."""
    return text.translate(_PRINTABLE)


#: characters that change the direction of text
_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e") | set(
    map(chr, range(0x2066, 0x2070))
)
#: joiners of emoji and some scripts: invisible, but legitimate
_JOINERS = "\u200c\u200d"


class _Replacements(dict[int, str]):
    """The replacement of each character, computed on first use."""

    def __init__(self, replacement: Callable[[str], str]) -> None:
        self._replacement = replacement

    def __missing__(self, code: int) -> str:
        self[code] = self._replacement(chr(code))
        return self[code]


def _in_one_line(char: str) -> str:
    char = " " if char.isspace() else char
    return "" if unicodedata.category(char) in ("Cc", "Cs") or char in _DIRECTIONS else char


_PRINTABLE = _Replacements(_in_one_line)


def visible(text: str) -> str:
    """Text of several lines with control and invisible characters written out: `^[`, `<U+202E>`, `<FF>`."""
    return text.translate(_VISIBLE)


def _written_out(char: str) -> str:
    code, category = ord(char), unicodedata.category(char)
    if char in "\n\t" or category not in ("Cc", "Cs", "Cf", "Zl", "Zp") or char in _JOINERS:
        return char
    if code < 0x80:
        return "^" + chr(code ^ 0x40)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that was not UTF-8
        return f"<{code - 0xDC00:02X}>"
    return f"<U+{code:04X}>"


_VISIBLE = _Replacements(_written_out)


def in_line(name: str) -> str:
    """A file name, to show within a line; different names look different."""
    return visible(name).replace("\n", "^J").replace("\t", "^I")


def indented(text: str) -> str:
    """Text of several lines as git shows a commit message, with everything in it visible."""
    return "\n".join(f"    {line}".rstrip() for line in visible(text).strip("\n").split("\n"))


def some_files(names: Sequence[str], most: int = 5) -> str:
    """The first names of a list, in one line."""
    return ", ".join(map(in_line, names[:most])) + (" ..." if len(names) > most else "")


def uncoloured(text: str) -> str:
    """The text without color codes."""
    return _COLOUR.sub("", text)


_COLOUR = pattern(r"\x1b\[[0-9;:]*m")


def json_text(value: Any, *, indent: int | None = None, ascii_only: bool = False) -> str:
    """JSON in valid UTF-8 without control characters; NaN and infinity become null."""
    try:
        text = json.dumps(value, ensure_ascii=ascii_only, allow_nan=False, indent=indent)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=ascii_only, indent=indent)
    if text.isascii() and "\x7f" not in text:
        return text  # nearly always, and the pattern takes longer than the rest
    return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


#: DEL and C1 controls, line and paragraph separators, direction marks, lone surrogates; JSON escapes the others
_UNSAFE_IN_JSON = pattern(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff]")


def cells(text: str) -> int:
    """The width of a text in terminal columns."""
    return sum(map(_cells, text))


def _cells(char: str) -> int:
    if char.isascii():
        return 1
    if unicodedata.east_asian_width(char) in "WF":
        return 2
    # U+FE0F makes the character before it an emoji, which is wide.
    return 0 if unicodedata.category(char) in ("Mn", "Me", "Cf") and char != "\ufe0f" else 1


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def shortened(text: str, width: int) -> str:
    """At most `width` cells; truncation is marked with an ellipsis."""
    if cells(text) <= width:
        return text
    if width < 1:
        return ""
    kept = text[: max(0, width - 1)]
    while cells(kept) > width - 1:
        kept = kept[:-1]
    return kept.rstrip() + "…"


def shortened_at_start(text: str, width: int) -> str:
    """Truncate a path at its start: its end says more."""
    return shortened(text[::-1], width)[::-1]


def fitted(line: str, width: int) -> str:
    """Fit a line of a wider screen: shorten rules and gaps, longest first, without cutting words."""
    while (excess := cells(line) - width) > 0:
        longest = max(_RUN.finditer(line), key=lambda run: len(run[0]), default=None)
        if longest is None:
            return line
        start, most = longest.start(), len(longest[0]) - LEAST_RUN
        line = line[:start] + line[start + min(excess, most) :]
    return line


#: how much of a rule or a gap stays
LEAST_RUN = 2
#: a repeated character that is neither letter nor digit
_RUN = pattern(rf"([^\w\n])\1{{{LEAST_RUN},}}")


def age(seconds: float) -> str:
    """An age in its largest unit, rounded down: "9s", "4m", "2h", "3d"."""
    whole = int(max(0.0, seconds))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if whole >= size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def moment(at: float, now: float, form: str = "%H:%M") -> str:
    """The local time, with its day unless that is today; with its date if it is a week away."""
    from datetime import datetime  # saves time in the hot commands

    then, today = datetime.fromtimestamp(at), datetime.fromtimestamp(now).date()
    days = abs((then.date() - today).days)
    day = "" if days == 0 else "%a " if days < 7 else "%Y-%m-%d "
    return then.strftime(day + form)


def padded(text: str, width: int) -> str:
    return text + " " * (width - cells(text))


def wrap(text: str, width: int, most: int) -> list[str]:
    """Wrap to at most `most` lines of `width` cells."""
    lines: list[str] = []
    rest = text.split()
    while rest and len(lines) < most - 1:
        count = next((n for n in range(len(rest), 1, -1) if cells(" ".join(rest[:n])) <= width), 1)
        lines.append(shortened(" ".join(rest[:count]), width))
        rest = rest[count:]
    return lines + ([shortened(" ".join(rest), width)] if rest else [])


_WORDS = pattern(r"(?:'[^']*'|\S)+")


def wrap_command(text: str, width: int) -> list[str]:
    """Wrap a command so that a shell still reads one command: between words, never within quotes.

    A word longer than a line is truncated. Text with a choice or a remark is wrapped as prose.
    """
    if ", " in text or " (" in text:
        return wrap(text, width, 4)
    lines: list[str] = []
    for word in _WORDS.findall(text):
        if lines and cells(f"{lines[-1]} {word}") <= width - 2:
            lines[-1] += f" {word}"
        else:
            lines.append(shortened(word, width - 2))
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


#: how many lines from the end of a program's output go into its gist
GIST_LINES = 3


def gist(text: str, most: int = 500) -> str:
    """One line: what failed, then the end of the program's output.

    A traceback or test output names the error at its end. Rules and empty lines are skipped.
    """
    first, *rest = [line.strip() for line in text.splitlines() if any(map(str.isalnum, line))] or [""]
    kept: list[str] = []
    for line in reversed(rest[-GIST_LINES:]):
        if len(first) + sum(len(one) + 3 for one in (*kept, line)) > most:
            break
        kept.insert(0, line)
    if rest and not kept:
        first = first[: most // 2]
        kept = [rest[-1][-(most - len(first) - 3) :]]
    return f"{first} {' | '.join(kept)}".strip()[:most]


def closest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The closest of the known names that begin with `name`, else the closest of all; "" if none is close."""
    import difflib  # slow to import, and only needed after a mistake

    names = dict.fromkeys(known)
    begun = [one for one in names if name and one.startswith(name)]
    return next(iter(difflib.get_close_matches(name, begun or names, 1, 0.0 if begun else cutoff)), "")


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "", cutoff: float = 0.6) -> str:
    """The hint for an unknown name."""
    near = closest(name, known, cutoff)
    return f'Did you mean "{near}"?' if near else otherwise
