"""`python -m bench [NAME ...]`: measure, print a table, save the numbers; exit 1 if a target is missed."""

import argparse
import json
import signal
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path

from bench import (
    accept,
    auto_throughput,
    contained,
    fleet,
    fleet_landing,
    goals,
    growth,
    hook_sender,
    hook_to_state,
    idle_auto,
    report,
    screen,
    slot,
    start_up,
    state_transactions,
    status_json,
    submit_receipt,
    task_rescan,
    web,
    worktree_reset,
)
from bench.machine import machine
from bench.measure import Row

BENCHES = {
    module.NAME: module.run
    for module in (
        hook_sender,
        status_json,
        start_up,
        submit_receipt,
        hook_to_state,
        state_transactions,
        accept,
        worktree_reset,
        slot,
        contained,
        auto_throughput,
        fleet_landing,
        task_rescan,
        idle_auto,
        goals,
        fleet,
        growth,
        screen,
        web,
    )
}
RESULTS = Path(__file__).parent / "results"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHES))
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--markdown", action="store_true", help="print the table for docs/benchmarks.md")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a fleet stops with us
    for name in options.names:
        if name not in BENCHES:
            parser.error(f"unknown benchmark {name!r}; choose from {', '.join(BENCHES)}")
    now = datetime.now(UTC)
    where = machine()
    rows, broken = _run(options.names or list(BENCHES))
    body = json.dumps(report.as_json(now.isoformat(timespec="seconds"), where, rows), indent=1)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{now:%Y-%m-%d-%H%M%S}.json").write_text(body + "\n")
    if options.json:
        print(body)
    elif options.markdown:
        print(report.markdown(f"{now:%Y-%m-%d}", where, rows))
    else:
        print(report.table(rows))
    return 1 if broken or not all(row.ok for row in rows) else 0


def _run(names: list[str]) -> tuple[list[Row], bool]:
    """The rows of the named benchmarks; a failed one does not stop the others."""
    rows: list[Row] = []
    broken = False
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            rows += BENCHES[name]()
        except Exception:
            traceback.print_exc()
            broken = True
    return rows, broken


if __name__ == "__main__":
    sys.exit(main())
