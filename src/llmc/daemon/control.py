"""Controls the daemon from outside: its registration `.llmc/daemon.json`, starting it detached, stopping it."""

import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llmc.base import locks, proc, processes
from llmc.base.errors import LlmcError, Refused
from llmc.base.files import json_record, private_dir, write_atomic
from llmc.base.proc import caller_dir
from llmc.base.processes import Process, start_of, wait_until
from llmc.config.paths import Root
from llmc.records import sight
from llmc.records.items import Registration
from llmc.repo.project import Project

READY_LIMIT_S = 60.0
#: in logs/; its end is shown, up to this many characters
OUTPUT = "daemon.out"
SAID_CHARS = 4000
#: tells the daemon to exit but leave the agents running, because another daemon takes over
HAND_OVER = signal.SIGUSR1
#: how long a starting daemon may hold its lock before it can be identified
KNOWN_S = 3.0
#: how long a daemon may take to accept a request to stop, before its process gets a signal
ACCEPT_S = 2.0


def write_registration(root: Root, instance_id: str, started_unix: float, **about: Any) -> None:
    body = {
        "pid": os.getpid(),
        "start_ticks": start_of(os.getpid()),
        "start_time_unix": started_unix,
        "instance_id": instance_id,
        "log_file": str(root.logs / "daemon.jsonl"),
        "socket": str(root.wake_socket()),
        "caller_dir": str(caller_dir()),
        **about,
    }
    write_atomic(root.daemon, json.dumps(body, indent=1).encode())


def live_registration(project: Project) -> Registration | None:
    """daemon.json, if its daemon is running."""
    return sight.registration(project.root.path) if project.daemon_runs() else None


def already_runs(
    project: Project, hint: str = "See its workers with `llmc status`; stop it with `llmc down`."
) -> Refused:
    holder = locks.holder(project.root.lock("daemon"))
    return Refused(f"a daemon is already running for this root: {holder}", hint=hint)


def start_detached(project: Project, arguments: list[str]) -> Registration:
    """Start `llmc up` in the background; returns its registration once every session is ready or has failed."""
    if project.daemon_runs():
        raise already_runs(project)
    argv = [sys.executable, "-m", "llmc", "--root", str(project.root.path), "up", *arguments]
    process, begin = spawn(project, argv, os.environ)
    hint = f"Read the daemon's output in {project.root.logs / OUTPUT}, fix the cause, then run the command again."

    def is_known() -> bool:
        return process.poll() is not None or _own(project, process.pid) is not None

    def is_ready() -> bool:
        record = _own(project, process.pid)
        return process.poll() is not None or (record is not None and record.ready)

    if wait_until(is_known, READY_LIMIT_S, interval_s=0.02):
        # From here it works or exits; with a repo.setup, new workers may take much longer.
        wait_until(is_ready, float("inf"), interval_s=0.02)
    if process.poll() is not None:
        raise LlmcError(
            f"the daemon exited before its workers were ready: {last_line(said(project, begin))}", hint=hint
        )
    record = _own(project, process.pid)
    if record is None:
        raise LlmcError(f"the daemon did not start within {READY_LIMIT_S:g} s", hint=hint)
    return record


def spawn(project: Project, argv: Sequence[str], env: Mapping[str, str]) -> tuple[proc.Child, int]:
    """Start a daemon in the background; returns its process, and where its output begins."""
    output = private_dir(project.root.logs) / OUTPUT
    begin = output.stat().st_size if output.exists() else 0
    return proc.spawn_detached(argv, output, {**env, proc.CALLER_DIR: str(proc.caller_dir())}), begin


def said(project: Project, begin: int = 0) -> str:
    """The end of the daemon's output since `begin`."""
    try:
        return proc.tail(project.root.logs / OUTPUT, begin, SAID_CHARS)
    except OSError:
        return ""


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("llmc: ") if lines else "no output"


def find(project: Project) -> Process | None:
    """The daemon's process: it holds the lock and identifies itself as the daemon. No other process is ever signaled.

    The pid in daemon.json or in the lock file alone is not enough: both outlive a daemon, and pids are reused.
    """
    lock = project.root.lock("daemon")
    for process in (_registered(project), _signed(lock)):
        if process is not None and locks.holds(process.pid, lock):
            return process
    return None


def _registered(project: Project) -> Process | None:
    """The process in daemon.json."""
    found = live_registration(project)
    process = processes.identify(found.pid) if found and found.pid is not None else None
    same = process is not None and found is not None and found.start_ticks in (None, process.ticks)
    return process if same else None


def _signed(lock: Path) -> Process | None:
    """The process that signed the lock as a daemon, if daemon.json is not written yet or lost."""
    pid = locks.signer(lock)
    is_daemon = re.search(r"\bllmc\b.* up\b", locks.holder(lock)) is not None
    return processes.identify(pid) if pid is not None and is_daemon else None


def hand_over(project: Project) -> None:
    """Stop the daemon so that another one can take over; the agents keep running."""
    stop(project, force=False, told=HAND_OVER)


def is_auto(project: Project) -> bool | None:
    """Whether the running daemon is in auto mode; None if unknown."""
    wait_until(
        lambda: live_registration(project) is not None or not project.daemon_runs(), KNOWN_S, interval_s=0.02
    )
    record = live_registration(project)
    return None if record is None else record.auto is True


def stop(
    project: Project, *, force: bool, timeout_s: float = 60.0, told: signal.Signals = signal.SIGTERM
) -> bool:
    """Stop the daemon and its agents; whether there was one."""
    # A starting daemon holds the lock a moment before it can be identified.
    wait_until(lambda: find(project) is not None or not project.daemon_runs(), KNOWN_S, interval_s=0.02)
    daemon = find(project)
    if not project.daemon_runs():
        return False
    if daemon is None:
        raise Refused(
            f"cannot stop the daemon: its lock is held by {locks.holder(project.root.lock('daemon'))}, which is not the daemon",
            hint="Wait for that process to exit, then run the command again.",
        )
    if not _accepts_request(project, told):
        processes.send(daemon, told)
    if wait_until(lambda: not _is_at_it(project, daemon), 5.0 if force else timeout_s, interval_s=0.02):
        return True
    if not force:
        raise LlmcError(
            f"the daemon (pid {daemon.pid}) did not stop within {timeout_s:g} s",
            hint="Kill it with `llmc down --force`.",
        )
    processes.send(daemon, signal.SIGKILL)
    wait_until(lambda: not _is_at_it(project, daemon), 5.0)
    return True


def _accepts_request(project: Project, told: signal.Signals) -> bool:
    """Ask this root's daemon to stop; whether it accepts. A signal would stop every root of its process."""
    daemon, request = live_registration(project), _request(project.root)
    if daemon is None or daemon.instance_id is None:
        return False
    try:
        write_atomic(request, json.dumps({"instance_id": daemon.instance_id, "signal": told.name}).encode())
        project.wake()
        return wait_until(
            lambda: not request.exists() or not project.daemon_runs(), ACCEPT_S, interval_s=0.02
        )
    except (LlmcError, OSError):
        return False  # the disk may be full
    finally:
        with contextlib.suppress(OSError):
            request.unlink(missing_ok=True)


def accept_request(root: Root, instance_id: str) -> signal.Signals | None:
    """Accept a request to stop that names this daemon; removing the file tells the command that it was accepted."""
    request = _request(root)
    row = json_record(request)
    if row.get("instance_id") != instance_id:
        return None
    request.unlink(missing_ok=True)
    # As with Ctrl-C, it is the user who ends it. A signal that the daemon receives may be the system's.
    return HAND_OVER if row.get("signal") == HAND_OVER.name else signal.SIGINT


def _request(root: Root) -> Path:
    return root.private / "stop.json"


def _is_at_it(project: Project, daemon: Process) -> bool:
    """Whether it is still running. A process may outlive its lock; another daemon may take the lock once it exited."""
    return daemon.is_alive and project.daemon_runs()


def _own(project: Project, pid: int) -> Registration | None:
    """The registration of the daemon with this pid, once it has one."""
    record = live_registration(project)
    return record if record is not None and record.pid == pid else None
