"""Processes, found by the marks llmc gave them; a pid alone is never trusted."""

import os
import signal
import time
from collections.abc import Callable

from llmc.hook_client import lineage


def leftovers(instance: str) -> list[int]:
    """Tool children of an agent launch that outlived it: our uid, its mark, and the client's child mark."""
    if not instance:
        return []
    wanted = f"LLMC_INSTANCE={instance}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            variables = _environ(int(entry))
            if wanted in variables and any(v.startswith(b"CLAUDE_CODE_CHILD_SESSION=") for v in variables):
                found.append(int(entry))
    return found


def marked(name: str, value: str) -> list[int]:
    """Our processes that were started with this environment variable, and what they started."""
    wanted = f"{name}={value}".encode()
    others = (int(entry) for entry in os.listdir("/proc") if entry.isdigit() and int(entry) != os.getpid())
    return [pid for pid in others if wanted in _environ(pid)]


def environment(pid: int) -> dict[str, str]:
    """The variables a process of ours was started with; empty when they cannot be read."""
    pairs = (entry.decode(errors="surrogateescape").partition("=") for entry in _environ(pid) if entry)
    return {name: value for name, _, value in pairs}


def works_in(directory: str) -> list[int]:
    """Processes whose working directory is this one or below, or that have a file below it open."""
    inside = directory.rstrip("/") + "/"
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and any(f"{path}/".startswith(inside) for path in _places(entry)):
            found.append(int(entry))
    return found


def name_of(pid: int) -> str:
    """The program's name, as the kernel keeps it; "" for a process that is gone."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def ancestors(pid: int) -> list[int]:
    """The parents of a process, nearest first."""
    return [kin[0] for kin in lineage(pid)[1:]]


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def waits_for_a_turn(pid: int) -> bool:
    """Whether a process has something to do that the machine, or a stop signal, does not let it do now."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] in (b"R", b"T", b"t", b"D")
    except OSError:
        return False


def began_unix(pid: int) -> float | None:
    """When a process began; None for one that does not run, a zombie too."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        with open("/proc/stat", "rb") as file:
            booted = next(int(line.split()[1]) for line in file if line.startswith(b"btime "))
    except (OSError, StopIteration):
        return None
    return None if fields[0] == b"Z" else booted + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def terminate(pid: int, *, grace_s: float) -> None:
    """SIGTERM, and SIGKILL for what is still there after the grace."""
    _signal(pid, signal.SIGTERM)
    if not wait_until(lambda: not is_alive(pid), grace_s):
        _signal(pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(pid), 2)


def command_of(pid: int) -> str:
    """The command line of a process; empty when it is gone."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def end_all(pids: list[int], *, grace_s: float) -> list[int]:
    """SIGTERM to each, SIGKILL to what is still there after the grace; the pids that live on all the same."""
    for pid in pids:
        _signal(pid, signal.SIGTERM)
    wait_until(lambda: not any(map(is_alive, pids)), grace_s)
    kill([pid for pid in pids if is_alive(pid)])
    wait_until(lambda: not any(map(is_alive, pids)), 2)
    return [pid for pid in pids if is_alive(pid)]


def kill(pids: list[int]) -> None:
    for pid in pids:
        _signal(pid, signal.SIGKILL)


def wait_until(condition: Callable[[], bool], timeout_s: float, *, interval_s: float = 0.01) -> bool:
    """Wait for something to become true; whether it did."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(interval_s)
    return True


def _environ(pid: int) -> list[bytes]:
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.getuid():
            return []
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def _places(pid: str) -> list[str]:
    """Working directory and open files; none of a process that is gone or not ours."""
    found = []
    try:
        links = [f"/proc/{pid}/cwd", *(f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd"))]
    except OSError:
        return []
    for link in links:
        try:
            found.append(os.readlink(link))
        except OSError:
            continue
    return found


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
