"""What an auto worker needs next: its record in, one step out. Judged anew at each look, so a restart changes nothing."""

from msgspec import Struct

from llmc.records.causes import Cause, needs_a_person, passes_by_itself
from llmc.records.worker import (
    BUSY,
    Assignment,
    Delivery,
    Obstacle,
    Outcome,
    SelfReview,
    Status,
    WorkerRecord,
)
from llmc.sessions.rules import decide

#: why a task of a goal is kept back: a person is asked
BLOCKED = "blocked"
#: a task is being worked on, and costs
_UNDER_WAY = (*BUSY, Status.NEEDS_INPUT, Status.REBASING)
#: reasons of a worker that rests without having asked anything
_JUST_STOPPED = (*decide.STOPPED, decide.INTERRUPTED, "restarted")


class Wait(Struct, frozen=True):
    """Nothing to do now: it works, or a person has it."""


class Assign(Struct, frozen=True):
    """It is free for a task."""


class Deliver(Struct, frozen=True):
    """It has a task and was not told of it yet."""


class Accept(Struct, frozen=True):
    """Its work is to land."""


class Unchanged(Struct, frozen=True):
    """Nothing had to change: the task is completed without a commit."""


class AskToCommit(Struct, frozen=True):
    """It stopped without a commit; it is asked for one, once."""


class AskToFinish(Struct, frozen=True):
    """A budget is nearly used up; its worker is told, once."""

    words: str


class GiveUp(Struct, frozen=True):
    """The task goes back to the list, and the worker starts over. What counts is an attempt of the task."""

    cause: Cause
    reason: str
    counts: bool = True
    #: why the task waits for a person then, such as `parked`; empty: it does not
    hold: str = ""


class Tell(Struct, frozen=True):
    """A prompt that its task needs is due. It comes at the next look; with a person in the way, somebody else does the task."""


class LookAtBase(Struct, frozen=True):
    """The default branch failed its own validation; it is checked again before tasks are given out."""


class Park(Struct, frozen=True):
    """The whole fleet waits: a usage limit, or an API that is away."""

    cause: Cause
    reason: str


class Resume(Struct, frozen=True):
    """What stopped it has passed: it goes on with its task."""


class Stop(Struct, frozen=True):
    """Trying again cannot help: auto mode ends."""

    cause: Cause
    reason: str


class Clean(Struct, frozen=True):
    """It holds the rest of something that is no task any more: that is pinned, and the worker starts over."""


class Restart(Struct, frozen=True):
    """Its agent does not run."""


#: the prompts without which a task does not go on, by the first word of their id
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
    """What is true for the whole fleet at this moment, as far as it concerns one worker."""

    now: float
    #: new tasks are given out
    taking: bool = True
    #: work may land: the source is not known to be in somebody's way
    landing: bool = True
    #: the default branch fails its own validation: no task starts, and no work is charged for it
    base_fails: bool = False
    #: it is to be checked again; work that waits to land does that, else a worker that is free
    base_due: bool = False
    work_waits: bool = False
    #: the run ends when nobody has a task
    ending: bool = False
    #: a worker that a limit stopped may go on
    resuming: bool = True
    #: the ledger knows that the worker is at its task; or that the task is completed
    claimed: bool = True
    completed: bool = False
    #: how long it has been at its task, pauses not counted
    busy_s: float = 0.0
    task_timeout_s: float = float("inf")
    #: a budget that is nearly used up, or is, in words; and whether it is the task's own
    near_budget: str = ""
    over_budget: str = ""
    is_tasks_budget: bool = False
    #: a worker that waits for an answer has to do something else: a task is ready and nobody is free, or the run is to end
    needed: bool = False


_HAS_IT = frozenset({Obstacle.HELD, Obstacle.ATTACHED})
_LEFT_IT = frozenset({Obstacle.DIALOG, Obstacle.DRAFT, Obstacle.SCREEN})


def in_its_way(todo: Step) -> frozenset[Obstacle]:
    """What of a person keeps llmc from this step. Who holds the worker or is attached has it to themselves."""
    match todo:
        case Assign() | Deliver() | AskToCommit() | AskToFinish() | GiveUp() | Tell() | Resume() | Clean():
            return _HAS_IT | _LEFT_IT  # it types into the agent, or ends it
        case Accept():
            return _HAS_IT | {Obstacle.DIALOG}  # an agent with a dialog is not at rest
        case Unchanged() | LookAtBase() | Park() | Stop() | Restart() | Wait():
            return _HAS_IT


def parts_with_its_task(todo: Step, obstacle: Obstacle) -> bool:
    """Whether somebody else does the task of a worker with a person in the way of this step.

    What was not begun, always. What was begun, when it cannot be told how to go on and nobody is there; work that is
    done waits until it can land, and what a person holds or looks at stays with them.
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
    """A crash kept us from putting the worker right after the task was completed or given back."""
    if record.status is Status.NO_CHANGES and situation.completed:
        return Unchanged()
    return Clean()


def _offline(record: WorkerRecord) -> Step:
    if record.assignment is None:
        return Restart()
    if record.reason == decide.ANOTHER_MODEL:  # we were killed meanwhile; nobody has told it of the task
        return GiveUp(Cause.AGENT, "it was to be started with another model", counts=False)
    if record.cause == Cause.TMUX:
        return GiveUp(Cause.TMUX, record.error_reason or "its session is gone", counts=False)
    return GiveUp(Cause.CRASH, record.error_reason or "its agent ended")


def _failed(record: WorkerRecord) -> Step:
    if record.assignment is None:
        # Of an earlier run: a person had time to mend it, and if it is not, the next task says so.
        return Clean()
    cause = Cause(record.cause) if record.cause else Cause.AGENT
    if cause is Cause.CONFIG and record.assignment.model:  # it is the task's own model that cannot be had
        return GiveUp(Cause.TASK, record.error_reason, counts=False, hold="quarantined")
    return Stop(cause, record.error_reason) if needs_a_person(cause) else GiveUp(cause, record.error_reason)


def _without_task(record: WorkerRecord, situation: Situation) -> Step:
    if record.status is Status.IDLE:
        return _free(situation)
    if record.current_prompt or record.status is Status.NO_CHANGES or record.reason == decide.FOUND_COMMITS:
        return Clean()
    return Wait()  # a person talks with it


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
    if situation.over_budget and record.status in _UNDER_WAY:  # what is committed already still lands
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
            # To land it would only bring the same conflicts back, for ever: the task is begun on the newest base.
            return GiveUp(
                Cause.TASK, "it aborted the rebase onto the newest base, and its work conflicts with that"
            )
        case Status.NEEDS_REVIEW:
            return _land(situation)
        case Status.NEEDS_INPUT:
            return _stopped(record, task, situation)
        case Status.REBASING if record.cause and passes_by_itself(Cause(record.cause)):
            return _resume_or_park(record, Cause(record.cause), situation)
    if situation.busy_s > situation.task_timeout_s:
        return GiveUp(Cause.AGENT, f"it took longer than {situation.task_timeout_s:g} s")
    if record.self_review is SelfReview.DUE or (
        record.status is Status.REBASING and record.conflict_prompt_due
    ):
        return Tell()
    if situation.near_budget and not task.told_of_budget and record.status in BUSY:
        return AskToFinish(situation.near_budget)
    return Wait()


def met_a_person(delivery: Delivery | None, task: Assignment) -> bool:
    """Whether a prompt that the task needs was not typed, because a person was in the way: no failure of anybody's."""
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
    """A prompt did not arrive, and no person is the reason."""
    if obstacle is Obstacle.DEAD:
        return GiveUp(Cause.CRASH, f"its agent ended before it was told: {why}")
    return GiveUp(Cause.AGENT, f"it did not take its prompt: {why}")


def _stopped(record: WorkerRecord, task: Assignment, situation: Situation) -> Step:
    cause = Cause(record.cause) if record.cause else None
    if cause is not None and passes_by_itself(cause):
        return _resume_or_park(record, cause, situation)
    if cause is not None:
        return GiveUp(cause, record.error_reason)
    if waits_for_answer(record) and not situation.needed:
        return Wait()  # its goal asks for it, and the answer goes to its conversation
    if task.dispatch and _asks_a_person(record):
        # The goal it belongs to asks for it, and has it done again with the answer.
        return GiveUp(Cause.TASK, _question(record), counts=False, hold=BLOCKED)
    if record.reason == "blocked":
        return GiveUp(Cause.TASK, f"it says it is blocked: {record.error_reason}")
    if record.reason not in _JUST_STOPPED:
        return GiveUp(Cause.AGENT, f"it asks for a person ({record.reason})")
    if not task.asked_to_commit:
        return AskToCommit()
    return GiveUp(Cause.AGENT, "it stopped without a commit, also after it was asked for one")


def waits_for_answer(record: WorkerRecord) -> bool:
    """Whether it reported that it cannot go on, and the goal of its task asks a person. A dialog takes no message: that is given up."""
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
    return record.error_reason or f"it asks for a person ({record.reason})"


def _resume_or_park(record: WorkerRecord, cause: Cause, situation: Situation) -> Step:
    return Resume() if situation.resuming else Park(cause, record.error_reason)
