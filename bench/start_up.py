"""The cost of fast commands with fifty workers, against an interpreter that does nothing."""

import os
import statistics
from functools import partial

from bench.fleets import fleet, llmc, python
from bench.measure import Row, interleave, program_ms, row

NAME = "start_up"
ROUNDS = 25
WORKERS = [f"worker-{number}" for number in range(1, 51)]
#: every tenth worker has a commit to review
WITH_WORK = WORKERS[::10]
WORK = "@sh echo {0} > {0}.txt; git add {0}.txt; git -c user.name=W -c user.email=w@e commit -qm {0}"
#: the maximum for each, as a multiple of the floor
TARGETS = {("--version",): 4.0, ("--help",): 6.0, ("status",): 10.0, ("status", "--json"): 4.5}
#: what `llmc accept` imports before it does anything
IMPORTS = "import llmc.cli.app, llmc.cli.accepting"


def run() -> list[Row]:
    with fleet("scripted", *WORKERS) as (made, _):
        for worker in WITH_WORK:
            made.llmc("start", "--worker", worker, "--prompt", WORK.format(worker))
        for worker in WITH_WORK:
            made.wait(worker, "needs_review")
        programs = {f"llmc {' '.join(args)}": [llmc(), *args] for args in TARGETS}
        programs |= {"floor": [python(), "-c", "pass"], "imports of accept": [python(), "-c", IMPORTS]}
        env = dict(os.environ)
        times = interleave({case: partial(program_ms, argv, env) for case, argv in programs.items()}, ROUNDS)
    floor_ms = statistics.median(times.pop("floor"))
    targets = {f"llmc {' '.join(args)}": target for args, target in TARGETS.items()}
    return [
        row(NAME, case, found, "python -c pass", floor_ms, target=targets.get(case))
        for case, found in times.items()
    ]
