"""Capture the output of a program that runs agents' code: the program gets a pipe, and llmc writes the log.

If the program wrote to the log itself, it could change what is there, or fill the disk.
"""

import os
import selectors
import time
from collections.abc import Callable
from typing import IO, BinaryIO

from llmc.base.files import explain

#: how many bytes are kept from the start and from the end of one command's output
MOST_OF_START, MOST_OF_END = 63 << 20, 1 << 20
#: how much to read before checking anything else; no pipe holds more
_MOST_AT_ONCE = 1 << 20
_BLOCK = 1 << 16


class Captured:
    """Reads a program's pipe, and appends what is kept to a log."""

    def __init__(self, pipe: IO[bytes], log: BinaryIO, ended: Callable[[float], int | None]) -> None:
        """`ended` waits up to that many seconds for the program to exit; returns its exit code, or None."""
        self._pipe, self._log, self._ended = pipe, log, ended
        self._room, self._left_out = MOST_OF_START, 0
        self._end = bytearray()
        self._is_open = True
        os.set_blocking(self._pipe.fileno(), False)

    def until(self, timeout_s: float, poll_s: float, look: Callable[[], None]) -> int | None:
        """The program's exit code; None if it takes too long. Does not wait for processes that it left running.

        `look` is called periodically and may raise.
        """
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as ready:
            ready.register(self._pipe, selectors.EVENT_READ)
            while (code := self._ended(0.0)) is None:
                look()
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    break
                self._wait(ready, min(poll_s, left_s))
        return code

    def finish(self) -> None:
        """Write what is still in the pipe, and the end of the output that was held back."""
        with self._pipe:
            self._read()
        if self._left_out or len(self._end) > MOST_OF_END:
            self._trim()
            self._write(f"\n(llmc: {self._left_out:,} bytes of the output are left out here)\n".encode())
        self._write(self._end)

    def _wait(self, ready: selectors.BaseSelector, wait_s: float) -> None:
        if not self._is_open:  # the program closed its output: wait for it to exit
            self._ended(wait_s)
        elif ready.select(wait_s):
            self._read()

    def _read(self) -> None:
        """Read what is there, but no more than a pipe holds: the program may fill it all the time."""
        for _ in range(_MOST_AT_ONCE // _BLOCK):
            try:
                data = os.read(self._pipe.fileno(), _BLOCK)
            except BlockingIOError:
                return
            if not data:
                self._is_open = False
                return
            self._keep(data)

    def _keep(self, data: bytes) -> None:
        start, rest = data[: self._room], data[self._room :]
        self._room -= len(start)
        self._write(start)
        self._end += rest
        if len(self._end) > 2 * MOST_OF_END:
            self._trim()

    def _write(self, data: bytes | bytearray) -> None:
        try:
            self._log.write(data)
            self._log.flush()
        except OSError as error:
            raise explain(error, f"cannot write {self._log.name}") from error

    def _trim(self) -> None:
        gone = len(self._end) - MOST_OF_END
        self._left_out += gone
        del self._end[:gone]
