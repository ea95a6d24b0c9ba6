"""Starts the supervisor's daemon through the shell, identifies it by its registration, and makes sure that it stops."""

import contextlib
import shutil
from collections.abc import Callable

from msgspec import Struct

from llmc.base import proc, processes
from llmc.base.clock import monotonic
from llmc.base.errors import LlmcError, NotFound
from llmc.base.processes import Process
from llmc.daemon import control
from llmc.records import sight
from llmc.repo.project import Project
from llmc.supervisor.model import Failure, FailureKind, Identity

#: what a user would type, so that a fixed llmc on the caller's PATH runs next
COMMAND = "llmc up --auto"
REGISTER_S = 60.0
GRACE_S = 30.0
REAPED_S = 2.0


class Running(Struct):
    """A daemon that registered."""

    identity: Identity
    #: includes its start time, so that no other process is taken for the daemon
    process: Process
    #: None: started before this supervisor
    child: proc.Child | None
    since: float

    def is_alive(self) -> bool:
        """Whether the daemon is running; a zombie is not. Reaps an exited child."""
        if self.child is not None:
            self.child.poll()
        return self.process.is_alive

    def exit_code(self) -> int | None:
        """The exit code, None if unknown; waits, as the main thread may exit a moment before the others."""
        child = self.child
        if child is None:
            return None
        processes.wait_until(lambda: child.poll() is not None or self.is_alive(), REAPED_S)
        return child.poll()

    def ran_s(self) -> float:
        return monotonic() - self.since


def check_program() -> None:
    """A missing `llmc` needs the user, not a remediation."""
    if shutil.which("llmc") is None:
        raise NotFound(
            "cannot run `llmc up --auto`: `llmc` is not on your PATH",
            hint="Add the directory that contains llmc to your PATH, then run `llmc overseer` again.",
        )


def registered(project: Project) -> Identity | None:
    """The daemon in daemon.json, running or not."""
    return Identity.of(sight.registration(project.root.path))


def adopt(project: Project, known: Identity | None) -> Running | None:
    """The daemon of a killed supervisor, if it is still the same one."""
    found = registered(project)
    if known is None or found != known or not project.daemon_runs():
        return None
    process = control.find(project)
    if process is None or process.pid != known.pid:
        return None
    return Running(known, process, None, monotonic())


def start(project: Project, stopping: Callable[[], bool], limit_s: float = REGISTER_S) -> Running | Failure:
    """Run `llmc up --auto` through the shell; returns the daemon once it registers, or how it failed."""
    if not project.daemon_runs():  # the registration of a killed daemon must not be taken for the new one
        for path in (project.root.daemon, project.root.heartbeat):
            path.unlink(missing_ok=True)
    before = registered(project)
    env = {**proc.command_env(), "LLMC_ROOT": str(project.root.path)}
    try:
        child, begin = control.spawn(project, ["/bin/sh", "-c", f"exec {COMMAND}"], env)
    except OSError as error:  # cannot start a process: the rules say when to try again
        return Failure(FailureKind.START, f"cannot run `{COMMAND}`: {error.strerror}")
    since = monotonic()

    def new() -> Identity | None:
        found = registered(project)
        is_new = found is not None and found != before and _is_of(child.pid, found.pid)
        return found if is_new else None

    processes.wait_until(
        lambda: bool(stopping() or new() or child.poll() is not None), limit_s, interval_s=0.05
    )
    found = new()
    if found is not None and (process := processes.identify(found.pid)) is not None:
        return Running(found, process, child, since)
    code = child.poll()
    how = f"exited with code {code}" if code is not None else f"did not start the daemon within {limit_s:g} s"
    if code is None and (process := processes.identify(child.pid)) is not None:
        end(process, child, GRACE_S)
    said = control.said(project, begin)
    return Failure(FailureKind.START, f"`{COMMAND}` {how}: {control.last_line(said)}", output=said)


def _is_of(child: int, pid: int) -> bool:
    """Whether the pid is our child, or below it, if the child is a wrapper around llmc."""
    return pid == child or child in processes.ancestors(pid)


def end(process: Process, child: proc.Child | None, grace_s: float) -> None:
    """Send SIGTERM, then SIGKILL after the grace period; raises if the process is still running."""
    processes.terminate(process, grace_s=grace_s)
    if child is not None:
        with contextlib.suppress(Exception):
            child.wait(2)  # reap it, whether it is the daemon or a wrapper
    if process.is_alive:
        raise LlmcError(
            f"the daemon (pid {process.pid}) is still running after SIGKILL",
            hint=f"Run `ps -o pid,stat,wchan {process.pid}` to see what it is waiting for. Once it has exited, run `llmc overseer` again.",
        )


def kill(project: Project) -> bool:
    """SIGKILL to the daemon, once it has the root's lock; does not wait. Whether there was one."""
    found = control.find(project)
    processes.kill([found] if found is not None else [])
    return found is not None


def end_all(project: Project, running: Running | None, grace_s: float) -> None:
    """Stop the daemon, and any other daemon that holds its lock now."""
    if running is not None and running.is_alive():
        end(running.process, running.child, grace_s)
    other = control.find(project) if project.daemon_runs() else None
    if other is not None:
        end(other, None, grace_s)
    processes.wait_until(lambda: not project.daemon_runs(), 5)
    if project.daemon_runs():
        raise LlmcError(
            "cannot stop the daemon: another process holds this root's lock, but daemon.json does not name it",
            hint="Run `llmc doctor` to find that process, stop it, then run `llmc overseer` again.",
        )
