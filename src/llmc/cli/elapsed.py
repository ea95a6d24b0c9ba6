"""Steps that may take long: on a terminal, a line of standard error counts their seconds."""

import threading
import time
from typing import Self

from llmc.cli.output import before_next, draw_line, end_line, is_terminal, note


class Elapsed:
    """A step with its line. `keep`: show the line at once and leave it; else show it after a second and remove it."""

    def __init__(self, text: str, *, keep: bool = False) -> None:
        self._text, self._keep, self._began = text, keep, time.monotonic()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._is_shown = False

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def begin(self) -> None:
        if not is_terminal(err=True):
            if self._keep:
                note(f"{self._text} ...")
            return
        before_next(self.end)
        if self._keep:
            self._draw()
        threading.Thread(target=self._count, name="elapsed", daemon=True).start()

    def _count(self) -> None:
        while not self._ended.wait(1):
            with self._lock:
                if not self._ended.is_set():
                    self._draw()

    def _draw(self) -> None:
        passed = int(time.monotonic() - self._began)
        self._is_shown = True
        draw_line(f"{self._text} ...{f' {passed}s' if passed else ''}")

    def end(self) -> None:
        """End the line; any other output ends it, too."""
        with self._lock:
            if self._is_shown and not self._ended.is_set():
                end_line(keep=self._keep)
            self._ended.set()
