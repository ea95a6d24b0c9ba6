"""Find out whether this machine can contain an agent, by running a contained program."""

import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from llmc import launch
from llmc.base import proc
from llmc.base.clock import monotonic
from llmc.base.errors import LlmcError
from llmc.base.files import write_atomic
from llmc.hook_client import PORTABLE
from llmc.sandbox import rules, shown_programs
from llmc.sandbox.network import Network, for_holder
from llmc.sandbox.rules import Machine, Problem

PROBE_S = 20.0
#: a failure is tried again after this time
RETRY_S = 60.0
_CONTAINED = "contained"


def is_contained(
    wanted: Literal["auto", "on"], what: str = "the agent", key: str = "defaults.sandbox"
) -> bool:
    """Whether a program with this setting is contained; raises if it must be and cannot."""
    found = problem()
    if found is not None and wanted == "on":
        raise LlmcError(
            f"cannot contain {what}: {found.text}",
            hint=f"To fix this, {found.fix}. To continue without containment: llmc config set {key} off",
        )
    return found is None


#: what the last try found, and when
_tried: list[tuple[float, Problem | None]] = []


def problem() -> Problem | None:
    """Why agents cannot be contained here; None if they can. After a failure, tries again: the user may have fixed it."""
    if not _tried or (_tried[0][1] is not None and monotonic() - _tried[0][0] >= RETRY_S):
        machine = _machine()
        found = rules.problem_before(machine) or _problem_of_try(machine)
        _tried[:] = [(monotonic(), found)]
    return _tried[0][1]


def _problem_of_try(machine: Machine) -> Problem | None:
    """Run a program with the launcher that starts agents. It must not see our file, nor write to the system."""
    import tempfile  # takes 5 ms, and few commands need it

    with tempfile.TemporaryDirectory(prefix="llmc-probe-") as place:
        hidden, spec = Path(place, "hidden"), Path(place, "launch.json")
        hidden.touch()
        look = f'test ! -e "$1" && test ! -w /usr && test ! -w /proc/sys/kernel/core_pattern && echo {_CONTAINED}'
        python = map(rules.Mount, shown_programs.places("", sys.executable, ()))
        network = Network(hosts=(), endpoints=(), files=f"{place}/probe")
        payload = {
            "argv": ["/bin/sh", "-c", look, "sh", str(hidden)],
            "cwd": "/",
            "env": {"PATH": os.defpath},
            "sandbox": sandbox(
                rules.View((*system_mounts(), *python), links=system_links()), network=network
            ),
        }
        write_atomic(spec, json.dumps(payload).encode())
        argv = [sys.executable, "-I", "-S", launch.__file__, str(spec)]
        done = proc.run(argv, check=False, timeout_s=PROBE_S, env=proc.clean_env())
    if done.ok and _CONTAINED in done.stdout:
        return None
    return rules.problem_of_try(machine, (done.stdout + done.stderr).splitlines())


def sandbox(
    view: rules.View, pid_file: str = "", network: Network | None = None, *, has_terminal: bool = True
) -> dict[str, object]:
    """The part of a launch spec that contains the program (launch.py).

    Without `network` it can connect to nothing; without a terminal it cannot get one.
    """
    argv = [bubblewrap() or "bwrap", *rules.arguments(view), *([] if has_terminal else ["--new-session"])]
    found: dict[str, object] = {"argv": argv, "filter": call_filter().hex(), "pid_file": pid_file}
    return found if network is None else {**found, "network": for_holder(network)}


@contextmanager
def box(view: rules.View) -> Iterator[tuple[list[str], tuple[int, ...]]]:
    """The prefix of a command that runs without a holder or a network, and the descriptors that it must inherit."""
    ours, theirs = os.pipe()
    try:
        os.write(theirs, call_filter())  # small: it fits into the pipe
        os.close(theirs)
        yield [bubblewrap() or "bwrap", *rules.arguments(view), "--seccomp", str(ours), "--"], (ours,)
    finally:
        os.close(ours)


def call_filter() -> bytes:
    """The system call filter for this machine."""
    program = rules.call_filter(platform.machine())
    if program is None:
        raise LlmcError(f"cannot contain a program on {platform.machine()}")
    return program


def system_mounts(etc: Iterable[str] = rules.ETC) -> tuple[rules.Mount, ...]:
    """The system's own directories and files, read-only."""
    found = [path for path in rules.SYSTEM if os.path.isdir(path) and not os.path.islink(path)]
    files = [*(f"/etc/{name}" for name in etc), *rules.KERNEL]
    found += [path for path in files if os.path.exists(path)]
    return tuple(map(rules.Mount, found))


def system_links() -> tuple[tuple[str, str], ...]:
    return tuple((path, os.readlink(path)) for path in rules.SYSTEM if os.path.islink(path))


def bubblewrap() -> str | None:
    """The path of the program; None if it is not installed."""
    import shutil  # takes 2 ms, and few commands need it

    return shutil.which("bwrap")


def _machine() -> Machine:
    return Machine(
        system="this system" if PORTABLE and sys.platform == "linux" else platform.system(),
        processor=platform.machine(),
        has_bubblewrap=bubblewrap() is not None,
        in_container=any(os.path.exists(path) for path in ("/.dockerenv", "/run/.containerenv")),
        max_user_namespaces=_setting("user/max_user_namespaces"),
        unprivileged_userns_clone=_setting("kernel/unprivileged_userns_clone"),
        apparmor_restrict_unprivileged_userns=_setting("kernel/apparmor_restrict_unprivileged_userns"),
    )


def _setting(name: str) -> str:
    try:
        return Path("/proc/sys", name).read_text().strip()
    except OSError:
        return ""
