"""Parse untrusted JSON: what passes can be stored, shown and written again.

Task files, logs and records may come from agents, users or an older llmc, or be cut short by a full disk.
Light, for the hot commands.
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


class BadJson(ValueError):
    """Not usable JSON; one line says why."""


def parse(data: bytes | str) -> Any:
    """Parse JSON; numbers are finite and of 64 bits, text is valid Unicode (lone surrogates become escapes)."""
    try:
        text = data if isinstance(data, str) else data.removeprefix(_BOM).decode()
        value = _DECODER.decode(text)
        if text.count("[") + text.count("{") > MOST_DEPTH:
            _refuse_depth(value)
        if "\\u" in text or (text is data and not text.isascii()):
            return _whole(value)
    except RecursionError:
        raise BadJson("nested too deeply") from None
    except BadJson:
        raise
    except ValueError as error:  # also invalid UTF-8
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
    """The text with control characters as escapes: a terminal would obey them, and no program can take them."""
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def _whole(value: Any) -> Any:
    """The value with lone surrogates as escapes."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_whole(key): _whole(item) for key, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list) else value


def _refuse_depth(value: Any) -> None:
    """Raise BadJson if nested too deeply. Goes by level, through containers only: a state has thousands of values."""
    level = [value]
    for _ in range(MOST_DEPTH):
        level = [item for one in level for item in (one.values() if type(one) is dict else one)]
        level = [item for item in level if type(item) in (dict, list)]
    if any(level):
        raise BadJson("nested too deeply")


def _short(digits: str) -> int | float:
    """The number; beyond 64 bits as a float, which is what it is to JavaScript."""
    if len(digits) > 20:  # thousands take long
        return _finite(digits)
    value = int(digits)
    return value if -(2**63) <= value < 2**63 else float(value)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise BadJson(f"{digits[:40]} is not a finite number")
    return value


def _refuse(name: str) -> Any:
    raise BadJson(f"{name} is not valid in JSON")


_DECODER = json.JSONDecoder(parse_int=_short, parse_float=_finite, parse_constant=_refuse)
