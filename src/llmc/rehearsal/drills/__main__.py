"""One drill in its own process: `python -m llmc.rehearsal.drills NAME DIRECTORY TERMS`, with a JSON report on stdout."""

import json
import signal
import sys
from pathlib import Path

import msgspec

from llmc.rehearsal.drills.model import Terms
from llmc.rehearsal.drills.run import run_here
from llmc.rehearsal.drills.table import DRILLS


def told_to_end(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, told_to_end)
    name, directory, chosen = sys.argv[1:]
    terms = msgspec.json.decode(chosen, type=Terms)
    print(json.dumps(run_here(DRILLS[name], Path(directory), terms).measured()))
