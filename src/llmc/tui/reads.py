"""Diffs that threads read for the screen: which of them the user has seen."""

import threading
from collections.abc import Callable

#: an accept waits no longer for a diff that is being read
READ_S = 10.0


class Reads:
    """The diffs that are being read, in threads. What was read last is what the user has seen, whichever thread ends last."""

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
        """`remember` tells whether it counts as a review; an earlier one does not replace a later one."""
        try:
            with self._remembering:
                if remember is not None and read > self._counted and remember():
                    self._counted = read
        finally:
            with self._changed:
                self._open.discard(read)
                self._changed.notify_all()

    def wait(self) -> None:
        """Until those that were begun have ended: only then is known what the user has seen."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open, READ_S)
