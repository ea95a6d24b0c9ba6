"""Fleets to measure on, with the benchmark itself standing in their environment."""

import contextlib
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tests.support import zygote
from tests.support.fleet import Fleet
from tests.support.loopback_api import LoopbackApi

from bench.measure import program_ms
from llmc.agents.protocol import ClientStatus
from llmc.base.panes import Pane
from llmc.base.processes import wait_until
from llmc.records.worker import Status
from llmc.repo.project import Project, open_project
from llmc.sessions.sessions import status_of

AGENTS = ("scripted", "claude")
TURN_LIMIT_S = 60


@contextlib.contextmanager
def fleet(agent: str, *workers: str, up: tuple[str, ...] | None = ()) -> Iterator[tuple[Fleet, Project]]:
    """A fleet with a daemon (`up`: its options; None: no daemon), gone afterwards. Its environment is ours meanwhile."""
    with contextlib.ExitStack() as stack:
        api = stack.enter_context(LoopbackApi()) if agent == "claude" else None
        made = Fleet(agent, api)
        stack.callback(made.close)
        made.env[zygote.COLD] = "1"  # what is measured must not share the memory of a process that forked it
        made.set_up(*workers)
        stack.enter_context(_environment(made.env))
        stack.enter_context(contextlib.chdir(made.root))
        if up is not None:
            made.up(*up)
        yield made, open_project(str(made.root))


def wait_for_rest(project: Project, name: str, status: Status) -> None:
    """Until the turn has ended: the state and the client itself say so."""

    def at_rest() -> bool:
        record = project.store.worker(name)
        pane = project.pane(record) if record.status is status else None
        return isinstance(pane, Pane) and status_of(record, pane) is ClientStatus.IDLE

    if not wait_until(at_rest, TURN_LIMIT_S, interval_s=0.02):
        raise RuntimeError(f"{name} did not become {status}: it is {project.store.worker(name).status}")


def python() -> str:
    """The interpreter beside the installed command."""
    return str(_bin() / "python")


def llmc() -> str:
    """The installed command."""
    return str(_bin() / "llmc")


def pace_ms() -> float:
    """How fast the machine is at this moment; for targets in milliseconds, which a busy machine misses."""
    return program_ms([python(), "-c", "pass"], os.environ)


def _bin() -> Path:
    return Path(sysconfig.get_path("scripts"))


@contextlib.contextmanager
def _environment(env: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
