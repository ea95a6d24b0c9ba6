"""Limits for driving goals, and the next recovery step for an assignment without progress. Pure.

nudge -> resend -> replan -> reassign -> escalate. Steps count until there is progress. After the escalation only a few
reminders follow.
"""

from msgspec import Struct
from msgspec.structs import replace

from llmc.goals.model import (
    Assignment,
    Dispatch,
    Node,
    NodeKind,
    Recovery,
)

#: the default pool
HOME = "auto"
#: in an allowlist: matches every pool
ANY_POOL = "*"


class Policy(Struct, frozen=True):
    """Limits of a tick and of an assignment; the defaults are those of the configuration."""

    tick_every_s: float = 120.0
    idle_after_s: float = 900.0
    #: nudges, and repeated deliveries, before the next recovery step
    max_retries: int = 2
    min_resend_interval_s: float = 300.0
    backoff_base_s: float = 120.0
    backoff_max_s: float = 1800.0
    #: leaves at work at the same time, over all goals
    max_in_progress: int = 3
    max_dispatches_per_tick: int = 10
    #: stale assignments whose messages one tick reads
    max_samples_per_tick: int = 20
    #: reminders after a question, and the time between them
    max_reminders: int = 3
    reminder_every_s: float = 4 * 3600.0
    allow_agents: tuple[str, ...] = (HOME,)
    allow_cross_agent: bool = False
    #: whether a planner can split work
    planner: bool = False
    #: whether the planner also diagnoses a stall before the user is asked
    diagnose: bool = False


def session_key(pool: str, worker: str) -> str:
    """The key of a worker's session in the records; never an alias."""
    return f"agent:{pool}:worker:{worker}"


def worker_of(key: str) -> str:
    """The worker of a session key; "" for none."""
    return key.rpartition(":")[2]


def may_supervise(agent_id: str, policy: Policy) -> bool:
    """Whether goals may use a pool: it is listed, and is the home pool unless `allow_cross_agent` is set."""
    listed = agent_id in policy.allow_agents or ANY_POOL in policy.allow_agents
    return listed and (agent_id == HOME or policy.allow_cross_agent)


def may_touch(assignment: Assignment, policy: Policy) -> bool:
    return may_supervise(assignment.agent_id, policy)


def may_report(worker: str, session_id: str, assignment: Assignment) -> bool:
    """A worker may report only on the assignment that its session has now."""
    if not worker or not assignment.status.is_open:
        return False
    if assignment.session_key != session_key(assignment.agent_id, worker):
        return False
    return assignment.session_id in ("", session_id)


LADDER = tuple(Recovery)

#: dispatches beyond `max_retries` between two marks of progress: the first, two steps, the escalation
BEYOND_RETRIES = 4
#: a leaf with more criteria is too large
MANY_CRITERIA = 5


class Situation(Struct, frozen=True):
    reachable: bool
    #: there is no worker to nudge
    failed: bool = False


def next_step(assignment: Assignment, node: Node, situation: Situation, policy: Policy) -> Recovery:
    """The first step that applies and is not used up, starting at the assignment's `recovery_policy`."""
    if assignment.retry_count >= policy.max_retries + BEYOND_RETRIES - 2:
        return Recovery.ESCALATE
    entry = LADDER.index(assignment.recovery_policy)
    # an unconfirmed instruction is sent again before anything else
    if entry <= LADDER.index(Recovery.RESEND) and _fits(Recovery.RESEND, assignment, node, situation, policy):
        return Recovery.RESEND
    for step in LADDER[entry:]:
        if _fits(step, assignment, node, situation, policy):
            return step
    return Recovery.ESCALATE


def in_doubt(assignment: Assignment) -> bool:
    """Whether the last instruction may not have arrived."""
    last = assignment.last_instruction
    return last is not None and last.result.is_bad


def episode(assignment: Assignment) -> tuple[Dispatch, ...]:
    """Dispatches since the last progress."""
    mark = assignment.last_progress_at
    if mark is None:
        return assignment.dispatch_history
    return tuple(d for d in assignment.dispatch_history if d.ts > mark)


def backoff_s(step: int, policy: Policy) -> float:
    """The wait after the n-th step in a row: doubles up to the cap."""
    doublings = min(max(step, 1) - 1, 32)
    return min(policy.backoff_max_s, policy.backoff_base_s * 2.0**doublings)


def not_before(assignment: Assignment, instruction_hash: str, policy: Policy) -> float:
    """The earliest time for this instruction: after the backoff, and not the same text again too soon."""
    until = assignment.backoff_until or 0.0
    same = [
        sent_at(assignment, d) for d in assignment.dispatch_history if d.instruction_hash == instruction_hash
    ]
    return max(until, max(same) + policy.min_resend_interval_s) if same else until


def sent_at(assignment: Assignment, dispatch: Dispatch) -> float:
    """When a dispatch was last tried, at most `last_dispatch_at`, which is corrected when the clock is set back."""
    tried = max(dispatch.ts, dispatch.result_at or dispatch.ts)
    return tried if assignment.last_dispatch_at is None else min(tried, assignment.last_dispatch_at)


def stepped(assignment: Assignment, policy: Policy, now: float) -> Assignment:
    """Count one step, and back off."""
    steps = assignment.retry_count + 1
    return replace(
        assignment,
        retry_count=steps,
        last_retry_at=now,
        backoff_until=now + backoff_s(steps, policy),
        updated_at=now,
    )


def progressed(assignment: Assignment, at: float, now: float) -> Assignment:
    """Reset all recovery counters."""
    return replace(
        assignment,
        retry_count=0,
        last_retry_at=None,
        backoff_until=None,
        reminders=0,
        advice=None,
        last_progress_at=max(at, assignment.last_progress_at or at),
        updated_at=now,
    )


def reminder_due(assignment: Assignment, policy: Policy) -> float | None:
    """When the next reminder is due; None: never."""
    asked = assignment.last_question
    if asked is None or assignment.reminders >= policy.max_reminders:
        return None
    if asked.result.is_bad:
        return assignment.backoff_until or sent_at(assignment, asked)
    return sent_at(assignment, asked) + policy.reminder_every_s


def unskewed(assignment: Assignment, policy: Policy, now: float) -> Assignment:
    """Correct times that lie in the future because the clock was set back."""

    def past(at: float | None) -> float | None:
        return at if at is None or at <= now else now

    def soon(at: float | None, within_s: float) -> float | None:
        return at if at is None or at <= now + within_s else now + within_s

    return replace(
        assignment,
        last_dispatch_at=past(assignment.last_dispatch_at),
        last_observed_activity_at=past(assignment.last_observed_activity_at),
        last_progress_at=past(assignment.last_progress_at),
        last_retry_at=past(assignment.last_retry_at),
        backoff_until=soon(assignment.backoff_until, policy.backoff_max_s),
    )


def _fits(step: Recovery, assignment: Assignment, node: Node, situation: Situation, policy: Policy) -> bool:
    tried = episode(assignment)
    if step is Recovery.NUDGE:
        nudges = sum(d.purpose == Recovery.NUDGE.value for d in tried)
        return situation.reachable and not situation.failed and nudges < policy.max_retries
    if step is Recovery.RESEND:
        last = assignment.last_instruction
        return in_doubt(assignment) and last is not None and last.attempts <= policy.max_retries
    if any(d.purpose == step.value for d in tried):
        return False
    if step is Recovery.REPLAN:
        return policy.planner and is_too_large(node)
    if step is Recovery.REASSIGN:
        return may_supervise(HOME, policy) and (assignment.agent_id == HOME or policy.allow_cross_agent)
    return True


def is_too_large(node: Node) -> bool:
    """Whether splitting could help."""
    return (
        node.kind is NodeKind.TASK
        or node.risk_level == "high"
        or len(node.acceptance_criteria) > MANY_CRITERIA
    )
