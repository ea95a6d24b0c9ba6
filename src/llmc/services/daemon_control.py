"""Starting the daemon in the background, and stopping it, from another process."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from llmc.errors import LlmcError, Refused
from llmc.services.project import Project
from llmc.tools import locks, proc
from llmc.tools.files import json_record, private_dir
from llmc.tools.processes import wait_until

READY_LIMIT_S = 60.0


def registration(project: Project) -> dict[str, Any] | None:
    """daemon.json, while its daemon lives."""
    if not project.daemon_runs():
        return None
    return json_record(project.root.daemon) or None


def start_detached(project: Project, arguments: list[str]) -> dict[str, Any]:
    """Start `llmc up` in the background; its registration once every session is ready or has a reason why not."""
    if project.daemon_runs():
        raise Refused(
            f"a daemon runs for this root already: {locks.holder(project.root.lock('daemon'))}",
            hint="`llmc status` shows its workers; `llmc down` stops it.",
        )
    output = private_dir(project.root.logs) / "daemon.out"
    start = output.stat().st_size if output.exists() else 0
    argv = [sys.executable, "-m", "llmc", "--root", str(project.root.path), "up", *arguments]
    process = proc.spawn_detached(argv, output)
    wait_until(
        lambda: process.poll() is not None or _is_ready(project, process.pid), READY_LIMIT_S, interval_s=0.02
    )
    if process.poll() is not None:
        raise LlmcError(
            f"the daemon ended at once: {_last_line(output, start)}", hint=f"Its output is in {output}."
        )
    record = registration(project)
    if record is None or record["pid"] != process.pid:
        raise LlmcError(
            f"the daemon did not register in {READY_LIMIT_S:g} s", hint=f"Its output is in {output}."
        )
    return record


def stop(project: Project, *, force: bool, timeout_s: float = 60.0) -> bool:
    """Stop the daemon, and with it the agents; whether there was one."""
    record = registration(project)
    if record is None:
        return False
    pid = int(record["pid"])
    os.kill(pid, signal.SIGTERM)
    if wait_until(lambda: not project.daemon_runs(), 5.0 if force else timeout_s, interval_s=0.02):
        return True
    if not force:
        raise LlmcError(
            f"the daemon ({pid}) did not stop in {timeout_s:g} s", hint="llmc down --force kills it."
        )
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not project.daemon_runs(), 5.0)
    return True


def _is_ready(project: Project, pid: int) -> bool:
    record = registration(project)
    return record is not None and record["pid"] == pid and bool(record["ready"])


def _last_line(output: Path, start: int) -> str:
    lines = [line for line in proc.tail(output, start).splitlines() if line.strip()]
    return lines[-1].removeprefix("llmc: ") if lines else "it said nothing"
