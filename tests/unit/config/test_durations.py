"""Durations as users write them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.config.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (90, 90.0),
        (0.5, 0.5),
        (0, 0.0),
        ("15m", 900.0),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        ("90s", 90.0),
        ("250ms", 0.25),
        ("2d", 172800.0),
        ("1.5h", 5400.0),
        ("1d2h3m4s5ms", 93784.005),
        (" 90 ", 90.0),
        ("0.25", 0.25),
        ("1e3", 1000.0),
    ],
)
def test_reads_numbers_and_texts(value: int | float | str, seconds: float) -> None:
    assert parse_duration(value) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "value", ["", " ", "m", "15x", "15 minutes", "30m1h", "5m5m", "1m30", "1h,5m", "5M", "+5", "1_0"]
)
def test_garbage_is_refused_with_an_example(value: str) -> None:
    """Fails when the units may come in any order or the end of the text is not matched."""
    with pytest.raises(
        ValueError, match=r'not a duration; use a number of seconds \(90\) or a value such as "15m"'
    ):
        parse_duration(value)


@pytest.mark.parametrize("value", [-1, -0.001, "-5", "-15m"])
def test_negative_is_refused_as_negative(value: int | float | str) -> None:
    with pytest.raises(ValueError, match="is negative"):
        parse_duration(value)


@pytest.mark.parametrize("value", [math.inf, math.nan, "9" * 400, "9" * 400 + "d", 10**400])
def test_endless_is_refused(value: int | float | str) -> None:
    """Fails when the check for finite numbers is removed: an endless timeout would reach the timers."""
    with pytest.raises(ValueError, match="finite"):
        parse_duration(value)


@pytest.mark.parametrize("value", [True, None, [1]])
def test_other_types_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (-5, "0s"),
        (0.25, "250ms"),
        (0.9999, "999ms"),
        (59.9, "59s"),
        (120, "2m"),
        (133, "2m 13s"),
        (3900, "1h 5m"),
        (3605, "1h"),
        (3 * 86400, "3d"),
        (3 * 86400 + 3600, "3d 1h"),
        (math.inf, "?"),
    ],
)
def test_shows_the_two_largest_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.floats(min_value=1, max_value=1e9))
def test_an_age_reads_back_within_its_smallest_unit(seconds: float) -> None:
    """Fails when a unit is dropped from the middle, or an age is rounded up."""
    text = format_duration(seconds)
    lost = seconds - parse_duration(text)
    assert 0 <= lost < {"d": 86400, "h": 3600, "m": 60, "s": 1}[_unit_below(text)]


def _unit_below(text: str) -> str:
    """The smallest unit that may be shown beside the largest one."""
    units = "dhms"
    largest = units.index(text.split()[0][-1])
    return units[min(largest + 1, 3)]


@given(st.integers(0, 400), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), st.integers(0, 999))
def test_every_unit_counts(days: int, hours: int, minutes: int, seconds: int, millis: int) -> None:
    """Fails when one unit has the wrong size, e.g. "d" of 3600."""
    total = days * 86400 + hours * 3600 + minutes * 60 + seconds + millis / 1000
    assert parse_duration(f"{days}d{hours}h{minutes}m{seconds}s{millis}ms") == pytest.approx(total)
