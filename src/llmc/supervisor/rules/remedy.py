"""How the turn of the supervisor's own agent ended, from its record. Pure."""

import re
from enum import StrEnum
from typing import assert_never

from msgspec import Struct

from llmc.records.worker import Status, WorkerRecord
from llmc.sessions.rules.decide import INTERRUPTED

#: a session that crashes is started again and told once more; after that it is an issue
TRIES = 2

#: it asked something: nobody is there to answer, so it goes on waiting until the limit
_ASKS = ("question", "permission")

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


class Outcome(StrEnum):
    """What became of a remediation."""

    COMPLETED = "completed"
    #: the supervisor was told to stop
    INTERRUPTED = "interrupted"
    TIMEOUT = "timeout"
    FAILED = "failed"


class End(Struct, frozen=True):
    """How it ended, and why where that was not as it should."""

    outcome: Outcome
    problem: str = ""
    #: what kind of failure it was (records/causes.py), where that is known
    cause: str = ""
    #: its process or its session went away: another try may do
    crashed: bool = False


def judge(
    record: WorkerRecord, *, attached: bool, stopping: bool, spent_s: float, limit_s: float
) -> End | None:
    """The end of a turn that was told of a failure; None while it goes on.

    Its own end comes first: what was done in time is done. While a person is attached nothing is concluded from
    an interruption or a failure, which the person sees too, and `spent_s` does not grow.
    """
    end = ended(record)
    if end is not None and (not attached or end.crashed or end.outcome is Outcome.COMPLETED):
        return end
    if stopping:
        return End(Outcome.INTERRUPTED)
    if spent_s >= limit_s:
        return End(Outcome.TIMEOUT, _too_long(record, limit_s))
    return None


def ended(record: WorkerRecord) -> End | None:
    """What the record says of the turn, by its hooks, its process and its session alone."""
    match record.status:
        case Status.WORKING | Status.REVIEWING | Status.REJECTED | Status.REBASING:
            return None
        case Status.NEEDS_INPUT:
            return _rests(record)
        case Status.IDLE | Status.NO_CHANGES | Status.NEEDS_REVIEW:
            return End(Outcome.COMPLETED)
        case Status.ERROR:
            return End(Outcome.FAILED, _why(record), record.cause)
        case Status.OFFLINE:
            return _gone(record)
    assert_never(record.status)


def _rests(record: WorkerRecord) -> End | None:
    if record.cause or record.reason == "blocked":
        return End(Outcome.FAILED, _why(record), record.cause)
    if record.reason == INTERRUPTED:
        return End(Outcome.FAILED, "somebody interrupted it in its session")
    return None if record.reason in _ASKS else End(Outcome.COMPLETED)


def _gone(record: WorkerRecord) -> End:
    """Told to exit normally when it is done, it may do just that; anything else is a crash."""
    if record.reason == "exited":
        return End(Outcome.COMPLETED)
    return End(Outcome.FAILED, _why(record), record.cause, crashed=True)


def _why(record: WorkerRecord) -> str:
    text = " ".join((record.error_reason or record.reason or "its session is gone").split())
    return f"{record.cause}: {text}" if record.cause else text


def _too_long(record: WorkerRecord, limit_s: float) -> str:
    waits = f"; it waits for an answer ({record.reason})" if record.reason in _ASKS else ""
    return f"not done after {limit_s:g} s{waits}"


def printable(text: str) -> str:
    """Logs may hold control characters, which a terminal would act on: they are shown as escapes instead."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
