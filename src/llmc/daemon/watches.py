"""What the daemon watches: agent processes, the time between patrols, a source in use, and its own heartbeat."""

import asyncio
import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct, field

from llmc.auto.rules.waiting import source_is_due, source_pause_s
from llmc.base import clock
from llmc.base.clock import now_unix
from llmc.base.errors import TROUBLE
from llmc.base.files import write_atomic
from llmc.base.processes import is_alive
from llmc.base.wake import POLL_S
from llmc.config.paths import Root
from llmc.hook_client import PORTABLE
from llmc.records.sight import source_is_free
from llmc.records.state import AutoState
from llmc.repo.project import Project
from llmc.workers.rules import Clock, clock_jump

#: how soon to check an exited agent again while tmux still reports it as running
ENDED_S = 0.1


class AgentsWatch(Struct):
    """Wakes the lane of a worker when its agent's process exits."""

    _loop: asyncio.AbstractEventLoop
    #: checks a worker after that many seconds; from any thread
    _poke_after: Callable[[str, float], None]
    #: the running agents, by worker
    pids: dict[str, int] = field(default_factory=dict)

    def watch(self, name: str, pid: int) -> None:
        """In the loop's thread: check the worker when this process exits."""
        if PORTABLE:
            if self.pids.get(name) != pid:
                self.pids[name] = pid
                self._look_again(name, pid)
            return
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return
        if self.pids.get(name) == pid:
            os.close(fd)
            return
        self.pids[name] = pid

        def ended() -> None:
            self._loop.remove_reader(fd)
            os.close(fd)
            if self.pids.get(name) == pid:
                del self.pids[name]
            self._poke_after(name, 0.0)

        self._loop.add_reader(fd, ended)

    def _look_again(self, name: str, pid: int) -> None:
        """Without pidfds: poll whether the process still exists."""
        if self.pids.get(name) == pid and is_alive(pid):
            self._loop.call_later(POLL_S, self._look_again, name, pid)
        elif self.pids.get(name) == pid:
            del self.pids[name]
            self._poke_after(name, 0.0)

    def found(self, name: str, pid: int) -> None:
        """From any thread: watch an agent that a command launched; one that exited before tmux noticed is checked again."""
        if is_alive(pid):
            self._loop.call_soon_threadsafe(self.watch, name, pid)
        else:
            self._poke_after(name, ENDED_S)


class Watch(Struct):
    """Limits ages to the time in which the clock, the daemon and the worker ran without a pause."""

    wall: float
    monotonic: float
    _trusted_since: float = float("-inf")
    _free_since: dict[str, float] = field(default_factory=dict)
    _taken: dict[str, bool] = field(default_factory=dict)
    _rebase_failed: dict[str, float] = field(default_factory=dict)

    def begin(self, wall: float, monotonic: float) -> None:
        """Start watching; the time before the first patrol is not a pause."""
        self.wall, self.monotonic = wall, monotonic

    def tick(self, wall: float, monotonic: float, interval_s: float) -> str:
        """Record a patrol; returns why timeouts are suspended for one full interval, "" if they are not."""
        why = clock_jump(interval_s, monotonic - self.monotonic, wall - self.wall)
        self.wall, self.monotonic = wall, monotonic
        if why:
            self._trusted_since = monotonic
        return why

    def see(self, name: str, taken: bool, monotonic: float) -> None:
        """Pause timeouts while the user has the worker."""
        if taken or self._taken.get(name):
            self._free_since[name] = monotonic
        self._taken[name] = taken

    def clock(self, name: str, wall: float, monotonic: float) -> Clock:
        """For one worker: the time since the last pause or jump."""
        since = max(self._trusted_since, self._free_since.get(name, float("-inf")))
        return Clock(wall, monotonic - since)

    def rebase_failed(self, name: str, monotonic: float) -> None:
        self._rebase_failed[name] = monotonic

    def since_rebase_failed_s(self, name: str, monotonic: float) -> float:
        return monotonic - self._rebase_failed.get(name, float("-inf"))


class SourceWatch(Struct):
    """While work waits to land, notices when the user's changes in the source are gone, as `llmc status` does."""

    _threads: ThreadPoolExecutor
    _say: Callable[[str], None]
    _looking: bool = False
    _next: float = 0.0
    #: the last look, or the accept before it, found the user's changes; if git refuses a clean source, looks do not retry
    _in_use: bool = True

    def tick(self, project: Project, auto: AutoState) -> None:
        """Called once a second, in the daemon's loop."""
        if (
            not auto.source_repo_dirty_retry_count
            or project.lands_elsewhere
            or source_is_due(auto, now_unix())
        ):
            return
        if auto.source_repo_dirty_retry_count == 1:  # a new wait: its accept found the changes
            self._in_use = True
        if not self._looking and clock.monotonic() >= self._next:
            self._looking = True
            asyncio.get_running_loop().run_in_executor(self._threads, self._look, project)

    def _look(self, project: Project) -> None:
        began = clock.monotonic()
        try:
            is_free = source_is_free(project.store.read_raw())
            if is_free and self._in_use:
                self._land_now(project)
            self._in_use = self._in_use if is_free is None else not is_free
        except TROUBLE:
            pass  # the next look retries, or the end of the wait does
        finally:
            self._next = clock.monotonic() + source_pause_s(clock.monotonic() - began)
            self._looking = False

    def _land_now(self, project: Project) -> None:
        with project.store.transaction() as tx:
            if not tx.state.auto.source_repo_dirty_retry_count:
                return  # it has landed
            # Auto mode gives up after waits without a clean moment in between.
            tx.update_auto(source_repo_dirty_retry_after_unix=tx.now, source_repo_dirty_retry_count=1)
        self._say("the source repository is clean again; landing now")


INTERVAL_S = 5.0
#: heartbeats per supervisor timeout
BEATS = 4
#: how long the loop or a lane may take for one step; drills use less
STUCK_S = float(os.environ.get("LLMC_STUCK_S") or 120.0)


class Heartbeat:
    """Writes heartbeats in its own thread, and pauses while the main loop or a lane is stuck."""

    def __init__(
        self, root: Root, instance_id: str, on_stuck: Callable[[str], None], timeout_s: float = 30.0
    ) -> None:
        self._root = root
        self._instance_id = instance_id
        self._on_stuck = on_stuck
        self._interval_s = min(INTERVAL_S, timeout_s / BEATS)
        self._mark = time.monotonic()
        self._stop = threading.Event()
        self._said = ""
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._beat()
        self._thread.start()

    def mark(self) -> None:
        """Note that the event loop makes progress."""
        self._mark = time.monotonic()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=2 * self._interval_s)

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self._beat()

    def _beat(self) -> None:
        stuck = (
            "the daemon's main loop"
            if time.monotonic() - self._mark > STUCK_S
            else clock.stuck(STUCK_S, str(self._root.path))
        )
        if stuck is None:
            body = {"timestamp_unix": now_unix(), "instance_id": self._instance_id}
            try:
                write_atomic(self._root.heartbeat, json.dumps(body).encode())
            except Exception:
                return  # others report a full disk; the next heartbeat may work
        elif stuck != self._said:
            self._said = stuck
            # A log that cannot be written must not stop the heartbeats.
            with contextlib.suppress(Exception):
                self._on_stuck(stuck)
