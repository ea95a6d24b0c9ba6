"""The interactive screen with thirty workers at work: its first frame, the time from a key to its paint, and its cost.

The workers print a line every half second, as agents do.
The floor of the first frame is a textual app that shows one line.
"""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from statistics import median

import psutil

from bench.fleets import fleet, llmc, pace_ms, python
from bench.measure import Row, interleave, row

NAME = "screen"
WORKERS = [f"worker-{number}" for number in range(1, 31)]
WORK = "@sh for i in $(seq 2000); do echo line $i; sleep 0.5; done"
ROUNDS = 7
KEYS = 60
KEY_MS = 100.0
CORE_PERCENT = 10.0
SECONDS = 20.0
EMPTY = """
from textual.app import App
from textual.widgets import Static
class Empty(App):
    def compose(self):
        yield Static("EMPTY APP")
Empty().run()
"""


def run() -> list[Row]:
    with fleet("scripted", *WORKERS) as (made, _):
        for worker in WORKERS:
            made.llmc("start", "--worker", worker, "--prompt", WORK)
        shows = [llmc(), "--root", str(made.root), "ui"]
        times = interleave(
            {
                "screen": lambda: _first_frame(shows, b"WORKING"),
                "empty": lambda: _first_frame([python(), "-c", EMPTY], b"EMPTY"),
            },
            ROUNDS,
        )
        frame = row(
            NAME, "first frame", times["screen"], "an empty textual app", median(times["empty"]), target=1.5
        )
        with _terminal(shows) as (screen, process):
            _wait_for(screen, b"WORKING")
            _settle(screen)
            paints = [_key_to_paint(screen, b"j" if number % 40 < 20 else b"k") for number in range(KEYS)]
            used_ms = _processor_ms(screen, process)
        pace = [pace_ms() for _ in range(5)]
    key = row(NAME, "key to paint", paints, "100 ms", KEY_MS, target=1.0, judged="p95", pace_ms=pace)
    cost = Row(
        NAME,
        "processor, watching one screen",
        1,
        used_ms,
        used_ms,
        f"{SECONDS:g} s of one core",
        SECONDS * 1000,
        CORE_PERCENT / 100,
    )
    return [frame, key, cost]


@contextlib.contextmanager
def _terminal(argv: list[str]) -> Iterator[tuple[int, psutil.Process]]:
    """A program on a 120 x 36 terminal: the other end, and its process."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 36, 120, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8"}
    begun = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True)
    os.close(slave)
    try:
        yield master, psutil.Process(begun.pid)
    finally:
        begun.send_signal(signal.SIGTERM)
        with contextlib.suppress(OSError):
            while begun.poll() is None:
                _read(master, 0.1)
        begun.wait(30)
        os.close(master)


def _first_frame(argv: list[str], text: bytes) -> float:
    began = time.perf_counter()
    with _terminal(argv) as (screen, _):
        _wait_for(screen, text)
        return (time.perf_counter() - began) * 1000


def _wait_for(screen: int, text: bytes) -> None:
    shown, deadline = b"", time.monotonic() + 60
    while text not in shown:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{text!r} was not shown")
        shown += _read(screen, 1.0)


def _settle(screen: int) -> None:
    """Wait until the first captures are drawn."""
    until = time.monotonic() + 3
    while time.monotonic() < until:
        _read(screen, 0.2)


def _key_to_paint(screen: int, key: bytes) -> float:
    """From a key press to the first paint that marks another row."""
    while _read(screen, 0.05):
        pass
    began = time.perf_counter()
    os.write(screen, key)
    shown = b""
    while b">" not in shown:
        part = _read(screen, 2.0)
        if not part:
            raise RuntimeError("a key was not answered")
        shown += part
    return (time.perf_counter() - began) * 1000


def _processor_ms(screen: int, process: psutil.Process) -> float:
    before, until = _used(process), time.monotonic() + SECONDS
    while time.monotonic() < until:
        _read(screen, 0.2)
    return (_used(process) - before) * 1000


def _used(process: psutil.Process) -> float:
    """Including the programs that it started and waited for."""
    return sum(process.cpu_times()[:4])


def _read(screen: int, timeout_s: float) -> bytes:
    ready, _, _ = select.select([screen], [], [], timeout_s)
    return os.read(screen, 65536) if ready else b""
