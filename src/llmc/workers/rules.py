"""The rules of patrol: what to do with a worker whose hooks have stopped. Pure.

Takes facts, the record and the time; returns at most one decision, carried out by workers/patrol.py.
"""

from typing import Any

from msgspec import Struct, field

from llmc.attention.rules import ABORTED
from llmc.records.transitions import Step, step
from llmc.records.worker import Cause, SelfReview, Status, WorkerRecord
from llmc.sessions.rules.decide import ABORTED_BY_HAND, INTERRUPTED, GitFacts, unresolved

#: commits without a Stop count as the end of the turn after this time
NO_STOP_S = 300.0
#: a rebase without progress is given up after this time
STALLED_S = 300.0
#: if wall and monotonic time differ by more than this between two ticks, the machine slept or its clock was set
CLOCKS_APART_S = 5.0
#: if a tick is late by more than this many intervals, the process was suspended
LATE_INTERVALS = 3


class Clock(Struct, frozen=True):
    """The current time, and the largest age that can be trusted after a pause or a clock jump."""

    now: float
    age_cap_s: float = float("inf")

    def age_s(self, since_unix: float) -> float:
        """The age; never negative."""
        return min(max(0.0, self.now - since_unix), self.age_cap_s)


class Seen(Struct, frozen=True):
    """Facts about one worker; `git` is None if it could not be read."""

    git: GitFacts | None
    #: a turn is in progress, or a dialog is open
    turn_runs: bool = False
    dialog_open: bool = False
    #: no turn, no dialog, no background shell
    client_idle: bool = False
    #: the client's status file cannot be trusted
    client_unknown: bool = False
    #: the latest trace of the agent: transcript, commit, index
    last_trace_unix: float = 0.0
    #: commits of the default branch that its work does not have
    behind: int = 0
    #: on hold, or a terminal is attached
    taken: bool = False
    #: how long ago a rebase by patrol failed
    rebase_failed_s: float = float("inf")


class Limits(Struct, frozen=True):
    """Limits from the configuration."""

    background_grace_s: float
    patrol_interval_s: float


class Remember(Struct, frozen=True):
    """Change fields of the record only."""

    fields: dict[str, Any]


class Move(Struct, frozen=True):
    """Change the status; `action` names the event that explains it, "" for none."""

    change: Step
    action: str = ""
    details: dict[str, Any] = field(default_factory=dict)


class EndBackground(Struct, frozen=True):
    """Stop the agent's background processes; then its turn is over."""


class EndTurn(Struct, frozen=True):
    """Judge by git as if the agent had stopped: the work of its turn is done, but no Stop came."""


class Rebase(Struct, frozen=True):
    """Rebase the worker onto the latest default branch."""


Decision = Remember | Move | EndBackground | EndTurn | Rebase


def decide(record: WorkerRecord, seen: Seen, limits: Limits, clock: Clock) -> Decision | None:
    """What to do with a worker now: nothing while the user has it, or if git did not answer."""
    if seen.taken or seen.git is None:
        return None
    if record.background_since_unix:
        return background_left(record, seen, limits, clock)
    if record.self_review is SelfReview.DUE:
        return None  # its turn has ended, and llmc acts next
    if record.status.is_busy or (record.status is Status.NEEDS_INPUT and record.reason == INTERRUPTED):
        return commits_without_stop(record, seen, seen.git, clock)
    if record.status is Status.REBASING:
        return stalled_rebase(record, seen, seen.git, clock)
    return Rebase() if should_rebase(record, seen, limits) else None


def commits_without_stop(record: WorkerRecord, seen: Seen, git: GitFacts, clock: Clock) -> Decision | None:
    """Old commits and no turn in progress: the Stop never came. A commit alone does not end a turn."""
    if not git.ahead or git.rebasing:
        return Remember({"commits_seen_unix": 0.0}) if record.commits_seen_unix else None
    if not record.commits_seen_unix:
        return Remember({"commits_seen_unix": clock.now})
    if seen.turn_runs or seen.dialog_open or clock.age_s(record.commits_seen_unix) < NO_STOP_S:
        return None
    if seen.client_idle and record.status.is_busy:
        # This counts as an interruption within seconds; the user may be thinking, so the wait starts then.
        return None
    if seen.client_unknown and clock.age_s(seen.last_trace_unix) < NO_STOP_S:
        return None  # without a status file, only its traces show that it is still working
    return Move(step(Status.NEEDS_REVIEW, "committed, but did not run the Stop hook", commit_sha=git.head))


def background_left(record: WorkerRecord, seen: Seen, limits: Limits, clock: Clock) -> Decision | None:
    """Stop background shells after their grace period if only they keep an agent with commits from being done."""
    assert seen.git is not None
    has_work = bool(seen.git.ahead) or not record.has_branch
    if seen.turn_runs or seen.dialog_open or not has_work or seen.git.rebasing:
        return None
    grace_over = clock.age_s(record.background_since_unix) >= limits.background_grace_s
    return EndBackground() if grace_over else None


def stalled_rebase(record: WorkerRecord, seen: Seen, git: GitFacts, clock: Clock) -> Decision | None:
    """Give up a rebase without a turn or a write for too long.

    If it is over, end the turn instead: the user may have finished or aborted it by hand, without a Stop.
    """
    if seen.turn_runs or record.validation_due or (record.cause and record.assignment is not None):
        return None  # or a limit stopped it, which auto mode handles
    if seen.dialog_open and record.assignment is None:
        return None  # it waits for the user, not the other way round
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
        why = f"cannot send the conflicts to the agent: {record.delivery.reason if record.delivery else ''}"
    else:
        why = "the agent is not working"
    text = f"the rebase has made no progress for {quiet_s / 60:.0f} minutes: {why.rstrip(': ')}"
    failed = step(Status.ERROR, "no progress in the rebase", error_reason=text, cause=Cause.GIT)
    return Move(failed, "rebase_stalled", {"quiet_s": round(quiet_s)})


def _is_over(record: WorkerRecord, git: GitFacts) -> bool:
    """Whether a rebase started by llmc is finished; not while its worker is about to get a failed validation."""
    told_later = bool(record.validation_output) and record.conflict_prompt_due
    ended = not git.rebasing and (git.head == record.pre_rebase_sha or not unresolved(git))
    return bool(record.pre_rebase_sha) and ended and not told_later


def should_rebase(record: WorkerRecord, seen: Seen, limits: Limits) -> bool:
    """Whether to rebase work in review onto the latest default branch now, automatically.

    Not after its worker gave up on the same rebase: the user decides. Not right after a failure: it would repeat.
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
    """Why the time between two ticks, by both clocks, cannot be trusted; "" if it can."""
    if abs(wall_s - monotonic_s) > CLOCKS_APART_S:
        return f"the clock moved by {wall_s:.0f} s in {monotonic_s:.0f} s"
    late_s = monotonic_s - interval_s
    if late_s > LATE_INTERVALS * interval_s:
        return f"patrol was {late_s:.0f} s late"
    return ""
