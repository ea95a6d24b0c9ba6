"""Processes, found by llmc's marks; a pid alone is never trusted and never signalled."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from llmc import hook_client
from llmc.hook_client import PORTABLE, Kin

if PORTABLE:
    from llmc.base import portable


#: the kernel's name for bubblewrap, which contains other programs
BUBBLEWRAP = "bwrap"


class Process(NamedTuple):
    """The identity of a process: its pid may be reused, but not with the same start time."""

    pid: int
    #: when it started, in the kernel's ticks
    ticks: str

    @property
    def is_alive(self) -> bool:
        return start_of(self.pid) == self.ticks


def identify(pid: int, *, parent: int | None = None) -> Process | None:
    """The process with this pid; None if there is none, or it is not a child of `parent`."""
    ticks = start_of(pid)
    if ticks is None or (parent is not None and parent not in ancestors(pid)[:1]):
        return None
    return Process(pid, ticks)


def start_of(pid: int) -> str | None:
    """When a process started, in the kernel's ticks; None if it is not running or a zombie."""
    found = _state(pid)
    return None if found is None or found[0] == "Z" else found[1]


class Seen(NamedTuple):
    """A running process, as seen in a list of all."""

    parent: int
    session: int
    ticks: str


def marked(name: str, value: str) -> list[Process]:
    """Our processes started with this environment variable, and their descendants."""
    return marked_among_all(name, value)[0]


def marked_among_all(name: str, value: str) -> tuple[list[Process], dict[int, Seen]]:
    """The processes that `marked` returns, and all that were running then."""
    wanted = f"{name}={value}".encode()
    found, everyone = [], {}
    for pid in _pids():
        one = _seen(pid)  # first, so that a later owner of the pid is not signalled
        if one is None:
            continue
        everyone[pid] = one
        if pid != os.getpid() and wanted in (environ(pid) or ()):
            found.append(Process(pid, one.ticks))
    return found, everyone


def _seen(pid: int) -> Seen | None:
    """None for a process that is gone or a zombie. Without /proc, parent and session are 0."""
    if PORTABLE:
        ticks = start_of(pid)
        return Seen(0, 0, ticks) if ticks is not None else None
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return Seen(int(fields[1]), int(fields[3]), fields[19].decode()) if fields and fields[0] != b"Z" else None


def strayed(held: Iterable[Process], everyone: Mapping[int, Seen]) -> list[Process]:
    """The descendants of a program that left its session, whatever their environment.

    `held`: the processes that carry the program's mark. The program starts each command in a new session, but its
    helpers in its own. It adopts orphans; inside bubblewrap, process 1 does. Without /proc nothing is found.
    """
    own = {process.pid for process in held if process.pid in everyone}
    tops = {pid for pid in own if everyone[pid].parent not in own}
    sessions = {everyone[pid].session for pid in tops}
    boxes = {pid for pid in own if name_of(pid) == BUBBLEWRAP}
    first = {pid for pid in boxes if everyone[pid].parent in boxes}
    adopt = first | {pid for pid in own if everyone[pid].parent in first} if boxes else tops
    found = {pid for pid, one in everyone.items() if one.parent in adopt and one.session not in sessions}
    while more := {pid for pid, one in everyone.items() if one.parent in found} - found:
        found |= more
    return [Process(pid, everyone[pid].ticks) for pid in sorted(found)]


def environment(pid: int) -> dict[str, str]:
    """The initial environment of a process of ours; empty if it cannot be read."""
    pairs = (entry.decode(errors="surrogateescape").partition("=") for entry in environ(pid) or () if entry)
    return {name: value for name, _, value in pairs}


def works_in(directory: str) -> list[int]:
    """Processes with their working directory or an open file in this directory."""
    inside = directory.rstrip("/") + "/"
    return [pid for pid in _pids() if any(f"{path}/".startswith(inside) for path in places_of(pid))]


def is_hidden(pid: int) -> bool:
    """Whether the system does not let us see where a process works: it is another user's."""
    if PORTABLE:
        return portable.is_hidden(pid)
    try:
        os.readlink(f"/proc/{pid}/cwd")
    except PermissionError:
        return True
    except OSError:  # it is about to end
        pass
    return False


def named(start: str) -> list[int]:
    """Processes whose program name starts with `start`."""
    return [pid for pid in _pids() if name_of(pid).startswith(start)]


def name_of(pid: int) -> str:
    """The program's name from the kernel; "" for a process that is gone."""
    if PORTABLE:
        return portable.name(pid)
    return _read(f"/proc/{pid}/comm").decode(errors="replace").strip()


def lineage(pid: int) -> list[Kin]:
    """A process and its ancestors, nearest first."""
    return portable.lineage(pid) if PORTABLE else hook_client.lineage(pid)


def ancestors(pid: int) -> list[int]:
    """The ancestors of a process, nearest first."""
    return [kin[0] for kin in lineage(pid)[1:]]


def is_alive(pid: int) -> bool:
    """Whether a process is running; a zombie is not."""
    return start_of(pid) is not None


def waits_for_a_turn(pid: int) -> bool:
    """Whether a process is running or waiting for CPU or disk, or is stopped by a signal."""
    found = _state(pid)
    return found is not None and found[0] in "RTtD"


def terminate(process: Process | None, *, grace_s: float) -> None:
    """SIGTERM, then SIGKILL if it is still running after the grace period."""
    end_all([process] if process is not None else [], grace_s=grace_s)


def command_of(pid: int) -> str:
    """The command line of a process; empty if it is gone."""
    return b" ".join(_words(pid)).decode(errors="replace").strip()


def _words(pid: int) -> list[bytes]:
    return portable.words(pid) if PORTABLE else _read(f"/proc/{pid}/cmdline").split(b"\0")


def end_all(processes: Iterable[Process], *, grace_s: float) -> list[Process]:
    """SIGTERM to each, then SIGKILL after the grace period; returns those that are still running."""
    told = [process for process in processes if send(process, signal.SIGTERM)]
    wait_until(lambda: not any(process.is_alive for process in told), grace_s)
    kill(told)
    wait_until(lambda: not any(process.is_alive for process in told), 2)
    return [process for process in told if process.is_alive]


def kill(processes: Iterable[Process]) -> None:
    for process in processes:
        send(process, signal.SIGKILL)


def send(process: Process, number: int) -> bool:
    """Signal exactly this process; False if it has ended or may not be signalled.

    A pidfd refers to one process, so its pid cannot be reused between the check and the signal.
    """
    try:
        fd = -1 if PORTABLE else os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except OSError:  # an old kernel
        fd = -1
    try:
        if not process.is_alive:
            return False
        signal.pidfd_send_signal(fd, number) if fd >= 0 else os.kill(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        with contextlib.suppress(OSError):
            os.close(fd)
    return True


def wait_until(
    condition: Callable[[], bool], timeout_s: float, *, interval_s: float = 0.01, slower_to_s: float = 0.0
) -> bool:
    """Wait for a condition; whether it became true. With `slower_to_s`, checks become less frequent."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(interval_s)
        if slower_to_s:
            interval_s = min(interval_s * 1.5, slower_to_s)
    return True


def environ(pid: int) -> list[bytes] | None:
    """The initial environment of a process; empty if it is not ours, None if it has ended."""
    if PORTABLE:
        return portable.environ(pid)
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            found = file.read().split(b"\0")
        return None if found == [b""] else found if os.stat(f"/proc/{pid}").st_uid == os.getuid() else []
    except PermissionError:
        return []
    except OSError:
        return None


def places_of(pid: int) -> list[str]:
    """Working directory and open files; none for a process that is gone or not ours."""
    if PORTABLE:
        return portable.places(pid)
    found = []
    try:
        links = [f"/proc/{pid}/cwd", *(f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd"))]
    except OSError:
        return []
    for link in links:
        with contextlib.suppress(OSError):
            found.append(os.readlink(link))
    return found


def _pids() -> list[int]:
    return portable.pids() if PORTABLE else [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def _state(pid: int) -> tuple[str, str] | None:
    """The kernel's state letter and the start of a process; None if there is none."""
    if PORTABLE:
        return portable.state(pid)
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return (fields[0].decode(), fields[19].decode()) if fields else None


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
