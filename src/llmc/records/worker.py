"""What llmc knows of one worker. Pure data."""

from enum import StrEnum
from typing import Any, ClassVar

import msgspec

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
from llmc.records.tokens import Tokens


class Status(StrEnum):
    """Where a worker stands."""

    #: no agent runs
    OFFLINE = "offline"
    #: ready for a task
    IDLE = "idle"
    #: busy with a task
    WORKING = "working"
    #: stopped, and waits for a person's word
    NEEDS_INPUT = "needs_input"
    #: committed, and waits for review
    NEEDS_REVIEW = "needs_review"
    #: reads its own work once more before a person does
    REVIEWING = "reviewing"
    #: busy with what a person sent back
    REJECTED = "rejected"
    #: resolves conflicts with the default branch
    REBASING = "rebasing"
    #: said that nothing needs to change
    NO_CHANGES = "no_changes"
    #: stopped by a failure; only a person's command leaves it
    ERROR = "error"

    @property
    def is_free(self) -> bool:
        """Ready for a task, and nothing of the last one waits."""
        return self in (Status.IDLE, Status.NO_CHANGES)

    @property
    def is_live(self) -> bool:
        """It has an agent, as far as is known."""
        return self not in (Status.OFFLINE, Status.ERROR)


#: the statuses in which a worker's agent is at work on a task
BUSY = (Status.WORKING, Status.REJECTED, Status.REVIEWING)


class Outcome(StrEnum):
    """What became of a prompt; there is no bare OK."""

    #: in state, nothing typed yet
    PENDING = "pending"
    #: keys were sent; whether they arrived is not known yet
    TYPED = "typed"
    #: the agent's own hook named our id while it was idle
    ACKNOWLEDGED = "acknowledged"
    #: the same, while it was busy: it comes after or inside the running turn
    QUEUED = "queued"
    #: no proof of arrival; our text was taken back where that was possible
    UNCONFIRMED = "unconfirmed"
    #: not sent: a dialog, a draft, a dead pane, or a person is in the way
    REFUSED = "refused"

    @property
    def arrived(self) -> bool:
        return self in (Outcome.ACKNOWLEDGED, Outcome.QUEUED)

    @property
    def open(self) -> bool:
        return self in (Outcome.PENDING, Outcome.TYPED)


class Obstacle(StrEnum):
    """What kept a prompt from its agent."""

    #: a person holds the worker
    HELD = "held"
    #: a person is attached to its session
    ATTACHED = "attached"
    #: a person opened a dialog, and the text would answer it
    DIALOG = "dialog"
    #: the agent itself asks something, and the text would answer it
    QUESTION = "question"
    #: somebody else's text is in the input box
    DRAFT = "draft"
    #: an earlier prompt of llmc's own is in the input box
    LEFTOVER = "leftover"
    #: the screen shows something else than a plain input box: a search, a view, an editor
    SCREEN = "screen"
    #: a turn runs, and a new conversation cannot begin
    BUSY = "busy"
    #: no new conversation began on /clear
    NO_CLEAR = "no_clear"
    #: the agent's process has ended
    DEAD = "dead"

    @property
    def is_person(self) -> bool:
        """A person is there, or left something that is theirs: no failure of the agent, nor of the task."""
        return self in (Obstacle.HELD, Obstacle.ATTACHED, Obstacle.DIALOG, Obstacle.DRAFT, Obstacle.SCREEN)

    @property
    def is_in_the_box(self) -> bool:
        """A person has left, and what they left is on the screen."""
        return self in (Obstacle.DIALOG, Obstacle.DRAFT, Obstacle.SCREEN)


class SelfReview(StrEnum):
    """How far the self-review of a worker's task is; there is at most one for each task."""

    #: not asked for
    NO = "no"
    #: asked for with the task; comes when the agent stops with commits
    WANTED = "wanted"
    #: the agent stopped with commits, and has to be told
    DUE = "due"
    #: its prompt is in state, and may have been typed
    SENT = "sent"
    #: the agent was told, or could not be; it will not be told again
    DONE = "done"


class Reviewed(StrEnum):
    """Whether what lands is what a person saw in `llmc review`."""

    SAME = "same"
    CHANGED = "changed"
    NOT_REVIEWED = "not_reviewed"


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """The latest prompt on its way to the agent. Its text is kept until the outcome is known."""

    identity: ClassVar[str] = "prompt_id"
    prompt_id: PromptId
    outcome: Outcome
    at_unix: float
    text: str = ""
    #: a new conversation is started first
    clear: bool = False
    #: /clear ran already, so a repeated delivery must not clear again
    cleared: bool = False
    #: the status the worker enters when the prompt has arrived
    then: Status | None = None
    reason: str = ""
    #: what was in its way, where it did not arrive
    obstacle: Obstacle | None = None
    elapsed_ms: int = 0

    @property
    def met_a_person(self) -> bool:
        """Nothing was typed, because a person is in the way."""
        return self.outcome is Outcome.REFUSED and self.obstacle is not None and self.obstacle.is_person


class AcceptJournal(msgspec.Struct, frozen=True, kw_only=True):
    """How far an accept got; written before each step acts, so that a crash resumes there."""

    identity: ClassVar[str] = "started_unix"
    step: str
    started_unix: float
    #: the worker's commit that was taken; what it has when it lands must be this
    tip: str
    #: origin/<default branch> that it was merged with
    base: str = ""
    #: of an older llmc: the worker's commits on top of `base`
    rebased: str = ""
    #: the one commit that lands, and its tree; stored, and under a ref, before anything is done with it
    squash: str = ""
    tree: str = ""
    #: the tree that passed all checks
    validated: str = ""
    #: it is validated where the worker does not work, which can be spoken to meanwhile
    apart: bool = False
    attempt: int = 1
    #: how `squash` compares with what was reviewed
    reviewed: Reviewed = Reviewed.NOT_REVIEWED
    #: by which the way it lands knows it, while that has no answer yet; what people are told; when it was last asked
    receipt: str = ""
    waits_for: str = ""
    polled_unix: float = 0.0


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """The task an auto worker is at. What could be changed in its file meanwhile is kept as it was when it was taken."""

    identity: ClassVar[str] = "claim"
    task_id: TaskId
    #: the list that it is from; "" when an older llmc gave it out
    task_list: str = ""
    claim: str
    since_unix: float
    subject: str = ""
    label: str = ""
    #: the task's own acceptance command
    verify: str = ""
    #: it stopped without a commit and was asked for one; that happens once
    asked_to_commit: bool = False
    #: how often its work came back because `verify` failed
    sent_back: int = 0
    #: why what was handed over for it was not taken; its worker hears of it before anything else lands for it
    unlanded: str = ""
    #: tasks that its session made while it was at this one
    made: int = 0
    #: the dispatch of a goal that made it; "" for any other task
    dispatch: str = ""
    #: the task's own Claude model; "" for that of its worker
    model: str = ""
    #: the task's own limits, and whether its worker was told that they, or others, are near
    budget: dict[str, Any] | None = None
    told_of_budget: bool = False
    #: how long it waited for a person's answer: that is none of its own time
    waited_s: float = 0.0

    @property
    def task(self) -> TaskKey:
        return TaskKey(self.task_list, self.task_id)


class Metered(msgspec.Struct, frozen=True, kw_only=True):
    """How many tokens of a worker's conversation are in the event log already (auto/rules/costs.py)."""

    identity: ClassVar[str] = "transcript"
    transcript: str = ""
    #: by model
    counted: dict[str, Tokens] = {}
    #: the assignment that the conversation belongs to, and what it used, in earlier conversations too
    claim: str = ""
    task_id: TaskId | None = None
    task_list: str = ""
    spent: dict[str, Tokens] = {}

    @property
    def task(self) -> TaskKey | None:
        return TaskKey(self.task_list, self.task_id) if self.task_id is not None else None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent said about its work, with `llmc report`."""

    #: done, blocked or progress
    kind: str
    text: str
    at_unix: float
    no_changes: bool = False


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the client asked last in a dialog, by its PermissionRequest hook."""

    tool: str
    #: the question itself, or what permission is asked for
    text: str
    at_unix: float
    #: what can be chosen, in the order of the dialog; empty where the hook does not say
    options: tuple[str, ...] = ()
    #: `llmc answer` can answer it: one question, one answer, and every option is known
    answerable: bool = False


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
    #: the task as the person wrote it, without our preamble
    current_prompt: str = ""
    #: what that is about, where its first line may not say so: a task of the list comes after the prologue of its label
    current_subject: str = ""
    delivery: Delivery | None = None
    #: the agent's latest word on this task
    report: Report | None = None
    #: the latest question; it is open only while the client waits for an answer
    asked: Asked | None = None
    commit_sha: str | None = None
    accept: AcceptJournal | None = None
    #: what a person saw in the latest review: the change (landing/rules.py), the commit, and when
    reviewed_patch: str | None = None
    reviewed_sha: str | None = None
    reviewed_unix: float = 0.0
    #: that review found uncommitted changes, so accept would refuse
    uncommitted: bool = False
    #: a rebase llmc began: set before git acts, cleared when it has ended
    rebase_started_at_unix: float = 0.0
    #: HEAD before it, pinned; "" when no rebase is open
    pre_rebase_sha: str = ""
    #: the commit of the default branch it goes onto
    rebase_base: str = ""
    #: commits that were taken back on the branch while it was behind, and that it may still carry
    taken_back: tuple[str, ...] = ()
    conflicted_files: tuple[str, ...] = ()
    #: turns of the agent that ended with the conflicts unresolved
    resolution_attempts: int = 0
    #: the agent has to be told about the conflicts (again), or about `validation_output`
    conflict_prompt_due: bool = False
    self_review: SelfReview = SelfReview.NO
    #: [repo].validate has to pass before the conflicts count as resolved
    validate_rebase: bool = False
    #: git is done with the rebase; validation has the last word
    validation_due: bool = False
    #: the end of what a validation said that failed after the conflicts were resolved
    validation_output: str = ""
    #: somebody else's work landed: this worker's is to be rebased when nobody is disturbed by it
    rebase_due: bool = False
    #: when patrol first saw commits of a turn that has not ended yet
    commits_seen_unix: float = 0.0
    #: when the agent stopped and left only shells running in the background
    background_since_unix: float = 0.0
    #: where a nuke that was interrupted keeps the work
    removal_ref: str = ""
    held: bool = False
    held_since_unix: float = 0.0
    #: what a person left in the way of an auto worker: it takes no task until that is gone
    person: Obstacle | None = None
    #: works on tasks from the list, and takes nothing from a person's `start`
    auto: bool = False
    assignment: Assignment | None = None
    #: when its agent began to make tasks that its hooks have not named yet
    announced_tasks: tuple[float, ...] = ()
    metered: Metered | None = None
    error_reason: str = ""
    cause: str = ""
    #: in error: the commit that failed its validation for the last time
    failed_sha: str = ""
    crash_count: int = 0
    last_crash_unix: float = 0.0
    #: mark of the running agent process; events of another instance are stale
    instance: str = ""
    #: its tmux pane; "" where that carries the mark alone, or is of an llmc that knew sessions only
    pane_id: PaneId = PaneId("")
    #: which agent runs, with which model, and the configuration directory it was launched with
    agent: str = ""
    model: str = ""
    config_dir: str = ""
    claude_session_id: ClaudeSessionId | None = None
    transcript_path: str = ""
    #: events applied whose inbox files were not seen to be gone yet
    applied_events: tuple[str, ...] = ()

    @property
    def waits_for_a_person(self) -> bool:
        """A person holds it, or left something in its way."""
        return self.held or self.person is not None

    @property
    def has_branch(self) -> bool:
        """Whether its work is judged by the commits of its branch; the supervisor's own session has none."""
        return bool(self.branch)

    @property
    def shares_the_list(self) -> bool:
        """Whether its agent has the fleet's task list: every worker's and the supervisor's; not one that only tries the client."""
        return self.has_branch or self.name == OVERSEER
