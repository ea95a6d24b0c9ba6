"""`llmc status --json` with twenty workers up, against an interpreter that does nothing."""

import contextlib
import os
import statistics
from pathlib import Path

from bench.fleets import fleet, llmc, python
from bench.measure import Row, interleave, program_ms, row

NAME = "status_json"
TARGET = 6.0
ROUNDS = 40
WORKERS = [f"worker-{number}" for number in range(1, 21)]
PROMPT = "Explain what this line of the prompt is for, at some length.\n" * 33


def run() -> list[Row]:
    with fleet("scripted", *WORKERS) as (made, _):
        for worker in WORKERS[::2]:
            made.llmc("start", "--worker", worker, "--prompt", PROMPT)
            made.wait(worker, "needs_input")
        view = made.llmc("status", "--json").json
        assert all(w["status"] in ("idle", "needs_input") for w in view["workers"])
        assert view["daemon"]["running"]
        env = dict(os.environ)
        status = [llmc(), "status", "--json"]

        def status_in(directory: Path) -> float:
            with contextlib.chdir(directory):
                return program_ms(status, env)

        times = interleave(
            {
                "floor": lambda: program_ms([python(), "-c", "pass"], env),
                "in the root": lambda: status_in(made.root),
                "in the source": lambda: status_in(made.source),
            },
            ROUNDS,
        )
    floor_ms = statistics.median(times.pop("floor"))
    return [
        row(NAME, "in the root", times["in the root"], "python -c pass", floor_ms, target=TARGET),
        row(
            NAME,
            "in the source",
            times["in the source"],
            "python -c pass",
            floor_ms,
            note="asks git for the root",
        ),
    ]
