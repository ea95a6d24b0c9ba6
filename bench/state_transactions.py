"""Transactions of state.json with twenty workers, against a bare durable write of the same bytes."""

import multiprocessing
import statistics
import time
from pathlib import Path

from bench.fleets import fleet
from bench.measure import Row, clock_ms, interleave, row
from llmc.base.files import write_atomic
from llmc.records.store import Store
from llmc.repo.project import open_project

NAME = "state_transactions"
WORKERS = [f"worker-{number}" for number in range(1, 21)]
BATCH = 25
ROUNDS = 12


def run() -> list[Row]:
    with fleet("scripted", *WORKERS, up=None) as (made, project):
        data = project.root.state.read_bytes()
        times = interleave(
            {
                "floor": lambda: clock_ms(lambda: _write(made.dir / "floor.json", data)) / BATCH,
                "one process": lambda: clock_ms(lambda: _transactions(project.store)) / BATCH,
                "two processes": lambda: _together(str(made.root), 2),
            },
            ROUNDS,
        )
    floor_ms = statistics.median(times.pop("floor"))
    return [
        row(
            NAME,
            case,
            values,
            "write + fsync + rename",
            floor_ms,
            note=f"{1000 / statistics.median(values):.0f} transactions/s",
        )
        for case, values in times.items()
    ]


def _transactions(store: Store) -> None:
    for number in range(BATCH):
        with store.transaction() as tx:
            tx.update(WORKERS[number % len(WORKERS)], last_activity_unix=time.time())
            tx.emit("held", worker=WORKERS[0])


def _write(path: Path, data: bytes) -> None:
    for _ in range(BATCH):
        write_atomic(path, data)


def _together(root: str, count: int) -> float:
    """Milliseconds per transaction while several processes write."""
    context = multiprocessing.get_context("fork")
    start = context.Barrier(count + 1)
    processes = [context.Process(target=_one_of_many, args=(root, start)) for _ in range(count)]
    for process in processes:
        process.start()
    start.wait(30)
    began = time.perf_counter()
    for process in processes:
        process.join(60)
    elapsed_ms = (time.perf_counter() - began) * 1000
    assert all(process.exitcode == 0 for process in processes)
    return elapsed_ms / (BATCH * count)


def _one_of_many(root: str, start: "multiprocessing.synchronize.Barrier") -> None:
    store = open_project(root).store
    start.wait(30)
    _transactions(store)
