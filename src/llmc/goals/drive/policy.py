"""What the goals' supervisor may do, how often, and to whom; and who may report to it. Pure."""

from msgspec import Struct

from llmc.goals.model import Assignment

#: the pool that is supervised unless somebody asks for more
HOME = "auto"
#: an allowlist with this in it matches everybody; it has to be written down
EVERYBODY = "*"


class Policy(Struct, frozen=True):
    """The limits of one tick and of one assignment; the defaults are those of the configuration."""

    tick_every_s: float = 120.0
    idle_after_s: float = 900.0
    #: nudges, and also deliveries tried again, before the next step of the ladder
    max_retries: int = 2
    min_resend_interval_s: float = 300.0
    backoff_base_s: float = 120.0
    backoff_max_s: float = 1800.0
    #: leaves at work at a time, over all goals
    max_in_progress: int = 3
    max_dispatches_per_tick: int = 10
    #: stale assignments whose last messages are read in one tick
    max_samples_per_tick: int = 20
    #: after an escalation a person is reminded so often, and so far apart
    max_reminders: int = 3
    reminder_every_s: float = 4 * 3600.0
    allow_agents: tuple[str, ...] = (HOME,)
    allow_cross_agent: bool = False
    #: whether there is a planner that can be asked for smaller steps
    planner: bool = False
    #: whether it is also asked about a stall that the rules do not end, before a person is
    diagnose: bool = False


def session_key(pool: str, worker: str) -> str:
    """The one name of a worker's session in the records; never an alias."""
    return f"agent:{pool}:worker:{worker}"


def worker_of(key: str) -> str:
    """The worker whose session has this key; "" for none."""
    return key.rpartition(":")[2]


def may_supervise(agent_id: str, policy: Policy) -> bool:
    """Whether a pool is ours: listed, and where it is not the home pool, supervision across agents is switched on."""
    listed = agent_id in policy.allow_agents or EVERYBODY in policy.allow_agents
    return listed and (agent_id == HOME or policy.allow_cross_agent)


def may_touch(assignment: Assignment, policy: Policy) -> bool:
    """Whether anything at all may be done about an assignment."""
    return may_supervise(assignment.agent_id, policy)


def may_report(worker: str, session_id: str, assignment: Assignment) -> bool:
    """A worker may report on the assignment that its own session has now, and on nothing else."""
    if not worker or not assignment.status.is_open:
        return False
    if assignment.session_key != session_key(assignment.agent_id, worker):
        return False
    return assignment.session_id in ("", session_id)
