"""Who made a task, who holds it, and how a claim and its release change it. Pure."""

from collections.abc import Collection
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from llmc.base.names import TaskKey
from llmc.records.books import Books, Claim, Made
from llmc.records.task import Task, TaskStatus
from llmc.records.worker import WorkerRecord

#: with `worker_tasks = "accept"`: how many tasks one task may create; further ones are proposed
MOST_ACCEPTED = 10
#: how long to leave alone a file that llmc did not write, so that the root whose worker made it can mark it
GRACE_S = 1.0
#: after this time, an agent that has not named an announced task has failed, or its hook was lost
ANNOUNCED_S = 15.0
#: allowed difference between the clocks of a file system and of a process
SLACK_S = 0.1
#: the metadata that llmc acts on; ignored in a file made by an agent
ACTED_UPON = ("verify", "model", "budget", "goal", "key")


def hold_for(setting: str, at_a_task: bool, made: int) -> str:
    """Why a task made by a worker is held back; `made`: how many its current task has made before."""
    if setting == "accept" and (not at_a_task or made < MOST_ACCEPTED):
        return ""
    return PROPOSED


def believed(task: Task, made: Made | None) -> Task:
    """The task without untrusted metadata: for a task made by an agent, only what the user approved."""
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
    """Whether the file lacks what the ledger knows: an agent removed it, or a crash came in between."""
    return task.waits_for_a_person != made.hold and PROPOSED in (task.waits_for_a_person, made.hold)


class Announcement(Struct, frozen=True):
    """An agent of this root is about to make a task: a hook fires before the file exists; a later one names it."""

    worker: str
    at_unix: float

    def may_be(self, changed_unix: float) -> bool:
        """Whether a file written at that time can be that task."""
        return self.at_unix - SLACK_S <= changed_unix < self.at_unix + ANNOUNCED_S


class Announced(Struct, frozen=True):
    """What agents of this root are making."""

    #: announced tasks that have no name yet
    unnamed: Collection[Announcement] = ()
    #: tasks that were named, but are not in the ledger yet
    named: Collection[str] = ()


def is_undecided(task_id: str, changed_unix: float, known: bool, announced: Announced, now: float) -> bool:
    """Whether a task may be a worker's, and so must not be claimed yet.

    `known`: its origin is in the ledger. `changed_unix`: when the file was last written.
    """
    if task_id in announced.named:
        return True
    if known:
        return False
    awaited = [one for one in announced.unnamed if now - one.at_unix < ANNOUNCED_S]
    return any(one.may_be(changed_unix) for one in awaited) or 0 <= now - changed_unix < GRACE_S


def maker(changed_unix: float, announced: Announced) -> str:
    """The worker that made a file of unknown origin that no hook named; "" if none can have made it."""
    return next((one.worker for one in announced.unnamed if one.may_be(changed_unix)), "")


#: a task made by a worker, waiting for `tasks approve`
PROPOSED = "proposed"
#: withdrawn by its goal
WITHDRAWN = "withdrawn"


def is_free(task: Task) -> bool:
    """Whether a task is pending by its file, and has no owner; the user or other tasks may still hold it back."""
    return task.status is TaskStatus.PENDING and not task.owner


def taken(task: Task, claim: Claim) -> Task | None:
    """The task with our claim on it, if it is still free."""
    return _had_by(task, claim) if is_free(task) and not task.waits_for_a_person else None


def holds(record: WorkerRecord | None, claim: Claim) -> bool:
    """Whether a worker's record has the claim."""
    return record is not None and record.assignment is not None and record.assignment.claim == claim.id


def is_ours(task: Task, claim: Claim) -> bool:
    """Whether the task has the claim. A client that edits metadata may write back an older version, without it."""
    return task.claim == claim.id or (not task.claim and task.owner == claim.worker)


def is_abandoned(task: Task, key: TaskKey, books: Books, at_work: Collection[str]) -> bool:
    """Whether a task is in progress without an owner or a claim: it would wait forever.

    `at_work`: workers whose agents are busy. They may mark tasks that they made for themselves.
    """
    if not is_unowned(task) or books.claim_on(key) is not None:
        return False
    made = books.made.get(key)
    if made is None:
        return not task.made_by  # else it was made in another root, which knows its own workers
    return made.worker not in at_work


def is_unowned(task: Task) -> bool:
    return task.status is TaskStatus.IN_PROGRESS and not task.owner and not task.claim


def pending_again(task: Task) -> Task | None:
    """The task pending again if it is in progress without an owner; a hold stays."""
    return replace(task, status=TaskStatus.PENDING) if is_unowned(task) else None


def released(task: Task, claim: Claim, *, hold: str = "") -> Task | None:
    """The task pending again, unless it was completed, or has another claim, in the meantime."""
    return _ended(task, TaskStatus.PENDING, hold=hold or None) if is_ours(task, claim) else None


def done(task: Task, claim: Claim) -> Task | None:
    """The task completed, unless it was released and claimed again in the meantime."""
    return _ended(task, TaskStatus.COMPLETED) if is_ours(task, claim) else None


def still_at_it(task: Task, claim: Claim) -> Task | None:
    """Put our claim back after the worker marked the task completed, or its client dropped the claim."""
    return _had_by(task, claim) if is_ours(task, claim) else None


def set_by_user(task: Task, seen: Task, status: TaskStatus = TaskStatus.PENDING) -> Task | None:
    """The task pending again or completed, without owner or hold; None if it has changed since the user saw it."""
    is_as_seen = (task.status, task.owner, task.claim) == (seen.status, seen.owner, seen.claim)
    return _ended(task, status, hold=None) if is_as_seen else None


def withdrawn(task: Task) -> Task | None:
    """The task held back from new claims; None if it is not free, as an existing claim stays."""
    return task.with_ours(hold=WITHDRAWN) if is_free(task) else None


def approved(task: Task, seen: Task) -> Task | None:
    """The task approved as the user saw it, including the metadata that llmc acts on."""
    if not is_free(task):
        return None
    return task.with_ours(hold=None, verify=seen.verify or None, model=seen.model or None, budget=seen.budget)


def prioritised(task: Task, priority: int) -> Task:
    """The task with another priority; everything else stays."""
    return replace(task, metadata={**task.metadata, "priority": priority})


def made_by_worker(task: Task, made: Made) -> Task | None:
    """Mark a task made by a worker in its file, for the user and for other roots."""
    if not is_free(task):
        return None
    said = {"worker": made.worker, "task": made.at, "root": made.root}
    by = {key: value for key, value in said.items() if value}
    return task.with_ours(by=by, hold=made.hold or None, claim=None)


def _had_by(task: Task, claim: Claim) -> Task:
    return replace(task.with_ours(claim=claim.id), status=TaskStatus.IN_PROGRESS, owner=claim.worker)


def _ended(task: Task, status: TaskStatus, **changes: Any) -> Task:
    return replace(task.with_ours(claim=None, **changes), status=status, owner="")
