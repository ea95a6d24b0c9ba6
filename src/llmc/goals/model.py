"""Goals, their plans, who works on what, and what was said about it. Pure data.

Every record is written as JSON with the names of `llmc goal export` (camelCase). Times are unix seconds.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

#: the plan's bounds: a larger one is refused, never cut
MAX_PHASES, MAX_TASKS, MAX_SUBTASKS = 5, 7, 7


class GoalStatus(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    ARCHIVED = "archived"

    @property
    def goes_on(self) -> bool:
        """Its plan is driven, or will be again."""
        return self in (GoalStatus.ACTIVE, GoalStatus.PAUSED)

    @property
    def is_over(self) -> bool:
        """Nobody wants it any more; one that is completed may be opened again."""
        return self in (GoalStatus.CANCELLED, GoalStatus.ARCHIVED)


class Priority(StrEnum):
    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"
    URGENT = "urgent"


class NodeKind(StrEnum):
    PHASE = "phase"
    TASK = "task"
    SUBTASK = "subtask"


class NodeStatus(StrEnum):
    TODO = "todo"
    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    BLOCKED = "blocked"
    DONE = "done"
    CANCELLED = "cancelled"

    @property
    def is_open(self) -> bool:
        return self not in (NodeStatus.DONE, NodeStatus.CANCELLED)


class AssignmentStatus(StrEnum):
    QUEUED = "queued"
    DISPATCHED = "dispatched"
    ACTIVE = "active"
    STALLED = "stalled"
    BLOCKED = "blocked"
    DONE = "done"
    CANCELLED = "cancelled"

    @property
    def is_open(self) -> bool:
        return self not in (AssignmentStatus.DONE, AssignmentStatus.CANCELLED)

    @property
    def at_work(self) -> bool:
        """Somebody has it; one that waits on a person holds up nobody else."""
        return self in (AssignmentStatus.DISPATCHED, AssignmentStatus.ACTIVE, AssignmentStatus.STALLED)


class Recovery(StrEnum):
    """The steps of the ladder, in their order."""

    NUDGE = "nudge"
    RESEND = "resend_last"
    REPLAN = "replan"
    REASSIGN = "reassign"
    ESCALATE = "escalate"


class Mode(StrEnum):
    """How an instruction travels: into a live session, as a task file, to a person."""

    SEND = "sessions_send"
    SPAWN = "sessions_spawn"
    ESCALATE = "escalate"


class Result(StrEnum):
    """What became of a dispatch; PENDING is an intent whose outcome nobody has seen yet."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    OK = "ok"
    TIMEOUT = "timeout"
    ERROR = "error"


class Row(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=False, gc=False):
    """One record; fields that are not known yet have defaults, so that an older store loads.

    None refers to itself, so the collector, which would go through all of a large plan again and again, passes by.
    """


class DeliveryContext(Row, frozen=True, kw_only=True):
    """Where a person is reached; "" where that is the default: the inbox and the configured notifications."""

    channel: str = ""
    to: str = ""
    thread: str = ""
    account: str = ""


class Origin(Row, frozen=True, kw_only=True):
    source_session_key: str = ""
    origin_delivery_context: DeliveryContext = DeliveryContext()


class Risk(Row, frozen=True, kw_only=True):
    risk: str
    impact: str = ""
    mitigation: str = ""


class PlannerRef(Row, frozen=True, kw_only=True):
    """Who made a plan, and with which prompt."""

    model_ref: str = ""
    prompt_template_id: str = ""
    prompt_template_hash: str = ""


class PlanRevision(Row, frozen=True, kw_only=True):
    """One change of a plan: what became different, and why."""

    ts: float
    why: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    #: ids of former nodes that live on under other ids
    moved: dict[str, str] = {}


class BlockedReason(Row, frozen=True, kw_only=True):
    """Why somebody waits: what kind of thing, in words, and what a person can choose from."""

    kind: str
    text: str
    question: str = ""
    options: tuple[str, ...] = ()


class Asking(Row, frozen=True, kw_only=True):
    """What a goal itself asks of a person: it has no plan, or no other one, or its plan is done and it is not reached."""

    reason: BlockedReason
    since: float
    #: how often a person was told, and when last
    told: int = 0
    told_at: float | None = None


class Tested(Row, frozen=True, kw_only=True):
    command: str
    result: str = ""


class CriteriaCheck(Row, frozen=True, kw_only=True):
    """Whether the success criteria with a command are met, on which commit, and who says so."""

    ts: float
    commit: str
    passed: bool
    results: tuple[Tested, ...] = ()
    #: overseer, or a person who said that it is completed all the same
    by: str = "overseer"


class Goal(Row, frozen=True, kw_only=True):
    goal_id: str
    title: str
    created_at: float
    updated_at: float
    status: GoalStatus = GoalStatus.ACTIVE
    priority: Priority = Priority.NORMAL
    tags: tuple[str, ...] = ()
    problem_statement: str = ""
    success_criteria: tuple[str, ...] = ()
    non_goals: tuple[str, ...] = ()
    origin: Origin = Origin()
    owner: str = ""
    stakeholders: tuple[str, ...] = ()
    repo_context_snapshot: str = ""
    constraints: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    risks: tuple[Risk, ...] = ()
    planner: PlannerRef = PlannerRef()
    planner_inputs: dict[str, str] = {}
    raw_planner_output_json: str = ""
    validation_errors: tuple[str, ...] = ()
    plan_revision_history: tuple[PlanRevision, ...] = ()
    #: dollars that this goal may cost; 0: no limit of its own
    budget_usd: float = 0.0
    asks: Asking | None = None
    #: None: not checked since the plan was done
    checked: CriteriaCheck | None = None


class Node(Row, frozen=True, kw_only=True):
    """A phase, a task or a subtask. Ids are unique within a goal, and stay."""

    goal_id: str
    node_id: str
    kind: NodeKind
    #: "" for a phase
    parent_id: str = ""
    #: its place among its siblings
    position: int = 0
    name: str
    objective: str = ""
    expected_outcome: str = ""
    acceptance_criteria: tuple[str, ...] = ()
    definition_of_done: str = ""
    depends_on: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    suggested_agent_id: str = ""
    suggested_agent_type: str = ""
    required_tools: tuple[str, ...] = ()
    estimated_effort: str = ""
    #: low, med or high
    risk_level: str = ""
    #: a command that llmc runs on the rebased commit before the work lands
    verify: str = ""
    #: of a leaf: the first step when nothing moves, and how long it may be silent; None: as for all work
    recovery_policy: Recovery | None = None
    idle_after_ms: int | None = None
    status: NodeStatus = NodeStatus.TODO
    #: a person set the status, and rollups leave it alone
    overridden: bool = False
    blocked_reason: BlockedReason | None = None
    #: what a person said of it last: an answer, why it can go on, why it was opened again; in every later instruction
    word: str = ""
    created_at: float
    updated_at: float
    started_at: float | None = None
    ended_at: float | None = None


class Dispatch(Row, frozen=True, kw_only=True):
    """One instruction that left, or is about to; the id is the key under which it is delivered at most once."""

    dispatch_id: str
    ts: float
    mode: Mode
    #: why it was sent: "work" for the first instruction, else the step of the ladder, or "reminder"
    purpose: str
    session_key: str = ""
    delivery_context: DeliveryContext | None = None
    instruction_hash: str
    result: Result = Result.PENDING
    #: when the result was seen
    result_at: float | None = None
    run_id: str = ""
    notes: str = ""
    #: how often it was tried to deliver under this id
    attempts: int = 1


class Advice(Row, frozen=True, kw_only=True):
    """What a planner says about a stall: a message for the worker, a question for a person, or both."""

    ts: float
    message: str = ""
    question: str = ""
    options: tuple[str, ...] = ()


class Assignment(Row, frozen=True, kw_only=True):
    """Who works on a leaf of the plan, and how that goes."""

    assignment_id: str
    goal_id: str
    work_node_id: str
    #: the pool: "auto", or a manual worker's name
    agent_id: str = "auto"
    #: agent:<pool>:worker:<name>; "" while nobody has taken it
    session_key: str = ""
    session_id: str = ""
    delivery_context: DeliveryContext | None = None
    status: AssignmentStatus = AssignmentStatus.QUEUED
    blocked_reason: BlockedReason | None = None
    last_instruction_text: str = ""
    instruction_hash: str = ""
    dispatch_history: tuple[Dispatch, ...] = ()
    #: the task file's number, for spawned work
    run_id: str = ""
    spawned_by_key: str = ""
    created_at: float
    updated_at: float
    last_dispatch_at: float | None = None
    last_observed_activity_at: float | None = None
    #: when it last got on for certain: a commit, a report, a person's answer; retries are counted from here
    last_progress_at: float | None = None
    expected_next_update_at: float | None = None
    idle_after_ms: int | None = None
    #: recoveries in a row without progress
    retry_count: int = 0
    last_retry_at: float | None = None
    backoff_until: float | None = None
    recovery_policy: Recovery = Recovery.NUDGE
    #: fingerprints of the reports that were applied
    applied_updates: tuple[str, ...] = ()
    #: how often a person was reminded of the open question
    reminders: int = 0
    #: what a person answered to the last question; part of every later instruction
    answer: str = ""
    #: what a planner said about the stall that it is in
    advice: Advice | None = None


class Decision(Row, frozen=True, kw_only=True):
    decision: str
    rationale: str = ""


class Evidence(Row, frozen=True, kw_only=True):
    files_touched: tuple[str, ...] = ()
    commands_run: tuple[str, ...] = ()
    tests_run: tuple[Tested, ...] = ()
    commits: tuple[str, ...] = ()
    prs: tuple[str, ...] = ()
    issues: tuple[str, ...] = ()
    external_refs: tuple[str, ...] = ()


class Anchor(Row, frozen=True, kw_only=True):
    """Where in which conversation it can be read."""

    session_key: str = ""
    session_id: str = ""
    message_ids: tuple[str, ...] = ()
    run_ids: tuple[str, ...] = ()


class Crystallization(Row, frozen=True, kw_only=True):
    """What a part of the plan came to, so that anybody can go on from there."""

    crystallization_id: str
    goal_id: str
    #: "" for the goal as a whole
    work_node_id: str = ""
    #: goal, phase, task or subtask
    level: str
    created_at: float
    summary: str
    current_state: str = ""
    decisions: tuple[Decision, ...] = ()
    next_actions: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()
    known_blockers: tuple[str, ...] = ()
    evidence: Evidence = Evidence()
    anchors: tuple[Anchor, ...] = ()


class Event(Row, frozen=True, kw_only=True):
    """A line of the goals' own log, which is only ever appended to."""

    ts: float
    type: str
    goal_id: str = ""
    assignment_id: str = ""
    work_node_id: str = ""
    data: dict[str, Any] = {}


class GoalView(Struct, frozen=True):
    """One goal with all that belongs to it: what the rules look at."""

    goal: Goal
    nodes: Mapping[str, Node] = field(default_factory=dict)
    assignments: Mapping[str, Assignment] = field(default_factory=dict)


class Change(Struct, frozen=True):
    """What the rules want to be different; the store writes all of it, or nothing."""

    goal: Goal | None = None
    nodes: tuple[Node, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    crystallizations: tuple[Crystallization, ...] = ()
    events: tuple[Event, ...] = ()
    #: nodes that a new plan does not have any more
    removed_nodes: tuple[str, ...] = ()

    def is_empty(self) -> bool:
        return self == Change()
