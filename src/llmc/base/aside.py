"""A look that runs beside us: programs that only read, and do not need each other's answers."""

import threading
from collections.abc import Callable
from typing import Generic, Self, TypeVar

from llmc.base import clock

Found = TypeVar("Found")


class Aside(Generic[Found]):
    """Runs a function in a thread of its own, and ends no earlier than it: `with Aside(look) as found: ...`.

    The thread holds none of our locks. Do not wait for it while holding a lock that it takes. `limit_s`: so long it may
    take, for those who watch whether we make progress.
    """

    def __init__(self, look: Callable[[], Found], limit_s: float = 60) -> None:
        self._look, self._limit_s = look, limit_s
        self._found: list[Found] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="aside", daemon=True)

    def __enter__(self) -> Self:
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
        """Until it has ended, well or not; one that nobody began runs now."""
        if self._thread.ident is None:
            self._run()
            return
        with clock.waiting(self._limit_s):
            self._thread.join()

    def result(self) -> Found:
        """What it found; its error is raised here."""
        if not self._found and self._error is None:
            self.wait()
        if self._error is not None:
            raise self._error
        return self._found[0]
