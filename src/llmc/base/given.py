"""Untrusted JSON and its values: what passes can be stored, shown and written again.

Task files, logs and records may come from agents, people, an older llmc, or a full disk. Light, for the hot commands.
"""

import json
import math
from typing import Any

from llmc.base.text import pattern

#: nothing llmc reads is nested deeper; deeper data could not be copied or written again
MOST_DEPTH = 64
#: longer than any line llmc writes
MOST_LINE = 8 << 20


#: the UTF-8 byte order mark; Python's codec for it is another module to import
_BOM = b"\xef\xbb\xbf"
#: control characters, without tabs and line ends
CONTROL = pattern(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
#: a number that may not fit into 64 bits
_LONG = pattern(r"[0-9]{19}")


class BadJson(ValueError):
    """Not usable JSON; one line says why."""


def parse(data: bytes | str) -> Any:
    """Parse JSON; numbers are finite, text is valid Unicode (lone surrogates become escapes)."""
    try:
        text = data if isinstance(data, str) else data.removeprefix(_BOM).decode()
        value = _DECODER.decode(text)
        if _is_suspect(text):
            return _whole(value, 0)
    except RecursionError:
        raise BadJson("nested too deeply") from None
    except BadJson:
        raise
    except ValueError as error:  # also invalid UTF-8, and numbers with thousands of digits
        raise BadJson(f"invalid JSON: {error}") from None
    return value


def row(line: bytes) -> dict[str, Any] | None:
    """A row of a JSON lines file; None if it is torn or not an object."""
    try:
        value = parse(line) if len(line) <= MOST_LINE else None
    except BadJson:
        return None
    return value if isinstance(value, dict) else None


def number(value: object) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def written_out(text: str) -> str:
    """The same with control characters, which a terminal would obey and no program can take, as escapes."""
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def _is_suspect(text: str) -> bool:
    """Whether the text needs a closer check; most does not."""
    is_deep = text.count("[") + text.count("{") > MOST_DEPTH
    return is_deep or "\\u" in text or not text.isascii() or _LONG.search(text) is not None


def _whole(value: Any, depth: int) -> Any:
    if depth > MOST_DEPTH:
        raise BadJson("nested too deeply")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise BadJson("a number has too many digits")
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_whole(key, depth): _whole(item, depth + 1) for key, item in value.items()}
    return [_whole(item, depth + 1) for item in value] if isinstance(value, list) else value


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise BadJson(f"{digits[:40]} is not a finite number")
    return value


def _refuse(name: str) -> Any:
    raise BadJson(f"{name} is not valid in JSON")


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse)
