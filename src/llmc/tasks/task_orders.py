"""Commands on a task: release, requeue, done, approve."""

import shlex
from collections.abc import Callable
from functools import partial

from llmc.base.errors import NotFound, Refused, UsageError
from llmc.base.faults import step as fault_step
from llmc.base.names import TaskId, TaskKey, WorkerName
from llmc.records.books import Claim
from llmc.records.task import Task, TaskStatus
from llmc.repo.project import Project
from llmc.tasks import task_list
from llmc.tasks.rules import claims
from llmc.tasks.source import source_of
from llmc.tasks.task_list import Overview, overview


class _Order:
    """A user's command on one task."""

    def __init__(self, project: Project, task_id: str) -> None:
        project.store.refuse_elsewhere()  # before the task file changes, which may be the original root's
        self._project, self.source = project, source_of(project)
        self.key = self.source.key(task_id)

    def unattended(self) -> tuple[Task, str]:
        """The task and its state; refuses while a worker of this root works on it. Releases claims of lost workers."""
        books, task_id = self.source.books(), self.key.id
        for claim in [claim for claim in books.claims.values() if claim.task == self.key]:
            if _is_at_it(self._project, claim):
                raise _has_it(self._project, claim)
            self.source.write("released", claim, reason="the worker is not working on the task", cause="")
        try:
            task = self.source.one(self.key)
        except NotFound as error:
            if not books.is_completed(self.key):
                raise
            hint = "To add the task again: llmc tasks add SUBJECT"
            raise NotFound(
                f"task {task_id} is completed, and its file no longer exists", hint=hint
            ) from error
        return task, self.state(task)

    def state(self, task: Task) -> str:
        return overview(self.source).states.get(task.id, str(task.status))

    def refused(self, what: str, state: str, but: str = "") -> Refused:
        """`what`: the verb of the command; `but`: goes after the state, and says what it must be."""
        is_so = "has the ID of a completed task" if state == "question" else f"is {_in_words(state)}{but}"
        return Refused(f"cannot {what} task {self.key.id}: it {is_so}", hint=_hint(self.key.id, state))

    def set(
        self, seen: Task, status: TaskStatus, write: Callable[[], None], action: str, reason: str, **more: str
    ) -> Task:
        """Change the task as the user saw it, and report it.

        `write`: writes the row of the books, before the task but under its lock, only if the task is as seen.
        """

        def edit(task: Task) -> Task | None:
            after = claims.set_by_user(task, seen, status)
            if after is not None:
                write()
            return after

        after = self.source.edit(self.key, edit)
        if after.status is not status or (status is TaskStatus.PENDING and after.owner):
            hint = f"Run `llmc tasks show {shlex.quote(seen.id)}` to see its current state, then run the command again."
            raise Refused(f"cannot change task {seen.id}: it changed in the meantime", hint=hint)
        self.report(action, after, reason, **more)
        return after

    def report(self, action: str, task: Task, reason: str, **more: str) -> None:
        with self._project.store.transaction() as tx:
            tx.emit(action, **self.key.fields(), subject=task.subject, reason=reason, **more)
        task_list.tell(self._project, self.source, self.source.books(), self.source.listing().tasks)


def release(project: Project, task_id: str) -> Task:
    """Release a task that is claimed, but that no worker works on."""
    order = _Order(project, task_id)
    task, state = order.unattended()
    if state != TaskStatus.IN_PROGRESS:
        raise order.refused("release", state, ", not in progress")
    claim = Claim(task.claim, order.key, task.owner)
    write = partial(order.source.write, "released", claim, reason="released by the user", cause="")
    reason = "released by the user" + (f" (was claimed by {task.owner})" if task.owner else "")
    return order.set(task, TaskStatus.PENDING, write, "task_released", reason, cause="")


def requeue(project: Project, task_id: str) -> Task:
    """Run a task again that was quarantined, parked or completed; its failed attempts no longer count."""
    order = _Order(project, task_id)
    task, state = order.unattended()
    if state == claims.PROPOSED:
        raise order.refused("requeue", state)
    if state in ("ready", "waits") and not order.source.books().attempts(order.key):
        raise order.refused("requeue", state, " and has not run yet")
    write = partial(order.source.write, "requeued", Claim(task.claim, order.key, task.owner))
    reason = f"requeued by the user (was {_in_words(state)})"
    return order.set(task, TaskStatus.PENDING, write, "task_requeued", reason)


def done(project: Project, task_id: str) -> Task:
    """Mark a task as completed, so that its dependents can start."""
    order = _Order(project, task_id)
    task, state = order.unattended()
    if state in (TaskStatus.COMPLETED, TaskStatus.IN_PROGRESS):
        raise order.refused("complete", state)
    claim = Claim(task.claim, order.key, "")
    write = partial(order.source.write, "completed", claim, reason="marked done by the user")
    reason = f"marked done by the user (was {_in_words(state)})"
    return order.set(task, TaskStatus.COMPLETED, write, "task_done", reason)


def approve(project: Project, task_id: str) -> Task:
    """Approve a task proposed by a worker, as it is now; later changes to its metadata are ignored."""
    order = _Order(project, task_id)
    source, key = order.source, order.key
    task, books = source.one(key), source.books()
    if claims.PROPOSED not in (books.kept_back(key), task.waits_for_a_person):
        raise order.refused("approve", order.state(task), ", not proposed")
    made, root = books.made.get(key), task.made_by.get("root")
    if made is None and isinstance(root, str) and root not in ("", str(project.root.path)):
        hint = f"Approve the task in that root: llmc --root {shlex.quote(root)} tasks approve {shlex.quote(task_id)}"
        raise Refused(f"cannot approve task {task_id}: it was created by a worker in another root", hint=hint)
    seen = {"verify": task.verify, "model": task.model, "budget": task.budget}
    source.write("approved", Claim("", key, made.worker if made else ""), **seen)
    approved = source.edit(key, partial(claims.approved, seen=task))
    order.report("task_approved", approved, "approved by the user")
    return approved


def prioritise(project: Project, task_id: str, priority: int) -> Task:
    """Change the priority of a task that is not completed; a worker that has it continues."""
    order = _Order(project, task_id)
    task = order.source.one(order.key)
    if order.state(task) == TaskStatus.COMPLETED:
        raise order.refused("prioritize", TaskStatus.COMPLETED)
    changed = order.source.edit(order.key, partial(claims.prioritised, priority=priority))
    order.report(
        "task_prioritised", changed, f"priority set to {priority} by the user", priority=str(priority)
    )
    return changed


def pending_again(project: Project, commit: str) -> tuple[str, str]:
    """Make the task that landed as this commit pending again; returns its id and the outcome. Safe to repeat.

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
        return (
            "",
            f"task {task} was not requeued because its file no longer exists. To add it again: llmc tasks add SUBJECT",
        )
    return task.id, f"task {task} is pending again"


def take_back(project: Project, task: TaskKey, reason: str) -> Task | None:
    """Make a task pending again after its work was undone, in books and list. Safe to repeat after a crash.

    None if the task is gone: it stays completed, so that its dependents can run.
    """
    source = source_of(project)
    task = source.books().whole(task)
    try:
        seen = source.one(task)
    except NotFound:
        return None
    if source.books().is_completed(task):
        with fault_step("claim.take_back"):
            source.write("requeued", Claim(seen.claim, task, seen.owner), reason=reason)
    if seen.status is not TaskStatus.COMPLETED:
        return seen  # done before a crash, or started again since
    return source.edit(task, partial(claims.set_by_user, seen=seen))


def releasable(project: Project, found: Overview) -> list[TaskId]:
    """Tasks in progress that no worker of this root is working on."""
    books = source_of(project).books()
    at_it = {claim.task.id for claim in books.claims.values() if _is_at_it(project, claim)}
    return [i for i, state in found.states.items() if state == TaskStatus.IN_PROGRESS and i not in at_it]


def _has_it(project: Project, claim: Claim) -> Refused:
    record = project.store.read().workers.get(WorkerName(claim.worker))
    if record is not None and record.landing_waits_for:
        return Refused(
            f"cannot change task {claim.task.id}: {claim.worker}'s work on it is waiting for "
            f"{record.landing_waits_for} and may still land",
            hint=f"Wait for the result. To check whether the work has landed: llmc accept {claim.worker}",
        )
    hint = f"Run `llmc reset {claim.worker}` to stop the worker and release the task."
    return Refused(f"cannot change task {claim.task.id}: {claim.worker} is working on it", hint=hint)


def _is_at_it(project: Project, claim: Claim) -> bool:
    """Whether the worker has the task by its record, or a running daemon may be about to record that."""
    record = project.store.read().workers.get(WorkerName(claim.worker))
    return claims.holds(record, claim) or (record is not None and project.daemon_runs())


def _in_words(state: str) -> str:
    """A state as it is put after `is` or `was`."""
    words = {"waits": "waiting for other tasks", "question": "completed before"}
    return words.get(state, state.replace("_", " "))


def _hint(task_id: str, state: str) -> str:
    named = shlex.quote(task_id)
    match state:
        case "question":
            return f"To run the task again, use `llmc tasks requeue {named}`; to mark it done, use `llmc tasks done {named}`"
        case "quarantined" | "parked" | "completed":
            return f"To run the task again, use `llmc tasks requeue {named}`"
        case "proposed":
            return f"To approve the task: llmc tasks approve {named}"
        case "in_progress":
            return f"To release the task: llmc tasks release {named}"
        case "waits":
            return "To see its dependencies: llmc tasks graph"
    return "The task starts as soon as a worker is free."
