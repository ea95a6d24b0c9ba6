"""The clock: wall time is only stored, ages inside a process are monotonic."""

import time


def now_unix() -> float:
    return time.time()


def monotonic() -> float:
    return time.monotonic()


def age_s(since_unix: float, now: float) -> float:
    """An age below zero (the clock was set back) is zero."""
    return max(0.0, now - since_unix)
