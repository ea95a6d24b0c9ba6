"""What a claim, its end, and a person's word change in a task's file. Each returns the file's new content, or None."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from llmc.base.names import TaskKey
from llmc.records.books import Books, Claim, Made
from llmc.records.task import Task, TaskStatus

Raw = dict[str, Any]
Edit = Callable[[Task, Raw], Raw | None]

#: a task that a worker made waits for a person's `tasks approve`
PROPOSED = "proposed"
#: the goal that it belongs to does not want it any more
WITHDRAWN = "withdrawn"


def taken(task: Task, raw: Raw, claim: Claim) -> Raw | None:
    """The task with our claim on it, if it is still free."""
    if task.status is not TaskStatus.PENDING or task.owner or task.waits_for_a_person:
        return None
    return _with_ours(raw, claim=claim.id) | {"status": TaskStatus.IN_PROGRESS.value, "owner": claim.worker}


def is_ours(task: Task, claim: Claim) -> bool:
    """Whether the claim is on it. A client that changes metadata writes back what it read a moment before: without it."""
    return task.claim == claim.id or (not task.claim and task.owner == claim.worker)


def is_nobodys(task: Task, key: TaskKey, books: Books, at_work: Collection[str]) -> bool:
    """In progress by its file, without an owner and without a claim: whoever wrote that is not known, and it would wait for ever.

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


def pending_again(task: Task, raw: Raw) -> Raw | None:
    """What nobody had can be taken; whatever else keeps it back stays."""
    return {**raw, "status": TaskStatus.PENDING.value} if is_unowned(task) else None


def given_back(task: Task, raw: Raw, claim: Claim, *, hold: str = "") -> Raw | None:
    """Pending again; somebody else's claim, or what was completed meanwhile by a merge of ours, stays."""
    if not is_ours(task, claim):
        return None
    return _with_ours(_unowned(raw), claim=None, hold=hold or None) | {"status": TaskStatus.PENDING.value}


def done(task: Task, raw: Raw, claim: Claim) -> Raw | None:
    if not is_ours(task, claim):
        return None  # it was put back and taken by somebody else meanwhile
    return _with_ours(_unowned(raw), claim=None) | {"status": TaskStatus.COMPLETED.value}


def still_at_it(task: Task, raw: Raw, claim: Claim) -> Raw | None:
    """Its worker calls it completed, which is llmc's to say; or its client has lost the claim."""
    if not is_ours(task, claim):
        return None
    return _with_ours(raw, claim=claim.id) | {"status": TaskStatus.IN_PROGRESS.value, "owner": claim.worker}


def freed(task: Task, raw: Raw, seen: Task) -> Raw | None:
    """A person's word: whoever had it, and whatever kept it back, it can be taken again; if it is as the person saw it."""
    if (task.status, task.owner, task.claim) != (seen.status, seen.owner, seen.claim):
        return None
    return _with_ours(_unowned(raw), claim=None, hold=None) | {"status": TaskStatus.PENDING.value}


def withdrawn(task: Task, raw: Raw) -> Raw | None:
    """Nobody may take it any more; who has it, has it."""
    return _with_ours(raw, hold=WITHDRAWN) if task.status is TaskStatus.PENDING and not task.owner else None


def approved(task: Task, raw: Raw, seen: Task) -> Raw | None:
    """What a worker proposed can be taken, as the person saw it; what is acted upon is as the person saw it, too."""
    if (task.status, task.owner) != (TaskStatus.PENDING, ""):
        return None
    return _with_ours(
        raw, hold=None, verify=seen.verify or None, model=seen.model or None, budget=seen.budget
    )


def made_by_worker(task: Task, raw: Raw, made: Made) -> Raw | None:
    """The file says what the ledger knows of a task that a worker's session made: for people, and for other roots."""
    said = {"worker": made.worker, "task": made.at, "root": made.root}
    by = {key: value for key, value in said.items() if value}
    if task.status is not TaskStatus.PENDING or task.owner:
        return None
    return _with_ours(raw, by=by, hold=made.hold or None, claim=None)


def said_done(task: Task, raw: Raw, seen: Task) -> Raw | None:
    """A person's word: nothing is left to do; if it is as the person saw it."""
    if (task.status, task.owner, task.claim) != (seen.status, seen.owner, seen.claim):
        return None
    return _with_ours(_unowned(raw), claim=None, hold=None) | {"status": TaskStatus.COMPLETED.value}


def _unowned(raw: Raw) -> Raw:
    return {key: value for key, value in raw.items() if key != "owner"}


def _with_ours(raw: Raw, **changes: Any) -> Raw:
    """`metadata.llmc` with these values; None removes one. Everything else in the file stays."""
    metadata = dict(raw.get("metadata") or {})
    ours = metadata.get("llmc")
    ours = dict(ours) if isinstance(ours, Mapping) else {}
    for key, value in changes.items():
        if value is None:
            ours.pop(key, None)
        else:
            ours[key] = value
    if ours:
        metadata["llmc"] = ours
    else:
        metadata.pop("llmc", None)
    rest = {key: value for key, value in raw.items() if key != "metadata"}
    return {**rest, **({"metadata": metadata} if metadata or raw.get("metadata") is not None else {})}
