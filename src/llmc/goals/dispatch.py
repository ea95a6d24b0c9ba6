"""Performs the actions of goals: write a task file, prompt a session, ask the user, check the success criteria.

The intent is stored first, so an action can be repeated under its id after a crash or if its outcome is unknown.
"""

import contextlib
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from llmc.agents.kinds import reader_of
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, LockTimeout, NotFound, Refused
from llmc.base.faults import step as fault_step
from llmc.base.names import PromptId, TaskKey, WorkerName, carries, header_line
from llmc.base.proc import ShuttingDown
from llmc.goals.drive import goal_end
from llmc.goals.drive.goal_end import PASSED
from llmc.goals.drive.intents import DIAGNOSE, REPLAN, WITHDRAW, Action
from llmc.goals.drive.ladder import worker_of
from llmc.goals.drive.moves import commands
from llmc.goals.goals import new_id
from llmc.goals.model import DeliveryContext, Goal, Mode, Node, Result, Tested
from llmc.goals.store.goal_store import AnyGoalStore
from llmc.landing import validation
from llmc.notifications.notify import channels_of, settings_of
from llmc.records.books import Books, Claim
from llmc.records.event_log import EventLog, rows_of
from llmc.records.task import Task, TaskStatus
from llmc.records.worker import Outcome, WorkerRecord
from llmc.repo import provision
from llmc.repo.project import Project
from llmc.sessions import persons, typist
from llmc.tasks.rules import claims
from llmc.tasks.rules.draft import Draft
from llmc.tasks.source import TaskSource, source_of
from llmc.tasks.task_list import add, believed_tasks
from llmc.workers.patrol import finish_interrupted
from llmc.workers.reset import reset_unattended
from llmc.workers.start import send_message

#: the next tick tries again, so do not wait long for a busy worker
WORKER_LOCK_S = 2.0
_TYPED_BEFORE = "the prompt was already sent"
_RESULTS = {
    Outcome.ACKNOWLEDGED: Result.OK,
    Outcome.QUEUED: Result.ACCEPTED,
    Outcome.UNCONFIRMED: Result.TIMEOUT,
    Outcome.REFUSED: Result.ERROR,
}


class Done(Struct, frozen=True):
    """The outcome of an action; `result` None: it could not be tried, nothing changed."""

    result: Result | None
    notes: str = ""
    run_id: str = ""


def perform(project: Project, action: Action, goal: Goal, node: Node | None) -> Done:
    """Perform an action that needs no planner; planning.py performs the others."""
    assert action.purpose not in (REPLAN, DIAGNOSE)
    try:
        with fault_step("goals.dispatch"):
            match action.mode:
                case Mode.ESCALATE:
                    return _ask(project, action)
                case Mode.SEND:
                    return _send(project, action)
                case Mode.SPAWN if action.purpose == WITHDRAW:
                    return _withdraw(project, action, source_of(project))
                case Mode.SPAWN:
                    return _spawn(project, action, goal, node)
    except LockTimeout as error:
        return Done(None, error.message)
    except LlmcError as error:
        return Done(Result.ERROR, in_words(error))


def in_words(error: Exception) -> str:
    """An error in one line."""
    if isinstance(error, LlmcError):
        return f"{error.message}. {error.hint}" if error.hint else error.message
    return f"internal error: {type(error).__name__}: {error}"


def _spawn(project: Project, action: Action, goal: Goal, node: Node | None) -> Done:
    """Withdraw the tasks that this dispatch replaces, then write its task file, once."""
    source = source_of(project)
    made = _task_of(source, action.dispatch_id)
    if made is not None:
        return Done(Result.ACCEPTED, "the task already exists", made.id)
    if unsettled := source.listing().unsettled:
        return Done(None, f"waiting for task file {min(unsettled)}, which is still being written")
    withdrawn = _withdraw(project, action, source)
    if withdrawn.result is not Result.OK:
        return withdrawn
    # Once withdrawn, none of them can land.
    replaced = map(partial(_task_of, source), action.replaces)
    landed = next((one for one in replaced if one and source.books().is_completed(one)), None)
    if landed:
        return Done(Result.ERROR, f"task {landed} has already landed")
    subject = f"{action.work_node_id}: {node.name}" if node else action.work_node_id
    draft = Draft(
        subject=subject[:200],
        description=action.text,
        priority=goal.priority.of_task,
        verify=node.verify if node else "",
        by="goal",
        goal={
            "goalId": action.goal_id,
            "workNodeId": action.work_node_id,
            "assignmentId": action.assignment_id,
            "dispatchId": action.dispatch_id,
        },
    )
    with fault_step("goals.spawn"):
        task = add(source, draft)
    return Done(Result.ACCEPTED, f"task {task.id}", task.id)


def _task_of(source: TaskSource, dispatch_id: str) -> TaskKey | None:
    """The task of a dispatch: from the ledger, or after a crash from the task files."""
    books = source.books()
    found = (source.key(t.id) for t in believed_tasks(source) if t.dispatch == dispatch_id)
    return books.dispatches.get(dispatch_id) or next(found, None)


def _withdraw(project: Project, action: Action, source: TaskSource) -> Done:
    """Withdraw earlier tasks of the assignment; unfinished work is saved."""
    too_late: list[str] = []
    for dispatch_id in action.replaces:
        task = _task_of(source, dispatch_id)
        if task is None:
            continue
        if not _taken_back(project, source, task):
            return Done(None, _why_not_yet(project, source, task))
        if landed := source.books().landed.get(task):
            too_late.append(
                f"task {task} has already landed" + (f" as {landed.commit[:12]}" if landed.commit else "")
            )
    return Done(Result.OK, "; ".join(too_late))


def _why_not_yet(project: Project, source: TaskSource, task: TaskKey) -> str:
    claim = source.books().claim_on(task)
    record = project.store.read().workers.get(WorkerName(claim.worker)) if claim else None
    if record is not None and record.landing_waits_for:
        return f"task {task} is waiting for {record.landing_waits_for} and may still land"
    return f"task {task} is being claimed or landed"


def _taken_back(project: Project, source: TaskSource, task: TaskKey) -> bool:
    """Withdraw a task: prevent new claims, then reset its worker. False: not possible yet."""
    if source.books().is_completed(task):
        return True
    if source.books().kept_back(task) != claims.WITHDRAWN:
        source.write("withdrawn", Claim("", task, ""), reason="the goal no longer needs this task")
    with contextlib.suppress(NotFound):
        source.edit(task, claims.withdrawn)
    claim = source.books().claim_on(task)
    if claim is not None and not _let_go(project, claim):
        return False
    with fault_step("goals.withdraw"):
        return source.remove(task, partial(_is_free, books=source.books(), key=task))


def _is_free(task: Task, books: Books, key: TaskKey) -> bool:
    """Whether the task is free, or its claim has ended but a crash kept that out of the file."""
    return (task.status is TaskStatus.PENDING and not task.owner) or books.has_ended(task.claim, key)


def _let_go(project: Project, claim: Claim) -> bool:
    """Reset the worker and save its work; False while the work is landing or the user has the worker."""
    try:
        with project.worker_lock(claim.worker, timeout_s=WORKER_LOCK_S):
            record = project.store.worker(claim.worker)
            if record.assignment is None or record.assignment.claim != claim.id:
                return not source_of(project).books().holds(claim.id)
            if record.accept is not None:
                return False
            reset_unattended(project, claim.worker)
    except Refused:
        return False
    except NotFound:
        source_of(project).write("released", claim, reason="the worker no longer exists")
    return True


def _send(project: Project, action: Action) -> Done:
    """Type a prompt into the worker's session, once per dispatch."""
    worker = worker_of(action.session_key)
    prompt_id = PromptId(f"goal-{action.dispatch_id.lower().replace('_', '-')}")
    with project.worker_lock(worker, timeout_s=WORKER_LOCK_S):
        before = _delivered(project, WorkerName(worker), prompt_id, action.decided_at)
        if before is None or not before.arrived:
            record = finish_interrupted(project, worker)  # possibly this prompt, interrupted by a crash
            before = _delivered(project, WorkerName(worker), prompt_id, action.decided_at)
            if before is not None and not before.arrived and _shows_up(record, prompt_id):
                return Done(Result.OK, _TYPED_BEFORE, prompt_id)
        if before is not None and before.arrived:
            return Done(_RESULTS[before], _TYPED_BEFORE, prompt_id)
        record = project.store.worker(worker)
        if (met := typist.person_in_way(project, record)) is not None:
            if record.auto:
                persons.note(project, record, met)
            return Done(None, str(met))  # not tried, not counted
        receipt = send_message(project, worker, action.text, prompt_id=prompt_id)
        if receipt.met_a_person:
            return Done(None, receipt.reason)
    return Done(_RESULTS[receipt.outcome], receipt.reason, prompt_id)


def _shows_up(record: WorkerRecord, prompt_id: PromptId) -> bool:
    """Whether the transcript has a prompt whose delivery was unconfirmed."""
    transcript = reader_of(record.agent).transcript(record.transcript_path)
    prompts, _ = transcript.prompts(header_line(prompt_id))
    return any(carries(prompt.text, prompt_id) for prompt in prompts)


def _delivered(project: Project, worker: WorkerName, prompt_id: PromptId, since: float) -> Outcome | None:
    """The last recorded outcome of a prompt, or None."""
    rows = _events(project, "prompt_delivered", prompt_id, since)
    told = [row for row in rows if row.get("prompt_id") == prompt_id and row.get("worker") == worker]
    return Outcome(told[-1]["outcome"]) if told else None


def _events(project: Project, action: str, mark: str, since: float) -> list[dict[str, Any]]:
    """The events of a kind that contain `mark`, including those that a crash kept from the log.

    The state is read first: events leave it only after they are in the log.
    """
    kept = project.store.read().recent_events
    lines = EventLog(str(project.root.events)).lines_since(since)
    logged = rows_of(line for line in lines if mark.encode() in line)
    return [row for row in (*logged, *kept) if row.get("action") == action]


def how_told(project: Project, context: DeliveryContext | None) -> str:
    """How a question reaches the user; Refused if its channel is not configured."""
    settings = settings_of(project)
    ways = channels_of(settings) if "goal_asked" in settings.on else {}
    wanted = context.channel if context is not None else ""
    if wanted in ("", "notify"):
        return (
            "sent to all notification channels"
            if ways
            else "no notification channel is configured for questions"
        )
    if wanted == "inbox":
        return "not sent to notification channels (--reply-to inbox)"
    if wanted not in ways:
        raise Refused(
            f"the question was not sent: channel {wanted!r} is not configured in [notify]",
            hint="Run `llmc inbox` to see the question; to configure the channel, run `llmc config edit`.",
        )
    return f"sent to {wanted}"


def _ask(project: Project, action: Action) -> Done:
    """Notify the user of a question, which is already in the inbox."""
    context = action.delivery_context
    told = how_told(project, context)
    ids = {"work_node_id": action.work_node_id, "assignment_id": action.assignment_id}
    text, since = action.text[:500], action.decided_at
    notify_user(project, action.goal_id, action.dispatch_id, text, since, context, **ids)
    return Done(Result.OK, f"in the inbox; {told}")


def notify_user(
    project: Project,
    goal_id: str,
    dispatch_id: str,
    text: str,
    since: float,
    context: DeliveryContext | None = None,
    *,
    work_node_id: str = "",
    assignment_id: str = "",
) -> None:
    """Emit `goal_asked`, which triggers notifications, once per id, even after a crash.

    `since`: the search starts here. Only ticks call this, one at a time, so nothing is written between check and emit.
    """
    if any(
        row.get("dispatch_id") == dispatch_id for row in _events(project, "goal_asked", dispatch_id, since)
    ):
        return
    about = {"goal_id": goal_id, "work_node_id": work_node_id, "assignment_id": assignment_id}
    if context is not None and context.channel:
        about["deliver"] = msgspec.to_builtins(context)
    with project.store.transaction() as tx:
        tx.emit("goal_asked", reason=text, dispatch_id=dispatch_id, **about)


def check_action(goal_id: str) -> Action:
    """The check of the success criteria as an action that can run in the background; one per goal."""
    return Action(f"check-{goal_id}", goal_id, "", "", "check", Mode.SPAWN)


def check_criteria(project: Project, store: AnyGoalStore, goal_id: str) -> Done:
    """Run the commands of the success criteria in a slot, on the default branch, and record the results.

    The store is not locked meanwhile; a killed check runs again.
    """
    view = store.view(goal_id)
    if not goal_end.wants_check(view):
        return Done(Result.OK, "no longer needed")
    wanted = commands(view.goal.success_criteria)
    commit = ""
    try:
        commit = provision.refresh_base(project)
        results = [_result(project, commit, command) for command in wanted]
    except ShuttingDown as error:
        return Done(None, str(error) or "llmc is stopping")
    except LlmcError as error:
        results = [_not_run(command, error) for command in wanted]
    with store.writing() as tx:
        now_view = tx.view(goal_id)
        if now_view is None or not goal_end.wants_check(now_view):
            return Done(Result.OK, "no longer needed")
        if commands(now_view.goal.success_criteria) != wanted:
            # not over: the next tick runs the new ones
            return Done(None, "the verify commands were changed while they ran")
        told = tx.crystallizations(goal_id)
        tx.apply(goal_end.checked(now_view, results, commit, now_unix(), lambda: new_id("C"), told))
    failed = [one.command for one in results if one.result != PASSED]
    return Done(Result.ERROR if failed else Result.OK, f"failed: {', '.join(failed)}" if failed else "")


def _result(project: Project, commit: str, command: str) -> Tested:
    try:
        done = validation.failing(project, "criteria", commit, command)

    except LlmcError as error:
        return _not_run(command, error)
    if done is None:
        return Tested(command=command, result=PASSED)
    last = next((line.strip() for line in reversed(done.stdout.splitlines()) if line.strip()), "")
    said = f"failed with exit code {done.returncode}" + (f" ({last[:200]})" if last else "")
    return Tested(command=command, result=said)


def _not_run(command: str, error: LlmcError) -> Tested:
    return Tested(command=command, result=f"could not be run: {error.message}"[:500])
