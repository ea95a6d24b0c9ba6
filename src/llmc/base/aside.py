"""Run a read-only probe in a thread, beside other work."""

import threading
from collections.abc import Callable
from typing import Generic, Self, TypeVar

from llmc.base import clock

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
        """Wait for its end, success or not; runs it now if it was not started."""
        if self._thread.ident is None:
            self._run()
            return
        with clock.waiting(self._limit_s):
            self._thread.join()

    def result(self) -> Found:
        """Its result; raises its error."""
        if not self._found and self._error is None:
            self.wait()
        if self._error is not None:
            raise self._error
        return self._found[0]
