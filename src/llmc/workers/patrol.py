"""Patrol one worker, and recover it after a crash, under its lock; without a daemon, commands do this."""

import os
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from llmc.agents.protocol import ClientStatus
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, LockTimeout, NotFound, ToolFailed
from llmc.base.panes import Pane
from llmc.landing import accept, accept_journal, rebase
from llmc.records.statuses import UNDER_WAY
from llmc.records.worker import Status, WorkerRecord
from llmc.repo import git, provision
from llmc.repo.project import Project
from llmc.sessions import intake, leftovers, sessions, submit
from llmc.sessions.persons import is_person_there
from llmc.sessions.rules import decide
from llmc.workers import rules, self_review


def finish_interrupted(project: Project, name: str) -> WorkerRecord:
    """Resume an interrupted accept or rebase, and deliver a pending prompt, never twice.

    While the user has the worker, it only applies pending events.
    """
    record = sessions.notice_start(project, intake.apply_pending(project, name))
    if is_person_there(project, record):
        return record
    record = rebase.resolved_by_hand(project, record)
    if record.accept is not None and project.others_accept(name):
        return record  # not interrupted: it is validating, without the worker's lock
    if record.accept is not None and accept_journal.is_due(record.accept):
        with suppress(
            rebase.Conflict, accept_journal.Waiting
        ):  # its record says why; the worker gets a prompt
            accept.accept(project, name)
        record = project.store.worker(name)
    elif rebase.was_interrupted(record):
        with suppress(rebase.Conflict):
            rebase.rebase(project, name)
        record = project.store.worker(name)
    if rebase.must_validate(record):
        record = rebase.settle(project, name)
    if record.person is not None:
        return record  # nothing can be typed now; retried when the user leaves
    if rebase.must_tell(record):
        rebase.tell(project, name)
        record = project.store.worker(name)
    record = self_review.attend(project, record)
    if record.delivery is not None and record.delivery.outcome.open:
        submit.deliver(project, name)
        record = project.store.worker(name)
    return record


#: the statuses that have a rule
CONCERNED = (*UNDER_WAY, Status.NEEDS_REVIEW)


class Patrolled(Struct, frozen=True):
    """What patrol did with a worker, and whether the user had it."""

    taken: bool = False
    #: why a rebase was not started
    rebase_problem: LlmcError | None = None


def patrol(project: Project, name: str, clock: rules.Clock, rebase_failed_s: float) -> Patrolled:
    """Apply every rule to one worker; the caller holds its lock."""
    record = project.store.worker(name)
    seen = _observe(project, record, rebase_failed_s) if record.status in CONCERNED else None
    if seen is None:
        return Patrolled(taken=record.held)
    defaults = project.config.defaults
    limits = rules.Limits(defaults.background_grace_s, defaults.patrol_interval_secs)
    decision = rules.decide(record, seen, limits, clock)
    match decision:
        case rules.Remember(fields):
            with project.store.transaction() as tx:
                tx.update(name, **fields)
        case rules.Move(change, action, details):
            with project.store.transaction() as tx:
                if action:
                    tx.emit(action, worker=name, **details)
                tx.move(name, change)
        case rules.EndBackground():
            _end_background(project, record)
        case rules.EndTurn():
            _end_turn(project, record)
        case rules.Rebase():
            return Patrolled(rebase_problem=_rebase(project, name))
    return Patrolled(taken=seen.taken)


def rebase_if_queued(project: Project, name: str) -> LlmcError | None:
    """Rebase this worker after other work landed, unless the user or its agent is active; returns why it failed."""
    record = project.store.worker(name)
    if not record.rebase_due:
        return None
    try:
        provision.refresh_base(project)
    except LlmcError as error:
        return error
    seen = _observe(project, record, float("inf"))
    if seen is None or seen.git is None:
        return None
    if not seen.behind:
        with project.store.transaction() as tx:
            tx.update(name, rebase_due=False)
        return None
    limits = rules.Limits(0.0, 0.0)
    return _rebase(project, name) if rules.should_rebase(record, seen, limits) else None


def _rebase(project: Project, name: str) -> LlmcError | None:
    try:
        rebase.keep_rebased(project, name)
    except LlmcError as error:
        return error
    return None


def _observe(project: Project, record: WorkerRecord, rebase_failed_s: float) -> rules.Seen | None:
    """Observe a worker; None without a live agent, or if tmux did not answer: other rules handle those."""
    pane = project.pane(record)
    if not isinstance(pane, Pane) or pane.dead:
        return None
    status = sessions.status_of(record, pane)
    return rules.Seen(
        git=intake.git_facts(project, record),
        turn_runs=status is ClientStatus.BUSY,
        dialog_open=status is ClientStatus.WAITING,
        client_idle=status is ClientStatus.IDLE,
        client_unknown=status is ClientStatus.UNKNOWN,
        last_trace_unix=_last_trace(record),
        behind=_behind(project, record),
        taken=sessions.is_taken(record, pane) is not None,
        rebase_failed_s=rebase_failed_s,
    )


def _behind(project: Project, record: WorkerRecord) -> int:
    if record.status is not Status.NEEDS_REVIEW:
        return 0
    try:
        return git.divergence(Path(record.worktree_path), project.base, "HEAD").behind
    except ToolFailed:
        return 0


def _last_trace(record: WorkerRecord) -> float:
    """When the agent last wrote to its transcript, index, commits or rebase state."""
    paths = [Path(record.transcript_path)] if record.transcript_path else []
    try:
        paths += git.git_paths(Path(record.worktree_path), "index", "logs/HEAD", "rebase-merge")
    except ToolFailed:
        return now_unix()  # unknown is not silent
    return max([0.0, *map(_changed_unix, paths)])


def _changed_unix(path: Path) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _end_background(project: Project, record: WorkerRecord) -> None:
    """Stop exactly the processes that the agent left behind, report it, and end its turn."""
    name = record.name
    left = leftovers.of(record.instance)
    pane = project.pane(record)
    if not isinstance(pane, Pane) or sessions.status_of(record, pane) is ClientStatus.BUSY:
        return  # a new turn has started, and the processes may be its own
    leftovers.end(project, name, left)
    _end_turn(project, record)


def _end_turn(project: Project, record: WorkerRecord) -> None:
    """Make the transition that a Stop without background processes would have made."""
    name = record.name
    facts = intake.git_facts(project, record)
    if facts is None:
        return  # the next patrol decides the same
    details = {"ahead": facts.ahead, "dirty": facts.dirty, "background": False}
    with project.store.transaction() as tx:
        verdict = decide.turn_ended(tx.worker(name), facts, details, tx.now)
        tx.update(name, background_since_unix=0.0, **verdict.fields)
        tx.emit(verdict.action, worker=name, **verdict.details)
        if verdict.change:
            tx.move(name, verdict.change)


def catch_up(project: Project) -> None:
    """Apply pending events to every worker, unless a daemon does. A worker whose lock is busy is updated by the holder."""
    if project.daemon_runs():
        return
    for name in _workers_here(project):
        # Another process may have the worker, or may have just removed it.
        with suppress(LockTimeout, NotFound), project.worker_lock(name, timeout_s=0.05):
            rebase.resolved_by_hand(project, project.store.worker(name))
            sessions.reconcile(project, name)
            with suppress(LlmcError):  # still due: the next command tries again
                self_review.attend(project, project.store.worker(name))


def see_what_was_resolved(project: Project) -> None:
    """Apply what the user resolved by hand; the daemon would see it only at its next patrol."""
    for name in _workers_here(project):
        with suppress(LockTimeout, NotFound), project.worker_lock(name, timeout_s=0.05):
            rebase.resolved_by_hand(project, project.store.worker(name))


def _workers_here(project: Project) -> list[str]:
    """None in a copy of a root, which is only read."""
    return [] if project.store.elsewhere() else list(project.store.read().workers)
