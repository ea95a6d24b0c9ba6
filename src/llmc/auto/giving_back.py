"""A task goes back to the list, and its worker starts over."""

from llmc.auto.auto_run import BEGINS, BUSY_S, Run, assignment_of
from llmc.auto.hard_failure import HardFailure
from llmc.auto.rules.steps import GiveUp
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError
from llmc.base.text import gist
from llmc.landing import accept, fast_forward
from llmc.records.books import Books, hopeless
from llmc.records.causes import Cause
from llmc.records.worker import AcceptJournal, WorkerRecord
from llmc.repo import provision
from llmc.repo.project import Project
from llmc.tasks import claiming
from llmc.workers.reset import PersonInWay, Reset, reset_unattended

#: failed launches of one worker in a row, after which nobody tries again
LAUNCHES = 2
#: sessions of one worker that go away without a task completed in between; the next one ends auto mode
LOST_SESSIONS = 2


def give_up(run: Run, project: Project, record: WorkerRecord, why: GiveUp) -> bool:
    """The task goes back first; a crash after that leaves a worker without one, which starts over."""
    books = _give_back(run, record, why)
    failed, done = _reset(project, record.name)
    _tell(run, project, record, why, books, done.pinned if done else None)
    if why.cause is Cause.TMUX:
        run.count_trouble(record, "session", LOST_SESSIONS, Cause.TMUX, LlmcError(why.reason))
    run.on_change()
    return _after_reset(run, project, record, failed, done)


def hand_back(run: Run, project: Project, record: WorkerRecord, why: GiveUp) -> None:
    """The task goes back, and its worker is left exactly as it is."""
    books = _give_back(run, record, why)
    with project.store.transaction() as tx:
        tx.update(record.name, assignment=None)
    _tell(run, project, record, why, books, None)
    run.on_change()


def _give_back(run: Run, record: WorkerRecord, why: GiveUp) -> Books:
    return claiming.give_back(
        run.queue.files,
        run.queue.ledger,
        claiming.claim_of(record.name, assignment_of(record)),
        why.reason,
        cause=why.cause,
        counts=why.counts,
        hold=why.hold,
    )


def _tell(
    run: Run, project: Project, record: WorkerRecord, why: GiveUp, books: Books, ref: str | None
) -> None:
    """What became of the task; a hard failure where going on makes no sense."""
    task = assignment_of(record)
    attempt = books.attempts(task.task)
    wait_s = books.waits_s(task.task, project.config.auto.crash_backoff_secs, now_unix())
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
    again = f"; again in {wait_s:.0f} s" if wait_s and not books.kept_back(task.task) else ""
    run.say(f"{record.name}: task {task.task_id} given back: {gist(why.reason, 120)}{again}")
    stop = hopeless(books, run.workers, record.name) if why.counts else ""
    if stop:
        raise HardFailure(why.cause, f"{stop}: {why.reason}", worker=record.name, task=task.task)


def start_over(run: Run, project: Project, record: WorkerRecord) -> bool:
    """What it holds is pinned, and it begins anew; whether it can take a task now."""
    return _after_reset(run, project, record, *_reset(project, record.name))


def _reset(project: Project, name: str) -> tuple[LlmcError | None, Reset | None]:
    """What came of it, or why it could not be done now: a person has it, or the source does not answer."""
    try:
        return None, reset_unattended(project, name)
    except LlmcError as error:
        return error, None


def _after_reset(
    run: Run, project: Project, record: WorkerRecord, failed: LlmcError | None, done: Reset | None
) -> bool:
    if isinstance(failed, PersonInWay):
        run.look_again(record.name, BUSY_S)  # it has no task any more: it is listed then, and waits
        return False
    if failed is not None:
        return run.try_later(record, "reset", BEGINS, Cause.GIT, failed)
    run.went_well(record, "reset")
    if done is not None and done.problem:
        cause = project.store.worker(record.name).cause or Cause.CRASH
        return run.try_later(record, "launch", LAUNCHES, Cause(cause), LlmcError(done.problem))
    run.went_well(record, "launch")
    return True


def release(run: Run, project: Project, name: str) -> None:
    """The daemon ends: the task of a worker goes back, its unfinished work is pinned, its files stay as they are."""
    record = project.store.worker(name)
    if record.assignment is None:
        return
    if record.accept is not None and _has_landed(project, record.accept):
        accept.accept(project, name)
        return
    task = record.assignment
    claiming.give_back(
        run.queue.files, run.queue.ledger, claiming.claim_of(record.name, task), "the daemon was stopped"
    )
    ref = provision.pin_unfinished(project, record, "released")
    with project.store.transaction() as tx:
        tx.update(name, assignment=None, accept=None)
        tx.emit(
            "task_released",
            worker=name,
            reason="the daemon was stopped",
            **task.task.fields(),
            cause="",
            ref=ref,
        )


def _has_landed(project: Project, journal: AcceptJournal) -> bool:
    if accept.is_past_landing(journal):
        return True
    return accept.may_have_landed(journal) and fast_forward.is_landed(project, journal.squash)
