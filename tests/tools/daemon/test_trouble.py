"""What a daemon meets within days: a full disk, no free files or threads, a file that is briefly missing.

Each of these passes. The daemon then continues, and does what it could not do before.
"""

import asyncio
import contextlib
import errno
import io
import logging
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from llmc import launch
from llmc.api import orders
from llmc.api.said import BAD, Said
from llmc.auto.auto_run import HardFailure
from llmc.base.errors import LockTimeout, Refused
from llmc.base.files import DiskFull
from llmc.config.model import Worker
from llmc.daemon import auto as module
from llmc.daemon import control, main
from llmc.daemon.auto import SHORT_TICKS, AutoMode
from llmc.daemon.auto_options import AutoOptions
from llmc.daemon.goal_lane import GoalsLane
from llmc.daemon.lanes import Lane, Threads
from llmc.daemon.log import say
from llmc.daemon.main import Daemon, Options
from llmc.goals.desk import Aside
from llmc.goals.dispatch import Done
from llmc.goals.drive.intents import Action
from llmc.goals.model import Result
from llmc.records.worker import Cause
from llmc.repo import setup
from llmc.repo.project import Project
from llmc.supervisor import daemon_process
from llmc.supervisor.model import Failure, FailureKind
from llmc.web.jobs import Jobs
from llmc.workers import up_and_down
from tests.support.repos import Mold, Repo, make_project, project_at
from tests.support.waiting import wait_until

PLAIN = AutoOptions()
NO_FILES = OSError(errno.EMFILE, "Too many open files")


@pytest.fixture
def project(mold: Mold) -> Project:
    def make(place: Path) -> None:
        source = Repo(place / "source")
        source.commit("README.md")
        made = make_project(str(source.path), place / "root")
        made.root.config.write_text(
            f'[repo]\nsource = "{source.path}"\ndefault_branch = "main"\n[auto]\ntask_list_id = "plan"\nconcurrency = 1\n'
            '[defaults]\nagent = "scripted"\nsandbox = "off"\n'
        )

    return project_at(mold.place(make) / "root")


class Auto(AutoMode):
    """Auto mode as the daemon starts it, and how it ended."""

    def __init__(self, project: Project, options: AutoOptions = PLAIN) -> None:
        self.ended: list[int] = []
        log = logging.getLogger("quiet")
        told = (lambda _, __: None), self.ended.append, (lambda: project)
        super().__init__(project, options, log, ThreadPoolExecutor(2), *told)
        setup.ensure_auto_workers(project, self.workers)

    def ticks(self, count: int = 1) -> None:
        for _ in range(count):
            self.tick(self._project.store.read())


@contextlib.contextmanager
def running(auto: Auto) -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    auto._project.root.wake_socket().parent.mkdir(parents=True, exist_ok=True)
    auto.show_life(loop, "i-1")
    auto.begin(loop)
    try:
        yield loop
    finally:
        auto.stop(())
        loop.close()


class Fails:
    """A function that fails as long as `fails` is set."""

    def __init__(self, real: Any, error: Exception) -> None:
        self.real, self.error, self.fails = real, error, True

    def __call__(self, *args: Any, **more: Any) -> Any:
        if self.fails:
            raise self.error
        return self.real(*args, **more)


def test_the_end_of_a_run_is_written_as_soon_as_it_can_be(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: set `_ended` before the transaction; the run would never end."""
    auto = Auto(project, AutoOptions(until_unix=1.0))
    with running(auto):
        busy = Fails(type(project.store).transaction, LockTimeout("the state is locked"))
        monkeypatch.setattr(type(project.store), "transaction", lambda store: busy(store))
        auto.ticks()
        assert auto.ended == []
        busy.fails = False
        auto.ticks(2)
        assert auto.ended == [0]


def test_a_failure_that_cannot_be_written_ends_the_run_too(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: end only after the report; the daemon would keep running, and do nothing for any worker."""
    auto = Auto(project)
    with running(auto):
        for name in ("transaction", "read", "note"):
            monkeypatch.setattr(type(project.store), name, Fails(None, NO_FILES))
        with contextlib.suppress(OSError):
            auto.fail(HardFailure(Cause.DISK, "no space"))
        monkeypatch.undo()
        assert auto.ended == [1]


def test_a_configuration_that_is_away_for_a_moment_ends_nothing(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: let an error of `stat` through: an editor that renames the file first would stop every agent."""
    auto = Auto(project)
    path, aside = project.root.config, project.root.config.with_name("config.toml~")
    with running(auto):
        path.rename(aside)
        auto.ticks(3)
        aside.rename(path)
        auto.ticks()
        assert auto.ended == []
        path.rename(aside)
        monkeypatch.setattr(module, "CONFIG_SETTLE_S", -1.0)
        auto.ticks()
        aside.rename(path)
    assert auto.ended == [1]
    assert project.store.read().auto.run_cause == Cause.CONFIG


def test_a_shortage_is_no_corruption(project: Project) -> None:
    """Break: treat every read error as a broken file."""
    auto = Auto(project)
    with running(auto):
        for _ in range(SHORT_TICKS):
            auto.state_unreadable(NO_FILES)
        auto.state_unreadable(None)
        auto.state_unreadable(NO_FILES)
        assert auto.ended == []
        auto.state_unreadable(FileNotFoundError(errno.ENOENT, "No such file or directory"))
        assert auto.ended == [1]


def test_a_watch_that_could_not_be_opened_is_opened_later(project: Project) -> None:
    """Break: open it once. The daemon would exit after it reported ready, or get no more tasks."""
    auto = Auto(project)
    source = auto._run.queue.source
    watch = Fails(source.watch, OSError(errno.EMFILE, "too many watches"))
    source.watch = watch
    with running(auto) as loop:
        assert auto._watch is None
        watch.fails = False
        auto.ticks()
        assert auto._watch is not None
        watch.fails = True
        auto._watch_list(loop)
        assert auto._watch is None
        watch.fails = False
        auto.ticks()
        assert auto._watch is not None
        assert auto.ended == []


def test_a_lane_goes_on_after_the_system_had_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: a plain ThreadPoolExecutor."""
    rounds: list[str] = []

    go = threading.Event()
    tried: list[threading.Thread] = []

    def no_thread(thread: threading.Thread) -> None:
        tried.append(thread)
        raise RuntimeError("can't start new thread")

    async def scenario() -> None:
        pool = Threads(8, "lane")
        wait_until(lambda: pool._idle_semaphore._value == 1)
        pool.submit(go.wait, 10)  # its only thread is busy, so another one is wanted
        lane = Lane("w1", "root", lambda name, _: rounds.append(name), pool, logging.getLogger("quiet"))
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_thread)
            lane.poke()
            while not tried:
                await asyncio.sleep(0)
        go.set()
        await asyncio.to_thread(wait_until, lambda: len(rounds) == 1)
        lane.poke()
        await asyncio.to_thread(wait_until, lambda: len(rounds) == 2)
        await lane.stop()
        pool.shutdown()

    asyncio.run(scenario())


def test_a_goal_tick_that_failed_is_not_the_last(project: Project) -> None:
    """Break: read the result of a tick without checking its error; the timer would not be set again."""
    ticks: list[str] = []

    class Broken:
        def tick(self, project: Project, reason: str) -> None:
            ticks.append(reason)
            raise MemoryError

    async def scenario() -> None:
        pool = Threads(2, "lane")
        lane = GoalsLane(asyncio.get_running_loop(), pool)
        lane._project, lane._runner = project, Broken()
        lane._begin("start")
        while lane._ticking:
            await asyncio.sleep(0)
        assert lane._timer is not None
        lane.stop()
        pool.shutdown()

    asyncio.run(scenario())


def test_what_a_planner_found_is_told_until_it_is_recorded() -> None:
    """Break: forget it before the caller has recorded it; the planner would run, and cost, again."""
    pool = Threads(1, "planner")
    aside = Aside(pool, lambda: None)
    action = cast(Action, SimpleNamespace(dispatch_id="d-1", assignment_id="a-1"))
    assert aside.begin(action, lambda: Done(Result.OK, "a plan"))
    pool.shutdown()
    next(aside.ended())  # and it could not be written
    assert [done.notes for _, done in aside.ended()] == ["a plan"]
    assert list(aside.ended()) == []


def test_a_worker_that_could_not_be_started_is_started_by_the_next_patrol(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: remember it as started; its hooks, reviews and rebases would wait for the next daemon."""
    setup.add_worker(project, "bob", Worker())

    async def scenario() -> None:
        daemon = Daemon(project, Options())
        daemon.loop = asyncio.get_running_loop()
        daemon.rounds = main.Rounds(*[None] * 8)
        full = Fails(None, DiskFull("the disk is full"))
        with monkeypatch.context() as patch:
            patch.setattr(up_and_down, "provision", full)
            patch.setattr(
                type(project.store), "read", full_read := Fails(type(project.store).read, full.error)
            )
            known = full_read.real(project.store).workers
            daemon._start_new(known)
            await asyncio.gather(*daemon.background)
        assert (daemon.lanes, daemon.seen) == ({}, {})
        with monkeypatch.context() as patch:
            patch.setattr(main, "bring_up", lambda *_: None)
            daemon._start_new(project.store.read().workers)
            await asyncio.gather(*daemon.background)
        assert list(daemon.lanes) == ["bob"]
        await daemon.lanes["bob"].stop()
        daemon.pool.shutdown()

    asyncio.run(scenario())


def test_a_bug_in_the_start_of_a_worker_stops_no_other(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: catch only TROUBLE in `_start_worker`: the daemon shuts down, with every agent."""
    for name in ("bob", "eve"):
        setup.add_worker(project, name, Worker())

    def bring_up(_: Project, name: str) -> None:
        if name == "bob":
            raise UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed")

    async def scenario() -> None:
        daemon = Daemon(project, Options())
        daemon.loop = asyncio.get_running_loop()
        daemon.rounds = main.Rounds(lambda: project, *[None] * 7)
        monkeypatch.setattr(main, "bring_up", bring_up)
        await asyncio.gather(*daemon._start_new(project.store.read().workers))
        assert (list(daemon.lanes), list(daemon.seen)) == (["eve"], ["eve"])
        await daemon.lanes["eve"].stop()
        daemon.pool.shutdown()

    asyncio.run(scenario())
    item = project.store.read().attention["lane bob"]
    assert (item.kind, item.severity, item.next) == ("bug", "blocked", "llmc logs daemon")


def test_a_full_disk_does_not_silence_the_daemons_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: send everything to /dev/null after the first error."""

    class Out(io.StringIO):
        fails = True

        def flush(self) -> None:
            if self.fails:
                raise OSError(errno.ENOSPC, "No space left on device")

    out = Out()
    monkeypatch.setattr(sys, "stdout", out)
    say("while it is full")
    out.fails = False
    say("later")
    assert out.getvalue().endswith("later\n")
    read, write = os.pipe()
    os.close(read)
    with contextlib.suppress(OSError), os.fdopen(write, "w") as gone:
        monkeypatch.setattr(sys, "stdout", gone)
        say("to no reader")
        say("again, without an error")
        sys.stdout.close()


def test_a_supervisor_that_gets_no_process_tries_again(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: let the error through; it would be a bug in the supervisor, which exits without a daemon."""

    def no_process(*_: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(control, "spawn", no_process)
    failure = daemon_process.start(project, lambda: False)
    assert isinstance(failure, Failure)
    assert (failure.kind, "temporarily unavailable" in failure.text) == (FailureKind.START, True)


def test_an_agent_outlives_a_proxy_that_could_not_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: let the error through; the holder would exit, and its agent with it."""
    network = launch.HeldNetwork.__new__(launch.HeldNetwork)
    network._proxy, network._due, network._pause_s, network._listeners = 0, 0.0, 0.0, [(3, "model")]

    def no_process() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", no_process)
    pauses = [network.keep_up()]
    network._due = 0.0
    pauses.append(network.keep_up())
    assert pauses == [launch.FIRST_PAUSE_S, 2 * launch.FIRST_PAUSE_S]


def test_an_order_always_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: catch only our own errors: the screen would show the order forever, its worker busy."""

    def full(_: object) -> Said:
        raise OSError(errno.ENOSPC, "No space left on device")

    said = orders.guarded("llmc accept adam", full)(lambda _: None)
    assert (said.tone, "No space left" in said.outcome) == (BAD, True)
    jobs = Jobs(lambda _: None)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", Fails(None, RuntimeError("can't start new thread")))
        with pytest.raises(Refused, match="cannot run the command now"):
            jobs.start("adam", "adam", "llmc accept adam", full, "")
    job = jobs.start("adam", "adam", "llmc message adam", full, "")
    wait_until(lambda: job.said is not None)
