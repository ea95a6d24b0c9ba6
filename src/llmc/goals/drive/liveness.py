"""How an assignment is, from what could be observed of it: each is judged on its own. Pure.

In the order of trust: the run that is in flight, the session's own signs, and for those that seem stale the last few
messages. What we sent ourselves is never a sign of life.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct, field

from llmc.goals.drive.policy import Policy
from llmc.goals.drive.updates import Update
from llmc.goals.model import Assignment, BlockedReason, Evidence, GoalView, Node, NodeStatus
from llmc.goals.plan.plan import Shape, is_closed, is_ready, shape_of


class Waits(Struct, frozen=True):
    """The open leaves of a plan, in its order."""

    #: could be worked on, and nobody has them yet
    ready: tuple[str, ...]
    #: of each leaf that cannot begin: what it waits for, as the plan names it
    waiting: Mapping[str, tuple[str, ...]]
    #: of each open leaf that others wait for, directly or not: how many those are; the most first
    holds_up: Mapping[str, int]


def waits_of(view: GoalView) -> Waits:
    shape, nodes = shape_of(view.nodes), view.nodes
    open_ = [leaf for leaf in shape.leaves if not is_closed(leaf, nodes, shape)]
    needs = {leaf: _open_needs(leaf, nodes, shape) for leaf in open_}
    idle = (NodeStatus.TODO, NodeStatus.QUEUED)
    return Waits(
        ready=tuple(leaf for leaf in open_ if nodes[leaf].status in idle and is_ready(leaf, nodes, shape)),
        waiting={leaf: wanted for leaf, wanted in needs.items() if wanted},
        holds_up=_holds_up(needs, shape, set(open_)),
    )


def held_up_by(view: GoalView, node_id: str) -> int:
    """How many open leaves wait for a part of the plan, directly or not."""
    shape = shape_of(view.nodes)
    found = waits_of(view).holds_up
    return max((found.get(leaf, 0) for leaf in shape.leaves_below(node_id)), default=0)


def _open_needs(leaf: str, nodes: Mapping[str, Node], shape: Shape) -> tuple[str, ...]:
    return tuple(dep for dep in shape.needs[leaf] if not is_closed(dep, nodes, shape))


def _holds_up(needs: Mapping[str, tuple[str, ...]], shape: Shape, open_: set[str]) -> dict[str, int]:
    """Who waits for each leaf in the end; a part of the plan is waited for in all its open leaves."""
    behind: dict[str, set[str]] = {}
    for leaf, wanted in needs.items():
        for dep in wanted:
            for below in shape.leaves_below(dep):
                if below in open_:
                    behind.setdefault(below, set()).add(leaf)

    def reached(start: str) -> int:
        seen: set[str] = set()
        todo = list(behind.get(start, ()))
        while todo:
            one = todo.pop()
            if one not in seen:
                seen.add(one)
                todo += behind.get(one, ())
        return len(seen - {start})

    counts = {leaf: reached(leaf) for leaf in behind}
    return dict(sorted(counts.items(), key=lambda row: -row[1]))


#: at most so many messages of one session are looked at
MAX_MESSAGES = 20
#: a session stirs when our own prompt arrives; so soon after one, that it did says nothing
ECHO_S = 5.0
#: purposes of a dispatch that gives somebody the work, or lets them go on with it
INSTRUCTIONS = ("work", "answer", "reassign")


class Run(StrEnum):
    """What is known of the run under the assignment's run id."""

    #: nobody knows of one
    NONE = "none"
    #: its task file is there, and waits until a worker is free
    WAITING = "waiting"
    #: a worker has it, from the claim until it is merged, given back or failed
    IN_FLIGHT = "in_flight"
    #: it ended, and what it was for has not happened
    ENDED = "ended"
    FAILED = "failed"


class Message(Struct, frozen=True):
    """One message of a session, as sampled."""

    message_id: str
    #: assistant, person (who typed into the session), llmc (our own words), or error (of the client or the API)
    role: str
    at: float
    text: str


class Report(Struct, frozen=True):
    """What came with `llmc report`, and when."""

    at: float
    update: Update
    #: the message of the conversation that it was made in; "" where nobody knows
    message_id: str = ""


class Merged(Struct, frozen=True):
    """The work has landed: the only thing, but for a person's word, that makes a leaf done."""

    commit: str
    at: float
    evidence: Evidence = field(default_factory=Evidence)
    summary: str = ""


class Signals(Struct, frozen=True):
    """What was observed of one assignment; None where nothing is known."""

    #: the run these signals are about; "" where that is not known
    run_id: str = ""
    run: Run = Run.NONE
    run_ended_at: float | None = None
    run_error: str = ""
    #: who has the run
    session_key: str = ""
    session_id: str = ""
    #: whether that session can be talked to now
    reachable: bool = False
    session_updated_at: float | None = None
    #: newest entry of the transcript that the agent wrote itself
    agent_wrote_at: float | None = None
    committed_at: float | None = None
    #: when we typed into that session
    prompted_at: tuple[float, ...] = ()
    #: the session waits on a person, by its own word or by a hook
    waiting: BlockedReason | None = None
    waiting_since: float | None = None
    merged: Merged | None = None
    #: reports, oldest first; each is given until its fingerprint is among the applied ones
    reports: tuple[Report, ...] = ()
    #: the last messages; None: they were not read
    messages: tuple[Message, ...] | None = None
    #: a delivery for this assignment is on its way just now
    delivering: bool = False


class State(StrEnum):
    """How an assignment is."""

    ALIVE = "alive"
    QUIET = "quiet"
    WAITING = "waiting"
    FAILED = "failed"
    MERGED = "merged"


class Liveness(Struct, frozen=True):
    """The judgement, and why."""

    state: State
    why: str
    #: newest sign of life
    active_at: float | None = None
    #: newest thing that is more than a sign of life
    progress_at: float | None = None
    #: from when on it is stalled, if nothing comes; None: no silence makes it so
    stalls_at: float | None = None


def idle_after(assignment: Assignment, policy: Policy) -> float:
    """How long this assignment may be silent; its own limit wins."""
    return policy.idle_after_s if assignment.idle_after_ms is None else assignment.idle_after_ms / 1000


def judge(
    assignment: Assignment,
    signals: Signals,
    policy: Policy,
    now: float,
    granted_until: float | None = None,
) -> Liveness:
    """How an assignment is; before `granted_until`, after a jump of the clock, no silence counts."""
    if signals.merged is not None:
        return Liveness(State.MERGED, f"merged as {signals.merged.commit[:12]}")
    if is_of_former_run(assignment, signals):
        signals = Signals()
    active_at = activity(assignment, signals, now)
    progress_at = progress(assignment, signals, policy, now)
    if waits_on_a_person(assignment, signals):
        return Liveness(State.WAITING, "it waits on a person", active_at, progress_at)
    if signals.run is Run.FAILED:
        return Liveness(State.FAILED, signals.run_error or "the run failed", active_at, progress_at)
    if signals.run is Run.IN_FLIGHT:
        return Liveness(State.ALIVE, "its run is in flight", active_at, progress_at)
    if signals.run is Run.WAITING:
        return Liveness(State.QUIET, "it waits for a free worker", active_at, progress_at)
    error = error_in_sample(assignment, signals)
    if error:
        return Liveness(State.FAILED, error, active_at, progress_at)
    due, why = _due(assignment, policy, active_at, now)
    due = max(due, granted_until or due)
    if active_at is not None and now < due:
        return Liveness(State.ALIVE, "it stirs", active_at, progress_at, due)
    return Liveness(State.QUIET, why, active_at, progress_at, due)


def activity(assignment: Assignment, signals: Signals, now: float) -> float | None:
    """The newest sign of life of the agent's own since the last dispatch; None: there is none.

    The session's own time counts only where it is not the echo of a prompt of ours.
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
    """The last messages that were read; never more than the limit."""
    return (signals.messages or ())[-MAX_MESSAGES:]


def error_in_sample(assignment: Assignment, signals: Signals) -> str:
    """The error that the session ended with, if the newest message of this work is one; what we said does not count."""
    own = [m for m in sampled(signals) if m.role != "llmc" and m.at > began_at(assignment)]
    return own[-1].text[:300] if own and own[-1].role == "error" else ""


def progress(assignment: Assignment, signals: Signals, policy: Policy, now: float) -> float | None:
    """The newest proof that it gets on: a commit, or an agent at work a whole silence after we last stepped in.

    An answer to a nudge alone proves nothing: an agent that only ever answers would be nudged for ever.
    """
    if is_of_former_run(assignment, signals):
        return None
    proofs = []
    since = max(began_at(assignment), assignment.last_progress_at or 0.0)
    if signals.committed_at is not None and signals.committed_at > since:
        proofs.append(min(signals.committed_at, now))
    if assignment.retry_count and assignment.last_retry_at is not None:
        wrote = signals.agent_wrote_at
        if wrote is not None and min(wrote, now) > assignment.last_retry_at + idle_after(assignment, policy):
            proofs.append(min(wrote, now))
    return max(proofs, default=None)


def began_at(assignment: Assignment) -> float:
    """When the present holder was given the work; what came before is of another time."""
    for dispatch in reversed(assignment.dispatch_history):
        if dispatch.purpose in INSTRUCTIONS:
            # the history stays as it was written; the newer of the two is put right after a jump of the clock
            return min(dispatch.ts, assignment.last_dispatch_at or dispatch.ts)
    return assignment.created_at


def waits_on_a_person(assignment: Assignment, signals: Signals) -> bool:
    """Whether the session waits, and not just still: what it waited for before our last word was answered by that."""
    if signals.waiting is None:
        return False
    return signals.waiting_since is None or signals.waiting_since > began_at(assignment)


def is_of_former_run(assignment: Assignment, signals: Signals) -> bool:
    """Whether the signals are of a run that this assignment has left behind."""
    if not signals.run_id or signals.run_id == assignment.run_id:
        return False
    return bool(assignment.run_id) or any(d.run_id == signals.run_id for d in assignment.dispatch_history)


def _sent_at(assignment: Assignment) -> float | None:
    """When the last instruction was last tried: one that was sent again has its full time from then on."""
    given = [d for d in assignment.dispatch_history if d.purpose in INSTRUCTIONS]
    if not given:
        return None
    tried = max(given[-1].ts, given[-1].result_at or given[-1].ts)
    return min(tried, assignment.last_dispatch_at or tried)


def is_echo(at: float, prompted_at: Iterable[float]) -> bool:
    """Whether that may be our own prompt: it is in the transcript before anybody has noted that it arrived."""
    return any(abs(at - prompted) <= ECHO_S for prompted in prompted_at)


def _due(assignment: Assignment, policy: Policy, active_at: float | None, now: float) -> tuple[float, str]:
    """When silence becomes a stall, and which silence: the earlier of the two limits, neither older than the last sign."""
    idle_s = idle_after(assignment, policy)
    observed = assignment.last_observed_activity_at
    known = (observed, active_at, began_at(assignment), _sent_at(assignment))
    last_sign = max(min(at, now) for at in known if at is not None)
    silent = last_sign + idle_s
    expected = assignment.expected_next_update_at
    # what stirred since the last look has moved the expected time on already
    stirred = active_at is not None and (observed is None or active_at > observed)
    if expected is None or stirred or expected <= last_sign or expected >= silent:
        return silent, f"no sign of life for {idle_s:g} s"
    return expected, "the update it was expected to give did not come"
