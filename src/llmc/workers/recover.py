"""Finishes what a crash interrupted. Whoever holds a worker's lock and finds something open, finishes it first."""

from contextlib import suppress

from llmc.base.tmux import Unknown
from llmc.landing import accept, rebase
from llmc.records.worker import WorkerRecord
from llmc.repo.project import Project
from llmc.sessions import intake, submit
from llmc.sessions.sessions import is_taken
from llmc.workers import self_review


def finish_interrupted(project: Project, name: str) -> WorkerRecord:
    """An accept or a rebase that had begun goes on; a prompt that is due or on its way is delivered, and never twice.

    Not while a person has the worker: then it waits.
    """
    record = intake.apply_pending(project, name)
    pane = project.pane(record)
    if isinstance(pane, Unknown) or is_taken(record, pane):
        return record
    record = rebase.resolved_by_hand(project, record)
    if record.accept is not None and project.others_accept(name):
        return record  # it was not interrupted: it validates, and has left the worker's lock to others
    if record.accept is not None:
        with suppress(rebase.Conflict):  # the worker is told, its record says so
            accept.accept(project, name)
        record = project.store.worker(name)
    elif rebase.was_interrupted(record):
        with suppress(rebase.Conflict):
            rebase.rebase(project, name)
        record = project.store.worker(name)
    if rebase.must_validate(record):
        record = rebase.settle(project, name)
    if record.person is not None:
        return record  # nothing can be typed; who waits for the person to leave looks again
    if rebase.must_tell(record):
        rebase.tell(project, name)
        record = project.store.worker(name)
    record = self_review.attend(project, record)
    if record.delivery is not None and record.delivery.outcome.open:
        submit.deliver(project, name)
        record = project.store.worker(name)
    return record
