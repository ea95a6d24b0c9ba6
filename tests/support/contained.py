"""For tests of containment: skipped, with the reason, where this machine cannot contain a program."""

import json
import os
import platform
import shutil
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
    place: Path, argv: Sequence[str], *mounts: Mount, stdin: int = subprocess.DEVNULL, user: int | None = None
) -> "subprocess.Popen[str]":
    """A program that the launcher holds, with `place` as its working directory, which it may write.

    `user`: run it as this user, with the system's Python, because ours may be in a home that it cannot read.
    """
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
    launcher, python = Path(launch.__file__), sys.executable
    if user is not None:
        launcher, python = Path(shutil.copy(launcher, place.parent)), "/usr/bin/python3"
        for path in (place.parent, *place.parent.rglob("*")):
            os.chown(path, user, user)
    return subprocess.Popen(
        [python, "-I", "-S", str(launcher), str(spec)],
        stdin=stdin,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
