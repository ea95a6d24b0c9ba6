"""The next step of an auto worker, from its record. Decided again at each check, so a restart changes nothing."""

from msgspec import Struct

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
#: a task is in progress, and costs
#: reasons of a resting worker that asked nothing
_JUST_STOPPED = (*decide.STOPPED, decide.INTERRUPTED, "restarted")


class Wait(Struct, frozen=True):
    """Nothing to do: it is working, or the user has it."""


class Assign(Struct, frozen=True):
    """It is free for a task."""


class Deliver(Struct, frozen=True):
    """It has a task that was not sent yet."""


class Accept(Struct, frozen=True):
    """Land its work."""


class Unchanged(Struct, frozen=True):
    """No changes needed: complete the task without a commit."""


class AskToCommit(Struct, frozen=True):
    """It stopped without a commit; ask for one, once."""


class AskToFinish(Struct, frozen=True):
    """A budget is nearly used up; tell the worker, once."""

    words: str


class GiveUp(Struct, frozen=True):
    """Release the task and reset the worker. `counts`: as a failed attempt."""

    cause: Cause
    reason: str
    counts: bool = True
    #: why the task needs the user then, such as `parked`; empty: it does not
    hold: str = ""


class Tell(Struct, frozen=True):
    """Send a prompt that the task needs at the next check; if the user is in the way, another worker does the task."""


class LookAtBase(Struct, frozen=True):
    """The default branch failed its own validation; it is checked again before tasks are given out."""


class Park(Struct, frozen=True):
    """Park the fleet: a usage limit, or an API outage."""

    cause: Cause
    reason: str


class Resume(Struct, frozen=True):
    """The interruption is over: continue the task."""


class Stop(Struct, frozen=True):
    """A retry cannot help: end auto mode."""

    cause: Cause
    reason: str


class Clean(Struct, frozen=True):
    """It has leftovers of an earlier task: pin them and reset the worker."""


class Restart(Struct, frozen=True):
    """Its agent is not running."""


#: prompts that a task needs to continue, by the first word of their id
_NEEDED = ("task-", "commit-", "resume-", "verify-", f"{decide.KIND}-", *decide.ABOUT_A_REBASE)

Step = (
    Wait
    | Assign
    | Deliver
    | Accept
    | Unchanged
    | AskToCommit
    | AskToFinish
    | GiveUp
    | Tell
    | LookAtBase
    | Park
    | Resume
    | Stop
    | Clean
    | Restart
)


class Situation(Struct, frozen=True):
    """The situation of the fleet, as far as it concerns one worker."""

    now: float
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
    #: according to the ledger, the worker has its task; or the task is completed
    claimed: bool = True
    completed: bool = False
    #: time spent on its task, without pauses
    busy_s: float = 0.0
    task_timeout_s: float = float("inf")
    #: text about a budget that is (nearly) used up; and whether it is the task's own
    near_budget: str = ""
    over_budget: str = ""
    is_tasks_budget: bool = False
    #: a worker that waits for an answer must give up: a task is ready and no worker is free, or the run is ending
    needed: bool = False


_HAS_IT = frozenset({Obstacle.HELD, Obstacle.ATTACHED})
_LEFT_IT = frozenset({Obstacle.DIALOG, Obstacle.DRAFT, Obstacle.SCREEN})


def in_its_way(todo: Step) -> frozenset[Obstacle]:
    """How the user blocks this step. A hold or an attached terminal blocks everything."""
    match todo:
        case Assign() | Deliver() | AskToCommit() | AskToFinish() | GiveUp() | Tell() | Resume() | Clean():
            return _HAS_IT | _LEFT_IT  # it types into the agent, or stops it
        case Accept():
            return _HAS_IT | {Obstacle.DIALOG}  # an agent with a dialog is not resting
        case Unchanged() | LookAtBase() | Park() | Stop() | Restart() | Wait():
            return _HAS_IT


def parts_with_its_task(todo: Step, obstacle: Obstacle) -> bool:
    """Whether another worker takes the task if the user blocks this step.

    Always if it was not started. If it was started, only if the agent cannot be told how to continue and no user is there;
    finished work waits until it can land, and a worker on hold or attached keeps its task.
    """
    if isinstance(todo, Deliver):
        return True
    return isinstance(todo, AskToCommit | Tell | Resume | GiveUp) and obstacle in _LEFT_IT


def next_step(record: WorkerRecord, situation: Situation) -> Step:
    if record.held or record.accept is not None:
        return Wait()
    if record.assignment is not None and not situation.claimed:
        return _no_longer_its_task(record, situation)
    if record.status is Status.OFFLINE:
        return _offline(record)
    if record.status is Status.ERROR:
        return _failed(record)
    if record.assignment is None:
        return _without_task(record, situation)
    return _with_task(record, record.assignment, situation)


def _no_longer_its_task(record: WorkerRecord, situation: Situation) -> Step:
    """A crash left the worker as it was after its task was completed or released."""
    if record.status is Status.NO_CHANGES and situation.completed:
        return Unchanged()
    return Clean()


def _offline(record: WorkerRecord) -> Step:
    if record.assignment is None:
        return Restart()
    if record.reason == decide.ANOTHER_MODEL:  # we were killed before it got the task
        return GiveUp(Cause.AGENT, "it needs a restart with another model", counts=False)
    if record.cause == Cause.TMUX:
        return GiveUp(Cause.TMUX, record.error_reason or "its session is gone", counts=False)
    return GiveUp(Cause.CRASH, record.error_reason or "its agent exited")


def _failed(record: WorkerRecord) -> Step:
    if record.assignment is None:
        # From an earlier run: the user had time to fix it, and if not, the next task fails too.
        return Clean()
    cause = Cause(record.cause) if record.cause else Cause.AGENT
    if cause is Cause.CONFIG and record.assignment.model:  # the task's own model is not available
        return GiveUp(Cause.TASK, record.error_reason, counts=False, hold="quarantined")
    return Stop(cause, record.error_reason) if cause.needs_a_person else GiveUp(cause, record.error_reason)


def _without_task(record: WorkerRecord, situation: Situation) -> Step:
    if record.status is Status.IDLE:
        return _free(situation)
    if record.current_prompt or record.status is Status.NO_CHANGES or record.reason == decide.FOUND_COMMITS:
        return Clean()
    return Wait()  # the user talks with it


def _free(situation: Situation) -> Step:
    if not situation.taking:
        return Wait()
    if not situation.base_fails:
        return Assign()
    return LookAtBase() if situation.base_due and not situation.work_waits else Wait()


def _land(situation: Situation) -> Step:
    if not situation.landing:
        return Wait()
    if not situation.base_fails or situation.base_due:
        return Accept()
    if situation.ending:
        return GiveUp(Cause.COMMAND, "the default branch itself fails its validation", counts=False)
    return Wait()


def _with_task(record: WorkerRecord, task: Assignment, situation: Situation) -> Step:
    if situation.over_budget and record.status.is_under_way:  # committed work still lands
        hold = "parked" if situation.is_tasks_budget else ""
        return GiveUp(Cause.BUDGET, situation.over_budget, counts=False, hold=hold)
    if met_a_person(record.delivery, task):
        return Tell()
    match record.status:
        case Status.IDLE:
            return _not_begun(record, task)
        case Status.NO_CHANGES:
            return Unchanged()
        case Status.NEEDS_REVIEW if record.reason == decide.ABORTED:
            # Landing would only repeat the same conflicts, so the task starts over on the latest default branch.
            return GiveUp(Cause.TASK, "it aborted the rebase, and its work conflicts with the default branch")
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
        return Tell()
    if situation.near_budget and not task.told_of_budget and record.status.is_busy:
        return AskToFinish(situation.near_budget)
    return Wait()


def met_a_person(delivery: Delivery | None, task: Assignment) -> bool:
    """Whether a prompt that the task needs was not typed because the user was in the way; not a failure."""
    if delivery is None or delivery.at_unix < task.since_unix:
        return False
    return delivery.met_a_person and delivery.prompt_id.startswith(_NEEDED)


def _not_begun(record: WorkerRecord, task: Assignment) -> Step:
    delivery = record.delivery
    if delivery is None or delivery.at_unix < task.since_unix:
        return Deliver()
    if delivery.outcome is Outcome.REFUSED or delivery.outcome is Outcome.UNCONFIRMED:
        return not_told(delivery.obstacle, delivery.reason or delivery.outcome)
    return Wait()


def not_told(obstacle: Obstacle | None, why: str) -> GiveUp:
    """A prompt was not delivered, and not because of the user."""
    if obstacle is Obstacle.DEAD:
        return GiveUp(Cause.CRASH, f"its agent exited before it got the prompt: {why}")
    return GiveUp(Cause.AGENT, f"its prompt was not delivered: {why}")


def _stopped(record: WorkerRecord, task: Assignment, situation: Situation) -> Step:
    cause = Cause(record.cause) if record.cause else None
    if cause is not None and cause.passes_by_itself:
        return _resume_or_park(record, cause, situation)
    if cause is not None:
        return GiveUp(cause, record.error_reason)
    if waits_for_answer(record) and not situation.needed:
        return Wait()  # its goal asks the user, and the answer goes to its conversation
    if task.dispatch and _asks_a_person(record):
        # Its goal asks the user, and starts it again with the answer.
        return GiveUp(Cause.TASK, _question(record), counts=False, hold=BLOCKED)
    if record.reason == "blocked":
        return GiveUp(Cause.TASK, f"it reported that it is blocked: {record.error_reason}")
    if record.reason not in _JUST_STOPPED:
        return GiveUp(Cause.AGENT, f"it needs input ({record.reason})")
    if not task.asked_to_commit:
        return AskToCommit()
    return GiveUp(Cause.AGENT, "it stopped without a commit, even after being asked for one")


def waits_for_answer(record: WorkerRecord) -> bool:
    """Whether it reported a blocker that its goal asks the user about. Not with an open dialog, which takes no message."""
    asked = record.status is Status.NEEDS_INPUT and record.reason == "blocked"
    return asked and record.assignment is not None and bool(record.assignment.dispatch)


def is_free(record: WorkerRecord | None) -> bool:
    """Whether it could take a task."""
    return (
        record is not None
        and record.status is Status.IDLE
        and record.assignment is None
        and not record.waits_for_a_person
    )


def _asks_a_person(record: WorkerRecord) -> bool:
    return record.reason == "blocked" or record.reason not in _JUST_STOPPED


def _question(record: WorkerRecord) -> str:
    return record.error_reason or f"it needs input ({record.reason})"


def _resume_or_park(record: WorkerRecord, cause: Cause, situation: Situation) -> Step:
    return Resume() if situation.resuming else Park(cause, record.error_reason)
