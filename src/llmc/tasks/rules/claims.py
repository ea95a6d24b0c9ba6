"""Who made a task, who has it, and what a claim and its end change in it. Pure."""

from collections.abc import Collection
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from llmc.base.names import TaskKey
from llmc.records.books import Books, Claim, Made
from llmc.records.task import Task, TaskStatus

#: with `worker_tasks = "accept"`: how many tasks one task may bring with it; the others are proposed
MOST_ACCEPTED = 10
#: a file that llmc did not write is left alone for so long: the root whose worker made it marks it meanwhile
GRACE_S = 1.0
#: an agent that was about to make a task, and has not named one since, has failed to, or its hook was lost
ANNOUNCED_S = 15.0
#: what the clocks of a file system and of a process may differ by
SLACK_S = 0.1
#: what llmc acts upon in a task's metadata: in a file that an agent made it counts for nothing
ACTED_UPON = ("verify", "model", "budget", "goal", "key")


def hold_for(setting: str, at_a_task: bool, made: int) -> str:
    """What a task that a worker made is kept back by; `made`: how many its own task has brought before."""
    if setting == "accept" and (not at_a_task or made < MOST_ACCEPTED):
        return ""
    return PROPOSED


def believed(task: Task, made: Made | None) -> Task:
    """The task as far as llmc believes its file: of one that an agent made, only what a person approved."""
    if made is None:
        return task
    said: dict[str, Any] = {
        "verify": made.verify,
        "model": made.model,
        "budget": made.budget,
        "hold": made.hold,
    }
    untrue = ("hold",) if made.hold or is_out_of_date(task, made) else ()
    ours = {key: value for key, value in task.ours.items() if key not in (*ACTED_UPON, *untrue)}
    ours |= {key: value for key, value in said.items() if value}
    return replace(task, metadata={**task.metadata, "llmc": ours})


def is_out_of_date(task: Task, made: Made) -> bool:
    """Whether the file does not say what the ledger knows: an agent has wiped it off, or a crash came in between."""
    return task.waits_for_a_person != made.hold and PROPOSED in (task.waits_for_a_person, made.hold)


class Announcement(Struct, frozen=True):
    """An agent of this root is about to make a task: its hook tells before the file exists, and names it afterwards."""

    worker: str
    at_unix: float

    def may_be(self, changed_unix: float) -> bool:
        """Whether a file that was written then can be that task."""
        return self.at_unix - SLACK_S <= changed_unix < self.at_unix + ANNOUNCED_S


class Announced(Struct, frozen=True):
    """What agents of this root are making."""

    #: of tasks that have no name yet
    unnamed: Collection[Announcement] = ()
    #: tasks that were named, and are not in the ledger yet
    named: Collection[str] = ()


def is_undecided(task_id: str, changed_unix: float, known: bool, announced: Announced, now: float) -> bool:
    """Whether it could be a worker's, and so must not be taken yet.

    `known`: the ledger knows where it is from. `changed_unix`: when the file was last written.
    """
    if task_id in announced.named:
        return True
    if known:
        return False
    awaited = [one for one in announced.unnamed if now - one.at_unix < ANNOUNCED_S]
    return any(one.may_be(changed_unix) for one in awaited) or 0 <= now - changed_unix < GRACE_S


def maker(changed_unix: float, announced: Announced) -> str:
    """The worker that made a file of which nobody knows where it is from: no hook named it. "" where none can have."""
    return next((one.worker for one in announced.unnamed if one.may_be(changed_unix)), "")


#: a task that a worker made waits for a person's `tasks approve`
PROPOSED = "proposed"
#: the goal that it belongs to does not want it any more
WITHDRAWN = "withdrawn"


def taken(task: Task, claim: Claim) -> Task | None:
    """The task with our claim on it, if it is still free."""
    if task.status is not TaskStatus.PENDING or task.owner or task.waits_for_a_person:
        return None
    return _had_by(task, claim)


def is_ours(task: Task, claim: Claim) -> bool:
    """Whether the claim is on it. A client that changes metadata writes back what it read a moment before: without it."""
    return task.claim == claim.id or (not task.claim and task.owner == claim.worker)


def is_nobodys(task: Task, key: TaskKey, books: Books, at_work: Collection[str]) -> bool:
    """In progress, without an owner and without a claim: whoever wrote that is not known, and it would wait for ever.

    `at_work`: workers whose agents are busy. A task that one of them made for itself is its own to mark.
    """
    if not is_unowned(task) or books.claim_on(key) is not None:
        return False
    made = books.made.get(key)
    if made is None:
        return not task.made_by  # else a worker of another root made it, which knows its workers
    return made.worker not in at_work


def is_unowned(task: Task) -> bool:
    return task.status is TaskStatus.IN_PROGRESS and not task.owner and not task.claim


def pending_again(task: Task) -> Task | None:
    """What nobody had can be taken; whatever else keeps it back stays."""
    return replace(task, status=TaskStatus.PENDING) if is_unowned(task) else None


def given_back(task: Task, claim: Claim, *, hold: str = "") -> Task | None:
    """Pending again; somebody else's claim, or what was completed meanwhile by a merge of ours, stays."""
    return _ended(task, TaskStatus.PENDING, hold=hold or None) if is_ours(task, claim) else None


def done(task: Task, claim: Claim) -> Task | None:
    """Completed, unless it was put back and taken by somebody else meanwhile."""
    return _ended(task, TaskStatus.COMPLETED) if is_ours(task, claim) else None


def still_at_it(task: Task, claim: Claim) -> Task | None:
    """Its worker calls it completed, which is llmc's to say; or its client has lost the claim."""
    return _had_by(task, claim) if is_ours(task, claim) else None


def freed(task: Task, seen: Task) -> Task | None:
    """A person's word: whoever had it, and whatever kept it back, it can be taken again; if it is as the person saw it."""
    return _ended(task, TaskStatus.PENDING, hold=None) if _is_as_seen(task, seen) else None


def withdrawn(task: Task) -> Task | None:
    """Nobody may take it any more; who has it, has it."""
    return task.with_ours(hold=WITHDRAWN) if task.status is TaskStatus.PENDING and not task.owner else None


def approved(task: Task, seen: Task) -> Task | None:
    """What a worker proposed can be taken, as the person saw it; what is acted upon is as the person saw it, too."""
    if (task.status, task.owner) != (TaskStatus.PENDING, ""):
        return None
    return task.with_ours(hold=None, verify=seen.verify or None, model=seen.model or None, budget=seen.budget)


def made_by_worker(task: Task, made: Made) -> Task | None:
    """The task says what the ledger knows of one that a worker's session made: for people, and for other roots."""
    said = {"worker": made.worker, "task": made.at, "root": made.root}
    by = {key: value for key, value in said.items() if value}
    if task.status is not TaskStatus.PENDING or task.owner:
        return None
    return task.with_ours(by=by, hold=made.hold or None, claim=None)


def said_done(task: Task, seen: Task) -> Task | None:
    """A person's word: nothing is left to do; if it is as the person saw it."""
    return _ended(task, TaskStatus.COMPLETED, hold=None) if _is_as_seen(task, seen) else None


def _is_as_seen(task: Task, seen: Task) -> bool:
    return (task.status, task.owner, task.claim) == (seen.status, seen.owner, seen.claim)


def _had_by(task: Task, claim: Claim) -> Task:
    return replace(task.with_ours(claim=claim.id), status=TaskStatus.IN_PROGRESS, owner=claim.worker)


def _ended(task: Task, status: TaskStatus, **changes: Any) -> Task:
    return replace(task.with_ours(claim=None, **changes), status=status, owner="")
