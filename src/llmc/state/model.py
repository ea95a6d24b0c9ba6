"""state.json as a whole."""

from typing import Any

import msgspec

from llmc.names import WorkerName
from llmc.workers.model import WorkerRecord

VERSION = 1


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Everything llmc remembers between commands."""

    version: int = VERSION
    workers: dict[WorkerName, WorkerRecord] = {}
    last_reviewed_worker: WorkerName | None = None
    patrol_last_run_unix: float = 0.0
    #: number of the newest event, and the events of the newest write (see state/store.py)
    event_seq: int = 0
    recent_events: list[dict[str, Any]] = []
