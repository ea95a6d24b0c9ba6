"""One drill in its own process: `python -m llmc.rehearsal.drills NAME DIRECTORY SEED SECONDS`, with a JSON report on stdout."""

import json
import signal
import sys
from pathlib import Path

from llmc.rehearsal.drills.model import Chance
from llmc.rehearsal.drills.run import run_here
from llmc.rehearsal.drills.table import DRILLS


def told_to_end(*_: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, told_to_end)
    name, directory, seed, lasts_s = sys.argv[1:]
    chance = Chance(int(seed), float(lasts_s))
    print(json.dumps(run_here(DRILLS[name], Path(directory), chance).measured()))
