"""Read processes with psutil, for systems without /proc, where base/processes.py uses it. Slower."""

import os

import psutil

from llmc.hook_client import MARKS, Kin

_STATES = {
    psutil.STATUS_ZOMBIE: "Z",
    psutil.STATUS_RUNNING: "R",
    psutil.STATUS_STOPPED: "T",
    psutil.STATUS_TRACING_STOP: "t",
    psutil.STATUS_DISK_SLEEP: "D",
}


def state(pid: int) -> tuple[str, str] | None:
    """The kernel's state letter, and when the process started."""
    try:
        process = psutil.Process(pid)
        return _STATES.get(process.status(), "S"), f"{process.create_time():.2f}"
    except psutil.Error:
        return None


def environ(pid: int) -> list[bytes] | None:
    """The environment of a process; None if it has ended, empty if it is not ours."""
    try:
        pairs = psutil.Process(pid).environ().items()
    except (psutil.AccessDenied, OSError):
        return []
    except psutil.Error:
        return None
    return [os.fsencode(f"{name}={value}") for name, value in pairs] or None


def places(pid: int) -> list[str]:
    """Working directory and open files; none for a process that is gone or not ours."""
    try:
        process = psutil.Process(pid)
        return [process.cwd(), *(file.path for file in process.open_files())]
    except (psutil.Error, OSError):
        return []


def is_hidden(pid: int) -> bool:
    """Whether another user's process does not show where it works."""
    try:
        psutil.Process(pid).cwd()
    except psutil.AccessDenied:
        return True
    except (psutil.Error, OSError):
        pass
    return False


def name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return ""


def words(pid: int) -> list[bytes]:
    """The command line."""
    try:
        return [os.fsencode(word) for word in psutil.Process(pid).cmdline()]
    except (psutil.Error, OSError):
        return []


def pids() -> list[int]:
    return psutil.pids()


def lineage(pid: int) -> list[Kin]:
    """As in hook_client.py."""
    found: list[Kin] = []
    try:
        start = psutil.Process(pid)
        for process in (start, *start.parents()):
            marks = (entry.partition(b"=") for entry in environ(process.pid) or ())
            found.append(
                (
                    process.pid,
                    process.ppid(),
                    os.getsid(process.pid),
                    int(process.terminal() is not None),
                    int(process.create_time() * 100),
                    os.fsencode(process.name()),
                    {name: value for name, _, value in marks if name in MARKS and value},
                )
            )
    except (psutil.Error, OSError):
        pass  # gone, or hidden from us
    return found
