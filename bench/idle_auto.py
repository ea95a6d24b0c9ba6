"""Twenty auto workers without a task: the cost of an idle daemon."""

import time

import psutil

from bench.fleets import fleet
from bench.measure import Row

NAME = "idle_auto"
WORKERS = 20
SECONDS = 30.0
CORE_PERCENT = 1.0
MEGABYTES = 80.0


def run() -> list[Row]:
    with fleet("scripted", up=None) as (made, _):
        made.llmc("config", "set", "auto.task_list_id", "bench")
        made.llmc("config", "set", "auto.tasks_root", str(made.dir / "tasks"))
        made.up("--auto", "--concurrency", str(WORKERS))
        daemon = psutil.Process(made.daemon_pid())
        _wait_until_quiet(daemon)
        before = sum(daemon.cpu_times()[:4])
        time.sleep(SECONDS)
        used_ms = (sum(daemon.cpu_times()[:4]) - before) * 1000
        megabytes = daemon.memory_info().rss / 2**20
    seconds = Row(
        NAME,
        f"{WORKERS} workers, processor",
        1,
        used_ms,
        used_ms,
        f"{SECONDS:g} s of one core",
        SECONDS * 1000,
        CORE_PERCENT / 100,
    )
    memory = Row(
        NAME,
        f"{WORKERS} workers, memory (MB as ms)",
        1,
        megabytes,
        megabytes,
        "80 MB",
        MEGABYTES,
        1.0,
        note=f"{megabytes:.0f} MB",
    )
    return [seconds, memory]


def _wait_until_quiet(daemon: psutil.Process) -> None:
    """Wait until the startup work is over: a whole second costs next to nothing."""
    while True:
        before = sum(daemon.cpu_times()[:2])
        time.sleep(1)
        if sum(daemon.cpu_times()[:2]) - before < 0.05:
            return
