"""The status file of a running Claude Code. Light: the hot commands read it."""

import os
import sys
from typing import Any

from llmc.agents.claude.layout import SESSIONS, status_name
from llmc.base import given
from llmc.records.items import Glance

#: `waitingFor` of a dialog that the user opened
DIALOG_OPEN = "dialog open"
_MOST_BYTES = 1 << 20


def glance(config_dir: str, pid: int) -> Glance:
    record = status_record(config_dir, pid)
    waits = record.get("status") == "waiting"
    dialog = given.text(record.get("waitingFor")) or DIALOG_OPEN if waits else ""
    return Glance(dialog, rests=record.get("status") == "idle")


def status_record(config_dir: str, pid: int) -> dict[str, Any]:
    """`sessions/<pid>.json`, if it was written by this process; {} otherwise.

    For a contained client, this process is the holder, and the file has the client's pid inside the box.
    """
    pid, own_pid = _contained(config_dir) or (pid, pid)
    path = f"{config_dir}/{SESSIONS}/{status_name(own_pid)}"
    for _ in range(3):  # the client rewrites it in place, so a read may be torn
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with open(fd, "rb") as file:
                record = given.parse(file.read(_MOST_BYTES))
        except OSError:
            return {}
        except ValueError:
            continue
        started = _start_of(pid)
        is_its_own = isinstance(record, dict) and started and str(record.get("procStart")) == started
        return record if is_its_own else {}
    return {}


def has_own_home(config_dir: str | os.PathLike[str]) -> bool:
    """Whether this is the home of a contained client: the holder's pid file is beside it."""
    return os.path.exists(f"{os.fspath(config_dir)}.pid")


def _contained(config_dir: str) -> tuple[int, int] | None:
    """The pids of a contained client outside and inside its box, from the file beside its home (launch.py)."""
    try:
        with open(f"{config_dir}.pid", "rb") as file:
            pid, started, own_pid = file.read().split()
    except (OSError, ValueError):
        return None
    return (int(pid), int(own_pid)) if _start_of(int(pid)) == started.decode() else None


def _start_of(pid: int) -> str:
    """When the process started, as in base/processes.py. Its pid alone may belong to another process by now."""
    if sys.platform != "linux" or os.environ.get("LLMC_PORTABLE"):
        from llmc.base.processes import start_of

        return start_of(pid) or ""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == b"Z" else fields[19].decode()
