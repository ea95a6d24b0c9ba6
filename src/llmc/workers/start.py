"""Send a worker a new task, or a message about its current one."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import sleep

from llmc.attention.raising import advice
from llmc.base.clock import monotonic
from llmc.base.errors import LockTimeout, NotFound, Refused
from llmc.base.faults import step as fault_step
from llmc.base.names import PromptId, WorkerName
from llmc.landing import accept_journal, review
from llmc.landing.prompts import reject_prompt, task_prompt
from llmc.records.state import State
from llmc.records.transitions import NOT_REVIEWED
from llmc.records.worker import AcceptJournal, SelfReview, Status, WorkerRecord
from llmc.repo import git, provision
from llmc.repo.project import Project
from llmc.sessions import intake, submit
from llmc.sessions.rules.prompt_text import normalise
from llmc.sessions.typist import Refusal, what_is_in_way
from llmc.workers.patrol import finish_interrupted

#: how long `start` waits for the lock of an idle worker
IDLE_WAIT_S = 60.0
#: statuses without a conversation that a message could continue
NO_MESSAGES = (Status.OFFLINE, Status.NO_CHANGES)


def start_task(
    project: Project, name: str, prompt: str, self_review: bool | None = None, subject: str = ""
) -> submit.Receipt:
    """Start a task in a new conversation, on the latest default branch; the caller holds the worker's lock.

    `subject`: its title, if the prompt does not begin with it.
    `self_review`: whether the agent reviews its own work; None follows the configuration.
    """
    before = intake.apply_pending(project, name)
    record = finish_interrupted(project, name)
    was_open = before.delivery is not None and before.delivery.outcome.open
    if was_open and record.delivery and record.delivery.outcome.arrived:
        raise Refused(
            f"cannot start a task on {name}: it is working on a prompt that has just arrived ({record.delivery.prompt_id})",
            hint=f"To wait for the result: llmc wait {name} --status needs_review",
        )
    if not record.status.is_free:
        raise Refused(
            f"cannot start a task on {name}: its status is {record.status}, not idle or no_changes",
            hint=advice(project, record.name),
        )
    refusal = what_is_in_way(project, record)
    if refusal is not None:  # known before the worktree is reset for the task
        return submit.refused(project, name, submit.TASK, refusal)
    full_prompt = task_prompt(project, record, prompt)
    with fault_step("start.persist"):
        provision.provision(project, record)
        base = provision.refresh_base(project)
        pinned = provision.reset_in_place(project, record, base, "start")
    if pinned:
        with project.store.transaction() as tx:
            tx.emit("work_pinned", worker=name, reason="start", ref=pinned)
    wanted = project.config.defaults.self_review.enabled if self_review is None else self_review
    prompt_id = submit.new_prompt_id(submit.TASK)
    return submit.submit(
        project,
        name,
        submit.TASK,
        full_prompt,
        clear=True,
        then=Status.WORKING,
        prompt_id=prompt_id,
        task_prompt=prompt_id,
        current_prompt=prompt,
        current_subject=subject,
        **NOT_REVIEWED,
        self_review=SelfReview.WANTED if wanted else SelfReview.NO,
    )


def refuse_auto(record: WorkerRecord) -> None:
    """Refuse auto workers, which take their tasks from the list."""
    if record.auto:
        raise Refused(
            f"cannot start a task on {record.name}: auto workers take their tasks from the task list",
            hint="Add the task with `llmc tasks add SUBJECT --description TEXT`, or choose another worker with --worker NAME.",
        )


def message(project: Project, name: str, text: str) -> tuple[submit.Receipt, bool]:
    """Send the user's message to a worker; returns whether it cancelled an accept. Takes the worker's lock.

    Refuses instead of waiting for an accept that may have landed: after it, the worker has no context for the message.
    """
    before = project.store.worker(name).accept
    if before is not None and (
        accept_journal.may_have_landed(before) or _has_the_lock(project, name, before)
    ):
        raise _being_accepted(name, before.step)
    with project.worker_lock(name):
        now = intake.apply_pending(project, name).accept
        if accept_journal.may_have_landed(now) or (before is not None and now is None):
            raise _being_accepted(name, now.step if now else "finish")
        cancelled = accept_journal.cancel(project, name, "cancelled by a message to the worker")
        return send_message(project, name, text), cancelled


def _has_the_lock(project: Project, name: str, journal: AcceptJournal) -> bool:
    """Whether an accept is validating in the worktree, which holds the worker's lock."""
    return journal.step == "validate" and not journal.apart and project.others_accept(name)


def _being_accepted(name: str, step: str) -> Refused:
    return Refused(
        f"cannot send a message to {name}: its work is being accepted (step {step})",
        hint=f"Wait until `llmc accept {name}` finishes. If it was interrupted, run it again to resume.",
    )


def send_message(project: Project, name: str, text: str, prompt_id: PromptId | None = None) -> submit.Receipt:
    """Send a message in the running conversation; the caller holds the worker's lock."""
    record = finish_interrupted(project, name)
    if record.accept is not None or record.status in NO_MESSAGES:
        raise Refused(
            f"cannot send a message to {name}: its status is {record.status}",
            hint=advice(project, record.name),
        )
    git.require_worktree(Path(record.worktree_path))  # without one, its agent could do nothing
    begins = (Status.IDLE, Status.NEEDS_INPUT, Status.NEEDS_REVIEW, Status.ERROR)
    then = Status.WORKING if record.status in begins else None
    return submit.submit(project, name, "message", text, then=then, prompt_id=prompt_id)


def reject(project: Project, name: str, feedback: str, prompt_id: PromptId | None = None) -> submit.Receipt:
    """Request changes, in the same conversation; the caller holds the worker's lock."""
    # Check before resuming anything interrupted: a rejection must not land the work.
    review.refuse_unless_waiting(project, intake.apply_pending(project, name), "reject")
    record = finish_interrupted(project, name)
    review.refuse_unless_waiting(project, record, "reject")
    prompt = reject_text(project, review.look(project, record), feedback)
    return submit.submit(project, name, "reject", prompt, then=Status.REJECTED, prompt_id=prompt_id)


def reject_text(project: Project, shown: review.Review, feedback: str) -> str:
    """The prompt that requests changes, as the agent gets it."""
    return normalise(reject_prompt(project, shown, feedback))


def reviewed_last(state: State) -> WorkerRecord | None:
    """The worker reviewed last; None if there is none, or it is gone."""
    return state.workers.get(state.last_reviewed_worker) if state.last_reviewed_worker else None


@contextmanager
def idle_worker(project: Project) -> Iterator[WorkerName]:
    """Choose and lock an idle worker in one step, so that concurrent callers get different ones.

    Waits for one that is locked for a moment; skips those that cannot be typed into.
    """
    deadline = monotonic() + IDLE_WAIT_S
    with ExitStack() as held:
        while (name := _take_idle(project, held)) is None:
            if monotonic() > deadline:
                raise LockTimeout(
                    "no worker is available: other commands are using every idle worker",
                    hint="Run the command again when they have finished.",
                )
            sleep(0.05)
        yield name


def _take_idle(project: Project, held: ExitStack) -> WorkerName | None:
    """The first free worker, with its lock in `held`; None if all candidates are locked."""
    in_way: Refusal | None = None
    locked = False
    for name in idle_workers(project, project.store.read()):
        with ExitStack() as attempt:
            try:
                attempt.enter_context(project.worker_lock(name, timeout_s=0.0))
            except LockTimeout:
                locked = True
                continue
            record = intake.apply_pending(project, name)
            if not _is_free(project, record):
                continue
            refusal = what_is_in_way(project, record)
            if refusal is None:
                held.push(attempt.pop_all())
                return name
            in_way = in_way or refusal
    if in_way is not None and not locked:
        raise Refused(str(in_way))
    return None


def idle_workers(project: Project, state: State) -> list[WorkerName]:
    """The idle workers, without those that are excluded or on hold."""
    free = [record.name for record in state.workers.values() if _is_free(project, record)]
    if free:
        return free
    add = "To add a worker, run `llmc add NAME`, then `llmc up --detach`."
    if all(record.auto for record in state.workers.values()):
        raise NotFound(
            "no worker is available: every worker is an auto worker"
            if state.workers
            else "this root has no workers yet",
            hint=add,
        )
    held = [record.name for record in state.workers.values() if record.held and record.status.is_free]
    if held:
        name = held[0]
        raise NotFound(
            f"no worker is available: {', '.join(held)} {'is' if len(held) == 1 else 'are'} on hold",
            hint=f"To use it again, run `llmc release {name}`. {add}",
        )
    raise NotFound("no worker is idle", hint=f"Run `llmc status` to see all workers. {add}")


def _is_free(project: Project, record: WorkerRecord) -> bool:
    configured = project.config.workers.get(record.name)
    excluded = record.auto or (configured is not None and configured.excluded_from_pool)
    return record.status.is_free and not excluded and not record.held and record.accept is None
