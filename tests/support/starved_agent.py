"""The scripted agent as on a starved machine: while a file exists it reads no keys,
and once the file says so it is not idle either.
"""

import sys
import time
from pathlib import Path

from llmc.agents.scripted.__main__ import main
from llmc.agents.scripted.screen import Terminal

#: in the file: wide awake, like a process that waits for a processor
AWAKE = "awake"


def write(program: Path, starved: Path) -> None:
    """A program for LLMC_AGENT; the file `starved` keeps it from reading its keys."""
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
        f"from tests.support.starved_agent import run\nrun({str(starved)!r})\n"
    )
    program.chmod(0o755)


def run(starved: str) -> None:
    read = Terminal.read

    def read_later(terminal: Terminal) -> bytes | None:
        while (wanted := _content(Path(starved))) is not None:
            if wanted != AWAKE:
                time.sleep(0.02)
        return read(terminal)

    Terminal.read = read_later  # type: ignore[method-assign]
    sys.exit(main(sys.argv[1:]))


def _content(path: Path) -> str | None:
    try:
        return path.read_text()
    except FileNotFoundError:
        return None
