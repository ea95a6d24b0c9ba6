"""Both directions of a program's pipes at once, with a limit to what it may say; `base/proc.py` starts it."""

import contextlib
import os
import selectors
import subprocess
import time
from collections.abc import Callable


class TooMuch(Exception):
    """A program printed more than it may."""


class Talk:
    """Feeds a program its input and takes what it prints, without waiting for either side alone."""

    def __init__(self, process: subprocess.Popen[bytes], input: bytes, most_bytes: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process, self._rest, self._most = process, memoryview(input), most_bytes
        self._said = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
        self._stdin = process.stdin
        self._pipes = selectors.DefaultSelector()
        for fd in self._said:
            os.set_blocking(fd, False)
            self._pipes.register(fd, selectors.EVENT_READ)
        os.set_blocking(self._stdin.fileno(), False)
        self._pipes.register(self._stdin.fileno(), selectors.EVENT_WRITE)

    def until(self, deadline: float, poll_s: float, look: Callable[[], None]) -> tuple[bytes, bytes]:
        """Everything it printed, once it has ended; an open pipe that somebody inherited is not waited for.

        `look` is called now and then, and may raise.
        """
        with self._pipes:
            ended = False
            while not ended:
                ended = self._process.poll() is not None
                self._exchange(0.0 if ended else min(poll_s, max(0.0, deadline - time.monotonic())))
                look()
                if not ended and time.monotonic() > deadline:
                    raise subprocess.TimeoutExpired("", 0)
        out, err = self._said.values()
        return bytes(out), bytes(err)

    def _exchange(self, wait_s: float) -> None:
        if not self._pipes.get_map():  # nothing will wake us but its end
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(wait_s)
        for key, _ in self._pipes.select(wait_s if self._pipes.get_map() else 0.0):
            if key.fd in self._said:
                self._take(key.fd)
            else:
                self._give()

    def _take(self, fd: int) -> None:
        while data := self._read(fd):
            self._said[fd] += data
            if len(self._said[fd]) > self._most:
                raise TooMuch

    def _read(self, fd: int) -> bytes:
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return b""
        if not data:
            self._pipes.unregister(fd)
        return data

    def _give(self) -> None:
        try:
            self._rest = self._rest[os.write(self._stdin.fileno(), self._rest[:65536]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # it does not want to hear more
            self._rest = self._rest[:0]
        if not self._rest:
            self._pipes.unregister(self._stdin.fileno())
            self._stdin.close()
