"""The next step of an auto worker, from its record. Decided again at each check, so a restart changes nothing."""

from enum import StrEnum, auto

from msgspec import Struct

from llmc.attention.rules import ABORTED
from llmc.auto.rules.costs import Level, Verdict
from llmc.records.worker import (
    Assignment,
    Cause,
    Delivery,
    Obstacle,
    Outcome,
    SelfReview,
    Status,
    WorkerRecord,
)
from llmc.sessions.rules import decide

#: why a goal's task is kept back: it has an open question
BLOCKED = "blocked"
#: reasons of a worker that stopped without asking anything
_JUST_STOPPED = (*decide.STOPPED, decide.INTERRUPTED, "restarted")
#: prompts that a task needs to continue, by the first word of their id
_NEEDED = ("task-", "commit-", "resume-", "verify-", f"{decide.KIND}-", *decide.ABOUT_A_REBASE)


class Do(StrEnum):
    """A step without details."""

    #: nothing to do: the worker is working, or the user has it
    WAIT = auto()
    #: the worker is free for a task
    ASSIGN = auto()
    #: send the task that the worker has
    DELIVER = auto()
    #: land its work
    ACCEPT = auto()
    #: complete the task without a commit: no changes needed
    COMPLETE_UNCHANGED = auto()
    #: the worker stopped without a commit; ask for one, once
    ASK_TO_COMMIT = auto()
    #: at the next check, send a prompt that the task needs; if the user is in the way, another worker gets the task
    TELL = auto()
    #: check again whether the default branch passes its own validation
    CHECK_BASE = auto()
    #: the interruption is over: continue the task
    RESUME = auto()
    #: pin what an earlier task left, and reset the worker
    CLEAN = auto()
    #: the agent is not running
    RESTART = auto()


class AskToFinish(Struct, frozen=True):
    """A budget is nearly used up; tell the worker, once."""

    words: str


class GiveUp(Struct, frozen=True):
    """Release the task and reset the worker. `counts`: as a failed attempt."""

    cause: Cause
    reason: str
    counts: bool = True
    #: why the task then waits for the user, such as `parked`; empty: it does not
    hold: str = ""


class Park(Struct, frozen=True):
    """Park the fleet: a usage limit, or an API outage."""

    cause: Cause
    reason: str


class Stop(Struct, frozen=True):
    """End auto mode: a retry cannot help."""

    cause: Cause
    reason: str


Step = Do | AskToFinish | GiveUp | Park | Stop


class Situation(Struct, frozen=True):
    """The situation of the fleet, as far as it concerns one worker."""

    #: new tasks are started
    taking: bool = True
    #: work may land: the source is not known to be blocked
    landing: bool = True
    #: the default branch fails its own validation: no task starts, and no attempt counts
    base_fails: bool = False
    #: the default branch must be validated again: by an accept of waiting work, else by a free worker
    base_due: bool = False
    work_waits: bool = False
    #: the run ends when no worker has a task
    ending: bool = False
    #: a worker that a limit stopped may continue
    resuming: bool = True
    #: according to the ledger: the worker still has its task; the task is completed
    claimed: bool = True
    completed: bool = False
    #: time spent on its task, without pauses
    busy_s: float = 0.0
    task_timeout_s: float = float("inf")
    #: how close the budgets are
    spent: Verdict = Verdict()
    #: a worker that waits for an answer must give up: a task is ready and no worker is free, or the run is ending
    needed: bool = False


_HAS_IT = frozenset({Obstacle.HELD, Obstacle.ATTACHED})
_LEFT_IT = frozenset({Obstacle.DIALOG, Obstacle.DRAFT, Obstacle.SCREEN})


def in_its_way(todo: Step) -> frozenset[Obstacle]:
    """The obstacles that block this step. A hold or an attached terminal blocks every step."""
    match todo:
        case (
            Do.ASSIGN
            | Do.DELIVER
            | Do.ASK_TO_COMMIT
            | AskToFinish()
            | GiveUp()
            | Do.TELL
            | Do.RESUME
            | Do.CLEAN
        ):
            return _HAS_IT | _LEFT_IT  # it types into the agent, or stops it
        case Do.ACCEPT:
            return _HAS_IT | {Obstacle.DIALOG}  # an agent with a dialog is not resting
        case Do.COMPLETE_UNCHANGED | Do.CHECK_BASE | Park() | Stop() | Do.RESTART | Do.WAIT:
            return _HAS_IT


def releases_task(todo: Step, obstacle: Obstacle) -> bool:
    """Whether another worker takes the task if the user blocks this step.

    A task that was not started always moves. A started one moves only if the agent must be told how to continue and
    the user is not there. Finished work waits to land; a worker on hold or with an attached terminal keeps its task.
    """
    if todo is Do.DELIVER:
        return True
    needs_agent = isinstance(todo, GiveUp) or todo in (Do.ASK_TO_COMMIT, Do.TELL, Do.RESUME)
    return needs_agent and obstacle in _LEFT_IT


def next_step(record: WorkerRecord, situation: Situation) -> Step:
    if record.held or record.accept is not None:
        return Do.WAIT
    if record.assignment is not None and not situation.claimed:
        # Its task was completed or released without an update of the record, as after a crash.
        unchanged = record.status is Status.NO_CHANGES and situation.completed
        return Do.COMPLETE_UNCHANGED if unchanged else Do.CLEAN
    if record.status is Status.OFFLINE:
        return _offline(record)
    if record.status is Status.ERROR:
        return _failed(record)
    if record.assignment is None:
        return _without_task(record, situation)
    return _with_task(record, record.assignment, situation)


def _offline(record: WorkerRecord) -> Step:
    if record.assignment is None:
        return Do.RESTART
    if record.reason == decide.ANOTHER_MODEL:  # we were killed before it got the task
        return GiveUp(Cause.AGENT, "the agent must be restarted with another model", counts=False)
    if record.cause == Cause.TMUX:
        return GiveUp(Cause.TMUX, record.error_reason or "the tmux session is gone", counts=False)
    return GiveUp(Cause.CRASH, record.error_reason or "the agent exited")


def _failed(record: WorkerRecord) -> Step:
    if record.assignment is None:
        # From an earlier run: the user had time to fix it, and if not, the next task fails too.
        return Do.CLEAN
    cause = Cause(record.cause) if record.cause else Cause.AGENT
    if cause is Cause.CONFIG and record.assignment.model:  # the task's own model is not available
        return GiveUp(Cause.TASK, record.error_reason, counts=False, hold="quarantined")
    return Stop(cause, record.error_reason) if cause.needs_a_person else GiveUp(cause, record.error_reason)


def _without_task(record: WorkerRecord, situation: Situation) -> Step:
    if record.status is Status.IDLE:
        return _free(situation)
    if record.current_prompt or record.status is Status.NO_CHANGES or record.reason == decide.FOUND_COMMITS:
        return Do.CLEAN
    return Do.WAIT  # the user is talking to it


def _free(situation: Situation) -> Step:
    if not situation.taking:
        return Do.WAIT
    if not situation.base_fails:
        return Do.ASSIGN
    return Do.CHECK_BASE if situation.base_due and not situation.work_waits else Do.WAIT


def _land(situation: Situation) -> Step:
    if not situation.landing:
        return Do.WAIT
    if not situation.base_fails or situation.base_due:
        return Do.ACCEPT
    if situation.ending:
        return GiveUp(Cause.COMMAND, "the default branch itself fails validation", counts=False)
    return Do.WAIT


def _with_task(record: WorkerRecord, task: Assignment, situation: Situation) -> Step:
    spent = situation.spent
    if spent.level is Level.HARD and record.status.is_under_way:  # committed work still lands
        hold = "parked" if spent.concerns("task") else ""
        return GiveUp(Cause.BUDGET, spent.words, counts=False, hold=hold)
    if met_a_person(record.delivery, task):
        return Do.TELL
    match record.status:
        case Status.IDLE:
            return _not_begun(record, task)
        case Status.NO_CHANGES:
            return Do.COMPLETE_UNCHANGED
        case Status.NEEDS_REVIEW if record.reason == ABORTED:
            # Landing would only repeat the same conflicts, so the task starts over on the latest default branch.
            return GiveUp(
                Cause.TASK, "the agent aborted the rebase, but its commits conflict with the default branch"
            )
        case Status.NEEDS_REVIEW:
            return _land(situation)
        case Status.NEEDS_INPUT:
            return _stopped(record, task, situation)
        case Status.REBASING if record.cause and Cause(record.cause).passes_by_itself:
            return _resume_or_park(record, Cause(record.cause), situation)
    if situation.busy_s > situation.task_timeout_s:
        return GiveUp(Cause.AGENT, f"timed out after {situation.task_timeout_s:g} s")
    if record.self_review is SelfReview.DUE or (
        record.status is Status.REBASING and record.conflict_prompt_due
    ):
        return Do.TELL
    if spent.level is Level.SOFT and not task.told_of_budget and record.status.is_busy:
        return AskToFinish(spent.words)
    return Do.WAIT


def met_a_person(delivery: Delivery | None, task: Assignment) -> bool:
    """Whether a prompt that the task needs was not typed because the user was in the way; not a failure."""
    if delivery is None or delivery.prompt_id == task.last_prompt:
        return False
    return delivery.met_a_person and delivery.prompt_id.startswith(_NEEDED)


def _not_begun(record: WorkerRecord, task: Assignment) -> Step:
    delivery = record.delivery
    if delivery is None or delivery.prompt_id == task.last_prompt:
        return Do.DELIVER
    if delivery.outcome is Outcome.REFUSED or delivery.outcome is Outcome.UNCONFIRMED:
        return not_told(delivery.obstacle, delivery.reason or delivery.outcome)
    return Do.WAIT


def not_told(obstacle: Obstacle | None, why: str) -> GiveUp:
    """Give up after a prompt was not delivered for a reason other than the user."""
    cause = Cause.CRASH if obstacle is Obstacle.DEAD else Cause.AGENT
    return GiveUp(cause, f"cannot deliver the prompt: {why}")


def _stopped(record: WorkerRecord, task: Assignment, situation: Situation) -> Step:
    cause = Cause(record.cause) if record.cause else None
    if cause is not None and cause.passes_by_itself:
        return _resume_or_park(record, cause, situation)
    if cause is not None:
        return GiveUp(cause, record.error_reason)
    if waits_for_answer(record) and not situation.needed:
        return Do.WAIT  # its goal asks the user, and the answer goes to its conversation
    needs_input = f"the agent needs input ({record.reason})"
    if task.dispatch and record.reason not in _JUST_STOPPED:
        # Its goal asks the user, and starts it again with the answer.
        return GiveUp(Cause.TASK, record.error_reason or needs_input, counts=False, hold=BLOCKED)
    if record.reason == "blocked":
        return GiveUp(Cause.TASK, f"the agent reported a blocker: {record.error_reason}")
    if record.reason not in _JUST_STOPPED:
        return GiveUp(Cause.AGENT, needs_input)
    if not task.asked_to_commit:
        return Do.ASK_TO_COMMIT
    return GiveUp(Cause.AGENT, "the agent stopped again without committing")


def waits_for_answer(record: WorkerRecord) -> bool:
    """Whether it reported a blocker that its goal asks the user about. Not with an open dialog: it takes no message."""
    asked = record.status is Status.NEEDS_INPUT and record.reason == "blocked"
    return asked and record.assignment is not None and bool(record.assignment.dispatch)


def is_free(record: WorkerRecord | None) -> bool:
    """Whether the worker could take a task."""
    return (
        record is not None
        and record.status is Status.IDLE
        and record.assignment is None
        and not record.waits_for_a_person
    )


def _resume_or_park(record: WorkerRecord, cause: Cause, situation: Situation) -> Step:
    return Do.RESUME if situation.resuming else Park(cause, record.error_reason)
