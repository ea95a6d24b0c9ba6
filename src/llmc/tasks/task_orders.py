"""Commands on a task: release, requeue, done, approve."""

import shlex
from functools import partial

from llmc.base.errors import NotFound, Refused, UsageError
from llmc.base.names import TaskId, WorkerName
from llmc.records.books import Claim
from llmc.records.task import Task, TaskStatus
from llmc.repo.project import Project
from llmc.tasks import task_list
from llmc.tasks.queue import take_back
from llmc.tasks.rules import claims
from llmc.tasks.source import TaskSource, source_of
from llmc.tasks.task_list import Overview, overview

_MEANWHILE = "Run `llmc tasks show {}` to see its current state."


def release(project: Project, task_id: str) -> Task:
    """Release a task that is claimed, but not worked on."""
    source = source_of(project)
    task = _of_nobody_here(project, source, task_id)
    state = _state(source, task)
    if state != TaskStatus.IN_PROGRESS:
        raise Refused(f"task {task_id} {_is(state)}, not in progress", hint=_hint(task_id, state))
    had = Claim(task.claim, source.key(task.id), task.owner)
    source.write("released", had, reason="by user", cause="")
    freed = _free(source, task)
    _say(
        project,
        source,
        "task_released",
        freed,
        reason=f"by user; claimed by {task.owner or 'nobody'} before",
        cause="",
    )
    return freed


def requeue(project: Project, task_id: str) -> Task:
    """Run a task again that was quarantined, parked or completed; its failed attempts no longer count."""
    source = source_of(project)
    task = _of_nobody_here(project, source, task_id)
    books = source.books()
    state = _state(source, task)
    if state == claims.PROPOSED:
        raise Refused(f"task {task_id} is proposed", hint=_hint(task_id, state))
    if state in ("ready", "waits") and not books.attempts(source.key(task_id)):
        raise Refused(f"task {task_id} {_is(state)} and has not run yet", hint=_hint(task_id, state))
    source.write("requeued", Claim(task.claim, source.key(task.id), task.owner))
    freed = _free(source, task)
    _say(project, source, "task_requeued", freed, reason=f"by user; it was {state}")
    return freed


def pending_again(project: Project, commit: str) -> tuple[str, str]:
    """Make the task that landed as this commit pending again; its id, and the outcome as text. Safe to repeat.

    The caller writes the event.
    """
    task = source_of(project).books().landed_as(commit)
    if task is None:
        return "", ""
    try:
        back = take_back(project, task, f"its commit {commit[:12]} was undone")
    except (NotFound, Refused, UsageError) as error:
        return "", f"task {task} was not requeued: {error.message}"
    if back is None:
        return "", f"task {task} was not requeued: its file is gone; add it again with `llmc tasks add`"
    return task.id, f"task {task} is pending again"


def done(project: Project, task_id: str) -> Task:
    """Mark a task as completed, so that its dependents can start."""
    source = source_of(project)
    task = _of_nobody_here(project, source, task_id)
    state = _state(source, task)
    if state in (TaskStatus.COMPLETED, TaskStatus.IN_PROGRESS):
        raise Refused(f"task {task_id} {_is(state)}", hint=_hint(task_id, state))
    source.write("completed", Claim(task.claim, source.key(task.id), ""), reason="by user")
    after = source.edit(source.key(task_id), partial(claims.said_done, seen=task))
    if after.status is not TaskStatus.COMPLETED:
        raise Refused(f"task {task_id} was changed in the meantime", hint=_MEANWHILE.format(task_id))
    _say(project, source, "task_done", after, reason=f"by user; it was {state}")
    return after


def approve(project: Project, task_id: str) -> Task:
    """Approve a task proposed by a worker, as it is now; later changes to its metadata are ignored."""
    source = source_of(project)
    task, books = source.one(source.key(task_id)), source.books()
    if claims.PROPOSED not in (books.kept_back(source.key(task_id)), task.waits_for_a_person):
        state = _state(source, task)
        raise Refused(f"task {task_id} {_is(state)}, not proposed", hint=_hint(task_id, state))
    made, root = books.made.get(source.key(task_id)), task.made_by.get("root")
    if made is None and isinstance(root, str) and root not in ("", str(project.root.path)):
        hint = f"Approve it in that root: llmc --root {shlex.quote(root)} tasks approve {task_id}"
        raise Refused(f"task {task_id} was made by a worker of another root", hint=hint)
    who = Claim("", source.key(task_id), made.worker if made else "")
    seen = {"verify": task.verify, "model": task.model, "budget": task.budget}
    source.write("approved", who, **seen)
    approved = source.edit(source.key(task_id), partial(claims.approved, seen=task))
    _say(project, source, "task_approved", approved, reason="by user")
    return approved


def releasable(project: Project, found: Overview) -> list[TaskId]:
    """Tasks in progress that no worker of this root is working on."""
    books = source_of(project).books()
    at_it = {claim.task.id for claim in books.claims.values() if _is_at_it(project, claim)}
    return [i for i, state in found.states.items() if state == TaskStatus.IN_PROGRESS and i not in at_it]


def _of_nobody_here(project: Project, source: TaskSource, task_id: str) -> Task:
    """The task; refuses while a worker of this root works on it. Releases the claims of lost workers."""
    books = source.books()
    for claim in [claim for claim in books.claims.values() if claim.task == source.key(task_id)]:
        if _is_at_it(project, claim):
            raise _has_it(project, claim)
        source.write("released", claim, reason="its worker is not working on it", cause="")
    try:
        return source.one(source.key(task_id))
    except NotFound as error:
        if not books.is_completed(source.key(task_id)):
            raise
        hint = "Add it again: llmc tasks add"
        raise NotFound(f"task {task_id} is completed and its file is gone", hint=hint) from error


def _has_it(project: Project, claim: Claim) -> Refused:
    record = project.store.read().workers.get(WorkerName(claim.worker))
    if record is not None and record.landing_waits_for:
        return Refused(
            f"the work of {claim.worker} on task {claim.task.id} is waiting for {record.landing_waits_for} "
            "and may still land",
            hint=f"Wait for the answer; to check it now: llmc accept {claim.worker}",
        )
    hint = f"Run `llmc reset {claim.worker}` to stop it and release the task."
    return Refused(f"{claim.worker} is working on task {claim.task.id}", hint=hint)


def _is_at_it(project: Project, claim: Claim) -> bool:
    """By its record; or a daemon is running, which may be about to record it."""
    record = project.store.read().workers.get(WorkerName(claim.worker))
    if record is None:
        return False
    written = record.assignment is not None and record.assignment.claim == claim.id
    return written or project.daemon_runs()


def _state(source: TaskSource, task: Task) -> str:
    return overview(source).states.get(task.id, str(task.status))


def _free(source: TaskSource, seen: Task) -> Task:
    after = source.edit(source.key(seen.id), partial(claims.freed, seen=seen))
    if after.status is not TaskStatus.PENDING or after.owner:
        raise Refused(f"task {seen.id} was changed in the meantime", hint=_MEANWHILE.format(seen.id))
    return after


def _is(state: str) -> str:
    return "waits for other tasks" if state == "waits" else f"is {state}"


def _hint(task_id: str, state: str) -> str:
    match state:
        case "question":
            return (
                f"To run it again: llmc tasks requeue {task_id}; to mark it done: llmc tasks done {task_id}"
            )
        case "quarantined" | "parked" | "completed":
            return f"To run it again: llmc tasks requeue {task_id}"
        case "proposed":
            return f"To approve it: llmc tasks approve {task_id}"
        case "in_progress":
            return f"To release it: llmc tasks release {task_id}"
        case "waits":
            return "Run `llmc tasks graph` to see its dependencies."
    return "It starts as soon as a worker is free."


def _say(project: Project, source: TaskSource, action: str, task: Task, reason: str, **more: str) -> None:
    with project.store.transaction() as tx:
        tx.emit(action, **source.key(task.id).fields(), subject=task.subject, reason=reason, **more)
    task_list.tell(project, source, source.books(), source.listing().tasks)
