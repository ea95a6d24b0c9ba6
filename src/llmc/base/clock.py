"""The clock, and whether a thread makes progress.

Wall time is only stored; ages inside a process are monotonic. Each round of a thread's work is registered, and every
program or lock it waits for has a limit.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import Struct


def now_unix() -> float:
    return time.time()


def monotonic() -> float:
    return time.monotonic()


def age_s(since_unix: float, now: float) -> float:
    """An age below zero (the clock was set back) is zero."""
    return max(0.0, now - since_unix)


class _Round(Struct):
    name: str
    #: what it is done for: a process may work for several roots
    owner: str
    #: when it last began or ended something
    mark: float
    #: until when it may wait for what it began
    deadline: float = 0.0


_rounds: dict[int, _Round] = {}


@contextmanager
def watched(name: str, owner: str = "") -> Iterator[None]:
    """The work of this thread is watched while the block runs."""
    thread = threading.get_ident()
    _rounds[thread] = _Round(name, owner, time.monotonic())
    try:
        yield
    finally:
        del _rounds[thread]


@contextmanager
def waiting(limit_s: float) -> Iterator[None]:
    """This thread waits for something that takes at most so long."""
    here = _rounds.get(threading.get_ident())
    if here is None:
        yield
        return
    before = here.deadline
    here.mark = time.monotonic()
    here.deadline = max(before, here.mark + limit_s)
    try:
        yield
    finally:
        here.mark, here.deadline = time.monotonic(), before


def running(owner: str | None = None) -> list[str]:
    """The names of the rounds that have not ended: of one owner, or of all."""
    return [round_.name for round_ in list(_rounds.values()) if owner in (None, round_.owner)]


def stuck(limit_s: float, owner: str) -> str | None:
    """A round that began or ended nothing for so long, and waits for nothing that may take longer; its name."""
    now = time.monotonic()
    for round_ in list(_rounds.values()):
        if round_.owner == owner and now > max(round_.mark + limit_s, round_.deadline + limit_s):
            return round_.name
    return None
