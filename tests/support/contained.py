"""For containment tests: skipped, with the reason, where this machine cannot contain a program."""

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
from llmc.sandbox import probe, shown_programs
from llmc.sandbox.network import Network, environment
from llmc.sandbox.rules import Mount, View

_PROBLEM = probe.problem()
needs_bubblewrap = pytest.mark.skipif(
    _PROBLEM is not None, reason=f"{_PROBLEM.text}: {_PROBLEM.fix}" if _PROBLEM else ""
)


#: the modules of llmc that run beside a contained program
_RUNS_ALONE = (
    *("__init__.py", "launch.py", "base/__init__.py", "base/hosts.py"),
    *("sandbox/__init__.py", "sandbox/box_entry.py", "sandbox/proxy.py", "sandbox/reaching.py"),
)


def held(
    place: Path,
    argv: Sequence[str],
    *mounts: Mount,
    stdin: int = subprocess.DEVNULL,
    user: int | None = None,
    network: Network | None = None,
) -> "subprocess.Popen[str]":
    """A program that the launcher holds, with `place` as its writable working directory.

    `user`: run it as this user, with a copy of llmc and the system's Python,
    because ours may be in a home that this user cannot read.
    """
    assert platform.system() == "Linux"
    package, python = Path(launch.__file__).parent, sys.executable
    shown = [*mounts, *map(Mount, shown_programs.places("", python, []) if network and user is None else ())]
    view = View((*probe.system_mounts(), Mount(str(place), True), *shown), links=probe.system_links())
    spec = place.parent / f"{place.name}.launch.json"
    payload = {
        "argv": list(argv),
        "cwd": str(place),
        "env": {"PATH": "/usr/bin:/bin", "HOME": str(place), **(environment(network) if network else {})},
        "sandbox": probe.sandbox(view, str(place.parent / f"{place.name}.pid"), network),
    }
    text = json.dumps(payload)
    if user is not None:
        copied = place / "llmc"
        for name in _RUNS_ALONE:
            (copied / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(package / name, copied / name)
        text = text.replace(python, "/usr/bin/python3").replace(str(package.parent), str(place))
        package, python = copied, "/usr/bin/python3"
    spec.write_text(text)
    if user is not None:
        for path in (place.parent, *place.parent.rglob("*")):
            os.chown(path, user, user)
    return subprocess.Popen(
        [python, "-I", "-S", str(package / "launch.py"), str(spec)],
        stdin=stdin,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
