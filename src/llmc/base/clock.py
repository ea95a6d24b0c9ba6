"""Time and threads: the clock, the progress watch, and probes that run beside other work.

Wall time is for stored timestamps only; ages within a process are monotonic. Each round of a thread's work is
registered, and every program or lock it waits for has a time limit.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Generic, Self, TypeVar

from msgspec import Struct


def now_unix() -> float:
    return time.time()


def monotonic() -> float:
    return time.monotonic()


def age_s(since_unix: float, now: float) -> float:
    """The age; 0 if the clock was set back."""
    return max(0.0, now - since_unix)


class _Round(Struct):
    name: str
    #: its owner: a process may work for several roots
    owner: str
    #: when it last started or finished something
    mark: float
    #: until when it may wait for what it started
    deadline: float = 0.0


_rounds: dict[int, _Round] = {}


@contextmanager
def watched(name: str, owner: str = "") -> Iterator[None]:
    """Watch this thread's progress while the block runs."""
    thread = threading.get_ident()
    _rounds[thread] = _Round(name, owner, time.monotonic())
    try:
        yield
    finally:
        del _rounds[thread]


@contextmanager
def waiting(limit_s: float) -> Iterator[None]:
    """Declare that this thread waits for something that takes at most `limit_s`."""
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
    """The names of unfinished rounds, of one owner or of all."""
    return [round_.name for round_ in list(_rounds.values()) if owner in (None, round_.owner)]


def stuck(limit_s: float, owner: str) -> str | None:
    """A round without progress for this long, not counting the time that it may wait: its name, or None."""
    now = time.monotonic()
    for round_ in list(_rounds.values()):
        if round_.owner == owner and now > max(round_.mark + limit_s, round_.deadline + limit_s):
            return round_.name
    return None


Found = TypeVar("Found")


class Aside(Generic[Found]):
    """Runs a function in its own thread and waits for it at the end: `with Aside(look) as found: ...`.

    The thread holds none of our locks. Do not wait for it while holding a lock that it takes. `limit_s`: how long it may
    take, for the progress watch.
    """

    def __init__(self, look: Callable[[], Found], limit_s: float = 60) -> None:
        self._look, self._limit_s = look, limit_s
        self._found: list[Found] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="aside", daemon=True)

    def __enter__(self) -> Self:
        with suppress(RuntimeError):  # cannot start a thread: `wait` runs it
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()

    def _run(self) -> None:
        try:
            self._found.append(self._look())
        except BaseException as error:
            self._error = error

    def wait(self) -> None:
        """Wait until it has ended, successfully or not; run it now if it was not started."""
        if self._thread.ident is None:
            self._run()
            return
        with waiting(self._limit_s):
            self._thread.join()

    def result(self) -> Found:
        """Its result; raises its error."""
        if not self._found and self._error is None:
            self.wait()
        if self._error is not None:
            raise self._error
        return self._found[0]
