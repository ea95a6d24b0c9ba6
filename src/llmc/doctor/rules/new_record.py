"""A worker's record made anew from what is on disk, in git and in tmux. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from llmc.base.names import ClaudeSessionId, SessionName, TaskKey, WorkerName
from llmc.records.books import Claim
from llmc.records.task import Task, TaskStatus
from llmc.records.transitions import Step, apply, step
from llmc.records.worker import Assignment, Status, WorkerRecord
from llmc.sessions.rules import decide
from llmc.tasks.rules.claims import is_ours

#: events after which a worker has no task any more
_ENDS_A_TASK = ("accepted", "worker_reset", "worker_added")


class Rebase(Struct, frozen=True):
    """A rebase in progress, as git's own files tell it."""

    before: str
    onto: str
    files: tuple[str, ...]


class Found(Struct, frozen=True):
    """What was found of one worker."""

    name: WorkerName
    worktree_path: str
    session_id: SessionName
    created_at_unix: float
    #: its agent runs: the mark it was launched with, what it is, and what it says of itself
    alive: bool = False
    instance: str = ""
    agent: str = ""
    config_dir: str = ""
    busy: bool = False
    asks: bool = False
    claude_session_id: ClaudeSessionId | None = None
    transcript_path: str = ""
    prompt: str = ""
    #: None when git could not read the worktree
    git: decide.GitFacts | None = None
    rebase: Rebase | None = None


def rebuilt(found: Found, now: float) -> WorkerRecord:
    """The record that follows from the facts: without a running agent `offline`, else where it rests."""
    runs = found.alive and bool(found.instance)
    record = WorkerRecord(
        name=found.name,
        worktree_path=found.worktree_path,
        branch=f"llmc/{found.name}",
        session_id=found.session_id,
        created_at_unix=min(found.created_at_unix, now),
        since_unix=now,
        last_activity_unix=now,
        reason="rebuilt",
        current_prompt=found.prompt,
        instance=found.instance if runs else "",
        agent=found.agent,
        config_dir=found.config_dir,
        claude_session_id=found.claude_session_id,
        transcript_path=found.transcript_path,
        **_open_rebase(found, now),
    )
    for change in _steps(record, found) if runs else ():
        record = apply(record, change, now)
    return record


def unknown(found: Found) -> list[str]:
    """What could not be found out, in words."""
    said = []
    if found.git is None:
        said.append("git could not read its worktree")
    if found.alive and not found.instance:
        said.append("an agent runs in its session, but not one that llmc launched")
    if not found.prompt and (found.busy or (found.git is not None and (found.git.ahead or found.git.dirty))):
        said.append("its task is not known")
    return said


def is_over(events: Iterable[dict[str, Any]], worker: str, prompt_id: str) -> bool:
    """Whether the log says that the task with this id was accepted, or reset away."""
    over = False
    for event in events:
        if event.get("worker") != worker:
            continue
        if event.get("prompt_id") == prompt_id:
            over = False
        elif event.get("action") in _ENDS_A_TASK:
            over = True
    return over


def _steps(record: WorkerRecord, found: Found) -> list[Step]:
    if found.git is None:
        return [step(Status.NEEDS_INPUT, "git could not be read")]
    rests = decide.rest(record, found.git)
    if rests.to is Status.REBASING:
        # An agent at rest in the middle of it is told again; a busy one is at it.
        due = bool(record.pre_rebase_sha) and not found.busy
        return [replace_fields(rests, conflict_prompt_due=due)]
    if found.busy:
        return [step(Status.NEEDS_INPUT, "rebuilt"), step(Status.WORKING, decide.TURN_GOES_ON)]
    if found.asks:
        return [step(Status.NEEDS_INPUT, "question")]
    if rests.to is Status.IDLE and found.git.dirty:
        return [step(Status.NEEDS_INPUT, "stopped_dirty")]  # idle would let the next task clear it away
    return [rests]


def replace_fields(change: Step, **fields: Any) -> Step:
    return Step(change.to, change.reason, {**change.fields, **fields})


def _open_rebase(found: Found, now: float) -> dict[str, Any]:
    if found.rebase is None:
        return {}
    return {
        "rebase_started_at_unix": now,
        "pre_rebase_sha": found.rebase.before,
        "rebase_base": found.rebase.onto,
        "conflicted_files": found.rebase.files,
    }


def keep_marks(record: WorkerRecord, old: WorkerRecord | None) -> WorkerRecord:
    """What a person said of the worker, where the old state could still be read."""
    return record if old is None else replace(record, held=old.held)


def assigned(
    record: WorkerRecord, claim: Claim | None, tasks: Mapping[TaskKey, Task], now: float
) -> WorkerRecord:
    """The record with the task that the worker has claimed; one whose file says somebody else's is not it."""
    if claim is None:
        return record
    task = tasks.get(claim.task)
    if task is not None and not is_ours(task, claim):
        return record
    known: dict[str, Any] = {}
    if task is not None:  # the client removes files of tasks
        known = {"subject": task.subject, "label": task.label, "verify": task.verify, "budget": task.budget}
    at = Assignment(task_id=claim.task.id, task_list=claim.task.list, claim=claim.id, since_unix=now, **known)
    return replace(record, assignment=at)


def owned(record: WorkerRecord, tasks: Mapping[TaskKey, Task]) -> Claim | None:
    """The claim that a task's file alone knows. A list may be shared, and workers of two roots have the same names: so
    the worker's own conversation must be about it."""
    for key, task in tasks.items():
        mine = task.status is TaskStatus.IN_PROGRESS and task.owner == record.name and task.claim
        if mine and task.subject and task.subject in record.current_prompt:
            return Claim(task.claim, key, record.name)
    return None
