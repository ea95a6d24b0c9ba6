"""Parse and format durations: 90, "15m", "1h30m", "250ms"."""

import math
import re

from llmc.base.text import pattern

_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
# Largest unit first and each at most once, so that "30m1h" or "5m5m" is a typo and not a sum.
_TEXT = pattern(r"\s*".join(rf"(?:(?P<{unit}>{_NUMBER})\s*{unit}(?![a-z]))?" for unit in _UNITS))


def parse_duration(value: int | float | str) -> float:
    """A duration in seconds; plain numbers are seconds."""
    seconds = _parse_text(value) if isinstance(value, str) else _parse_number(value)
    if not math.isfinite(seconds):
        raise ValueError(f"{_shown(value)} is not a finite duration")
    if seconds < 0:
        raise ValueError(f"{_shown(value)} is negative; a duration must be zero or more")
    return abs(seconds)  # -0.0 is zero


def format_duration(seconds: float) -> str:
    """The two largest units, rounded down: "2m", "1h 5m", "3d"; negative is zero."""
    if not math.isfinite(seconds):
        return "?"
    if 0.001 <= seconds < 1:
        return f"{min(round(seconds * 1000), 999)}ms"
    return _whole_units(max(int(seconds), 0))


def _whole_units(rest: int) -> str:
    units = ("d", "h", "m", "s")
    counts = []
    for unit in units:
        count, rest = divmod(rest, int(_UNITS[unit]))
        counts.append(count)
    first = next((i for i, count in enumerate(counts) if count), len(units) - 1)
    shown = [f"{counts[i]}{units[i]}" for i in range(first, min(first + 2, len(units))) if counts[i]]
    return " ".join(shown) or "0s"


def _parse_number(value: int | float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _not_a_duration(value)
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _parse_text(text: str) -> float:
    body = text.strip()
    sign = -1 if body.startswith("-") else 1
    body = body.removeprefix("-")
    if re.fullmatch(rf"{_NUMBER}(?:[eE][+-]?[0-9]+)?", body):
        return sign * float(body)
    match = _TEXT.fullmatch(body)
    if not body or not match:
        raise _not_a_duration(text)
    parts = {unit: float(number) for unit, number in match.groupdict().items() if number}
    return sign * math.fsum(number * _UNITS[unit] for unit, number in parts.items())


def _not_a_duration(value: object) -> ValueError:
    return ValueError(
        f'{_shown(value)} is not a duration; use a number of seconds (90) or a value such as "15m", "1h30m", "250ms" or "2d"'
    )


def _shown(value: object) -> str:
    if isinstance(value, int) and abs(value) >= 10**18:
        return "a huge number"
    text = f'"{value}"' if isinstance(value, str) else f"{value}".lower()
    return text if len(text) <= 60 else f"{text[:56]}..."
