"""state.json as a whole."""

from typing import Any, ClassVar

import msgspec

from llmc.base.names import TaskId, WorkerName
from llmc.records.auto import AutoState
from llmc.records.worker import WorkerRecord

VERSION = 1


class Raised(msgspec.Struct, frozen=True, kw_only=True):
    """An item of the attention list that was seen from outside the state (records/items.py); its key is beside it."""

    kind: str
    severity: str
    who: str
    text: str
    since_unix: float
    next: str = ""


class UndoJournal(msgspec.Struct, frozen=True, kw_only=True):
    """How far an undo got (landing/undo.py); written before each step acts, so that a crash resumes there."""

    identity: ClassVar[str] = "started_unix"
    step: str
    started_unix: float
    #: the accept that is taken back
    worker: str
    commit: str
    prompt: str = ""
    #: origin/<default branch> that the revert is on
    base: str = ""
    #: the one commit that lands; stored before it lands
    revert: str = ""
    attempt: int = 1
    #: what can be done again, in words, and the task that is
    returned: str = ""
    task_id: str = ""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Everything llmc remembers between commands."""

    version: int = VERSION
    workers: dict[WorkerName, WorkerRecord] = {}
    last_reviewed_worker: WorkerName | None = None
    patrol_last_run_unix: float = 0.0
    #: which task each auto worker is at; the same as in the workers' records, and written with them
    active_task_ids: dict[WorkerName, TaskId] = {}
    auto: AutoState = AutoState()
    #: auto mode is wanted: it began, and neither ended as planned nor was ended by a person. Whether it runs is
    #: another question: a daemon that died leaves this
    auto_mode: bool = False
    #: the workers that auto mode drives; the same as in the workers' records, and written with them
    auto_workers: tuple[WorkerName, ...] = ()
    #: what needs a person and does not follow from the rest of the state, by its stable key
    attention: dict[str, Raised] = {}
    #: an undo that is under way or was interrupted, or that ended and of which no person was told yet
    undo: UndoJournal | None = None
    #: a supervisor looks after the daemon, which does not know of it; one that was killed leaves this (see its lock)
    overseer_active: bool = False
    #: number of the newest event, and the events of the newest write (see records/store.py)
    event_seq: int = 0
    recent_events: list[dict[str, Any]] = []
