"""The rules of patrol: what to do about a worker that no hook will ever speak of again. Pure.

Facts, the record and the clock in; at most one decision out. Who carries it out is workers/patrol.py.
"""

from typing import Any

from msgspec import Struct, field

from llmc.records.causes import Cause
from llmc.records.transitions import Step, step
from llmc.records.worker import BUSY, SelfReview, Status, WorkerRecord
from llmc.sessions.rules.decide import ABORTED, ABORTED_BY_HAND, INTERRUPTED, GitFacts, unresolved

#: commits of a turn whose end was never told count as its end after this time
NO_STOP_S = 300.0
#: a rebase in which nothing moves is given up after this time
STALLED_S = 300.0
#: wall and monotonic time that part by more than this between two ticks: the machine slept, or its clock was set
CLOCKS_APART_S = 5.0
#: a tick that is late by more than this many intervals: we stood still
LATE_INTERVALS = 3


class Clock(Struct, frozen=True):
    """The time now; and the longest age that may be concluded from it, after a pause or a jump of the clock."""

    now: float
    age_cap_s: float = float("inf")

    def age_s(self, since_unix: float) -> float:
        """An age below zero is zero."""
        return min(max(0.0, self.now - since_unix), self.age_cap_s)


class Seen(Struct, frozen=True):
    """What patrol found out about one worker; `git` is None where it could not be read."""

    git: GitFacts | None
    #: a turn runs, or a dialog is open
    turn_runs: bool = False
    dialog_open: bool = False
    #: no turn, no dialog, no shell in the background
    client_idle: bool = False
    #: the client's status file could not be relied on
    client_unknown: bool = False
    #: the newest trace of the agent: transcript, commit, index
    last_trace_unix: float = 0.0
    #: commits of the default branch that are missing in its work
    behind: int = 0
    #: a person holds it or is attached
    taken: bool = False
    #: how long ago a rebase by patrol failed
    rebase_failed_s: float = float("inf")


class Limits(Struct, frozen=True):
    """What the configuration says."""

    background_grace_s: float
    patrol_interval_s: float


class Remember(Struct, frozen=True):
    """Change fields of the record, nothing else."""

    fields: dict[str, Any]


class Move(Struct, frozen=True):
    """Take a step; `action` names the event that explains it, "" for none."""

    change: Step
    action: str = ""
    details: dict[str, Any] = field(default_factory=dict)


class EndBackground(Struct, frozen=True):
    """End what the agent left running; then its turn is over."""


class EndTurn(Struct, frozen=True):
    """Judge by git as if the agent had stopped: somebody else did what its turn was for."""


class Rebase(Struct, frozen=True):
    """Put the worker's commits onto the newest base."""


Decision = Remember | Move | EndBackground | EndTurn | Rebase


def decide(record: WorkerRecord, seen: Seen, limits: Limits, clock: Clock) -> Decision | None:
    """The one thing to do about a worker now. Nothing while a person has it, or where git gave no answer."""
    if seen.taken or seen.git is None:
        return None
    if record.background_since_unix:
        return background_left(record, seen, limits, clock)
    if record.self_review is SelfReview.DUE:
        return None  # its turn has ended, and llmc has the next word
    if record.status in BUSY or (record.status is Status.NEEDS_INPUT and record.reason == INTERRUPTED):
        return commits_without_stop(record, seen, seen.git, clock)
    if record.status is Status.REBASING:
        return stalled_rebase(record, seen, seen.git, clock)
    return Rebase() if should_rebase(record, seen, limits) else None


def commits_without_stop(record: WorkerRecord, seen: Seen, git: GitFacts, clock: Clock) -> Decision | None:
    """Commits that were first seen long ago, and no turn runs: a Stop that never came. A commit alone ends no turn."""
    if not git.ahead or git.rebasing:
        return Remember({"commits_seen_unix": 0.0}) if record.commits_seen_unix else None
    if not record.commits_seen_unix:
        return Remember({"commits_seen_unix": clock.now})
    if seen.turn_runs or seen.dialog_open or clock.age_s(record.commits_seen_unix) < NO_STOP_S:
        return None
    if seen.client_idle and record.status in BUSY:
        # Seen as an interruption within seconds; a person may be thinking, so the wait begins there.
        return None
    if seen.client_unknown and clock.age_s(seen.last_trace_unix) < NO_STOP_S:
        return None  # without a status file only its traces tell that it is still at work
    return Move(step(Status.NEEDS_REVIEW, "commits, but no word of its end", commit_sha=git.head))


def background_left(record: WorkerRecord, seen: Seen, limits: Limits, clock: Clock) -> Decision | None:
    """It stopped with commits, and only shells that it left behind keep it from being done."""
    assert seen.git is not None
    has_work = bool(seen.git.ahead) or not record.has_branch
    if seen.turn_runs or seen.dialog_open or not has_work or seen.git.rebasing:
        return None
    grace_over = clock.age_s(record.background_since_unix) >= limits.background_grace_s
    return EndBackground() if grace_over else None


def stalled_rebase(record: WorkerRecord, seen: Seen, git: GitFacts, clock: Clock) -> Decision | None:
    """No turn runs, and nothing was written, for too long: nobody is at it any more.

    Unless it is over: a person may have finished or aborted it by hand, and no Stop tells of that.
    """
    if seen.turn_runs or record.validation_due or (record.cause and record.assignment is not None):
        return None  # or a limit stopped it, and auto mode sees to that
    sent = record.delivery.at_unix if record.delivery else 0.0
    since = max(record.since_unix, record.rebase_started_at_unix, sent, seen.last_trace_unix)
    quiet_s = clock.age_s(since)
    if _is_over(record, git) and (
        quiet_s >= STALLED_S or (seen.client_idle and not record.validation_output)
    ):
        return EndTurn()
    if quiet_s < STALLED_S:
        return None
    if seen.dialog_open:
        why = "a dialog is open"
    elif record.conflict_prompt_due:
        why = f"it could not be told of its conflicts: {record.delivery.reason if record.delivery else ''}"
    else:
        why = "no turn runs"
    text = f"no progress in its rebase for {quiet_s / 60:.0f} minutes: {why.rstrip(': ')}"
    failed = step(Status.ERROR, "no progress in its rebase", error_reason=text, cause=Cause.GIT)
    return Move(failed, "rebase_stalled", {"quiet_s": round(quiet_s)})


def _is_over(record: WorkerRecord, git: GitFacts) -> bool:
    """Whether git is done with a rebase that llmc began; not while its worker is to hear of a failed validation."""
    told_later = bool(record.validation_output) and record.conflict_prompt_due
    ended = not git.rebasing and (git.head == record.pre_rebase_sha or not unresolved(git))
    return bool(record.pre_rebase_sha) and ended and not told_later


def should_rebase(record: WorkerRecord, seen: Seen, limits: Limits) -> bool:
    """Whether work that waits for review is brought onto the newest base now, without anybody having asked.

    Not after its worker gave the same up: that is a person's to decide. Not right after a failure: it would be the
    same one.
    """
    git = seen.git
    return (
        record.status is Status.NEEDS_REVIEW
        and record.accept is None
        and record.reason not in (ABORTED, ABORTED_BY_HAND)
        and not (seen.taken or seen.turn_runs or seen.dialog_open)
        and git is not None
        and not (git.dirty or git.rebasing)
        and git.ahead > 0
        and seen.behind > 0
        and seen.rebase_failed_s > 1.5 * limits.patrol_interval_s
    )


def clock_jump(interval_s: float, monotonic_s: float, wall_s: float) -> str:
    """Why the time between two ticks cannot be trusted, "" when it can; both clocks measured it."""
    if abs(wall_s - monotonic_s) > CLOCKS_APART_S:
        return f"the clock moved by {wall_s:.0f} s while {monotonic_s:.0f} s went by"
    late_s = monotonic_s - interval_s
    if late_s > LATE_INTERVALS * interval_s:
        return f"patrol came {late_s:.0f} s late"
    return ""
