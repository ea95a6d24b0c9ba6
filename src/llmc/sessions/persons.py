"""The user in the way of an auto worker: put it on the attention list and wait. Nothing of theirs is touched."""

from llmc.base.tmux import Unknown
from llmc.records.store import Transaction
from llmc.records.worker import Obstacle, WorkerRecord
from llmc.repo.project import Project
from llmc.sessions import typist
from llmc.sessions.sessions import is_taken


def is_person_there(project: Project, record: WorkerRecord) -> bool:
    """Whether it is on hold or a terminal is attached, or that is unknown."""
    pane = project.pane(record)
    return isinstance(pane, Unknown) or is_taken(record, pane) is not None


def met(project: Project, record: WorkerRecord) -> typist.Refusal | None:
    """What of the user's is in the way of typing into the agent, or of stopping it; finding out touches nothing."""
    patience_s = 0.0 if record.person is not None else typist.REDRAW_S
    return typist.person_in_way(project, record, patience_s, now=False)


def note(project: Project, record: WorkerRecord, refusal: typist.Refusal) -> bool:
    """Record that the worker waits for the user, on the attention list too; whether that is new."""
    if record.person is refusal.obstacle:
        return False
    with project.store.transaction() as tx:
        put_on_list(tx, record.name, refusal.obstacle, str(refusal))
    return True


def put_on_list(tx: Transaction, name: str, obstacle: Obstacle, words: str) -> None:
    tx.update(name, person=obstacle)
    tx.raise_item(
        _key(name),
        kind="person",
        severity="blocked" if obstacle.is_in_the_box else "waiting",
        who=name,
        text=words,
        next=f"llmc release {name}" if obstacle is Obstacle.HELD else f"llmc attach {name}",
    )


def left(project: Project, record: WorkerRecord) -> bool:
    """Record that the user is no longer in the way; whether that is new."""
    if record.person is None:
        return False
    with project.store.transaction() as tx:
        take_off_list(tx, record.name)
    return True


def take_off_list(tx: Transaction, name: str) -> None:
    tx.update(name, person=None)
    tx.clear_item(_key(name))


def _key(name: str) -> str:
    return f"person:{name}"
