"""Who made a task, and whether it may be taken yet. A worker's own tasks wait for a person, unless told otherwise."""

from collections.abc import Collection
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from llmc.records.books import Made
from llmc.records.task import Task
from llmc.tasks.rules.claims import PROPOSED

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
