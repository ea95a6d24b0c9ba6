"""Interleaved timing, its statistics, and the row of a benchmark."""

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Timer = Callable[[], float]

#: maximum time of `python -c pass` on an idle machine
QUIET_MS = 15.0


@dataclass(frozen=True)
class Row:
    """One measured case: times in milliseconds, judged against its floor."""

    bench: str
    case: str
    runs: int
    median_ms: float
    p95_ms: float
    floor: str
    floor_ms: float
    #: maximum of the measured time, as a multiple of the floor; None: reported only
    target: float | None = None
    judged: str = "median"
    note: str = ""
    #: how much slower the machine was than an idle one; only a limit in milliseconds allows for it
    slower: float = 1.0

    @property
    def ratio(self) -> float:
        return (self.p95_ms if self.judged == "p95" else self.median_ms) / self.floor_ms

    @property
    def ok(self) -> bool:
        return self.target is None or self.ratio <= self.target * self.slower


def row(
    bench: str,
    case: str,
    times_ms: Sequence[float],
    floor: str,
    floor_ms: float,
    *,
    target: float | None = None,
    judged: str = "median",
    note: str = "",
    pace_ms: Sequence[float] = (),
) -> Row:
    """`pace_ms`: time of `python -c pass` in the same run, for a limit in milliseconds, which has no floor."""
    middle, high = statistics.median(times_ms), p95(times_ms)
    slower = 1.0
    if pace_ms:
        pace = p95(pace_ms) if judged == "p95" else statistics.median(pace_ms)
        slower = max(1.0, pace / QUIET_MS)
        note = "; ".join(filter(None, (note, f"python -c pass beside it: {pace:.0f} ms")))
    return Row(bench, case, len(times_ms), middle, high, floor, floor_ms, target, judged, note, slower)


def p95(values: Sequence[float]) -> float:
    """The value that 95 % do not exceed (nearest rank)."""
    return sorted(values)[math.ceil(0.95 * len(values)) - 1]


def interleave(cases: Mapping[str, Timer], rounds: int, *, warm_up: int = 2) -> dict[str, list[float]]:
    """Times of all cases, measured in turns, so that noise affects all of them equally.

    Every round starts with another case, so that side effects are spread too.
    """
    times: dict[str, list[float]] = {name: [] for name in cases}
    order = list(cases)
    for number in range(-warm_up, rounds):
        order = [*order[1:], order[0]]
        for name in order:
            elapsed_ms = cases[name]()
            if number >= 0:
                times[name].append(elapsed_ms)
    return times


def clock_ms(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1000


def program_ms(argv: Sequence[str], env: Mapping[str, str], stdin: bytes = b"") -> float:
    """From spawn to exit of a program that gets `stdin` (at most a pipe's worth) and whose output is dropped."""
    read_end, write_end = os.pipe()
    os.write(write_end, stdin)
    os.close(write_end)
    sink = os.open(os.devnull, os.O_WRONLY)
    actions = [(os.POSIX_SPAWN_DUP2, read_end, 0), (os.POSIX_SPAWN_DUP2, sink, 1)]
    try:
        began = time.perf_counter()
        pid = os.posix_spawn(argv[0], list(argv), env, file_actions=actions)
        _, code = os.waitpid(pid, 0)
        elapsed_ms = (time.perf_counter() - began) * 1000
    finally:
        os.close(read_end)
        os.close(sink)
    if code:
        raise RuntimeError(f"{' '.join(argv)} exited with code {os.waitstatus_to_exitcode(code)}")
    return elapsed_ms
