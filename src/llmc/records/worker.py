"""A worker's record, with the tokens it used and the causes of its failures. Pure data; prices are in auto/rules/costs.py."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar

import msgspec
from msgspec.structs import astuple

from llmc.base.names import (
    OVERSEER,
    ClaudeSessionId,
    PaneId,
    PromptId,
    SessionName,
    TaskId,
    TaskKey,
    WorkerName,
)
from llmc.records.statuses import Status as Status


class Cause(StrEnum):
    """The cause of a failure, which decides how it is handled."""

    #: the agent did something wrong
    AGENT = "agent"
    #: the user is in the way; not a failure
    PERSON = "person"
    #: its process died
    CRASH = "crash"
    #: a usage limit; passes by itself
    LIMIT = "limit"
    #: the API is overloaded or unreachable; passes by itself
    API = "api"
    #: logged out or refused; never retried
    AUTH = "auth"
    #: disk full; never retried
    DISK = "disk"
    #: invalid settings; never retried
    CONFIG = "config"
    TASK = "task"
    GIT = "git"
    COMMAND = "command"
    BUDGET = "budget"
    TMUX = "tmux"
    #: llmc's own fault
    BUG = "bug"

    @property
    def passes_by_itself(self) -> bool:
        return self in (Cause.LIMIT, Cause.API)

    @property
    def needs_a_person(self) -> bool:
        """Whether a retry cannot help."""
        return self in (Cause.AUTH, Cause.CONFIG, Cause.DISK)


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one message, or a sum; named as in the API."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0

    def __add__(self, other: "Tokens") -> "Tokens":
        return _tokens(*(one + more for one, more in zip(astuple(self), astuple(other), strict=True)))

    def since(self, earlier: "Tokens") -> "Tokens":
        """The increase since `earlier`; 0 for counts that decreased."""
        pairs = zip(astuple(self), astuple(earlier), strict=True)
        return _tokens(*(max(0, now - before) for now, before in pairs))

    def __bool__(self) -> bool:
        return self != Tokens()

    @property
    def new(self) -> int:
        """The tokens that limits count: all but cache reads.

        Every step reads the whole context again, from the cache and at a fraction of the price. Counting it would
        measure steps instead of work, and would dominate every limit.
        """
        return self.input_tokens + self.output_tokens + self.cache_creation_input_tokens


def _tokens(*counts: int) -> Tokens:
    return Tokens(**dict(zip(Tokens.__struct_fields__, counts, strict=True)))


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens and their cost, as far as known."""

    tokens: Tokens = Tokens()
    cost: float = 0.0
    #: by model, tokens not included in the cost, which may have a price now
    unpriced: Mapping[str, Tokens] = {}

    def __add__(self, other: "Spent") -> "Spent":
        unpriced = {**self.unpriced}
        for model, tokens in other.unpriced.items():
            unpriced[model] = unpriced.get(model, Tokens()) + tokens
        return Spent(tokens=self.tokens + other.tokens, cost=self.cost + other.cost, unpriced=unpriced)


class Outcome(StrEnum):
    """The outcome of a prompt."""

    #: recorded, nothing typed yet
    PENDING = "pending"
    #: keys were sent; not confirmed yet
    TYPED = "typed"
    #: the agent's own hook named our id while it was idle
    ACKNOWLEDGED = "acknowledged"
    #: the same, while it was busy: it runs after or inside the current turn
    QUEUED = "queued"
    #: not confirmed; our text was removed if possible
    UNCONFIRMED = "unconfirmed"
    #: not sent: a dialog, a draft, a dead pane or the user is in the way
    REFUSED = "refused"

    @property
    def arrived(self) -> bool:
        return self in (Outcome.ACKNOWLEDGED, Outcome.QUEUED)

    @property
    def open(self) -> bool:
        return self in (Outcome.PENDING, Outcome.TYPED)


class Obstacle(StrEnum):
    """What kept a prompt from its agent."""

    #: the worker is on hold
    HELD = "held"
    #: a terminal is attached to its session
    ATTACHED = "attached"
    #: the user opened a dialog that the text would answer
    DIALOG = "dialog"
    #: the agent asks a question that the text would answer
    QUESTION = "question"
    #: another text is in the input box
    DRAFT = "draft"
    #: an earlier prompt of llmc's own is in the input box
    LEFTOVER = "leftover"
    #: the screen does not show a plain input box, but a search, a view or an editor
    SCREEN = "screen"
    #: a turn is in progress, so a new conversation cannot start
    BUSY = "busy"
    #: no new conversation started on /clear
    NO_CLEAR = "no_clear"
    #: the agent has exited
    DEAD = "dead"

    @property
    def is_person(self) -> bool:
        """Whether the user is there, or left something: not a failure of the agent or the task."""
        return self in (Obstacle.HELD, Obstacle.ATTACHED, Obstacle.DIALOG, Obstacle.DRAFT, Obstacle.SCREEN)

    @property
    def is_in_the_box(self) -> bool:
        """Whether the user has left something on the screen."""
        return self in (Obstacle.DIALOG, Obstacle.DRAFT, Obstacle.SCREEN)


class SelfReview(StrEnum):
    """The progress of the self-review of a task; at most one per task."""

    #: not requested
    NO = "no"
    #: requested with the task; sent when the agent stops with commits
    WANTED = "wanted"
    #: the agent stopped with commits; the prompt is due
    DUE = "due"
    #: its prompt is recorded and may have been typed
    SENT = "sent"
    #: the prompt was sent or could not be; it is not sent again
    DONE = "done"


class Reviewed(StrEnum):
    """Whether what lands is what the user saw in `llmc review`."""

    SAME = "same"
    CHANGED = "changed"
    NOT_REVIEWED = "not_reviewed"


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """All that would have landed when the user reviewed it; a ref keeps its tree and its base."""

    identity: ClassVar[str] = "tree"
    base: str
    tree: str
    #: digests of the message, and of the author with the date
    message: str
    author: str


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """The latest prompt to the agent. Its text is kept until the outcome is known."""

    identity: ClassVar[str] = "prompt_id"
    prompt_id: PromptId
    outcome: Outcome
    at_unix: float
    text: str = ""
    #: a new conversation is started first
    clear: bool = False
    #: /clear has run, so a repeated delivery must not clear again
    cleared: bool = False
    #: the status the worker enters when the prompt is confirmed
    then: Status | None = None
    reason: str = ""
    #: what was in its way, if it was not delivered
    obstacle: Obstacle | None = None
    elapsed_ms: int = 0

    @property
    def met_a_person(self) -> bool:
        """Whether nothing was typed because the user is in the way."""
        return self.outcome is Outcome.REFUSED and self.obstacle is not None and self.obstacle.is_person


class AcceptJournal(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of an accept; written before each step, so that it can resume after a crash."""

    identity: ClassVar[str] = "started_unix"
    step: str
    started_unix: float
    #: the worker's commit being accepted; it must be unchanged when it lands
    tip: str
    #: origin/<default branch> that it was merged with
    base: str = ""
    #: from an older llmc: the worker's commits on top of `base`
    rebased: str = ""
    #: the commit that lands, and its tree; stored under a ref before it is used
    squash: str = ""
    tree: str = ""
    #: the validated tree
    validated: str = ""
    #: validated outside the worker's worktree, so that the worker can take messages
    apart: bool = False
    attempt: int = 1
    #: how `squash` compares with the reviewed change
    reviewed: Reviewed = Reviewed.NOT_REVIEWED
    #: of a pending landing: its id; what it waits for, for the user; when it was last polled
    receipt: str = ""
    waits_for: str = ""
    polled_unix: float = 0.0


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """The task of an auto worker, with its fields as they were when it was claimed."""

    identity: ClassVar[str] = "claim"
    task_id: TaskId
    #: its list; "" if an older llmc claimed it
    task_list: str = ""
    claim: str
    since_unix: float
    #: the worker's last prompt before this task: any other belongs to this task, even if the clock was set in between
    last_prompt: str = ""
    subject: str = ""
    label: str = ""
    #: the task's own verify command
    verify: str = ""
    #: it stopped without a commit and was asked for one, once
    asked_to_commit: bool = False
    #: how often its work was returned because `verify` failed
    sent_back: int = 0
    #: why its work was not accepted; sent to its worker before anything else lands for it
    unlanded: str = ""
    #: how many tasks its session made during this one
    made: int = 0
    #: the goal dispatch that made it; "" for other tasks
    dispatch: str = ""
    #: the task's own Claude model; "" means the worker's
    model: str = ""
    #: the task's own limits, and whether its worker was warned that a limit is near
    budget: dict[str, Any] | None = None
    told_of_budget: bool = False
    #: how long it waited for the user's answer, which is not charged to it
    waited_s: float = 0.0

    @property
    def task(self) -> TaskKey:
        return TaskKey(self.task_list, self.task_id)


class Metered(msgspec.Struct, frozen=True, kw_only=True):
    """How many tokens of a worker's conversation are already in the event log (auto/rules/costs.py)."""

    identity: ClassVar[str] = "transcript"
    transcript: str = ""
    #: by model
    counted: dict[str, Tokens] = {}
    #: the assignment of the conversation, and what it used, including earlier conversations
    claim: str = ""
    task_id: TaskId | None = None
    task_list: str = ""
    spent: dict[str, Tokens] = {}

    @property
    def task(self) -> TaskKey | None:
        return TaskKey(self.task_list, self.task_id) if self.task_id is not None else None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's report on its work, from `llmc report`."""

    #: done, blocked or progress
    kind: str
    text: str
    at_unix: float
    no_changes: bool = False


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The client's last dialog, from its PermissionRequest hook."""

    tool: str
    #: the question, or the requested permission
    text: str
    at_unix: float
    #: the options, in the order of the dialog; empty if the hook does not name them
    options: tuple[str, ...] = ()
    #: `llmc answer` can answer it: one question, one answer, all options known
    answerable: bool = False


class RefusedHost(msgspec.Struct, frozen=True, kw_only=True):
    """A host that a contained agent tried to connect to, but may not."""

    #: with its port
    host: str
    why: str
    #: what to add to `sandbox.hosts`; "" if there are too many
    allow: str
    tries: int


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One worker in state.json."""

    name: WorkerName
    worktree_path: str
    branch: str
    session_id: SessionName
    created_at_unix: float
    status: Status = Status.OFFLINE
    reason: str = ""
    since_unix: float = 0.0
    last_activity_unix: float = 0.0
    #: the task as the user wrote it, without our preamble
    current_prompt: str = ""
    #: its subject, if the first line may differ: a task from the list follows its label's prologue
    current_subject: str = ""
    #: the prompt that started the task: comments on its work belong to it
    task_prompt: str = ""
    delivery: Delivery | None = None
    #: the agent's latest report on this task
    report: Report | None = None
    #: the latest question; it is open only while the client waits for an answer
    asked: Asked | None = None
    commit_sha: str | None = None
    accept: AcceptJournal | None = None
    #: what the user saw in the latest review: what would land, the worker's commit, and when
    seen: Seen | None = None
    reviewed_sha: str | None = None
    reviewed_unix: float = 0.0
    #: from an older llmc, instead of `seen`: too little to compare with, so any change counts as different
    reviewed_patch: str | None = None
    #: that review found uncommitted changes, so accept would refuse
    uncommitted: bool = False
    #: a rebase started by llmc: set before git acts, cleared when it ends
    rebase_started_at_unix: float = 0.0
    #: HEAD before it, pinned; "" when no rebase is open
    pre_rebase_sha: str = ""
    #: the commit of the default branch it goes onto
    rebase_base: str = ""
    #: commits reverted on the branch while it was behind, which it may still contain
    taken_back: tuple[str, ...] = ()
    conflicted_files: tuple[str, ...] = ()
    #: turns of the agent that ended with unresolved conflicts
    resolution_attempts: int = 0
    #: the conflicts, or `validation_output`, must be sent to the agent (again)
    conflict_prompt_due: bool = False
    self_review: SelfReview = SelfReview.NO
    #: [repo].validate must pass before the conflicts count as resolved
    validate_rebase: bool = False
    #: git has finished the rebase; validation decides
    validation_due: bool = False
    #: the end of the output of a validation that failed after the conflicts were resolved
    validation_output: str = ""
    #: other work landed: rebase this worker's commits when neither its agent nor the user is active
    rebase_due: bool = False
    #: when patrol first saw commits of a turn that has not ended yet
    commits_seen_unix: float = 0.0
    #: when the agent stopped with only background shells still running
    background_since_unix: float = 0.0
    #: where an interrupted nuke has saved the work
    removal_ref: str = ""
    held: bool = False
    held_since_unix: float = 0.0
    #: what the user left in the way of an auto worker: it takes no task until that is gone
    person: Obstacle | None = None
    #: takes tasks from the task list, not from `llmc start`
    auto: bool = False
    assignment: Assignment | None = None
    #: when its agent announced tasks that its hooks have not named yet
    announced_tasks: tuple[float, ...] = ()
    #: when its latest hooks that could not be read were sent: any of them may have announced a task
    unread_hooks: tuple[float, ...] = ()
    metered: Metered | None = None
    error_reason: str = ""
    cause: str = ""
    #: how often the fleet had been told to continue (`AutoState.resumes`) when a limit or an outage stopped it
    stopped_after: int = 0
    #: in error: the commit that last failed validation
    failed_sha: str = ""
    crash_count: int = 0
    last_crash_unix: float = 0.0
    #: id of the running agent process; events of another instance are stale
    instance: str = ""
    #: its tmux pane; "" if only the pane's mark identifies it, or an older llmc recorded only the session
    pane_id: PaneId = PaneId("")
    #: the running agent, its model, and the configuration directory it was launched with
    agent: str = ""
    model: str = ""
    config_dir: str = ""
    #: the running agent is contained
    contained: bool = False
    #: what it could not connect to
    refused_hosts: tuple[RefusedHost, ...] = ()
    claude_session_id: ClaudeSessionId | None = None
    transcript_path: str = ""
    #: applied events whose inbox files may still exist
    applied_events: tuple[str, ...] = ()

    @property
    def waits_for_a_person(self) -> bool:
        """Whether it is on hold, or the user left something in its way."""
        return self.held or self.person is not None

    @property
    def landing_waits_for(self) -> str:
        """What a pending landing of its work waits for, with no process working on it; "" if none is pending."""
        if self.accept is None or self.accept.step != "wait":
            return ""
        return self.accept.waits_for or "an answer"

    @property
    def has_branch(self) -> bool:
        """Whether its work is judged by the commits on its branch; the supervisor's session has none."""
        return bool(self.branch)

    @property
    def shares_the_list(self) -> bool:
        """Whether its agent has the fleet's task list: every worker and the supervisor, but not the canary."""
        return self.has_branch or self.name == OVERSEER
