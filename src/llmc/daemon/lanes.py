"""Lanes: work for one worker runs in sequence, for different workers in parallel.

A lane is a task of the event loop that sleeps until it is poked, and does its blocking work in a thread of the
daemon's pool. The pool has a thread for every lane, so a long command holds up only its own worker.
"""

import asyncio
import logging
import re
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from msgspec import Struct, field

from llmc.auto.usage import Meters, record_usage
from llmc.base import clock
from llmc.base.clock import monotonic, now_unix
from llmc.base.errors import LlmcError, LockTimeout, NotFound, Refused
from llmc.base.given import written_out
from llmc.base.names import WorkerName
from llmc.base.panes import Pane
from llmc.base.proc import ShuttingDown
from llmc.daemon.auto import AutoMode
from llmc.daemon.log import say
from llmc.daemon.watches import AgentsWatch, Watch
from llmc.records.worker import Status, WorkerRecord
from llmc.repo.project import Project
from llmc.sessions import requests, sessions
from llmc.workers.patrol import finish_interrupted, patrol, rebase_if_queued

#: how soon to check a worker again whose lock was taken
RETRY_S = 1.0


class Threads(ThreadPoolExecutor):
    """A pool that accepts work even if the system has no thread left: its first thread, started early, does it later."""

    def __init__(self, most: int, name: str) -> None:
        super().__init__(most, name)
        self.submit(int)

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                raise


def lane_name(worker: str) -> str:
    return f"the daemon's work on {worker}"


class Lane:
    """The queue of one worker; pokes during a round cause one more round."""

    def __init__(
        self,
        name: str,
        root: str,
        work: Callable[[str, bool], None],
        pool: ThreadPoolExecutor,
        log: logging.Logger,
        tell: Callable[[str, Exception | None], None] = lambda name, error: None,
    ) -> None:
        """`tell` gets an error, or None for the first good round after it."""
        self.name = name
        self._root = root
        self._tell = tell
        self._has_failed = True  # possibly in the previous daemon
        self._work = work
        self._pool = pool
        self._log = log
        self._poked = asyncio.Event()
        self._patrol_due = False
        self._task = asyncio.create_task(self._run())

    def poke(self, *, patrol: bool = False) -> None:
        """Run a round soon; with `patrol`, apply the rules of patrol too."""
        self._patrol_due |= patrol
        self._poked.set()

    async def stop(self) -> None:
        """Finish the current round, then stop."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._poked.wait()
            self._poked.clear()
            patrol, self._patrol_due = self._patrol_due, False
            loop = asyncio.get_running_loop()
            done = await asyncio.shield(loop.run_in_executor(self._pool, self._round, patrol))
            if not done:
                loop.call_later(RETRY_S, partial(self.poke, patrol=patrol))

    def _round(self, patrol: bool) -> bool:
        """Run a round; False while a command holds the worker's lock."""
        try:
            with clock.watched(lane_name(self.name), self._root):
                self._work(self.name, patrol)
            self._say(None)
        except LockTimeout:
            # The command wakes us when it is done; a killed one cannot, so check again.
            return False
        except ShuttingDown:
            pass  # what is left is in the state; the next daemon does it
        except LlmcError as error:
            self._log.info(
                error.message, extra={"action": "lane_problem", "worker": self.name, "hint": error.hint}
            )
            self._say(error)
        except Exception as error:
            self._log.exception(
                f"bug in {lane_name(self.name)}",
                extra={"action": "lane_failed", "worker": self.name, "cause": "bug"},
            )
            self._say(error)
        return True

    def _say(self, error: Exception | None) -> None:
        """Tell the user once; a failure here must not stop the lane."""
        if error is None and not self._has_failed:
            return
        try:
            self._tell(self.name, error)
            self._has_failed = error is not None
        except Exception:
            self._log.info(
                f"cannot report the failure of {lane_name(self.name)}",
                extra={"action": "lane_problem", "worker": self.name},
            )


#: a failed round may succeed a moment later; after this the user is told
PASSES_S = 10.0


class Rounds(Struct):
    """The work of a round, shared by all lanes of a daemon. Each lane runs it in a thread of its own."""

    #: the project with the current configuration
    _current: Callable[[], Project]
    _log: logging.Logger
    _watch: Watch
    _agents: AgentsWatch
    _auto: AutoMode | None
    #: the last status printed for each worker
    _seen: dict[str, Status]
    #: wakes the lanes of workers that an accept has queued
    _poke_queued: Callable[[], None]
    #: called when a worker's status changed
    _on_status: Callable[[], None]
    _meters: Meters = field(default_factory=Meters)
    _failing_since: dict[str, float] = field(default_factory=dict)

    def look(self, name: str, patrol: bool) -> None:
        """One round of a lane: finish what was interrupted, apply hooks, detect a dead session, patrol."""
        try:
            project = self._current()
            requests.answer(project, name)
            with project.worker_lock(name, timeout_s=0.2):
                accepting = project.store.worker(name).accept is not None
                record, problem = self._finish(project, name)
                if record.status is not Status.OFFLINE:
                    sessions.reconcile(project, name)
                auto = self._auto_of(name)
                if auto is None:
                    record_usage(project, name, self._meters)
                if not (project.stopping and project.stopping()):
                    self._look_after(project, name, patrol)
                    if auto is not None:
                        clock = self._watch.clock(name, now_unix(), monotonic())
                        auto.look(project, name, clock, problem)
            if accepting and record.accept is None:
                self._poke_queued()
            if name not in self._agents.pids and record.status is not Status.OFFLINE:
                pane = project.pane(record)
                if isinstance(pane, Pane) and not pane.dead:
                    self._agents.found(name, pane.pid)
            self._announce(project, name)
        except NotFound:
            if name in self._current().store.read().workers:
                raise
            # Removed: its lane stops at the next wake-up.
        except (LockTimeout, Refused, ShuttingDown):
            raise
        except LlmcError as error:
            if auto := self._auto_of(name):
                auto.could_not_look(name, error)
            raise

    def tell_trouble(self, name: str, error: Exception | None) -> None:
        """Record a failed round, or with None a good one after it. A failure that may pass is reported only if it lasts."""
        if error is None:
            self._failing_since.pop(name, None)
        elif isinstance(error, LlmcError):
            since = self._failing_since.setdefault(name, monotonic())
            if isinstance(error, Refused) or monotonic() - since < PASSES_S:
                return
        key = f"lane {name}"
        with self._current().store.transaction() as tx:
            if error is None:
                tx.clear_item(key)
                return
            record = tx.state.workers.get(WorkerName(name))
            task = record.assignment.task_id if record is not None and record.assignment is not None else ""
            where = name + (f" (task {task})" if task else "")
            tx.raise_item(key, severity="blocked", who=name, **_trouble(where, error))

    def _auto_of(self, name: str) -> AutoMode | None:
        """Auto mode, if it drives this worker."""
        return self._auto if self._auto is not None and name in self._auto.workers else None

    def _finish(self, project: Project, name: str) -> tuple[WorkerRecord, LlmcError | None]:
        """Finish what a crash interrupted. Auto mode handles errors of auto workers; others are for the user."""
        try:
            return finish_interrupted(project, name), None
        except LlmcError as error:
            if self._auto_of(name) is None:
                raise
            self._log.info(error.message, extra={"action": "lane_problem", "worker": name})
            return project.store.worker(name), error

    def _look_after(self, project: Project, name: str, by_patrol: bool) -> None:
        """Apply the rules of patrol, and the rebase that another landing requested."""
        # An auto worker's work is rebased when it lands, which is immediately.
        problem = None if self._auto_of(name) else rebase_if_queued(project, name)
        held = project.store.worker(name).held
        if by_patrol:
            failed_s = self._watch.since_rebase_failed_s(name, monotonic())
            done = patrol(project, name, self._watch.clock(name, now_unix(), monotonic()), failed_s)
            held, problem = done.taken, done.rebase_problem or problem
        self._watch.see(name, held, monotonic())
        if problem:
            self._watch.rebase_failed(name, monotonic())
            self._log.info(problem.message, extra={"action": "rebase_put_off", "worker": name})

    def _announce(self, project: Project, name: str) -> None:
        record = project.store.worker(name)
        if self._seen.get(name) is not record.status:
            self._seen[name] = record.status
            self._on_status()
            reason = f" ({record.reason})" if record.reason else ""
            wants_a_person = (
                record.status in (Status.NEEDS_REVIEW, Status.ERROR) and record.reason != "rebased"
            )
            bell = wants_a_person and project.config.defaults.sound_on_review
            say(f"{time.strftime('%H:%M:%S')} {name}: {record.status}{reason}", bell=bell)


def _trouble(where: str, error: Exception) -> dict[str, str]:
    """The attention item of a worker whose lane fails."""
    if isinstance(error, LlmcError):
        command = re.search("`(llmc [^`]+)`", error.hint)
        text = f"{where}: the daemon cannot continue with this worker: {error.message}"
        return {"kind": "trouble", "text": text, "next": command[1] if command else "llmc doctor"}
    last = "".join(traceback.format_exception_only(error)).strip()[-500:]
    return {
        "kind": "bug",
        "text": f"{where}: bug in llmc: {written_out(last)}",
        "next": "llmc logs daemon",
    }
