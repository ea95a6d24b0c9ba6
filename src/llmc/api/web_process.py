"""The web server process: one for each root, identified by the lock that it holds."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator

from llmc.base import locks
from llmc.base.errors import LlmcError, Refused
from llmc.base.locks import Rank
from llmc.base.processes import wait_until
from llmc.daemon import control
from llmc.repo.project import Project

#: printed when the page can be opened
SERVING = "the web server is running"
START_S = 30.0
STOP_S = 10.0


@contextlib.contextmanager
def serving(project: Project) -> Iterator[None]:
    """Hold the lock of the web server; refuses if another process has it."""
    with locks.attempt(project.root.lock("web-server"), Rank.WEB_SERVER) as is_ours:
        if not is_ours:
            raise Refused(
                f"the web server is already running: {locks.holder(project.root.lock('web-server'))}",
                hint="To sign in, run `llmc web --link`. To stop the web server, run `llmc web --stop`.",
            )
        yield


def pid_of(project: Project) -> int | None:
    """The pid of the web server; None if it is not running."""
    lock = project.root.lock("web-server")
    pid = locks.signer(lock)
    return pid if pid is not None and locks.holds(pid, lock) else None


def start(project: Project, arguments: list[str]) -> int:
    """Start `llmc web` in the background; returns its pid once it answers, or after `START_S`."""
    argv = [sys.executable, "-m", "llmc", "--root", str(project.root.path), "web", "--no-link", *arguments]
    process, begin = control.spawn(project, argv, os.environ)
    wait_until(
        lambda: process.poll() is not None or SERVING in control.said(project, begin),
        START_S,
        interval_s=0.02,
    )
    if process.poll() is not None:
        raise LlmcError(f"the web server did not start: {control.last_line(control.said(project, begin))}")
    return process.pid


def stop(project: Project) -> bool:
    """Stop the web server; returns whether it was running."""
    pid = pid_of(project)
    if pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    if not wait_until(lambda: pid_of(project) != pid, STOP_S):
        raise LlmcError(
            f"the web server (pid {pid}) did not stop within {STOP_S:g} s",
            hint=f"Run `kill -9 {pid}` to kill it.",
        )
    return True
