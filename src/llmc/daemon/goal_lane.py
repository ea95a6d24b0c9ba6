"""The goals' lane in the daemon: ticks periodically and after relevant events, without holding up a worker."""

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor

from llmc.base.clock import now_unix
from llmc.daemon.lanes import Threads
from llmc.goals.desk import Aside
from llmc.goals.goals import log
from llmc.goals.runner import Runner
from llmc.goals.ticks import Ticked
from llmc.repo.project import Project

#: how long to collect events that happen together
SETTLE_S = 0.2
#: minimum wait for a tick that the last one asked for
LEAST_S = 0.5


class GoalsLane:
    """One tick at a time, in a thread of the daemon's pool. The configuration turns it on and off at run time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: ThreadPoolExecutor) -> None:
        self._loop = loop
        self._pool = pool
        self._planners = Threads(1, "planner")
        self._runner: Runner | None = None
        self._project: Project | None = None
        self._ticking = False
        self._poked = False
        self._timer: asyncio.TimerHandle | None = None

    def update(self, project: Project) -> None:
        """Apply the current configuration: start, continue or stop."""
        was_on = self._project is not None
        self._project = project if project.config.overseer.goals.enabled else None
        if self._project is None and was_on:
            self._cancel()
            log(project, "goals disabled")
        elif self._project is not None and not was_on:
            self._runner = Runner(project, Aside(self._planners, self.poke))
            log(project, "goals enabled")
            self._after(0.0, "start")

    def poke(self) -> None:
        """Tick soon because something happened; from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop and its planner have ended
            self._loop.call_soon_threadsafe(self._poke)

    def stop(self) -> None:
        self._project = None
        self._cancel()
        self._planners.shutdown(wait=False, cancel_futures=True)

    def _poke(self) -> None:
        if self._project is None:
            return
        if self._ticking:
            self._poked = True
        elif self._timer is None or self._timer.when() > self._loop.time() + SETTLE_S:
            self._after(SETTLE_S, "wake")

    def _after(self, delay_s: float, reason: str) -> None:
        self._cancel()
        self._timer = self._loop.call_later(delay_s, self._begin, reason)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self, reason: str) -> None:
        self._timer = None
        if self._project is None or self._runner is None:
            return
        if self._ticking:  # turned off and on again within a tick
            self._poked = True
            return
        self._ticking = True
        work = self._loop.run_in_executor(self._pool, self._runner.tick, self._project, reason)
        work.add_done_callback(self._ended)

    def _ended(self, work: "asyncio.Future[Ticked]") -> None:
        self._ticking = False
        if self._project is None or work.cancelled():
            return
        every_s = self._project.config.overseer.goals.tick_every
        try:
            due = work.result().next_due
        except Exception as bug:
            due = None
            log(self._project, f"tick failed: bug in llmc: {type(bug).__name__}: {bug}")
        if self._poked:
            self._poked = False
            self._after(SETTLE_S, "wake")
        else:
            soon = every_s if due is None else max(LEAST_S, min(every_s, due - now_unix()))
            self._after(soon, "interval" if due is None else "due")
