"""Rebuilds a worker's record from the disk, git and tmux. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from llmc.base.given import text
from llmc.base.names import ClaudeSessionId, SessionName, TaskKey, WorkerName
from llmc.records.books import Claim
from llmc.records.task import Task, TaskStatus
from llmc.records.transitions import Step, apply, step
from llmc.records.worker import Assignment, Status, WorkerRecord
from llmc.sessions.rules import decide
from llmc.tasks.rules.claims import is_ours

#: events after which the latest prompt in the log is not that of the worker's task
_ANOTHER_TASK = ("worker_added", "work_restored")
#: events after which a worker has no task
_ENDS_A_TASK = ("accepted", "worker_reset", "worker_added")


class Rebase(Struct, frozen=True):
    """A rebase in progress, from git's own files."""

    before: str
    onto: str
    files: tuple[str, ...]


class Found(Struct, frozen=True):
    """What was found about one worker."""

    name: WorkerName
    worktree_path: str
    session_id: SessionName
    created_at_unix: float
    #: its agent: whether it runs, its launch id, kind and config directory, whether it is contained, and its own status
    alive: bool = False
    instance: str = ""
    agent: str = ""
    config_dir: str = ""
    contained: bool = False
    busy: bool = False
    asks: bool = False
    claude_session_id: ClaudeSessionId | None = None
    transcript_path: str = ""
    prompt: str = ""
    #: the id of the prompt that started the latest task
    task_prompt: str = ""
    #: None if git could not read the worktree
    git: decide.GitFacts | None = None
    rebase: Rebase | None = None


def rebuilt(found: Found, now: float) -> WorkerRecord:
    """The record that follows from the facts: `offline` without a running agent, else the status it is in."""
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
        task_prompt=found.task_prompt,
        instance=found.instance if runs else "",
        agent=found.agent,
        config_dir=found.config_dir,
        contained=found.contained and runs,
        claude_session_id=found.claude_session_id,
        transcript_path=found.transcript_path,
        **_open_rebase(found, now),
    )
    for change in _steps(record, found) if runs else ():
        record = apply(record, change, now)
    return record


def unknown(found: Found) -> list[str]:
    """What is unknown about the worker, as text."""
    said = []
    if found.git is None:
        said.append("git could not read its worktree")
    if found.alive and not found.instance:
        said.append("the agent in its session was not launched by llmc")
    if not found.prompt and (found.busy or (found.git is not None and (found.git.ahead or found.git.dirty))):
        said.append("its task is unknown")
    return said


def is_over(events: Iterable[dict[str, Any]], worker: str, prompt_id: str) -> bool:
    """Whether the task was accepted or reset, according to the event log."""
    over = False
    for event in events:
        if event.get("worker") != worker:
            continue
        if event.get("prompt_id") == prompt_id:
            over = False
        elif event.get("action") in _ENDS_A_TASK:
            over = True
    return over


def prompt_of_task(events: Iterable[dict[str, Any]], worker: str, in_transcript: str) -> str:
    """The id of the prompt that started the latest task, even if it is over: the user's comments are kept under it.

    The event log has it before it is typed; `in_transcript` counts if the log is lost. "" if it is unknown.
    """
    found = in_transcript
    for event in events:
        if event.get("worker") != worker:
            continue
        prompt_id = text(event.get("prompt_id"))
        if event.get("action") == "prompt_pending" and prompt_id.startswith("task-"):
            found = prompt_id
        elif event.get("action") in _ANOTHER_TASK:
            found = ""
    return found


def _steps(record: WorkerRecord, found: Found) -> list[Step]:
    if found.git is None:
        return [step(Status.NEEDS_INPUT, "git failed")]
    rests = decide.rest(record, found.git)
    if rests.to is Status.REBASING:
        # An idle agent gets the conflict prompt again; a busy one is already working on it.
        due = bool(record.pre_rebase_sha) and not found.busy
        return [replace(rests, fields={**rests.fields, "conflict_prompt_due": due})]
    if found.busy:
        return [step(Status.NEEDS_INPUT, "rebuilt"), step(Status.WORKING, decide.TURN_GOES_ON)]
    if found.asks:
        return [step(Status.NEEDS_INPUT, "question")]
    if rests.to is Status.IDLE and found.git.dirty:
        return [step(Status.NEEDS_INPUT, "stopped_dirty")]  # if idle, the next task would discard the changes
    return [rests]


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
    """Keep the hold, and the reverted commits that must not land again, if the old state is readable."""
    if old is None:
        return record
    return replace(record, held=old.held, held_since_unix=old.held_since_unix, taken_back=old.taken_back)


def assigned(
    record: WorkerRecord, claim: Claim | None, tasks: Mapping[TaskKey, Task], now: float
) -> WorkerRecord:
    """The record with the task that the worker claimed, unless the task file names another owner."""
    if claim is None:
        return record
    task = tasks.get(claim.task)
    if task is not None and not is_ours(task, claim):
        return record
    known: dict[str, Any] = {}
    if task is not None:  # the client removes task files
        known = {"subject": task.subject, "label": task.label, "verify": task.verify, "budget": task.budget}
    at = Assignment(task_id=claim.task.id, task_list=claim.task.list, claim=claim.id, since_unix=now, **known)
    return replace(record, assignment=at)


def owned(record: WorkerRecord, tasks: Mapping[TaskKey, Task]) -> Claim | None:
    """The claim that only a task file records. A list may be shared by roots with workers of the same name, so the
    worker's own conversation must mention the task."""
    for key, task in tasks.items():
        mine = task.status is TaskStatus.IN_PROGRESS and task.owner == record.name and task.claim
        if mine and task.subject and task.subject in record.current_prompt:
            return Claim(task.claim, key, record.name)
    return None
