"""Auto mode in the daemon: wakes its workers, checks once a second what no event reports, and ends the run."""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from llmc.attention import raising
from llmc.auto import attend, landing, parks
from llmc.auto.auto_run import HardFailure, Run
from llmc.auto.rules import waiting
from llmc.auto.rules.steps import is_free, waits_for_answer
from llmc.auto.usage import Spending
from llmc.base.clock import monotonic, now_unix
from llmc.base.errors import TROUBLE, ConfigError, LlmcError, LockTimeout, Unreachable
from llmc.base.faults import step as fault_step
from llmc.base.files import DiskFull, is_shortage
from llmc.base.names import WorkerName
from llmc.base.proc import ShuttingDown
from llmc.base.wake import inode
from llmc.config.load import load_config
from llmc.daemon.auto_options import AutoOptions
from llmc.daemon.log import say
from llmc.daemon.watches import Heartbeat, SourceWatch
from llmc.notifications import notify, rules
from llmc.records.items import up_auto
from llmc.records.state import State
from llmc.records.worker import Cause, Status, WorkerRecord
from llmc.repo import setup
from llmc.repo.project import Project
from llmc.reports.digest import report, text_of
from llmc.reports.rules.digest_text import ended_notice
from llmc.sessions import persons
from llmc.tasks import pool_command, queue
from llmc.tasks.queue import Queue
from llmc.tasks.source import Watching
from llmc.workers.rules import Clock
from llmc.workers.up_and_down import take_down

if TYPE_CHECKING:
    from llmc.daemon.node import Node


class TaskPool(Struct):
    """Asks the task pool command for a task when the list has none."""

    _queue: Queue
    _threads: ThreadPoolExecutor
    _fail: Callable[[HardFailure], None]
    _say: Callable[[str], None]
    _asking: bool = False
    _left: bool | None = True  # answers may be saved: by a crashed process, or (False) by a turn that failed
    _next: float = 0.0

    def tick(self, project: Project, is_wanted: bool) -> None:
        """Called once a second, in the daemon's loop."""
        if (
            not project.config.auto.task_pool_command
            or not is_wanted
            or self._asking
            or monotonic() < self._next
        ):
            return
        self._asking = True
        self._next = monotonic() + project.config.defaults.patrol_interval_secs
        asyncio.get_running_loop().run_in_executor(self._threads, self._ask, project)

    def _ask(self, project: Project) -> None:
        try:
            if self._left is not None:
                pool_command.take_up(project, self._queue.source, crashed=self._left)
                self._left = None
            if self._queue.count_ready() == 0 and not self._queue.unsettled:
                task = pool_command.take_in(project, self._queue.source)
                if task is not None:
                    self._say(f"the task pool command added task {task.id}: {task.subject[:60]}")
        except pool_command.PoolFailed as error:
            self._fail(HardFailure(error.cause, error.reason, output=error.output))
        except (ShuttingDown, LockTimeout, Unreachable):
            self._left = bool(self._left)  # the next turn tries again
        except (DiskFull, OSError) as error:
            self._fail(HardFailure(Cause.DISK, f"cannot store the task from the task pool command: {error}"))
        except LlmcError as error:
            self._fail(HardFailure(Cause.COMMAND, f"the task pool command failed: {error.message}"))
        finally:
            self._asking = False


#: pause between two workers that resume after a park
STAGGER_S = 2.0
PULSE_S = 1.0
#: how often to check whether a failing default branch has moved
BASE_S = 1.0
#: how long a config file may stay invalid while it is edited
CONFIG_SETTLE_S = 2.0
#: for how many ticks state.json may be unreadable because the system is short of resources
SHORT_TICKS = 10
#: how long to collect changes of the task list
SETTLE_S = 0.02


class AutoMode:
    """The part of the daemon that `--auto` adds."""

    def __init__(
        self,
        project: Project,
        options: AutoOptions,
        log: logging.Logger,
        pool: ThreadPoolExecutor,
        poke: Callable[[str, float], None],
        end: Callable[[int], None],
        current: Callable[[], Project],
    ) -> None:
        """`poke` checks a worker after that many seconds, `end` stops the daemon; both from any thread.

        `current`: the project with the current configuration.
        """
        if not project.config.auto.task_list_id:
            raise queue.no_task_list()
        numbers = range(1, project.config.auto.concurrency + 1)
        self.workers = tuple(WorkerName(f"auto-{number}") for number in numbers)
        self._options = options
        self._log = log
        self._threads = pool
        self._poke = poke
        self._end = end
        self._current = current
        self._failed: HardFailure | None = None
        self._run = Run(
            queue=queue.open_queue(project),
            workers=self.workers,
            on_change=self._look_for_work,
            look_again=poke,
            say=self._say,
            spending=Spending(options.max_cost),
            current=current,
            max_tasks=options.max_tasks,
        )
        self._pool = TaskPool(self._run.queue, pool, self.fail, self._say)
        self._source = SourceWatch(pool, self._say)
        self._project = project
        self._node = self._as_node() if project.config.fleet.database else None
        self._watch: Watching | None = None
        self._is_unwatched = False
        self._heartbeat: Heartbeat | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looking = False
        self._ended = False
        self._instance_id = ""
        self._missing_said = False
        self._persons_said = False
        self._base_fails = False
        self._base_next = 0.0
        self._socket = 0
        self._config_seen = project.root.config.stat().st_mtime
        self._config_gone_at = 0.0
        self._unread = 0

    def _as_node(self) -> "Node":
        from llmc.daemon.node import Node

        told = self._hear_again, self._current, self._run_post_accepts, self._has_use_for_a_task
        return Node(self._project, self._run, self._log, self._threads, *told)

    def _run_post_accepts(self) -> None:
        self._guarded(partial(attend.run_due, self._current()))

    def prepare(self) -> None:
        """Check everything before an agent starts; then set up workers, and settle what a crash left."""
        project = self._project
        queue.contexts(project)
        self._run.queue.source.prepare()
        if self._node is not None:
            self._node.start()
        self._run.queue.check()
        setup.ensure_auto_workers(project, self.workers)
        attend.settle(self._run, project)
        self._release_others()

    def _release_others(self) -> None:
        """Release the tasks of auto workers that only an earlier run had, and stop their agents, except the user's."""
        workers = self._project.store.read().workers
        others = {name for name in not_ours(workers, self) if workers[name].assignment is not None}
        self._release(others, "auto mode runs without this worker")
        for name in others:
            record = self._project.store.worker(name)
            if record.assignment is None and not persons.is_person_there(self._project, record):
                take_down(self._project, name)

    def show_life(self, loop: asyncio.AbstractEventLoop, instance_id: str) -> None:
        """Send heartbeats from the registration on, also while worktrees and agents are set up."""
        self._instance_id = instance_id
        timeout_s = self._project.config.overseer.heartbeat_timeout_secs
        self._heartbeat = Heartbeat(self._project.root, instance_id, self._stuck, timeout_s)
        self._heartbeat.start()
        self._socket = inode(self._project.root.wake_socket())
        self._pulse(loop)

    def _pulse(self, loop: asyncio.AbstractEventLoop) -> None:
        """Report that the event loop makes progress, until `begin`; from then on, `tick` does."""
        if self._heartbeat is not None and self._loop is None:
            self._heartbeat.mark()
            loop.call_later(PULSE_S, self._pulse, loop)

    @property
    def has_begun(self) -> bool:
        return self._loop is not None

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start tasks from now on. Heartbeats began earlier, in `show_life`."""
        assert self._heartbeat is not None
        with fault_step("auto.begin"), self._project.store.transaction() as tx:
            ahead_s = tx.state.auto.ahead_s if self._node is not None else None
            begun = {"run": "running", "run_unix": tx.now, "run_cause": "", "run_reason": ""}
            begun["run_instance"] = self._instance_id
            tx.update_auto(**begun, **self._options.recorded(), ahead_s=ahead_s)
            for key in ("budget:run", "budget:day"):
                tx.clear_item(key)
            tx.remember_auto(True)
            tx.emit("auto_started", concurrency=len(self.workers), instance_id=self._instance_id)
        self._watch_list(loop)
        self._loop = loop  # last: the lanes check it, and this run's spending counts from its event
        self._say(f"auto mode started with {len(self.workers)} worker{'s' if len(self.workers) != 1 else ''}")
        for name in self.workers:
            self._poke(name, 0.0)

    def _watch_list(self, loop: asyncio.AbstractEventLoop) -> None:
        """Watch the task list, replacing an earlier watch. If that fails, each tick looks for work and tries again."""
        self._stop_watching(loop)
        try:
            watch = self._run.queue.source.watch()
        except TROUBLE as error:
            if not self._is_unwatched:
                text = f"cannot watch the task list: {error}; looking every second instead"
                self._log.info(text, extra={"action": "watch_failed"})
            self._is_unwatched = True
            return
        self._watch, self._is_unwatched = watch, False
        loop.add_reader(watch.fileno(), self._list_changed)

    def _hear_again(self) -> None:
        """Watch the task list again, and look for work that was missed. From any thread."""
        if (loop := self._loop) is not None:
            loop.call_soon_threadsafe(self._watch_list, loop)
            self._look_for_work()

    def _stop_watching(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._watch is not None:
            loop.remove_reader(self._watch.fileno())
            self._watch.close()
            self._watch = None  # its file descriptor may be reused soon

    def _list_changed(self) -> None:
        assert self._watch is not None
        assert self._loop is not None
        if not self._watch.heard():
            self._watch_list(self._loop)
        self._look_for_work()

    def _look_for_work(self) -> None:
        """Soon wake as many free workers as there are tasks, once for several changes. From any thread."""
        if self._loop is not None and not self._looking:
            self._looking = True
            self._loop.call_soon_threadsafe(self._loop.call_later, SETTLE_S, self._tell_the_idle)

    def _tell_the_idle(self) -> None:
        self._looking = False
        could = self._could_take(self._project.store.read())
        if could and self._loop is not None:
            self._loop.run_in_executor(self._threads, self._tell, could)

    def _could_take(self, state: State) -> list[WorkerName]:
        """Workers that could take a task: those that are free, then those that wait for an answer."""
        free = [record.name for record in self._records(state) if is_free(record)]
        return [*free, *self._asking(state)]

    def _records(self, state: State) -> list[WorkerRecord]:
        return [state.workers[name] for name in self.workers if name in state.workers]

    def _asking(self, state: State) -> list[WorkerName]:
        """Workers that wait for an answer; they take a task if no other worker is free."""
        return [record.name for record in self._records(state) if waits_for_answer(record)]

    def _tell(self, could: list[WorkerName]) -> None:
        try:
            count = self._run.queue.count_ready(free=len(could))
        except TROUBLE:
            count = 1  # reported when a worker asks for a task
        for name in could[:count]:
            self._poke(name, 0.0)

    def look(self, project: Project, name: str, clock: Clock, problem: LlmcError | None) -> None:
        """Do what a worker needs, in its lane; `problem`: why the lane could not finish what was interrupted."""
        self._guarded(partial(attend.attend, self._run, project, name, clock, problem))

    def could_not_look(self, name: str, error: LlmcError) -> None:
        """Handle a lane that failed before `look`."""
        self._guarded(partial(attend.could_not_look, self._run, self._project, name, error))

    def _guarded(self, work: Callable[[], None]) -> None:
        if self._failed is not None or self._loop is None:
            return  # over, or not started yet
        try:
            work()
        except HardFailure as failure:
            self.fail(failure)

    def fail(self, failure: HardFailure) -> None:
        """A hard failure: record it in the log, the state and the events, then stop the daemon."""
        if self._failed is not None:
            return
        self._failed = failure
        try:
            self._report(failure)
        finally:  # even if nothing can be written: no worker may continue
            self._end(1)

    def _report(self, failure: HardFailure) -> None:
        status = self._status_of(failure.worker)
        about = {"worker": failure.worker, **failure.task.fields(), "cause": failure.cause, "status": status}
        with contextlib.suppress(*TROUBLE), self._project.store.transaction() as tx:
            failed = {"run": "failed", "run_cause": str(failure.cause), "run_reason": failure.reason[:1000]}
            tx.update_auto(errors=tx.state.auto.errors + 1, run_unix=tx.now, **failed)
            tx.emit("auto_failed", reason=failure.reason[:1000], instance_id=self._instance_id, **about)
        file = self._run.queue.source.where(failure.task) if failure.task.id else ""
        extra = {"action": "auto_failed", **about, "task_file": file, "output": failure.output[-4000:]}
        self._log.error(failure.reason, extra=extra)
        where = f" ({failure.worker} was {status})" if status else ""
        self._say(f"auto mode failed ({failure.cause}): {failure.reason}{where}")
        if failure.output:
            self._note(failure.output)

    def _status_of(self, worker: str) -> str:
        """A worker's status at the failure; "" if unknown, because the state may be broken."""
        with contextlib.suppress(*TROUBLE):
            record = self._project.store.read().workers.get(WorkerName(worker))
            return str(record.status) if record is not None else ""
        return ""

    def tick(self, state: State) -> None:
        """Called once a second, with the current state, for what only the clock triggers."""
        assert self._heartbeat is not None
        self._heartbeat.mark()
        try:
            self._tick(state)
        except TROUBLE as error:  # a lock is taken for a moment; the next tick retries
            self._log.info(str(error), extra={"action": "tick_problem"})

    def _tick(self, state: State) -> None:
        self._compare(state)
        if self._node is not None:
            self._node.tick(state)
        self._watch_socket()
        self._watch_config()
        now = now_unix()
        if self._options.until_unix is not None and now >= self._options.until_unix:
            self._run.drain("time limit reached", asked=True)
        if self._loop is not None and self._watch is None:
            self._watch_list(self._loop)
            self._look_for_work()
        if self._run.queue.unsettled:
            self._look_for_work()
        self._pool.tick(self._project, is_wanted=self._is_taking(state))
        self._source.tick(self._project, state.auto)
        if state.auto.source_repo_dirty_retry_count and waiting.source_is_due(state.auto, now):
            self._poke_all(state, Status.NEEDS_REVIEW)
        self._watch_base(state)
        if waiting.may_probe(state.auto, now) or (waiting.is_parked(state.auto) and state.auto.probe):
            self._after_park(state)
        self._watch_persons(state)
        for name in self._asking(state) if self._run.draining else ():
            self._poke(name, 0.0)
        if self._run.is_full and not self._run.draining and not self._is_at_work(state):
            for name in self._could_take(state)[:1]:
                self._poke(name, 0.0)  # ends the run, or retries a task
        if self._run.draining and self._is_quiet(state) and not self._ended:
            with self._project.store.transaction() as tx:
                tx.remember_auto(False, self._run.draining if self._run.ends_as_asked else "")
                tx.emit("auto_stopped", reason=self._run.draining, instance_id=self._instance_id)
            self._ended = True
            self._say(f"auto mode finished: {self._run.draining}")
            self._end(0)

    def _watch_base(self, state: State) -> None:
        """Check a failing default branch again when it has moved; once it passes, work continues."""
        fails = state.failing_base is not None
        if fails != self._base_fails:
            self._base_fails = fails
            self._base_next = 0.0
            if state.failing_base is not None:
                branch = self._project.config.repo.default_branch
                fails_at = f"{branch} itself fails `{state.failing_base.command}`"
                self._say(f"{fails_at}; auto mode will not start tasks until {branch} passes")
            else:
                self._say("the default branch passes validation again; work continues")
                self._look_for_work()
        elif not fails or monotonic() < self._base_next:
            return
        local = Path(self._project.source).is_dir()
        interval_s = BASE_S if local else self._project.config.defaults.patrol_interval_secs
        self._base_next = monotonic() + interval_s
        for status in (Status.NEEDS_REVIEW, Status.IDLE):
            self._poke_all(state, status)

    def _watch_persons(self, state: State) -> None:
        """Check the workers that wait for the user: no hook reports that the user left or cleared a draft."""
        records = self._records(state)
        waiting_for = [record.name for record in records if record.person is not None]
        for name in waiting_for:
            self._poke(name, 0.0)
        everybody = bool(records) and len(waiting_for) == len(records)
        if everybody and not self._persons_said:
            self._say(f"every worker is waiting for you ({', '.join(waiting_for)}); see `llmc status`")
        self._persons_said = everybody

    def _is_taking(self, state: State) -> bool:
        """Whether a worker is free and new tasks are started."""
        return self._starts_tasks(state) and any(map(is_free, self._records(state)))

    def _starts_tasks(self, state: State) -> bool:
        is_over = bool(self._run.draining) or self._run.is_full
        return not (is_over or waiting.is_parked(state.auto) or state.failing_base is not None)

    def _has_use_for_a_task(self) -> bool:
        """Whether this node could start a task that another node calls it for."""
        state = self._project.store.read()
        return self._starts_tasks(state) and bool(self._could_take(state))

    def _after_park(self, state: State) -> None:
        if parks.end_if_over(self._run, self._project):
            for index, name in enumerate(self.workers):
                self._poke(name, index * STAGGER_S)
        elif waiting.may_probe(state.auto, now_unix()):
            for name in self.workers:
                self._poke(name, 0.0)

    def _poke_all(self, state: State, status: Status) -> None:
        for record in self._records(state):
            if record.status is status:
                self._poke(record.name, 0.0)

    def _is_at_work(self, state: State) -> bool:
        return any(
            record.assignment is not None and not waits_for_answer(record) for record in self._records(state)
        )

    def _is_quiet(self, state: State) -> bool:
        records = self._records(state)
        at_work = any(record.assignment is not None or record.accept is not None for record in records)
        return not at_work and not state.auto.post_accept_due

    def _compare(self, state: State) -> None:
        """Check that this run's workers are still in the state; if not, something else writes to it."""
        gone = [name for name in self.workers if name not in state.workers]
        missing = [name for name in gone if name not in state.auto.nuked]
        if len(gone) == len(self.workers) and not missing:
            self._run.drain("every auto worker was removed")
        elif len(gone) == len(self.workers):
            self.fail(HardFailure(Cause.BUG, "state corruption: no auto workers in state.json"))
        elif missing and not self._missing_said:
            self._missing_said = True
            text = f"auto workers missing from state.json ({len(missing)} of {len(self.workers)}): {', '.join(missing)}"
            self._log.warning(
                text, extra={"action": "workers_missing", "cause": Cause.BUG, "workers": missing}
            )
            self._say(text)

    def _watch_socket(self) -> None:
        """Check the socket that hooks use to wake us: without it, each of them would wait for a patrol."""
        path = self._project.root.wake_socket()
        if inode(path) != self._socket:
            self.fail(
                HardFailure(Cause.BUG, f"cannot receive hooks: the socket {path} was removed or replaced")
            )

    def _watch_config(self) -> None:
        """A config file that stays unreadable ends auto mode: nothing may land by unknown rules."""
        path = self._project.root.config
        try:
            changed = path.stat().st_mtime
        except OSError as error:  # an editor may rename it and write another
            self._config_gone_at = self._config_gone_at or monotonic()
            if monotonic() - self._config_gone_at > CONFIG_SETTLE_S:
                self.fail(HardFailure(Cause.CONFIG, f"cannot read {path}: {error.strerror}"))
            return
        self._config_gone_at = 0.0
        if changed == self._config_seen or now_unix() - changed < CONFIG_SETTLE_S:
            return
        self._config_seen = changed
        try:
            load_config(path)
        except ConfigError as error:
            self.fail(HardFailure(Cause.CONFIG, error.message))

    def state_unreadable(self, error: Exception | None) -> None:
        """Handle the outcome of reading state.json; None: it was read. A shortage of resources may pass."""
        self._unread = self._unread + 1 if error is not None else 0
        if error is not None and (not is_shortage(error) or self._unread > SHORT_TICKS):
            self.fail(HardFailure(Cause.BUG, f"state corruption: {error}"))

    def stop(self, stuck: Collection[str]) -> None:
        """Start no more tasks, and release the claims. The lanes have stopped, except those in `stuck`."""
        if self._loop is not None:
            self._stop_watching(self._loop)
        if self._heartbeat is not None:
            self._heartbeat.stop()
        self._release(name for name in self.workers if name not in stuck)
        with contextlib.suppress(*TROUBLE):
            raising.sync(self._project, (attend.UNSETTLED,), {})  # the next start tries again
        if self._node is not None:
            self._node.stop()

    def _release(self, names: Iterable[str], *reason: str) -> None:
        for name in names:
            try:
                with self._project.worker_lock(name, timeout_s=20):
                    landing.release(self._run, self._project, name, *reason)
                    persons.left(self._project, self._project.store.worker(name))
            except TROUBLE as error:
                self._log.info(str(error), extra={"action": "release_failed", "worker": name})

    def tell_failure(self) -> None:
        """Notify about the failure directly: the disk may be full, or the state broken. A known incident is not sent twice."""
        if (failure := self._failed) is not None:
            again = up_auto(self._options.recorded(), math.inf)
            told = rules.auto_failed(
                failure.cause, failure.reason[:1000], failure.worker, failure.task.id, again
            )
            notify.post(self._project, told)

    def report(self, since: float) -> None:
        """Send the last events to the other nodes, print the digest, and notify the user."""
        if self._node is not None:
            self._node.tell_last_events()
        with contextlib.suppress(*TROUBLE):
            found = report(self._project, since, ending=True)
            text = text_of(found)
            say(f"\n{text}")
            for line in text.splitlines():
                self._note(line)
            notify.post(self._project, ended_notice(found, text))

    def _stuck(self, what: str) -> None:
        text = f"{what} has made no progress for over two minutes; the daemon has stopped sending heartbeats"
        self._log.error(text, extra={"action": "stuck", "cause": Cause.BUG})

    def _say(self, text: str) -> None:
        say(f"{time.strftime('%H:%M:%S')} {text}")
        self._note(text)

    def _note(self, text: str) -> None:
        self._project.store.note("auto", text)


def not_ours(workers: Mapping[WorkerName, WorkerRecord], auto: AutoMode | None) -> set[WorkerName]:
    """Auto workers that this daemon does not manage."""
    ours = auto.workers if auto is not None else ()
    return {name for name, record in workers.items() if record.auto and name not in ours}
