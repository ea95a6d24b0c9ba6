"""Records of goals: plans, assignments, dispatches, summaries, events. Pure data.

Records are stored as JSON with the names of `llmc goal export` (camelCase). Times are Unix seconds.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

#: a larger plan is refused, never cut
MAX_PHASES, MAX_TASKS, MAX_SUBTASKS = 5, 7, 7


class GoalStatus(StrEnum):
    ACTIVE = "active"
    PAUSED = "paused"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    ARCHIVED = "archived"

    def __init__(self, value: str) -> None:
        self.goes_on = value in ("active", "paused")
        #: closed for good; a completed goal can be reopened
        self.is_over = value in ("cancelled", "archived")


class Priority(StrEnum):
    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"
    URGENT = "urgent"

    @property
    def of_task(self) -> int:
        """The priority of the goal's tasks; the lowest number comes first."""
        return {Priority.URGENT: 0, Priority.HIGH: 1, Priority.NORMAL: 2, Priority.LOW: 4}[self]


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

    def __init__(self, value: str) -> None:
        self.is_open = value not in ("done", "cancelled")
        #: work has not started
        self.is_waiting = value in ("todo", "queued")
        #: open and not blocked
        self.is_unblocked = self.is_open and value != "blocked"


class AssignmentStatus(StrEnum):
    QUEUED = "queued"
    DISPATCHED = "dispatched"
    ACTIVE = "active"
    STALLED = "stalled"
    BLOCKED = "blocked"
    DONE = "done"
    CANCELLED = "cancelled"

    def __init__(self, value: str) -> None:
        self.is_open = value not in ("done", "cancelled")
        #: sent and not finished; a blocked one takes no slot
        self.at_work = value in ("dispatched", "active", "stalled")


class Recovery(StrEnum):
    """Recovery steps, in order."""

    NUDGE = "nudge"
    RESEND = "resend_last"
    REPLAN = "replan"
    REASSIGN = "reassign"
    ESCALATE = "escalate"


class Mode(StrEnum):
    """How an instruction is sent: into a live session, as a task file, to the user."""

    SEND = "sessions_send"
    SPAWN = "sessions_spawn"
    ESCALATE = "escalate"


class Result(StrEnum):
    """Outcome of a dispatch; PENDING: not known yet."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    OK = "ok"
    TIMEOUT = "timeout"
    ERROR = "error"

    @property
    def is_good(self) -> bool:
        return self in (Result.ACCEPTED, Result.OK)

    @property
    def is_bad(self) -> bool:
        return self in (Result.TIMEOUT, Result.ERROR)


class Row(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=False, gc=False):
    """A record; newer fields have defaults, so that older stores load.

    Records have no reference cycles, so `gc=False` is safe; the collector need not scan large plans.
    """


class DeliveryContext(Row, frozen=True, kw_only=True):
    """Where to reach the user; "": the inbox and the configured notifications."""

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
    model_ref: str = ""
    prompt_template_id: str = ""
    prompt_template_hash: str = ""


class PlanRevision(Row, frozen=True, kw_only=True):
    """One change of a plan, and why."""

    ts: float
    why: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    #: former id to new id
    moved: dict[str, str] = {}


class BlockedReason(Row, frozen=True, kw_only=True):
    """Why work is blocked, and the question and options for the user."""

    kind: str
    text: str
    question: str = ""
    options: tuple[str, ...] = ()
    #: "human" if the user blocked it: then only the user unblocks it
    by: str = "overseer"


class Asking(Row, frozen=True, kw_only=True):
    """A question about the goal itself: planning, replanning or the success criteria failed."""

    reason: BlockedReason
    since: float
    #: notifications sent, and the time of the last
    told: int = 0
    told_at: float | None = None


class Tested(Row, frozen=True, kw_only=True):
    command: str
    result: str = ""


class CriteriaCheck(Row, frozen=True, kw_only=True):
    """Result of the commands in the success criteria, and who set it."""

    ts: float
    commit: str
    passed: bool
    results: tuple[Tested, ...] = ()
    #: "human" if the user completed the goal anyway
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
    #: 0: no limit
    budget_usd: float = 0.0
    asks: Asking | None = None
    checked: CriteriaCheck | None = None

    def event(self, kind: str, now: float, data: dict[str, Any]) -> "Event":
        return Event(ts=now, type=kind, goal_id=self.goal_id, data=data)


class Node(Row, frozen=True, kw_only=True):
    """A phase, a task or a subtask. Ids are unique within a goal and never change."""

    goal_id: str
    node_id: str
    kind: NodeKind
    #: "" for a phase
    parent_id: str = ""
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
    #: runs on the rebased commit before the work lands
    verify: str = ""
    #: leaves only; None: the defaults
    recovery_policy: Recovery | None = None
    idle_after_ms: int | None = None
    status: NodeStatus = NodeStatus.TODO
    #: set by the user; rollups leave it alone
    overridden: bool = False
    blocked_reason: BlockedReason | None = None
    #: the user's last text about it (answer, reason), part of every later instruction
    word: str = ""
    created_at: float
    updated_at: float
    started_at: float | None = None
    ended_at: float | None = None

    def event(self, kind: str, now: float, data: dict[str, Any]) -> "Event":
        return Event(ts=now, type=kind, goal_id=self.goal_id, work_node_id=self.node_id, data=data)


#: purposes of dispatches that give out work or continue it
INSTRUCTIONS = ("work", "answer", "reassign")


class Dispatch(Row, frozen=True, kw_only=True):
    """One instruction, sent or about to be; delivered at most once per id."""

    dispatch_id: str
    ts: float
    mode: Mode
    #: "work", "answer", "reminder", "withdraw", "diagnose" or a recovery step
    purpose: str
    session_key: str = ""
    delivery_context: DeliveryContext | None = None
    instruction_hash: str
    result: Result = Result.PENDING
    result_at: float | None = None
    run_id: str = ""
    notes: str = ""
    #: delivery attempts under this id
    attempts: int = 1

    @property
    def is_instruction(self) -> bool:
        return self.purpose in INSTRUCTIONS


class Advice(Row, frozen=True, kw_only=True):
    """A planner's advice about a stall: a message to the worker, a question to the user, or both."""

    ts: float
    message: str = ""
    question: str = ""
    options: tuple[str, ...] = ()


class Assignment(Row, frozen=True, kw_only=True):
    """A leaf of the plan, assigned to a pool and then to a worker."""

    assignment_id: str
    goal_id: str
    work_node_id: str
    #: the pool: "auto", or a manual worker's name
    agent_id: str = "auto"
    #: agent:<pool>:worker:<name>; "" until claimed
    session_key: str = ""
    session_id: str = ""
    delivery_context: DeliveryContext | None = None
    status: AssignmentStatus = AssignmentStatus.QUEUED
    blocked_reason: BlockedReason | None = None
    last_instruction_text: str = ""
    instruction_hash: str = ""
    dispatch_history: tuple[Dispatch, ...] = ()
    #: task id of spawned work
    run_id: str = ""
    spawned_by_key: str = ""
    created_at: float
    updated_at: float
    last_dispatch_at: float | None = None
    last_observed_activity_at: float | None = None
    #: last commit, report or answer; retries count from here
    last_progress_at: float | None = None
    expected_next_update_at: float | None = None
    idle_after_ms: int | None = None
    #: recovery steps since the last progress
    retry_count: int = 0
    last_retry_at: float | None = None
    backoff_until: float | None = None
    recovery_policy: Recovery = Recovery.NUDGE
    #: fingerprints of applied reports
    applied_updates: tuple[str, ...] = ()
    reminders: int = 0
    #: the user's last answer, part of every later instruction
    answer: str = ""
    #: advice about the current stall
    advice: Advice | None = None

    @property
    def last_dispatch(self) -> Dispatch | None:
        return self.dispatch_history[-1] if self.dispatch_history else None

    @property
    def last_instruction(self) -> Dispatch | None:
        for sent in reversed(self.dispatch_history):  # a tick calls this often
            if sent.is_instruction:
                return sent
        return None

    @property
    def is_held(self) -> bool:
        """Whether the user blocked it, rather than a question that progress may settle."""
        return self.blocked_reason is not None and self.blocked_reason.by == "human"

    @property
    def last_question(self) -> Dispatch | None:
        """The newest question to the user; None while the user blocks the work: llmc asks nothing then."""
        if self.is_held:
            return None
        return next((d for d in reversed(self.dispatch_history) if d.mode is Mode.ESCALATE), None)

    @property
    def pending(self) -> Dispatch | None:
        """The newest dispatch whose outcome is not known."""
        return next((d for d in reversed(self.dispatch_history) if d.result is Result.PENDING), None)

    def idle_after_s(self, default_s: float) -> float:
        """Time without activity before a stall; the assignment's own limit wins."""
        return default_s if self.idle_after_ms is None else self.idle_after_ms / 1000

    def event(self, kind: str, now: float, data: dict[str, Any]) -> "Event":
        ids = {"assignment_id": self.assignment_id, "work_node_id": self.work_node_id}
        return Event(ts=now, type=kind, goal_id=self.goal_id, **ids, data=data)


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
    session_key: str = ""
    session_id: str = ""
    message_ids: tuple[str, ...] = ()
    run_ids: tuple[str, ...] = ()


class Crystallization(Row, frozen=True, kw_only=True):
    """Summary and evidence of a plan item, enough to continue from."""

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
    """An entry of the append-only goal event log."""

    ts: float
    type: str
    goal_id: str = ""
    assignment_id: str = ""
    work_node_id: str = ""
    data: dict[str, Any] = {}


class GoalView(Struct, frozen=True):
    """A goal with its plan and assignments, as the rules see it."""

    goal: Goal
    nodes: Mapping[str, Node] = field(default_factory=dict)
    assignments: Mapping[str, Assignment] = field(default_factory=dict)


class Change(Struct, frozen=True):
    """A change decided by the rules; the store writes all of it or nothing."""

    goal: Goal | None = None
    nodes: tuple[Node, ...] = ()
    assignments: tuple[Assignment, ...] = ()
    crystallizations: tuple[Crystallization, ...] = ()
    events: tuple[Event, ...] = ()
    removed_nodes: tuple[str, ...] = ()

    def is_empty(self) -> bool:
        return self == Change()
