"""Decides how a turn of the supervisor's own agent ended, from its record. Pure."""

from enum import StrEnum
from typing import assert_never

from msgspec import Struct

from llmc.attention.rules import ASKS
from llmc.records.worker import Status, WorkerRecord
from llmc.sessions.rules.decide import INTERRUPTED

#: a session that crashes is restarted once; after that the remediation has failed
TRIES = 2


class Outcome(StrEnum):
    """The outcome of a remediation."""

    COMPLETED = "completed"
    #: the supervisor was told to stop
    INTERRUPTED = "interrupted"
    TIMEOUT = "timeout"
    FAILED = "failed"


class End(Struct, frozen=True):
    """How the turn ended, and the problem, if any."""

    outcome: Outcome
    problem: str = ""
    #: the kind of failure (records/worker.py), if known
    cause: str = ""
    #: the agent's process or session is gone: a retry may help
    crashed: bool = False


def judge(
    record: WorkerRecord, *, attached: bool, stopping: bool, spent_s: float, limit_s: float
) -> End | None:
    """The end of a remediation turn; None while it runs.

    A normal end comes first: the agent finished in time. While a terminal is attached, an interruption or a failure
    does not count, because the user sees it too; and `spent_s` does not grow.
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
    """The end of the turn, from hooks, process and session alone."""
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
        return End(Outcome.FAILED, "the agent was interrupted before it finished")
    return None if record.reason in ASKS else End(Outcome.COMPLETED)


def _gone(record: WorkerRecord) -> End:
    """A normal exit is fine, because the prompt asks for it; anything else is a crash."""
    if record.reason == "exited":
        return End(Outcome.COMPLETED)
    return End(Outcome.FAILED, _why(record), record.cause, crashed=True)


def _why(record: WorkerRecord) -> str:
    text = " ".join((record.error_reason or record.reason or "the session is gone").split())
    return f"{record.cause}: {text}" if record.cause else text


def _too_long(record: WorkerRecord, limit_s: float) -> str:
    waits = f"; it is waiting for an answer ({record.reason})" if record.reason in ASKS else ""
    return f"the agent did not finish within {limit_s:g} s{waits}"
