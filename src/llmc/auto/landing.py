"""Auto mode: landing work, releasing tasks, and waiting while the user has a worker."""

import time

from msgspec.structs import replace

from llmc.agents.protocol import ClientStatus
from llmc.auto import handover
from llmc.auto.auto_run import BEGINS, HardFailure, Run, assignment_of
from llmc.auto.rules import steps, waiting
from llmc.auto.rules.steps import Do, GiveUp
from llmc.base.errors import ClaimLost, LlmcError, LockTimeout, Refused, Unreachable
from llmc.base.panes import Pane
from llmc.base.proc import ShuttingDown
from llmc.base.text import gist
from llmc.base.tmux import Unknown
from llmc.landing import accept, accept_journal, default_branch, prompts, rebase, ways
from llmc.landing.failing_base import BaseFails
from llmc.landing.post_accept import PostAcceptFailed
from llmc.records.books import Books, hopeless
from llmc.records.state import State
from llmc.records.transitions import step
from llmc.records.worker import AcceptJournal, Assignment, Cause, Status, WorkerRecord
from llmc.repo import provision
from llmc.repo.git_locks import locks_of_source
from llmc.repo.project import Project
from llmc.repo.user_commands import CommandFailed
from llmc.sessions import persons, submit
from llmc.sessions.sessions import interrupt, status_of
from llmc.sessions.submit import Receipt
from llmc.sessions.typist import Refusal
from llmc.tasks.queue import claim_of
from llmc.tasks.rules.claims import WITHDRAWN
from llmc.workers.reset import PersonInWay, Reset, reset_unattended

#: failed launches of one worker in a row before auto mode gives up
LAUNCHES = 2
#: lost sessions of one worker without a completed task in between; the next one ends auto mode
LOST_SESSIONS = 2


def give_up(run: Run, project: Project, record: WorkerRecord, why: GiveUp) -> bool:
    """Release the task, then reset the worker. If llmc is killed in between, the worker starts over without a task."""
    books = _release_task(run, record, why)
    done = _reset(project, record.name)
    _report(run, project, record, why, books, done.pinned if isinstance(done, Reset) else None)
    if why.cause is Cause.TMUX:
        run.count_trouble(record, "session", LOST_SESSIONS, Cause.TMUX, LlmcError(why.reason))
    run.on_change()
    return _after_reset(run, project, record, done)


def _release_task(run: Run, record: WorkerRecord, why: GiveUp) -> Books:
    claim = claim_of(record.name, assignment_of(record))
    return run.queue.source.release(claim, why.reason, cause=why.cause, counts=why.counts, hold=why.hold)


def _report(
    run: Run, project: Project, record: WorkerRecord, why: GiveUp, books: Books, ref: str | None
) -> None:
    """Report what happened to the task; raises HardFailure if there is no point in continuing."""
    task = assignment_of(record)
    attempt = books.attempts(task.task)
    wait_s = books.pause_s(task.task, project.config.auto.crash_backoff_secs) if why.counts else 0.0
    with project.store.transaction() as tx:
        about = {
            "worker": record.name,
            "reason": gist(why.reason),
            **task.task.fields(),
            "cause": why.cause,
        }
        if why.hold == "quarantined":
            tx.emit("task_quarantined", attempt=attempt, ref=ref, **about)
        elif why.hold:
            tx.emit("task_parked", ref=ref, **about)
        elif not why.counts:
            tx.emit("task_released", ref=ref, **about)
        else:
            tx.update_auto(errors=tx.state.auto.errors + 1)
            tx.emit("task_failed", attempt=attempt, ref=ref, retry_in_s=round(wait_s, 1), **about)
        if why.counts and books.is_quarantined(task.task):
            tx.emit("task_quarantined", attempt=attempt, **about)
    again = f"; retry in {wait_s:.0f} s" if wait_s and not books.kept_back(task.task) else ""
    run.say(f"{record.name}: task {task.task_id} released: {gist(why.reason, 120)}{again}")
    stop = hopeless(books, run.workers, record.name) if why.counts else ""
    if stop:
        raise HardFailure(why.cause, f"{stop}: {why.reason}", worker=record.name, task=task.task)


def start_over(run: Run, project: Project, record: WorkerRecord) -> bool:
    """Pin the worker's work and reset it; whether it can take a task now."""
    handover.hand_over(project, run.queue.source, record)
    return _after_reset(run, project, record, _reset(project, record.name))


def _reset(project: Project, name: str) -> Reset | LlmcError:
    """The reset, or why it failed: the user has the worker, or the source does not answer."""
    try:
        return reset_unattended(project, name)
    except LlmcError as error:
        return error
    except ShuttingDown:  # the task is released, which must be reported; the next daemon resets the worker
        return LlmcError("the daemon is stopping")


def _after_reset(run: Run, project: Project, record: WorkerRecord, done: Reset | LlmcError) -> bool:
    if project.stopping and project.stopping():
        return False  # what a stop cut short has not failed
    if isinstance(done, PersonInWay):
        return run.wait(record)  # it has no task left, so it is listed and waits
    if isinstance(done, Unreachable):
        run.say(f"{record.name} is waiting to be reset: {done.message}")
        return run.wait(record, accept_journal.POLL_S)
    if isinstance(done, LlmcError):
        return run.try_later(record, "reset", BEGINS, Cause.GIT, done)
    run.went_well(record, "reset")
    if done.problem:
        cause = project.store.worker(record.name).cause or Cause.CRASH
        return run.try_later(record, "launch", LAUNCHES, Cause(cause), LlmcError(done.problem))
    run.went_well(record, "launch")
    return True


def release(run: Run, project: Project, name: str, reason: str = "the daemon was stopped") -> None:
    """Release a worker's task because nothing drives the worker, and pin its unfinished work; its files stay."""
    record = project.store.worker(name)
    if record.assignment is None:
        return
    if record.landing_waits_for:
        return  # it may land without us: the worker keeps its task, and the next daemon checks
    if record.accept is not None and _has_landed(project, record.accept):
        accept.accept(project, name)
        return
    task = record.assignment
    handover.hand_over(project, run.queue.source, record)
    run.queue.source.release(claim_of(record.name, task), reason)
    ref = provision.pin_unfinished(project, record, "released")
    with project.store.transaction() as tx:
        tx.update(name, assignment=None, accept=None)
        tx.emit(
            "task_released",
            worker=name,
            reason=reason,
            **task.task.fields(),
            cause="",
            ref=ref,
        )


def _has_landed(project: Project, journal: AcceptJournal) -> bool:
    if accept_journal.is_past_landing(journal):
        return True
    return accept_journal.may_have_landed(journal) and ways.way_of(project).verify(project, journal.squash)


def is_hindered(run: Run, project: Project, record: WorkerRecord, todo: steps.Step) -> bool:
    """Whether the user blocks this step; if so, list the worker and wait until the user leaves."""
    if todo is Do.WAIT and not record.waits_for_a_person:
        return False
    if isinstance(project.pane(record), Unknown):
        return True  # tmux does not say
    met = persons.met(project, record)
    if met is None:
        if persons.left(project, record):
            run.say(f"{record.name}: continuing")
            run.look_again(record.name, 0.0)  # a prompt may be waiting
        return False
    if record.person is None and met.obstacle not in steps.in_its_way(todo):
        return False
    if persons.note(project, record, met):
        run.say(f"{record.name} is waiting for you: {met}")
        run.on_change()  # another worker may take its task
    if record.assignment is not None and steps.releases_task(todo, met.obstacle):
        _release_from_worker(run, project, record, todo, met)
    return met.obstacle in steps.in_its_way(todo)


def _release_from_worker(
    run: Run, project: Project, record: WorkerRecord, todo: steps.Step, met: Refusal
) -> None:
    """Release the task, and leave its worker as it is."""
    if isinstance(todo, GiveUp):
        _interrupt(project, record)
    if todo is Do.DELIVER:
        run.take_back(assignment_of(record).task)
    why = todo if isinstance(todo, GiveUp) else GiveUp(Cause.PERSON, str(met), counts=False)
    books = _release_task(run, record, why)
    with project.store.transaction() as tx:
        tx.update(record.name, assignment=None)
    _report(run, project, record, why, books, None)
    run.on_change()


def _interrupt(project: Project, record: WorkerRecord) -> None:
    """Interrupt a turn that must not continue; one Escape ends it and keeps the draft."""
    pane = project.pane(record)
    if isinstance(pane, Pane) and not pane.dead and status_of(record, pane) is ClientStatus.BUSY:
        interrupt(project, record, pane)


def tell_again(run: Run, project: Project, record: WorkerRecord) -> bool:
    """Send the due prompt at the next check: the user no longer blocks it."""
    if record.delivery is not None and record.delivery.met_a_person:
        with project.store.transaction() as tx:
            tx.update(record.name, delivery=None)
    return run.wait(record)


def submit_once(
    project: Project, record: WorkerRecord, kind: str, text: str, then: Status | None, after: Assignment
) -> Receipt:
    """Send a prompt and count it in the assignment (`after`), unless the user was in the way."""
    receipt = submit.submit(project, record.name, kind, text, then=then, assignment=after)
    if receipt.met_a_person:
        with project.store.transaction() as tx:
            tx.update(record.name, assignment=record.assignment)
    return receipt


#: how many times work that cannot land is returned to its worker
SEND_BACKS = 2
#: how long work may be refused before its worker is told why
REFUSED_S = 4.0


def land(run: Run, project: Project, record: WorkerRecord) -> bool:
    """Land the work; whether to look for the next step. Work that cannot land waits for the source or its worker."""
    task = assignment_of(record)
    if task.unlanded and run.queue.source.books().kept_back(task.task) == WITHDRAWN:
        reason = f"the task was withdrawn from its goal after the task's work failed to land: {task.unlanded}"
        return give_up(run, project, record, GiveUp(Cause.TASK, reason, counts=False))
    if task.unlanded:  # its work was rejected: the worker is told before anything else lands
        return _return_unlanded(run, project, record, task.unlanded)
    try:
        done = accept.accept(project, record.name)
    except (rebase.Conflict, accept_journal.Cancelled):
        return False  # the worker resolves the conflicts, or the user is talking to it
    except accept_journal.Waiting as waits:
        run.say(waits.message)
        return run.wait(record, accept_journal.POLL_S)
    except (accept_journal.WorkChanged, ClaimLost, LockTimeout):
        return run.wait(record)  # the accept starts over from the current state
    except default_branch.SourceBusy as error:
        _refuse_stale_lock(run, project, record)
        return _wait_for_source(run, project, error)
    except Unreachable as error:
        run.say(f"{record.name} is waiting to land: {error.message}")
        return run.wait(record, accept_journal.POLL_S)
    except BaseFails as error:
        run.not_judged.add(project.store.worker(record.name).commit_sha or "")
        run.say(f"{record.name} is waiting to land: {error.message}")
        return False
    except CommandFailed as error:
        return _send_back(run, project, record, error)
    except Refused as error:
        return _refused(run, project, record, error)
    except PostAcceptFailed:
        raise
    except LlmcError as error:
        raise run.hard(Cause.GIT, record, error) from error
    what = f"{done.commit[:12]} {done.subject[:60]}" if done.commit else "nothing to land"
    return _completed(run, record, what)


def _completed(run: Run, record: WorkerRecord, what: str) -> bool:
    run.went_well(record, "session")
    run.say(f"{record.name}: task {assignment_of(record).task_id} completed: {what}")
    run.on_change()
    return True


def _refused(run: Run, project: Project, record: WorkerRecord, error: Refused) -> bool:
    """Wait a moment in case the refusal passes; after that, the worker must fix its work."""
    task = assignment_of(record)
    key = (task.claim, task.sent_back)
    if time.monotonic() - run.refused_at.setdefault(key, time.monotonic()) < REFUSED_S:
        return run.wait(record)
    return _return_unlanded(run, project, record, error.message)


def _return_unlanded(run: Run, project: Project, record: WorkerRecord, why: str) -> bool:
    task = assignment_of(record)
    text = prompts.not_landed_prompt(project, record, why, task.sent_back + 1, SEND_BACKS)
    return _return_to_worker(run, project, record, text, why, code=None)


def _refuse_stale_lock(run: Run, project: Project, record: WorkerRecord) -> None:
    """Fail if a killed git left its lock: unlike the user's changes, it does not go away."""
    for text in filter(None, (lock.trouble for lock in locks_of_source(project))):
        raise run.hard(Cause.GIT, record, LlmcError(text))


def _wait_for_source(run: Run, project: Project, error: LlmcError) -> bool:
    with project.store.transaction() as tx:
        if not waiting.source_is_due(tx.state.auto, tx.now):
            return False  # another worker met the same obstacle at the same moment
        wait = waiting.dirty(tx.state.auto, project.config.auto.dirty_backoff_secs)
        if not wait.over:
            tx.update_auto(
                source_repo_dirty_retry_after_unix=tx.now + wait.wait_s,
                source_repo_dirty_backoff_secs=wait.wait_s,
                source_repo_dirty_retry_count=wait.attempt,
            )
            tx.emit("source_dirty", reason=error.message[:300], retry_in_s=wait.wait_s, attempt=wait.attempt)
    if wait.over:
        raise HardFailure(Cause.GIT, f"gave up waiting for the source repository: {error.message}")
    tries = f"attempt {wait.attempt}/{waiting.DIRTY_RETRIES}"
    run.say(
        f"Source repository has uncommitted changes. Will retry in {wait.wait_s:g} seconds ({tries})."
        if "uncommitted changes" in error.message
        else f"{error.message}. Will retry in {wait.wait_s:g} seconds ({tries})."
    )
    return False


def _send_back(run: Run, project: Project, record: WorkerRecord, error: CommandFailed) -> bool:
    """A check failed: send the output to the worker."""
    output = error.output[-rebase.OUTPUT_CHARS :]
    round_ = assignment_of(record).sent_back + 1
    text = prompts.sent_back_prompt(project, record, error.command, output, round_, SEND_BACKS)
    return _return_to_worker(run, project, record, text, error.message, code=error.returncode)


def _return_to_worker(
    run: Run, project: Project, record: WorkerRecord, text: str, why: str, code: int | None
) -> bool:
    task = assignment_of(record)
    if task.sent_back >= SEND_BACKS:
        return give_up(run, project, record, GiveUp(Cause.TASK, gist(why)))
    after = replace(task, sent_back=task.sent_back + 1, unlanded="")
    with project.store.transaction() as tx:
        tx.emit(
            "task_sent_back",
            worker=record.name,
            reason=gist(why, 300),
            **task.task.fields(),
            round=after.sent_back,
            code=code,
        )
    receipt = submit_once(project, record, "verify", text, Status.REJECTED, after)
    if receipt.outcome.arrived or receipt.met_a_person:
        return receipt.met_a_person
    failed = steps.not_told(receipt.obstacle, receipt.reason or receipt.outcome)
    return give_up(run, project, project.store.worker(record.name), failed)


def complete_unchanged(run: Run, project: Project, record: WorkerRecord) -> bool:
    run.queue.source.finish(claim_of(record.name, assignment_of(record)), "")
    with project.store.transaction() as tx:
        accept_journal.completed(tx, record.name, None)
        tx.move(record.name, step(Status.IDLE, "no changes needed"))
    return _completed(run, record, "no changes needed")


def a_command_comes_first(state: State) -> bool:
    """Whether a post-accept command must finish before a task starts: one is due, or a task is landing.

    Reads both from one state: otherwise a task could move from landing to due unseen.
    """
    at_work = (record for record in state.workers.values() if record.assignment is not None)
    return bool(state.auto.due) or any(accept_journal.is_past_landing(record.accept) for record in at_work)
