"""The supervisor's data about a daemon and a failure. Pure data."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from llmc.base import given
from llmc.records.items import Registration

#: log levels that count as failures, by all their names in `logging`
FAILURES = frozenset({"WARN", "WARNING", "ERROR", "CRITICAL", "FATAL"})


class FailureKind(StrEnum):
    """How the supervisor detected the failure."""

    #: it did not register
    START = "start"
    #: its process is gone
    PROCESS = "process"
    #: another daemon is registered, or none
    IDENTITY = "identity"
    #: no heartbeat
    HEARTBEAT = "heartbeat"
    #: it logged a failure
    LOG = "log"
    #: tasks are ready, but no progress
    STALL = "stall"
    #: not a failure: it exited because there is nothing more to do
    DRAINED = "drained"


class Identity(Struct, frozen=True):
    """Identifies a daemon; a pid alone may be reused."""

    pid: int
    start_time_unix: float
    instance_id: str

    @classmethod
    def read(cls, row: object) -> "Identity | None":
        """The identity in a record; None if it has none."""
        return cls.of(Registration.read(row))

    @classmethod
    def of(cls, found: Registration | None) -> "Identity | None":
        if found is None or found.pid is None or found.start_time_unix is None or found.instance_id is None:
            return None
        return cls(found.pid, found.start_time_unix, found.instance_id)


class Record(Struct, frozen=True):
    """A line of the daemon's log at WARN or above."""

    level: str
    message: str
    action: str = ""
    cause: str = ""
    worker: str = ""
    task_id: str = ""
    task_file: str = ""
    output: str = ""
    ts: float = 0.0

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> "Record | None":
        """The record of a log line; None if it is not a failure."""
        if str(row.get("level")).upper() not in FAILURES:
            return None
        texts = {
            key: str(row.get(key) or "")
            for key in ("message", "action", "cause", "worker", "task_id", "task_file")
        }
        output = str(row.get("output") or row.get("traceback") or "")
        return cls(
            level=str(row["level"]).upper(),
            output=output,
            ts=given.number(row.get("ts")) or 0.0,
            **texts,
        )


class Failure(Struct, frozen=True):
    """What is wrong with the daemon; `cause` is that of its failure records, "" if unknown."""

    kind: FailureKind
    text: str
    cause: str = ""
    record: Record | None = None
    #: the end of the daemon's output, if nothing else shows what happened
    output: str = ""


def failures(lines: Iterable[bytes]) -> list[Record]:
    """The records of lines at WARN or above. A line that is not a JSON object was cut off, and is ignored."""
    rows = (row for line in lines if (row := given.row(line)) is not None)
    return [record for row in rows if (record := Record.read(row)) is not None]
