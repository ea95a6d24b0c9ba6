"""A wrong clock for one root of a test: every program it starts sees it, and it can be set while they run."""

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from tests.support.fleet import Fleet

SOURCE = Path(__file__).with_suffix(".c")


def set_clock(fleet: Fleet, offset_s: int) -> None:
    """The clock is wrong by this much from now on. The first call must come before anything runs."""
    file, library = fleet.dir / "clock", fleet.dir / "clock.so"
    if not library.exists():
        _compile(library)
        file.write_bytes(bytes(8))
        fleet.env |= {"LD_PRELOAD": str(library), "LLMC_TEST_CLOCK": str(file)}
    with file.open("r+b") as offset:  # mapped by running programs
        offset.write(struct.pack("q", offset_s))


def _compile(library: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("NO C COMPILER: a wrong clock was NOT tried; install gcc")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE], check=True)
