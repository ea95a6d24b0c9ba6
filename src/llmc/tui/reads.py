"""Tracks the diffs that threads read for the screen, and which one the user has seen."""

import threading
from collections.abc import Callable

#: longest time that an accept waits for diffs that are being read
READ_S = 10.0


class Reads:
    """The diffs being read. The read that began last decides what the user has seen, whichever thread ends last."""

    def __init__(self) -> None:
        self.begun = self._counted = 0
        self._open: set[int] = set()
        self._changed = threading.Condition()
        self._remembering = threading.Lock()

    def begin(self) -> int:
        with self._changed:
            self.begun += 1
            self._open.add(self.begun)
            return self.begun

    def end(self, read: int, remember: Callable[[], bool] | None) -> None:
        """End a read. `remember` returns whether it counts as a review; an earlier read never replaces a later one."""
        try:
            with self._remembering:
                if remember is not None and read > self._counted and remember():
                    self._counted = read
        finally:
            with self._changed:
                self._open.discard(read)
                self._changed.notify_all()

    def wait(self) -> None:
        """Wait until all open reads have ended: only then is it known what the user has seen."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open, READ_S)
