"""The output of a program that runs agents' code: it gets a pipe, and llmc writes the log.

With the log itself as its output, it could change what is there, or let it grow until the disk is full.
"""

import os
import selectors
import time
from collections.abc import Callable
from typing import IO, BinaryIO

from llmc.base.files import explain

#: how much is kept of the beginning and of the end of one command's output
MOST_OF_START, MOST_OF_END = 63 << 20, 1 << 20
#: how much is read before anything else is looked at; no pipe holds more
_MOST_AT_ONCE = 1 << 20
_BLOCK = 1 << 16


class Captured:
    """Reads the pipe of a program, and appends to a log what is kept."""

    def __init__(self, pipe: IO[bytes], log: BinaryIO, ended: Callable[[float], int | None]) -> None:
        """`ended` waits so long for the end of the program, and returns its exit code; None if it runs."""
        self._pipe, self._log, self._ended = pipe, log, ended
        self._room, self._left_out = MOST_OF_START, 0
        self._end = bytearray()
        self._is_open = True
        os.set_blocking(self._pipe.fileno(), False)

    def until(self, timeout_s: float, poll_s: float, look: Callable[[], None]) -> int | None:
        """Its exit code, None if it takes too long. Does not wait for a process that it left running.

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
        """Write what is still in the pipe, and what was kept of the end."""
        with self._pipe:
            self._read()
        if self._left_out or len(self._end) > MOST_OF_END:
            self._trim()
            self._write(f"\n(llmc: {self._left_out:,} bytes of the output are left out here)\n".encode())
        self._write(self._end)

    def _wait(self, ready: selectors.BaseSelector, wait_s: float) -> None:
        if not self._is_open:  # only its end wakes us
            self._ended(wait_s)
        elif ready.select(wait_s):
            self._read()

    def _read(self) -> None:
        """What there is; not more than a pipe holds, for it may be filled all the time."""
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
