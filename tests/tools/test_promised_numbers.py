"""The numbers that the docs promise, as the running code uses them: on the test's own clock, without waiting.

Each test fails when its constant changes, and when the code stops using it where it counts.
"""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llmc.agents.agent_events import AgentEvent, Box, Composer, What
from llmc.agents.protocol import ClientStatus
from llmc.agents.screens import screen_of
from llmc.api.status_view import overseer_view
from llmc.base import processes
from llmc.base.names import PaneId, SessionName
from llmc.base.panes import Pane
from llmc.base.processes import Process, identify
from llmc.cli.overview import render
from llmc.daemon import watches
from llmc.daemon.auto import AutoMode
from llmc.daemon.auto_options import AutoOptions
from llmc.daemon.watches import AgentsWatch
from llmc.doctor import canary
from llmc.records.worker import Obstacle
from llmc.repo.project import Project
from llmc.sessions import sessions, typist
from llmc.sessions.typist import Refusal, Typist
from llmc.supervisor import daemon_process
from llmc.supervisor.daemon_process import Running
from llmc.supervisor.model import Failure, Identity
from llmc.supervisor.supervisor import Supervisor
from llmc.supervisor.supervisor_record import Journal
from tests.support.repos import Mold, Repo, make_project, project_at


class FakeClock:
    """Time that passes only during a sleep."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    made = FakeClock()
    monkeypatch.setattr(processes, "time", made)
    return made


@pytest.fixture
def project(mold: Mold) -> Project:
    def make(place: Path) -> None:
        source = Repo(place / "source")
        source.commit("README.md")
        made = make_project(str(source.path), place / "root")
        made.root.config.write_text(f'[repo]\nsource = "{source.path}"\n[auto]\ntask_list_id = "plan"\n')

    return project_at(mold.place(make) / "root")


def supervisor(project: Project) -> Supervisor:
    """As `llmc overseer` creates it: with its own times."""
    return Supervisor(project, lambda _, __: None)


@pytest.mark.req("0-034", "0-090")
def test_a_heartbeat_at_once_and_then_every_5_seconds(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: INTERVAL_S = 9, an interval that only follows the supervisor's timeout,
    or a wait before the first beat.
    """
    waits: list[float] = []
    late: list[int] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            late.extend([] if project.root.heartbeat.exists() else [len(waits)])
            return len(waits) > 3

    module = SimpleNamespace(Event=Stop, Thread=threading.Thread)
    monkeypatch.setattr(watches, "threading", module)
    auto = AutoMode(
        project,
        AutoOptions(),
        logging.getLogger("quiet"),
        ThreadPoolExecutor(1),
        lambda _, __: None,
        lambda _: None,
        lambda: project,
    )
    loop = asyncio.new_event_loop()
    auto.show_life(loop, "i-1")
    loop.close()
    assert auto._heartbeat is not None
    auto._heartbeat._thread.join()
    assert (waits, late) == ([5.0] * 4, [])
    assert json.loads(project.root.heartbeat.read_text())["instance_id"] == "i-1"


@pytest.mark.req("0-121")
def test_a_grace_of_30_seconds(project: Project, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: GRACE_S = 12, or another grace period in `_end_daemon`; a delayed SIGTERM."""
    ignores = "import signal,time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(99)"
    with subprocess.Popen([sys.executable, "-c", ignores], stdout=subprocess.PIPE) as stubborn:
        assert stubborn.stdout is not None
        stubborn.stdout.readline()
        process = identify(stubborn.pid)
        assert process is not None
        sent: list[tuple[int, float]] = []
        real = processes.send

        def send(to: Process, number: int) -> bool:
            sent.append((number, round(clock.now, 1)))
            done = real(to, number)
            if number == signal.SIGKILL:
                stubborn.wait()
            return done

        monkeypatch.setattr(processes, "send", send)
        made = supervisor(project)
        made._daemon = Running(Identity(stubborn.pid, 1.0, "i-1"), process, stubborn, 0.0)
        made._end_daemon()
    assert sent == [(signal.SIGTERM, 0.0), (signal.SIGKILL, 30.0)]


@pytest.mark.req("0-105", "0-121")
def test_60_seconds_to_register(
    project: Project, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Break: REGISTER_S = 25, or another limit in `_start`;
    another grace period for the one that is ended then.
    """
    program = tmp_path / "llmc"
    program.write_text("#!/bin/sh\nexec sleep 99\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(canary, "require", lambda _, __: None)
    ended: list[tuple[float, float]] = []

    def terminate(process: Process | None, *, grace_s: float) -> None:
        assert process is not None
        ended.append((round(clock.now, 1), grace_s))
        os.kill(process.pid, signal.SIGKILL)

    monkeypatch.setattr(daemon_process.processes, "terminate", terminate)
    found = supervisor(project)._start()
    assert isinstance(found, Failure)
    assert "did not start the daemon within 60 s" in found.text
    assert ended == [(60.0, 30.0)]


@pytest.mark.req("0-165")
def test_the_last_10_events_are_shown(project: Project) -> None:
    """Break: EVENTS = 6, keep them all, or show fewer than are kept."""
    journal = Journal(project)
    for number in range(12):
        journal.note("overseer_failure", f"number {number}")
    record = json.loads(project.root.overseer_file.read_text())
    daemon = {"running": True, "pid": 1, "auto": True, "instance_id": None}
    view: dict[str, Any] = {"root": "/r", "daemon": daemon, "workers": [], "auto": None, "attention": []}
    view["overseer"] = overseer_view(record, True, time.time())
    shown = [line.split("number ")[1] for line in _lines(view) if "number " in line]
    assert shown == [str(number) for number in range(2, 12)]


def _lines(view: dict[str, Any]) -> list[str]:
    return render(view, time.time(), 80, lambda text, *_: text).splitlines()


@pytest.mark.req("0-053")
def test_a_lost_clear_is_sent_again_after_5_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: CLEAR_WAIT_S = 30, another wait's time, one Enter fewer, or take an earlier answer."""
    waits: list[float] = []

    def never(condition: Callable[[], bool], timeout_s: float, **_: float) -> bool:
        waits.append(timeout_s)
        return condition()

    monkeypatch.setattr(typist, "wait_until", never)
    made = Unanswered()
    with pytest.raises(Refusal) as refused:
        made._new_conversation(was_busy=False)
    assert refused.value.obstacle is Obstacle.NO_CLEAR
    assert waits == [5.0] * 3
    assert made.keys == [("/clear", "Enter"), *[("Enter",)] * 3]


class Unanswered(Typist):
    """With an agent whose box keeps `/clear`."""

    def __init__(self) -> None:
        self.name, self.screen = "adam", screen_of("claude")
        self.keys: list[tuple[str, ...]] = []

    def _events(self) -> list[AgentEvent]:
        """One that an earlier /clear left there."""
        started = What.SESSION_STARTED
        return [
            AgentEvent(
                id="1-1.json", worker="adam", instance="i-1", what=started, is_cleared=True, transcript="/t"
            )
        ]

    def _box(self) -> Composer:
        return Composer(Box.DRAFT, "/clear")

    def _status(self) -> ClientStatus:
        return ClientStatus.IDLE

    def _keys(self, *keys: str) -> None:
        self.keys.append(keys)

    def _lives(self) -> bool:
        return True


def test_an_agent_that_ended_unseen_by_tmux_is_looked_at_after_a_tenth_of_a_second() -> None:
    """Break: ENDED_S = 5, or wait for the next patrol: tmux is polled constantly,
    or dead panes are found late.
    """
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    looks: list[tuple[str, float]] = []
    loop: Any = None
    AgentsWatch(loop, lambda name, after_s: looks.append((name, after_s))).found("adam", gone.pid)
    assert looks == [("adam", 0.1)]


def test_an_agent_has_5_seconds_to_end(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: another grace period in `end_program`, or a signal to the pid of a dead pane."""
    asked: list[float] = []
    monkeypatch.setattr(sessions.processes, "terminate", lambda _, *, grace_s: asked.append(grace_s))
    pane = Pane(PaneId("%1"), SessionName("s"), False, False, None, os.getpid(), 1)
    sessions.end_program(pane)
    sessions.end_program(pane._replace(dead=True))
    assert asked == [5]
