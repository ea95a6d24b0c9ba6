"""The daemon of one root; daemon/host.py runs it. Hooks wake it; patrol is only the safety net."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
import uuid
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any
from weakref import WeakSet

from msgspec import Struct
from msgspec.structs import replace

from llmc.agents.protocol import Agent
from llmc.base import clock, locks
from llmc.base.clock import monotonic, now_unix
from llmc.base.errors import TROUBLE, LlmcError
from llmc.base.files import DiskFull, explain, private_dir
from llmc.base.names import WorkerName
from llmc.base.panes import Pane
from llmc.base.proc import ShuttingDown
from llmc.base.wake import listen, receive
from llmc.daemon import chores, control
from llmc.daemon.auto import AutoMode, not_ours
from llmc.daemon.auto_options import AutoOptions
from llmc.daemon.chores import Notices
from llmc.daemon.control import write_registration
from llmc.daemon.goal_lane import GoalsLane
from llmc.daemon.lanes import Lane, Rounds, Threads, lane_name
from llmc.daemon.log import open_log, say
from llmc.daemon.watches import AgentsWatch, Watch
from llmc.notifications import notify
from llmc.records import sight
from llmc.records.state import State
from llmc.records.worker import Cause, Status, WorkerRecord
from llmc.repo.project import Project, agent_for, open_project
from llmc.sessions import sessions
from llmc.workers.up_and_down import bring_up, close_server, end_every_session, take_down, told_of

#: more threads than a fleet has lanes, so that no lane waits; created on demand
MAX_THREADS = 128
#: how often the trash is checked
TRASH_S = 3600.0
#: how often the clients' status files are checked
CLIENT_WATCH_S = 1.0
#: how many wake-ups are read in that time; a busy fleet has a few dozen
MOST_WAKE_UPS = 500
#: how long a patrol waits for the source before it uses the known base
FETCH_WAIT_S = 10.0
#: maximum age of tmux data for a check; before it types, lands or resets, llmc asks tmux (Project.pane_now)
PANES_HOLD_S = 0.2
#: how long running rounds may take to finish when the daemon stops
DRAIN_S = 10.0
#: how often the log sizes are checked
ROTATE_S = 5.0


class Options(Struct):
    patrol: bool = True
    #: None: no auto mode
    auto: AutoOptions | None = None


class Daemon:
    def __init__(self, project: Project, options: Options) -> None:
        self.stopping = threading.Event()
        self.options = options
        self.pinned_agent: Agent | None = None
        self.log: logging.Logger = open_log(private_dir(project.root.logs) / "daemon.jsonl")
        self.project = self._as_daemon(project)
        self.instance_id = str(uuid.uuid4())
        self.started_unix = now_unix()
        self.lanes: dict[str, Lane] = {}
        self.seen: dict[str, Status] = {}
        #: when the worker of a lane was added: it may have been replaced by one of the same name
        self.born: dict[str, float] = {}
        self.background: set[asyncio.Future[None]] = set()
        #: workers that are or were being started
        self.starts: WeakSet[asyncio.Future[None]] = WeakSet()
        self.looked_at_trash: float | None = None
        self.patrolling: asyncio.Future[None] | None = None
        self.notices: Notices | None = None
        self.telling: asyncio.Future[None] | None = None
        self.withdrawing: asyncio.Future[None] | None = None
        self.state = State()
        self.state_changed = 0
        self.wake_ups = 0
        self.paused: asyncio.TimerHandle | None = None
        self.auto: AutoMode | None = None
        #: the user stopped it, at its terminal or with `llmc down`
        self.interrupted = False
        #: the last signal that told it to stop
        self.signal: signal.Signals | None = None
        #: auto mode finished or failed; the daemon was not told to stop
        self.ended_by_itself = False
        #: another daemon takes over: the agents keep running
        self.handing_over = False
        self.exit_code = 0
        #: the daemon lock of the root
        self.place: int | None = None
        self.told_to_stop = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop  # the host's loop
        self.pool = Threads(MAX_THREADS, "lane")
        self.config_changed = project.root.config.stat().st_mtime_ns

    def _as_daemon(self, project: Project) -> Project:
        auto = self.options.auto
        config = auto.applied(project.config) if auto is not None else project.config
        project.store.trace = partial(self.log.debug, extra={"action": "state_written"})
        tmux = replace(project.tmux, remembers_s=PANES_HOLD_S)
        given = {"in_daemon": True, "stopping": self.stopping.is_set, "pinned_agent": self.pinned_agent}
        return replace(project, config=config, tmux=tmux, **given)

    def begin(self) -> None:
        """Take the root's daemon lock, and check everything before an agent starts."""
        self.place = locks.hold_forever(self.project.root.lock("daemon"))
        if self.place is None:
            raise control.already_runs(self.project)
        try:
            self._prepare()
        except Exception as error:
            self._record(error)
            self._leave()
            raise

    async def serve(self) -> None:
        """Run until told to stop, then shut down."""
        try:
            await self._main()
        except Exception as error:
            self._record(error)
            raise
        finally:
            self._leave()

    def _leave(self) -> None:
        """Release the lock, so that another daemon can start."""
        if self.place is not None:
            os.close(self.place)
            self.place = None

    def _prepare(self) -> None:
        agent = agent_for(self.project)
        if not agent.ships_with_llmc:
            # Pin the program: an update of `claude` must not mix two versions in a fleet.
            self.pinned_agent = agent.pinned()
            self.project = replace(self.project, pinned_agent=self.pinned_agent)
        self.agent_version = agent.version()
        if self.options.auto is not None:
            told = self._poke_after, self._end_with, self._current_project
            self.auto = AutoMode(self.project, self.options.auto, self.log, self.pool, *told)
            self.auto.prepare()

    @property
    def root_name(self) -> str:
        return str(self.project.root.path)

    def _record(self, error: Exception) -> None:
        """Log what ends the daemon, even if it could not register."""
        if isinstance(error, LlmcError):
            cause = Cause.DISK if isinstance(error, DiskFull) else Cause.CONFIG
            extra = {"action": "daemon_failed", "cause": cause, "hint": error.hint}
            self.log.error(error.message, extra=extra)
        else:
            self.log.error(
                "bug in the daemon", exc_info=error, extra={"action": "daemon_failed", "cause": Cause.BUG}
            )

    def _poke_after(self, name: str, delay_s: float) -> None:
        """Check a worker later; from any thread."""

        def poke() -> None:
            if lane := self.lanes.get(name):
                lane.poke()

        self.loop.call_soon_threadsafe(self.loop.call_later, delay_s, poke)

    def _end_with(self, code: int) -> None:
        """Stop the daemon with this exit code; from any thread."""
        self.exit_code = self.exit_code or code
        self.ended_by_itself = True
        self.loop.call_soon_threadsafe(self.told_to_stop.set)

    def told(self, number: signal.Signals) -> None:
        """Shut down this root only. Called in the event loop."""
        self.signal = number
        self.interrupted = self.interrupted or number == signal.SIGINT
        self.ended_by_itself = False
        self.handing_over = self.handing_over or number == control.HAND_OVER
        self.told_to_stop.set()

    async def _main(self) -> None:
        loop = self.loop
        socket_path = self.project.root.wake_socket()
        sock = listen(socket_path)
        self.watch = Watch(now_unix(), monotonic())
        self.agents = AgentsWatch(loop, self._poke_after)
        self.goals = GoalsLane(loop, self.pool)
        told = self._poke_queued, self.goals.poke
        self.rounds = Rounds(
            self._current_project, self.log, self.watch, self.agents, self.auto, self.seen, *told
        )
        self._open_notices()
        self._register(ready=False)
        if self.auto is not None:
            self.auto.show_life(loop, self.instance_id)
        self._listen(sock)
        say(f"starting the daemon for {self.project.root.path} (pid {os.getpid()})")
        try:
            await self._start_all()
            if not self.told_to_stop.is_set():
                if self.auto is not None:
                    self.auto.begin(loop)
                # Last: who was told that auto mode is ready must hear of it when it is killed.
                self._register(ready=True)
                say("ready; press Ctrl-C to stop the agents and the daemon")
                self.goals.update(self.project)
                await self._serve()
        finally:
            loop.remove_reader(sock)
            if self.paused is not None:
                self.paused.cancel()
            try:
                await self._shut_down()
            finally:
                sock.close()
                socket_path.unlink(missing_ok=True)
                self.project.root.daemon.unlink(missing_ok=True)

    async def _start_all(self) -> None:
        """Start all workers; returns early if told to stop."""
        left = set(self._start_new(self.project.store.read().workers))
        told: asyncio.Future[Any] = asyncio.ensure_future(self.told_to_stop.wait())
        while left and not self.told_to_stop.is_set():
            done, _ = await asyncio.wait({*left, told}, return_when=asyncio.FIRST_COMPLETED)
            for start in left & done:
                start.result()  # a bug in it ends the daemon
            left -= done
        told.cancel()

    async def _serve(self) -> None:
        patrolled = monotonic()
        rotated = -ROTATE_S
        self._chore(chores.finish_undo)
        self._chore(chores.look_at_rows)
        self.watch.begin(now_unix(), patrolled)
        while not self.told_to_stop.is_set():
            try:
                await asyncio.wait_for(self.told_to_stop.wait(), CLIENT_WATCH_S)
            except TimeoutError:
                self.wake_ups = 0
                self._watch_clients()
                self._tell()
                if self.auto is not None and self.state_changed:
                    self.auto.tick(self.state)
            if monotonic() - rotated >= ROTATE_S:
                rotated = monotonic()
                self._chore(chores.rotate)
            if (
                self.options.patrol
                and monotonic() - patrolled >= self.project.config.defaults.patrol_interval_secs
            ):
                patrolled = monotonic()
                self._patrol()

    def _watch_clients(self) -> None:
        """Wake the lanes of workers whose status is out of date, by their client's status file for example."""
        try:
            changed = os.stat(self.project.root.state).st_mtime_ns
            if changed != self.state_changed:
                self.state, self.state_changed = self.project.store.read(), changed
        except TROUBLE as error:
            if self.auto is not None:
                self.auto.state_unreadable(error)
            return  # the next reader or writer reports it
        if self.auto is not None:
            self.auto.state_unreadable(None)
        for name, record in self.state.workers.items():
            pid = self.agents.pids.get(name)
            if pid and name in self.lanes and sessions.wants_a_look(record, pid, now_unix()):
                self.lanes[name].poke()

    def _patrol(self) -> None:
        """Check all workers in case a wake-up was missed; not while an earlier patrol is running."""
        self._find_new_workers()
        if self.notices is None:
            self._open_notices()
        self._look_at_trash(monotonic())
        self._chore(chores.look_at_rows)
        self._chore(chores.finish_undo)
        if (
            self.withdrawing is None or self.withdrawing.done()
        ):  # a remote that does not answer holds up one thread
            self.withdrawing = self._chore(chores.withdraw_work)
        interval_s = max(CLIENT_WATCH_S, self.project.config.defaults.patrol_interval_secs)
        jump = self.watch.tick(now_unix(), monotonic(), interval_s)
        if jump:
            self.log.info(jump, extra={"action": "clock_jump"})
        if self.patrolling is None or self.patrolling.done():
            self.patrolling = self._in_background(self._patrol_once(jump))

    def _look_at_trash(self, now: float) -> None:
        """Prune the trash once an hour. Time is measured here: a wrong clock must not make work look old."""
        if self.looked_at_trash is not None and now - self.looked_at_trash < TRASH_S:
            return
        ran_s = None if self.looked_at_trash is None else now - self.looked_at_trash
        self.looked_at_trash = now
        self._chore(chores.prune_trash, ran_s)

    def _chore(self, work: Callable[..., None], *more: object) -> asyncio.Future[None]:
        return self.loop.run_in_executor(self.pool, work, self.project, self.log, *more)

    async def _patrol_once(self, jump: str) -> None:
        begun = self._chore(chores.begin_patrol, jump)
        with contextlib.suppress(TimeoutError):  # a source that does not answer holds up no worker
            await asyncio.wait_for(asyncio.shield(begun), FETCH_WAIT_S)
        for lane in self.lanes.values():
            lane.poke(patrol=True)

    def _open_notices(self) -> None:
        try:
            self.notices = Notices(self.project)
        except TROUBLE as error:  # the next patrol tries again
            self.log.info(str(error), extra={"action": "notices_not_read"})

    def _tell(self) -> None:
        """Send notifications for new events; not while an earlier run is still busy."""
        if self.notices is not None and (self.telling is None or self.telling.done()):
            self.telling = self.loop.run_in_executor(self.pool, self.notices.tell, self.project)

    def _start_new(self, known: Mapping[WorkerName, WorkerRecord]) -> list[asyncio.Future[None]]:
        """Start each worker of this daemon that has no lane yet."""
        others = {*self.lanes, *self.seen, *not_ours(known, self.auto)}
        new = [name for name in known if name not in others]
        # Its first hook must not look like that of a new worker.
        self.seen |= dict.fromkeys(new, Status.OFFLINE)
        starts = [self._in_background(self._start_worker(name, index)) for index, name in enumerate(new)]
        self.starts.update(starts)
        return starts

    async def _start_worker(self, name: WorkerName, index: int) -> None:
        await asyncio.sleep(index * self.project.config.defaults.start_stagger_s)
        try:
            await self._open_lane(name)
        except TROUBLE as error:
            self.log.info(f"{name}: {error}", extra={"action": "start_failed", "worker": name})
        except Exception as error:  # one worker must not stop the others
            self.log.exception(
                f"bug in the start of {name}",
                extra={"action": "start_failed", "worker": name, "cause": "bug"},
            )
            with contextlib.suppress(Exception):
                self.rounds.tell_trouble(name, error)
        if name not in self.lanes:
            self.seen.pop(name, None)  # so that the next patrol starts it

    async def _open_lane(self, name: WorkerName) -> None:
        line = await self.loop.run_in_executor(self.pool, self._bring_up, name)
        say(line)
        record = self.project.store.read().workers.get(name)
        if record is None:  # removed in the meantime
            self.seen.pop(name, None)
            return
        self.born[name] = record.created_at_unix
        work = self.rounds.look, self.pool, self.log, self.rounds.tell_trouble
        self.lanes[name] = Lane(name, self.root_name, *work)
        self.lanes[name].poke()
        pane = await self.loop.run_in_executor(self.pool, self.project.pane, record)
        if isinstance(pane, Pane) and not pane.dead:
            self.agents.watch(name, pane.pid)

    def _bring_up(self, name: str) -> str:
        """Set up worktree and agent of one worker; the line to print for it."""
        try:
            with clock.watched(lane_name(name), self.root_name):
                problem = bring_up(self.project, name)
        except ShuttingDown:
            problem = "the daemon is stopping"
        if problem:
            self.log.info(problem, extra={"action": "start_failed", "worker": name})
            return f"{name}: not started: {problem}"
        record = self.project.store.read().workers.get(WorkerName(name))
        return f"{name}: {record.status if record else 'removed'}"

    def _poke_queued(self) -> None:
        """Wake the lanes of the workers that an accept queued for a rebase."""
        for name, record in self.project.store.read().workers.items():
            if record.rebase_due and name in self.lanes:
                self.loop.call_soon_threadsafe(self.lanes[name].poke)

    def _current_project(self) -> Project:
        """The project with the current configuration: an accept follows the rules of now, not those of our start.

        Raises if the configuration is invalid, so that nothing is done by unknown rules.
        """
        try:
            changed = self.project.root.config.stat().st_mtime_ns
        except OSError as error:
            raise explain(error, f"cannot read {self.project.root.config}") from error
        if changed != self.config_changed:
            self.project = self._as_daemon(open_project(str(self.project.root.path)))
            self.config_changed = changed
            self.loop.call_soon_threadsafe(self.goals.update, self.project)
        return self.project

    def _listen(self, sock: socket.socket) -> None:
        self.wake_ups = 0
        self.loop.add_reader(sock, self._drain, sock)

    def _drain(self, sock: socket.socket) -> None:
        names: set[str] = set()
        while self.wake_ups < MOST_WAKE_UPS and (name := receive(sock)) is not None:
            self.wake_ups += 1
            names.add(name)
        if self.wake_ups == MOST_WAKE_UPS:
            # An agent floods the socket, so that wake-ups of others are lost: look at all workers, and pause.
            self.loop.remove_reader(sock)
            self.paused = self.loop.call_later(CLIENT_WATCH_S, self._listen, sock)
            names |= self.lanes.keys()
        if "" in names and (number := control.accept_request(self.project.root, self.instance_id)):
            self.told(number)
        for name in names & self.lanes.keys():
            self.lanes[name].poke()
        if names - self.lanes.keys():
            self._find_new_workers()
            self.goals.poke()

    def _find_new_workers(self) -> None:
        """Follow workers that were added or removed."""
        try:
            known = self._current_project().store.read().workers
        except TROUBLE as error:
            self.log.info(str(error), extra={"action": "workers_not_read"})
            return
        self._drop_removed({name: record.created_at_unix for name, record in known.items()})
        self._start_new(known)

    def _drop_removed(self, born: Mapping[WorkerName, float]) -> None:
        for name in [name for name in self.lanes if born.get(WorkerName(name)) != self.born[name]]:
            self._in_background(self.lanes.pop(name).stop())
            self.seen.pop(name, None)

    def _in_background(self, work: Coroutine[None, None, None]) -> asyncio.Future[None]:
        """Run a coroutine as a task, and keep a strong reference; the loop keeps only a weak one."""
        task = asyncio.ensure_future(work)
        self.background.add(task)
        task.add_done_callback(self.background.discard)
        return task

    async def _shut_down(self) -> None:
        say("another daemon is taking over; the agents keep running" if self.handing_over else "stopping ...")
        self.stopping.set()
        self.goals.stop()
        for unfinished in (*self.starts, self.patrolling):
            if unfinished is not None:
                unfinished.cancel()
        await asyncio.gather(*(lane.stop() for lane in self.lanes.values()))
        stuck = await self._drained()
        try:
            if self.auto is not None:
                await self.loop.run_in_executor(self.pool, self.auto.stop, stuck)
            if not self.handing_over:
                await self._end_agents(stuck)
            self._record_end()
            if not self.handing_over and not self._run_on() and (left := close_server(self.project)):
                say(told_of(self.project, left))
        except TROUBLE as error:
            say(f"{error}; stopping every session")
            with contextlib.suppress(*TROUBLE):
                end_every_session(self.project)
        await asyncio.to_thread(self._last_words, stuck)  # other roots of this process keep running

    def _record_end(self) -> None:
        """Before the last digest, so that nothing takes this end for a kill."""
        auto, why = self.auto is not None and self.auto.has_begun, self._why_it_ends()
        with self.project.store.transaction() as tx:
            if self.interrupted:
                tx.remember_auto(False)
            elif auto:
                tx.interrupt_auto(why)
            tx.emit("daemon_stopped", reason=why, instance_id=self.instance_id, auto=auto)

    def _why_it_ends(self) -> str:
        """Why the daemon stops, if neither the user nor auto mode ended it."""
        if self.handing_over:
            return "another daemon took over"
        if self.interrupted or self.ended_by_itself:
            return ""
        return f"the daemon was stopped by {self.signal.name}" if self.signal else "the daemon failed"

    def _last_words(self, stuck: set[str]) -> None:
        self.pool.shutdown(wait=not stuck)
        self.log.info("stopped", extra={"action": "daemon_stopped"})
        if self.auto is not None:
            self.auto.report(self.started_unix)
        if self.notices is not None:
            self.notices.tell(self.project)
        if self.auto is not None:
            self.auto.tell_failure()
        notify.flush()

    async def _end_agents(self, stuck: set[str]) -> None:
        left_out = {*stuck, *self._run_on()}
        names = [name for name in self.project.store.read().workers if name not in left_out]
        for name in self._run_on():
            say(f"{name}: still running")
        ends = [self.loop.run_in_executor(self.pool, self._end, name) for name in names]
        for line in await asyncio.gather(*ends):
            say(line)

    def _run_on(self) -> list[WorkerName]:
        """The user's own workers, which keep running when auto mode ends."""
        workers = self.project.store.read().workers if self.ended_by_itself else {}
        return [
            name
            for name, record in workers.items()
            if not record.auto and record.status is not Status.OFFLINE
        ]

    async def _drained(self) -> set[str]:
        """Wait for running rounds; the workers whose round did not finish. Each of its steps can be repeated."""
        deadline = monotonic() + DRAIN_S
        while clock.running(self.root_name) and monotonic() < deadline:
            await asyncio.sleep(0.02)
        stuck = {name for name in self.seen if lane_name(name) in clock.running(self.root_name)}
        for name in stuck:
            text = f"{lane_name(name)} did not finish within {DRAIN_S:g} s"
            self.log.error(text, extra={"action": "stuck", "worker": name, "cause": "bug"})
            say(text)
        return stuck

    def _end(self, name: str) -> str:
        problem = take_down(self.project, name)
        if problem:
            self.log.info(problem, extra={"action": "end_failed", "worker": name})
        return problem or f"{name}: stopped"

    def _register(self, *, ready: bool) -> None:
        agent = agent_for(self.project)
        about: dict[str, Any] = {"auto": self.auto is not None, "ready": ready}
        about |= {"agent": agent.name, "program": agent.program(), "version": self.agent_version}
        if self.auto is not None:
            about["concurrency"] = len(self.auto.workers)
        write_registration(self.project.root, self.instance_id, self.started_unix, **about)
        if not ready:
            with self.project.store.transaction() as tx:
                if self.auto is None:
                    tx.forget_end_of_auto()
                about = {"pid": os.getpid(), "instance_id": self.instance_id}
                if tx.state.auto.run == "running":  # nobody recorded the end of that run
                    killed = tx.state.auto.run_instance
                    beat_unix = sight.last_beat(self.root_name, killed)
                    about |= {"killed": killed, "silent_s": tx.now - beat_unix if beat_unix else None}
                tx.emit("daemon_started", **about)
            self.log.info("started", extra={"action": "daemon_started", "pid": os.getpid()})
