"""Judges whether an assignment is alive, from what was observed. Pure.

In order of trust: a task in flight, session activity and, for stale assignments, the last messages.
Our own prompts never count as activity.
"""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct, field

from llmc.goals.drive.ladder import Policy, sent_at
from llmc.goals.drive.updates import Update
from llmc.goals.model import Assignment, BlockedReason, Evidence

#: most messages read from one session
MAX_MESSAGES = 20
#: activity this soon after our own prompt proves nothing
ECHO_S = 5.0


class Run(StrEnum):
    """The state of the assignment's task."""

    #: no task known
    NONE = "none"
    #: waits for a free worker
    WAITING = "waiting"
    #: claimed and not yet merged, returned or failed
    IN_FLIGHT = "in_flight"
    #: landed, or waits for the user
    ENDED = "ended"
    FAILED = "failed"


class Message(Struct, frozen=True):
    message_id: str
    #: assistant, person (typed into the session), llmc (our own prompt), or error (of the client or the API)
    role: str
    at: float
    text: str


class Report(Struct, frozen=True):
    """A report and its time."""

    at: float
    update: Update
    #: "": not known
    message_id: str = ""


class Merged(Struct, frozen=True):
    """The work has landed; besides the user, only this makes a leaf done."""

    commit: str
    at: float
    evidence: Evidence = field(default_factory=Evidence)
    summary: str = ""

    @property
    def told(self) -> str:
        """The reason to show the user."""
        return f"landed as {self.commit[:12]}" if self.commit else "completed without a new commit"


class Signals(Struct, frozen=True):
    """Observations of one assignment; None: not known."""

    #: "": not known
    run_id: str = ""
    run: Run = Run.NONE
    run_ended_at: float | None = None
    run_error: str = ""
    session_key: str = ""
    session_id: str = ""
    #: whether a prompt can be sent to the session now
    reachable: bool = False
    session_updated_at: float | None = None
    #: newest transcript entry written by the agent itself
    agent_wrote_at: float | None = None
    committed_at: float | None = None
    #: times of our own prompts
    prompted_at: tuple[float, ...] = ()
    #: when llmc began to send the prompts that arrived
    told_at: tuple[float, ...] = ()
    #: why the session waits for the user, from its report or a hook
    waiting: BlockedReason | None = None
    waiting_since: float | None = None
    merged: Merged | None = None
    #: oldest first; repeated until applied
    reports: tuple[Report, ...] = ()
    #: None: not read
    messages: tuple[Message, ...] | None = None
    #: a delivery is in progress
    delivering: bool = False


class State(StrEnum):
    ALIVE = "alive"
    QUIET = "quiet"
    WAITING = "waiting"
    FAILED = "failed"
    MERGED = "merged"


class Liveness(Struct, frozen=True):
    state: State
    why: str
    #: newest activity
    active_at: float | None = None
    #: newest confirmed progress
    progress_at: float | None = None
    #: None: silence is no stall
    stalls_at: float | None = None


def judge(
    assignment: Assignment,
    signals: Signals,
    policy: Policy,
    now: float,
    granted_until: float | None = None,
) -> Liveness:
    """Judge an assignment; before `granted_until`, after a clock jump, silence does not count."""
    if signals.merged is not None:
        return Liveness(State.MERGED, signals.merged.told)
    if is_of_former_run(assignment, signals):
        signals = Signals()
    active_at = activity(assignment, signals, now)
    progress_at = progress(assignment, signals, policy, now)
    if waits_for_user(assignment, signals):
        return Liveness(State.WAITING, "waiting for the user", active_at, progress_at)
    if signals.run is Run.FAILED:
        return Liveness(State.FAILED, signals.run_error or "the task failed", active_at, progress_at)
    if signals.run is Run.IN_FLIGHT:
        return Liveness(State.ALIVE, "the task is in progress", active_at, progress_at)
    if signals.run is Run.WAITING:
        return Liveness(State.QUIET, "waiting for a free worker", active_at, progress_at)
    error = error_in_sample(assignment, signals)
    if error:
        return Liveness(State.FAILED, error, active_at, progress_at)
    due, why = _due(assignment, policy, active_at, now)
    due = max(due, granted_until or due)
    if active_at is not None and now < due:
        return Liveness(State.ALIVE, "activity seen", active_at, progress_at, due)
    return Liveness(State.QUIET, why, active_at, progress_at, due)


def activity(assignment: Assignment, signals: Signals, now: float) -> float | None:
    """The agent's newest own activity since the last dispatch, or None.

    The session's own time counts only if it is not the echo of our prompt.
    """
    if is_of_former_run(assignment, signals):
        return None
    signs = [signals.agent_wrote_at, signals.committed_at, signals.run_ended_at]
    if signals.session_updated_at is not None and not is_echo(
        signals.session_updated_at, signals.prompted_at
    ):
        signs.append(signals.session_updated_at)
    spoke = [message.at for message in sampled(signals) if message.role in ("assistant", "person")]
    since = began_at(assignment)
    return max((min(at, now) for at in (*signs, *spoke) if at is not None and at > since), default=None)


def sampled(signals: Signals) -> tuple[Message, ...]:
    return (signals.messages or ())[-MAX_MESSAGES:]


def error_in_sample(assignment: Assignment, signals: Signals) -> str:
    """The error that the session ended with, if its newest message is one."""
    own = [m for m in sampled(signals) if m.role != "llmc" and m.at > began_at(assignment)]
    return own[-1].text[:300] if own and own[-1].role == "error" else ""


def progress(assignment: Assignment, signals: Signals, policy: Policy, now: float) -> float | None:
    """The newest progress: a commit, or an agent active a full idle limit after our last message.

    A reply to a nudge is no progress: an agent that only replies would be nudged forever.
    """
    if is_of_former_run(assignment, signals):
        return None
    proofs = []
    since = max(began_at(assignment), assignment.last_progress_at or 0.0)
    if signals.committed_at is not None and signals.committed_at > since:
        proofs.append(min(signals.committed_at, now))
    if assignment.retry_count and assignment.last_retry_at is not None:
        wrote = signals.agent_wrote_at
        if wrote is not None and min(wrote, now) > assignment.last_retry_at + assignment.idle_after_s(
            policy.idle_after_s
        ):
            proofs.append(min(wrote, now))
    return max(proofs, default=None)


def began_at(assignment: Assignment) -> float:
    """When the current worker got the work; earlier signals do not count."""
    given = assignment.last_instruction
    if given is None:
        return assignment.created_at
    # the history stays as written; only `last_dispatch_at` is corrected when the clock is set back
    return min(given.ts, assignment.last_dispatch_at or given.ts)


def waits_for_user(assignment: Assignment, signals: Signals) -> bool:
    """Whether the session has been waiting for the user since our last instruction."""
    if signals.waiting is None:
        return False
    return signals.waiting_since is None or signals.waiting_since > began_at(assignment)


def is_of_former_run(assignment: Assignment, signals: Signals) -> bool:
    """Whether the signals belong to a task that this assignment no longer has."""
    if not signals.run_id or signals.run_id == assignment.run_id:
        return False
    return bool(assignment.run_id) or any(d.run_id == signals.run_id for d in assignment.dispatch_history)


def is_echo(at: float, prompted_at: Iterable[float]) -> bool:
    """Whether activity at `at` may be our own prompt, which the transcript shows before the receipt exists."""
    return any(abs(at - prompted) <= ECHO_S for prompted in prompted_at)


def _due(assignment: Assignment, policy: Policy, active_at: float | None, now: float) -> tuple[float, str]:
    """When silence becomes a stall, and why: the earlier of two limits, never before the last activity."""
    idle_s = assignment.idle_after_s(policy.idle_after_s)
    observed = assignment.last_observed_activity_at
    given = assignment.last_instruction
    tried = sent_at(assignment, given) if given else None  # a repeated instruction gets its full time
    known = (observed, active_at, began_at(assignment), tried)
    last_sign = max(min(at, now) for at in known if at is not None)
    silent = last_sign + idle_s
    expected = assignment.expected_next_update_at
    # activity since the last tick has moved the expected time already
    stirred = active_at is not None and (observed is None or active_at > observed)
    if expected is None or stirred or expected <= last_sign or expected >= silent:
        return silent, f"no activity for {idle_s:g} s"
    return expected, "the expected update did not arrive"
