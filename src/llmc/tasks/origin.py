"""Who made a task, and whether it may be taken yet. A worker's own tasks wait for a person, unless told otherwise."""

from collections.abc import Collection
from dataclasses import dataclass

from llmc.tasks.claims import PROPOSED
from llmc.tasks.model import Task

#: with `worker_tasks = "accept"`: how many tasks one task may bring with it; the others are proposed
MOST_ACCEPTED = 10
#: a file that llmc did not write is left alone for so long: the root whose worker made it marks it meanwhile
GRACE_S = 1.0
#: an agent that was about to make a task, and has not named one since, has failed to
ANNOUNCED_S = 15.0
#: what the clocks of a file system and of a process may differ by
SLACK_S = 0.1


def hold_for(setting: str, at_a_task: bool, made: int) -> str:
    """What a task that a worker made is kept back by; `made`: how many its own task has brought before."""
    if setting == "accept" and (not at_a_task or made < MOST_ACCEPTED):
        return ""
    return PROPOSED


@dataclass(frozen=True)
class Announced:
    """What agents of this root are about to make: their hooks tell before the file exists, and name it afterwards."""

    #: when each of them began to make one that has no name yet
    began_unix: Collection[float] = ()
    #: tasks that were named, and are not marked yet
    named: Collection[str] = ()


def is_undecided(task: Task, changed_unix: float, known: bool, announced: Announced, now: float) -> bool:
    """Whether it could be a worker's, and so must not be taken yet.

    `known`: llmc wrote its file, or has taken it before. `changed_unix`: when the file was last written.
    """
    if task.made_by:
        return False  # its hold says the rest
    if task.id in announced.named:
        return True
    open_since = [at for at in announced.began_unix if now - at < ANNOUNCED_S]
    if any(changed_unix >= at - SLACK_S for at in open_since):
        return True
    return not known and 0 <= now - changed_unix < GRACE_S
