"""Limits of goal driving: what may be sent, how often and to whom, and who may report. Pure."""

from msgspec import Struct

from llmc.goals.model import Assignment

#: the default pool
HOME = "auto"
#: in an allowlist: matches every pool
EVERYBODY = "*"


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
    """Whether goals may use a pool: listed, and beyond the home pool only with `allow_cross_agent`."""
    listed = agent_id in policy.allow_agents or EVERYBODY in policy.allow_agents
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
