"""The event loop's plumbing: wake-ups from other threads and signals, and the worker thread.

Nothing here wakes up by itself: an idle agent costs nothing.
"""

import os
import select
import signal
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

Function = Callable[[], None]

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGWINCH)
BUG_EXIT_CODE = 70


class Wakeups:
    """A pipe that ends the loop's wait; it carries the numbers of the signals that arrived."""

    def __init__(self) -> None:
        self.fd, self._write_fd = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write_fd, False)
        self._posted: SimpleQueue[Function] = SimpleQueue()

    def catch_signals(self) -> None:
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, lambda *_: None)

    def post(self, function: Function) -> None:
        """Run the function in the event loop; callable from any thread."""
        self._posted.put(function)
        try:
            os.write(self._write_fd, b"\0")
        except BlockingIOError:
            pass  # full of wake-ups: it wakes anyway

    def run_posted(self) -> list[int]:
        """Run what was posted; returns the signals that arrived."""
        try:
            arrived = os.read(self.fd, 65536)
        except BlockingIOError:
            arrived = b""
        while True:
            try:
                self._posted.get_nowait()()
            except Empty:
                return [number for number in arrived if number]

    def wait(self, in_fd: int, timeout_s: float | None) -> tuple[bool, bool]:
        """Block until there is input, a wake-up or the timeout: (input, wake-up)."""
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        if in_fd >= 0:
            poll.register(in_fd, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(None if timeout_s is None else max(0.0, timeout_s) * 1000)}
        return in_fd in ready, self.fd in ready


class Worker:
    """One thread that runs jobs in order, so that the loop always answers to keys."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Function] = SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def give(self, job: Function) -> None:
        self._jobs.put(job)

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job()
            except BaseException:
                import traceback  # 4 ms that a start does not need

                traceback.print_exc()  # a bug of ours: visible, and not a hang
                os._exit(BUG_EXIT_CODE)
