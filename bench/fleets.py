"""Fleets to measure, with the benchmark running in their environment."""

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
    """A temporary fleet with a daemon (`up`: its options; None: no daemon). Uses its environment."""
    with contextlib.ExitStack() as stack:
        api = stack.enter_context(LoopbackApi()) if agent == "claude" else None
        made = Fleet(agent, api)
        stack.callback(made.close)
        made.env[zygote.COLD] = "1"  # a measured process must not share the memory of its parent
        made.set_up(*workers)
        stack.enter_context(_environment(made.env))
        stack.enter_context(contextlib.chdir(made.root))
        if up is not None:
            made.up(*up)
        yield made, open_project(str(made.root))


def wait_for_rest(project: Project, name: str, status: Status) -> None:
    """Wait until the turn is over, according to the state and the client."""

    def at_rest() -> bool:
        record = project.store.worker(name)
        pane = project.pane(record) if record.status is status else None
        return isinstance(pane, Pane) and status_of(record, pane) is ClientStatus.IDLE

    if not wait_until(at_rest, TURN_LIMIT_S, interval_s=0.02):
        raise RuntimeError(
            f"{name} did not become {status}; its status is {project.store.worker(name).status}"
        )


def python() -> str:
    """The interpreter beside the installed command."""
    return str(_bin() / "python")


def llmc() -> str:
    """The installed command."""
    return str(_bin() / "llmc")


def pace_ms() -> float:
    """The current speed of the machine, for targets in milliseconds, which a busy machine misses."""
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
