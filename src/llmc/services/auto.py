"""Auto mode: what the rules in auto/ decide about a worker is done here, under the worker's lock."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from llmc.auto import steps, waiting
from llmc.auto.budget import Level, Verdict
from llmc.auto.steps import GiveUp, Situation
from llmc.errors import LlmcError, LockTimeout, NotFound, Refused
from llmc.services import accept, claims, landing, post_accept, prompts, provision, rebase, submit, task_queue
from llmc.services.commands import CommandFailed
from llmc.services.hard_failure import HardFailure
from llmc.services.parks import Parks, has_a_person
from llmc.services.post_accept import PostAcceptFailed
from llmc.services.project import Project
from llmc.services.reset import Reset, reset_worker
from llmc.services.spending import Spending
from llmc.services.task_queue import TaskQueue
from llmc.services.tasks import start_task
from llmc.services.usage import next_midnight
from llmc.tasks.books import hopeless
from llmc.tools.clock import now_unix
from llmc.tools.faults import step as fault_step
from llmc.tools.files import DiskFull
from llmc.workers.causes import Cause
from llmc.workers.model import AcceptJournal, Assignment, Status, WorkerRecord
from llmc.workers.patrol import Clock
from llmc.workers.transitions import step

#: how often work goes back to its worker because a check fails
SEND_BACKS = 2
#: failed launches of one worker in a row, after which nobody tries again
LAUNCHES = 2
#: first wait before a launch, or a delivery, is tried again; doubles
AGAIN_S = 5.0
#: how soon to look again at a worker that was only busy
BUSY_S = 2.0
#: and at one that may begin when somebody else's work has landed
LANDING_S = 0.2
#: attempts to begin a task that fail for reasons outside of it, such as a source that does not answer
BEGINS = 5
#: how long work may be refused before its worker is told what is wrong with it
REFUSED_S = 4.0


@dataclass
class Auto:
    """One run of auto mode, shared by the lanes of all its workers."""

    queue: TaskQueue
    workers: tuple[str, ...]
    #: tasks may have become ready
    on_change: Callable[[], None]
    #: look at a worker again after so many seconds
    look_again: Callable[[str, float], None]
    #: a line for whoever watches
    say: Callable[[str], None]
    spending: Spending
    parks: Parks
    max_tasks: int | None = None
    #: no new tasks are given out any more
    draining: str = ""
    assigned: int = 0
    _taking: threading.Lock = field(default_factory=threading.Lock)
    _trouble: dict[str, int] = field(default_factory=dict)
    #: since when work could not land, by claim and round
    _refused_at: dict[tuple[str, int], float] = field(default_factory=dict)

    def attend(self, project: Project, name: str, clock: Clock, problem: LlmcError | None = None) -> None:
        """Do what a worker needs, step by step, until it works or there is nothing to do. The caller has its lock.

        `problem` is what kept the caller from finishing what was interrupted.
        """
        try:
            if self._is_interrupted(project, name, problem):
                return
            while not (project.stopping and project.stopping()):
                post_accept.run_due(project)
                record = project.store.worker(name)
                todo = steps.next_step(record, self._situation(project, record, clock))
                if isinstance(todo, steps.Wait) or has_a_person(project, record):
                    return
                if not self._do(project, record, todo):
                    return
        except PostAcceptFailed as error:
            raise HardFailure(
                Cause.COMMAND, error.message, task_id=error.task_id, output=error.output
            ) from error

    def _is_interrupted(self, project: Project, name: str, problem: LlmcError | None) -> bool:
        """Whether an accept that had begun could not be finished; it is tried again, but not for ever."""
        if isinstance(problem, PostAcceptFailed):
            raise problem
        record = project.store.worker(name)
        if problem is None or record.accept is None:
            self._trouble.pop(f"finish {name}", None)
            return False
        if isinstance(problem, Refused | LockTimeout):
            self.look_again(name, BUSY_S)  # somebody else is at it for a moment
            return True
        self._try_later(record, "finish", BEGINS, Cause.GIT, problem)
        return True

    def _situation(self, project: Project, record: WorkerRecord, clock: Clock) -> Situation:
        spent = self._look_at_budgets(project, record)
        state, now = project.store.read().auto, now_unix()
        task = record.assignment
        return Situation(
            now=now,
            taking=not self.draining and not waiting.is_parked(state),
            landing=now >= state.source_repo_dirty_retry_after_unix,
            resuming=waiting.may_resume(state, record.since_unix, now),
            claimed=task is not None and self.queue.holds(task.claim),
            completed=task is not None and task.task_id in self.queue.ledger.books().completed,
            busy_s=clock.age_s(max(task.since_unix, waiting.went_on(state, record.name))) if task else 0.0,
            task_timeout_s=project.config.auto.task_timeout_secs,
            near_budget=spent.words if spent.level is Level.SOFT else "",
            over_budget=spent.words if spent.level is Level.HARD else "",
            is_tasks_budget=spent.concerns("task"),
        )

    def _look_at_budgets(self, project: Project, record: WorkerRecord) -> Verdict:
        """What the run may cost ends it, what the day may cost parks it until midnight."""
        found = self.spending.look(project, record)
        over = found.level is Level.HARD
        self.draining = self.draining or self.spending.is_spent(project)
        if over and found.concerns("run"):
            self.draining = self.draining or found.words
        elif over and found.concerns("day"):
            self.parks.park_until(project, record, Cause.BUDGET, found.words, next_midnight(now_unix()))
        return found

    def _do(self, project: Project, record: WorkerRecord, todo: steps.Step) -> bool:
        """One step; whether to look for the next one at once."""
        match todo:
            case steps.Assign():
                return self._assign(project, record)
            case steps.Deliver():
                return self._deliver(project, record)
            case steps.Accept():
                return self._accept(project, record)
            case steps.Unchanged():
                return self._complete_unchanged(project, record)
            case steps.AskToCommit():
                return self._ask_to_commit(project, record)
            case steps.AskToFinish(words):
                return self._ask_to_finish(project, record, words)
            case GiveUp():
                return self._give_up(project, record, todo)
            case steps.Park(cause, reason):
                self.parks.park(project, record, cause, reason)
                return False
            case steps.Resume():
                self.parks.resume(project, record)
                return False
            case steps.Stop(cause, reason):
                raise HardFailure(cause, reason, worker=record.name, task_id=_task_id(record))
            case steps.Clean() | steps.Restart():
                return self._start_over(project, record)
            case steps.Wait():
                return False

    def _assign(self, project: Project, record: WorkerRecord) -> bool:
        with self._taking:
            if self.max_tasks is not None and self.assigned >= self.max_tasks:
                self.draining = self.draining or f"{self.max_tasks} tasks were begun"
                return False
            others = project.store.read().workers.values()
            if project.config.auto.post_accept_command and any(map(is_landing, others)):
                self.look_again(record.name, LANDING_S)  # its command comes first
                return False
            labels = {r.assignment.label for r in others if r.assignment and r.name != record.name}
            try:
                found = self.queue.take_next(record.name, labels - {""})
            except LockTimeout:
                self.look_again(record.name, BUSY_S)
                return False
            except LlmcError as error:
                raise self._hard(Cause.TASK, record, error) from error
            if found is None:
                return False
            self.assigned += 1
            task, claim = found
            assignment = Assignment(
                task_id=task.id,
                claim=claim.id,
                since_unix=now_unix(),
                subject=task.subject,
                label=task.label,
                verify=task.verify,
                budget=task.budget,
            )
            with fault_step("claim.record"), project.store.transaction() as tx:
                tx.update(record.name, assignment=assignment)
                tx.emit(
                    "task_assigned",
                    worker=record.name,
                    task_id=task.id,
                    subject=task.subject,
                    label=task.label,
                    claim=claim.id,
                )
        self.say(f"{record.name}: task {task.id}: {task.subject[:60]}")
        return True

    def _deliver(self, project: Project, record: WorkerRecord) -> bool:
        task = _assignment(record)
        try:
            text = task_queue.text_of(project, self.queue.files.get(task.task_id))
        except NotFound:
            return self._give_up(project, record, GiveUp(Cause.TASK, "its file is gone", counts=False))
        except LlmcError as error:
            raise HardFailure(
                Cause.CONFIG, error.message, worker=record.name, task_id=task.task_id
            ) from error
        try:
            receipt = start_task(project, record.name, text)
        except CommandFailed as error:
            raise self._hard(Cause.COMMAND, record, error) from error
        except LlmcError as error:
            return self._try_later(record, "begin", BEGINS, Cause.GIT, error)
        self._trouble.pop(f"begin {record.name}", None)
        return not receipt.outcome.arrived

    def _accept(self, project: Project, record: WorkerRecord) -> bool:
        try:
            done = accept.accept(project, record.name)
        except rebase.Conflict:
            return False  # it is told, and resolves them
        except landing.SourceBusy as error:
            return self._wait_for_source(project, error)
        except CommandFailed as error:
            return self._send_back(project, record, error)
        except LockTimeout:
            self.look_again(record.name, BUSY_S)
            return False
        except Refused as error:
            return self._refused(project, record, error)
        except PostAcceptFailed:
            raise
        except LlmcError as error:
            raise self._hard(Cause.GIT, record, error) from error
        task = _assignment(record)
        what = f"{done.commit[:12]} {done.subject[:60]}" if done.commit else "nothing had to land"
        self.say(f"{record.name}: task {task.task_id} completed: {what}")
        self.on_change()
        return True

    def _refused(self, project: Project, record: WorkerRecord, error: Refused) -> bool:
        """Its work cannot land as it is: that passes in a moment, or the worker itself has to put it right."""
        task = _assignment(record)
        key = (task.claim, task.sent_back)
        if time.monotonic() - self._refused_at.setdefault(key, time.monotonic()) < REFUSED_S:
            self.look_again(record.name, BUSY_S)
            return False
        text = prompts.not_landed_prompt(project, record, error.message, task.sent_back + 1, SEND_BACKS)
        return self._return_to_worker(project, record, text, error.message, code=None)

    def _wait_for_source(self, project: Project, error: LlmcError) -> bool:
        with project.store.transaction() as tx:
            wait = waiting.dirty(tx.state.auto)
            if not wait.over:
                tx.update_auto(
                    source_repo_dirty_retry_after_unix=tx.now + wait.wait_s,
                    source_repo_dirty_backoff_secs=wait.wait_s,
                    source_repo_dirty_retry_count=wait.attempt,
                )
                tx.emit(
                    "source_dirty", reason=error.message[:300], retry_in_s=wait.wait_s, attempt=wait.attempt
                )
        if wait.over:
            raise HardFailure(Cause.GIT, f"the source stayed in use: {error.message}")
        tries = f"attempt {wait.attempt}/{waiting.DIRTY_RETRIES}"
        self.say(
            f"Source repository has uncommitted changes. Will retry in {wait.wait_s:g} seconds ({tries})."
            if "uncommitted changes" in error.message
            else f"{error.message}. Will retry in {wait.wait_s:g} seconds ({tries})."
        )
        return False

    def _send_back(self, project: Project, record: WorkerRecord, error: CommandFailed) -> bool:
        """A check fails: its worker gets the output."""
        output = error.output[-rebase.OUTPUT_CHARS :]
        round_ = _assignment(record).sent_back + 1
        text = prompts.sent_back_prompt(project, record, error.command, output, round_, SEND_BACKS)
        return self._return_to_worker(project, record, text, error.message, code=error.returncode)

    def _return_to_worker(
        self, project: Project, record: WorkerRecord, text: str, why: str, code: int | None
    ) -> bool:
        task = _assignment(record)
        if task.sent_back >= SEND_BACKS:
            return self._give_up(project, record, GiveUp(Cause.TASK, why[:500]))
        after = replace(task, sent_back=task.sent_back + 1)
        with project.store.transaction() as tx:
            tx.emit(
                "task_sent_back",
                worker=record.name,
                reason=why[:300],
                task_id=task.task_id,
                round=after.sent_back,
                code=code,
            )
        receipt = submit.submit(project, record.name, "verify", text, then=Status.REJECTED, assignment=after)
        if not receipt.outcome.arrived:
            return self._give_up(
                project, project.store.worker(record.name), GiveUp(Cause.AGENT, "it did not take its prompt")
            )
        return False

    def _ask_to_commit(self, project: Project, record: WorkerRecord) -> bool:
        asked = replace(_assignment(record), asked_to_commit=True)
        text = prompts.ask_to_commit_prompt(record)
        receipt = submit.submit(project, record.name, "commit", text, then=Status.WORKING, assignment=asked)
        return not receipt.outcome.arrived

    def _ask_to_finish(self, project: Project, record: WorkerRecord, words: str) -> bool:
        told = replace(_assignment(record), told_of_budget=True)
        text = prompts.near_budget_prompt(words)
        submit.submit(project, record.name, "budget", text, assignment=told)
        return False

    def _complete_unchanged(self, project: Project, record: WorkerRecord) -> bool:
        task = _assignment(record)
        claims.complete(self.queue.files, self.queue.ledger, claims.claim_of(record.name, task), "")
        with project.store.transaction() as tx:
            accept.completed(tx, record.name, None)
            tx.move(record.name, step(Status.IDLE, "nothing had to change"))
        self.say(f"{record.name}: task {task.task_id} completed: nothing had to change")
        self.on_change()
        return True

    def _give_up(self, project: Project, record: WorkerRecord, why: GiveUp) -> bool:
        """The task goes back first; a crash after that leaves a worker without one, which starts over."""
        task = _assignment(record)
        books = claims.give_back(
            self.queue.files,
            self.queue.ledger,
            claims.claim_of(record.name, task),
            why.reason,
            cause=why.cause,
            counts=why.counts,
            hold=why.hold,
        )
        attempt = books.attempts(task.task_id)
        failed, done = self._reset(project, record.name)
        ref = done.pinned if done else None
        with project.store.transaction() as tx:
            about = {
                "worker": record.name,
                "reason": why.reason[:500],
                "task_id": task.task_id,
                "cause": why.cause,
            }
            if why.hold:
                tx.emit("task_parked", ref=ref, **about)
            elif not why.counts:
                tx.emit("task_released", ref=ref, **about)
            else:
                tx.update_auto(errors=tx.state.auto.errors + 1)
                tx.emit("task_failed", attempt=attempt, ref=ref, **about)
            if why.counts and books.is_quarantined(task.task_id):
                tx.emit("task_quarantined", attempt=attempt, **about)
        self.say(f"{record.name}: task {task.task_id} given back: {why.reason[:120]}")
        stop = hopeless(books, self.workers) if why.counts else ""
        if stop:
            raise HardFailure(why.cause, f"{stop}: {why.reason}", worker=record.name, task_id=task.task_id)
        self.on_change()
        return self._after_reset(project, record, failed, done)

    def _start_over(self, project: Project, record: WorkerRecord) -> bool:
        return self._after_reset(project, record, *self._reset(project, record.name))

    def _reset(self, project: Project, name: str) -> tuple[LlmcError | None, Reset | None]:
        """What came of it, or why it could not be done now: a person has it, or the source does not answer."""
        try:
            return None, reset_worker(project, name)
        except LlmcError as error:
            return error, None

    def _after_reset(
        self, project: Project, record: WorkerRecord, failed: LlmcError | None, done: Reset | None
    ) -> bool:
        if failed is not None:
            return self._try_later(record, "reset", BEGINS, Cause.GIT, failed)
        self._trouble.pop(f"reset {record.name}", None)
        if done is not None and done.problem:
            cause = project.store.worker(record.name).cause or Cause.CRASH
            return self._try_later(record, "launch", LAUNCHES, Cause(cause), LlmcError(done.problem))
        self._trouble.pop(f"launch {record.name}", None)
        return True

    def _try_later(self, record: WorkerRecord, what: str, times: int, cause: Cause, error: LlmcError) -> bool:
        key = f"{what} {record.name}"
        count = self._trouble[key] = self._trouble.get(key, 0) + 1
        if count > times or isinstance(error, DiskFull):
            raise self._hard(cause, record, error)
        self.look_again(record.name, AGAIN_S * 2 ** (count - 1))
        return False

    def release(self, project: Project, name: str) -> None:
        """The daemon ends: the task of a worker goes back, its unfinished work is pinned, its files stay as they are."""
        record = project.store.worker(name)
        if record.assignment is None:
            return
        if record.accept is not None and _has_landed(project, record.accept):
            accept.accept(project, name)
            return
        task = record.assignment
        claims.give_back(
            self.queue.files, self.queue.ledger, claims.claim_of(record.name, task), "the daemon was stopped"
        )
        ref = provision.pin_unfinished(project, record, "released")
        with project.store.transaction() as tx:
            tx.update(name, assignment=None, accept=None)
            tx.emit(
                "task_released",
                worker=name,
                reason="the daemon was stopped",
                task_id=task.task_id,
                cause="",
                ref=ref,
            )

    def _hard(self, cause: Cause, record: WorkerRecord, error: LlmcError) -> HardFailure:
        cause = Cause.DISK if isinstance(error, DiskFull) else cause
        return HardFailure(cause, error.message, worker=record.name, task_id=_task_id(record))


def _assignment(record: WorkerRecord) -> Assignment:
    assert record.assignment is not None, f"{record.name} has no task"
    return record.assignment


def _task_id(record: WorkerRecord) -> str:
    return record.assignment.task_id if record.assignment else ""


def is_landing(record: WorkerRecord) -> bool:
    """Its work is on the branch or about to be, and its post-accept command is not due yet."""
    journal = record.accept
    return (
        journal is not None
        and record.assignment is not None
        and accept.STEPS.index(journal.step) > accept.STEPS.index("land")
    )


def _has_landed(project: Project, journal: AcceptJournal) -> bool:
    ahead = accept.STEPS.index(journal.step) - accept.STEPS.index("land")
    return ahead > 0 or (ahead == 0 and landing.is_landed(project, journal.squash))
