"""Records that an auto worker waits for the user, on the attention list too. Touches nothing of the user's."""

from llmc.base.tmux import Unknown
from llmc.records.store import Transaction
from llmc.records.worker import Obstacle, WorkerRecord
from llmc.repo.project import Project
from llmc.sessions import typist
from llmc.sessions.sessions import is_taken


def is_person_there(project: Project, record: WorkerRecord) -> bool:
    """Whether the worker is on hold or a terminal is attached, or may be."""
    pane = project.pane(record)
    return isinstance(pane, Unknown) or is_taken(record, pane) is not None


def met(project: Project, record: WorkerRecord) -> typist.Refusal | None:
    """What the user does or left that keeps llmc from typing into the agent or stopping it. Presses no key."""
    patience_s = 0.0 if record.person is not None else typist.REDRAW_S
    return typist.person_in_way(project, record, patience_s, now=False)


def note(project: Project, record: WorkerRecord, refusal: typist.Refusal) -> bool:
    """Record that the worker waits for the user, on the attention list too; returns whether that is new."""
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
    """Record that the user is no longer in the way; returns whether that is new."""
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
