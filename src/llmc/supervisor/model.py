"""What the supervisor knows of a daemon, and of a failure. Pure data."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from llmc.base import given
from llmc.records.items import Registration

#: levels of the daemon's log that are failures, with all the names that logging has for them
FAILURES = frozenset({"WARN", "WARNING", "ERROR", "CRITICAL", "FATAL"})


class FailureKind(StrEnum):
    """How the supervisor found out."""

    #: it did not register
    START = "start"
    #: its process is gone
    PROCESS = "process"
    #: another daemon is registered, or none is
    IDENTITY = "identity"
    #: no sign of life
    HEARTBEAT = "heartbeat"
    #: it wrote a failure record itself
    LOG = "log"
    #: there is work, and nothing gets on
    STALL = "stall"
    #: no failure: it has ended by itself, because there is nothing more to do
    DRAINED = "drained"


class Identity(Struct, frozen=True):
    """Which daemon it is: a pid alone may be another process by now."""

    pid: int
    start_time_unix: float
    instance_id: str

    @classmethod
    def read(cls, row: object) -> "Identity | None":
        """The one that a record names; None where that says nothing useful."""
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
        """None for a line that is no failure."""
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
    """What is wrong with the daemon, in words; `cause` as in its failure records, "" where it is not known."""

    kind: FailureKind
    text: str
    cause: str = ""
    record: Record | None = None
    #: the end of what the daemon printed, where nothing else tells what happened
    output: str = ""


def failures(lines: Iterable[bytes]) -> list[Record]:
    """The records of lines at WARN and above; a line that is no JSON object was torn, and says nothing."""
    found = []
    for line in lines:
        row = given.row(line)
        record = Record.read(row) if row is not None else None
        if record is not None:
            found.append(record)
    return found
