"""For tests of containment: skipped, with the reason, where this machine cannot contain a program."""

import json
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from llmc import launch
from llmc.sandbox import probe
from llmc.sandbox.rules import Mount, View

_PROBLEM = probe.problem()
needs_bubblewrap = pytest.mark.skipif(
    _PROBLEM is not None, reason=f"{_PROBLEM.text}: {_PROBLEM.fix}" if _PROBLEM else ""
)


def held(
    place: Path, argv: Sequence[str], *mounts: Mount, stdin: int = subprocess.DEVNULL
) -> "subprocess.Popen[str]":
    """A program that the launcher holds, with `place` as its working directory, which it may write."""
    assert platform.system() == "Linux"
    view = View((*probe.system_mounts(), Mount(str(place), True), *mounts), links=probe.system_links())
    spec = place.parent / f"{place.name}.launch.json"
    payload = {
        "argv": list(argv),
        "cwd": str(place),
        "env": {"PATH": "/usr/bin:/bin", "HOME": str(place)},
        "sandbox": probe.sandbox(view, str(place.parent / f"{place.name}.pid")),
    }
    spec.write_text(json.dumps(payload))
    return subprocess.Popen(
        [sys.executable, "-I", "-S", launch.__file__, str(spec)],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
