"""Does what goals want done: a task file, a word to a session, a question for a person; each at most once for its id.

What is asked for was stored before. Done again under the same id, after a crash or in doubt, it has the effect of once.
"""

import contextlib
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from llmc.agents.registry import reader_of
from llmc.base.errors import LlmcError, LockTimeout, NotFound, Refused
from llmc.base.faults import step as fault_step
from llmc.base.names import PromptId, TaskKey, WorkerName, carries, header_line
from llmc.goals.drive.intents import DIAGNOSE, REPLAN, WITHDRAW, Action
from llmc.goals.drive.policy import worker_of
from llmc.goals.model import DeliveryContext, Goal, Mode, Node, Priority, Result
from llmc.notifications.notify import channels_of, settings_of
from llmc.records.books import Books, Claim
from llmc.records.event_log import EventLog, rows_of
from llmc.records.task import Task, TaskStatus
from llmc.records.worker import Outcome, WorkerRecord
from llmc.repo.project import Project
from llmc.sessions import persons, typist
from llmc.tasks.rules import claims
from llmc.tasks.rules.draft import Draft
from llmc.tasks.source import TaskSource, source_of
from llmc.tasks.task_list import add, believed_tasks
from llmc.workers.patrol import finish_interrupted
from llmc.workers.reset import reset_unattended
from llmc.workers.start import send_message

#: how long a busy worker is waited for; whoever has it is soon done, and the next tick comes
WORKER_LOCK_S = 2.0
_TYPED_BEFORE = "it was typed before"
_PRIORITIES = {Priority.URGENT: 0, Priority.HIGH: 1, Priority.NORMAL: 2, Priority.LOW: 4}
_RESULTS = {
    Outcome.ACKNOWLEDGED: Result.OK,
    Outcome.QUEUED: Result.ACCEPTED,
    Outcome.UNCONFIRMED: Result.TIMEOUT,
    Outcome.REFUSED: Result.ERROR,
}


class Done(Struct, frozen=True):
    """What became of an action; `result` None: it could not even be tried, and is as it was."""

    result: Result | None
    notes: str = ""
    run_id: str = ""


def perform(project: Project, action: Action, goal: Goal, node: Node | None) -> Done:
    """Everything but what takes a planner and its time (goals/runner.py)."""
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
        return Done(Result.ERROR, f"{error.message} {error.hint}".strip())


def _spawn(project: Project, action: Action, goal: Goal, node: Node | None) -> Done:
    """One task file for the dispatch, whoever made it; those it replaces go first."""
    source = source_of(project)
    made = _task_of(source, action.dispatch_id)
    if made is not None:
        return Done(Result.ACCEPTED, "it was there", made.id)
    if unsettled := source.listing().unsettled:
        return Done(None, f"{min(unsettled)} is being written, and may be it")
    withdrawn = _withdraw(project, action, source)
    if withdrawn.result is not Result.OK:
        return withdrawn
    # Only now nobody has one of them any more, and none can land after this look.
    replaced = map(partial(_task_of, source), action.replaces)
    landed = next((one for one in replaced if one and source.books().is_completed(one)), None)
    if landed:
        return Done(Result.ERROR, f"task {landed} has landed meanwhile")
    subject = f"{action.work_node_id}: {node.name}" if node else action.work_node_id
    draft = Draft(
        subject=subject[:200],
        description=action.text,
        priority=_PRIORITIES[goal.priority],
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
    """The task that a dispatch made: the ledger remembers it, a crash may have come between its file and that."""
    books = source.books()
    found = (source.key(t.id) for t in believed_tasks(source) if t.dispatch == dispatch_id)
    return books.dispatches.get(dispatch_id) or next(found, None)


def _withdraw(project: Project, action: Action, source: TaskSource) -> Done:
    """What was handed out before is taken back: nobody begins it any more, and what was begun is kept."""
    too_late: list[str] = []
    for dispatch_id in action.replaces:
        task = _task_of(source, dispatch_id)
        if task is None:
            continue
        if not _taken_back(project, source, task):
            return Done(None, f"task {task} is just being taken or landed")
        if landed := source.books().landed.get(task):
            too_late.append(
                f"task {task} had landed before" + (f", as {landed.commit[:12]}" if landed.commit else "")
            )
    return Done(Result.OK, "; ".join(too_late))


def _taken_back(project: Project, source: TaskSource, task: TaskKey) -> bool:
    """Whether nobody has the task, and nobody can take it: first nobody new may, then who has it lets go."""
    if source.books().is_completed(task):
        return True
    if source.books().kept_back(task) != claims.WITHDRAWN:
        source.write("withdrawn", Claim("", task, ""), reason="its goal does not want it any more")
    with contextlib.suppress(NotFound):
        source.edit(task, claims.withdrawn)
    claim = source.books().claim_on(task)
    if claim is not None and not _let_go(project, claim):
        return False
    with fault_step("goals.withdraw"):
        return source.remove(task, partial(_is_nobodys, books=source.books(), key=task))


def _is_nobodys(task: Task, books: Books, key: TaskKey) -> bool:
    """Free, or its claim has ended, and only the file does not say so: a crash came between."""
    return (task.status is TaskStatus.PENDING and not task.owner) or books.has_ended(task.claim, key)


def _let_go(project: Project, claim: Claim) -> bool:
    """Its worker starts over, with its work pinned; not while that lands, or a person has it."""
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
        source_of(project).write("released", claim, reason="its worker is gone")
    return True


def _send(project: Project, action: Action) -> Done:
    """A word to the session that has the work, typed once for the dispatch."""
    worker = worker_of(action.session_key)
    prompt_id = PromptId(f"goal-{action.dispatch_id.lower().replace('_', '-')}")
    with project.worker_lock(worker, timeout_s=WORKER_LOCK_S):
        before = _delivered(project, WorkerName(worker), prompt_id, action.decided_at)
        if before is None or not before.arrived:
            record = finish_interrupted(project, worker)  # it may be the very prompt that a crash interrupted
            before = _delivered(project, WorkerName(worker), prompt_id, action.decided_at)
            if before is not None and not before.arrived and _shows_up(record, prompt_id):
                return Done(Result.OK, _TYPED_BEFORE, prompt_id)
        if before is not None and before.arrived:
            return Done(_RESULTS[before], _TYPED_BEFORE, prompt_id)
        record = project.store.worker(worker)
        if (met := typist.person_in_way(project, record)) is not None:
            if record.auto:
                persons.note(project, record, met)
            return Done(None, str(met))  # not even tried: nothing is counted, and it is as it was
        receipt = send_message(project, worker, action.text, prompt_id=prompt_id)
        if receipt.met_a_person:
            return Done(None, receipt.reason)
    return Done(_RESULTS[receipt.outcome], receipt.reason, prompt_id)


def _shows_up(record: WorkerRecord, prompt_id: PromptId) -> bool:
    """Whether the conversation has a prompt of which nobody saw in time that it arrived."""
    transcript = reader_of(record.agent).transcript(record.transcript_path)
    prompts, _ = transcript.prompts(header_line(prompt_id))
    return any(carries(prompt.text, prompt_id) for prompt in prompts)


def _delivered(project: Project, worker: WorkerName, prompt_id: PromptId, since: float) -> Outcome | None:
    """What became of a prompt of that id; the log knows also what other prompts followed."""
    rows = _events(project, "prompt_delivered", prompt_id, since)
    told = [row for row in rows if row.get("prompt_id") == prompt_id and row.get("worker") == worker]
    return Outcome(told[-1]["outcome"]) if told else None


def _events(project: Project, action: str, mark: str, since: float) -> list[dict[str, Any]]:
    """The events of that kind that name it, also one that a crash kept from the log.

    The state comes first: whatever leaves it is in the log before.
    """
    kept = project.store.read().recent_events
    lines = EventLog(str(project.root.events)).lines_since(since)
    logged = rows_of(line for line in lines if mark.encode() in line)
    return [row for row in (*logged, *kept) if row.get("action") == action]


def how_told(project: Project, context: DeliveryContext | None) -> str:
    """How a question reaches a person who does not look for it; Refused where it should, and cannot."""
    settings = settings_of(project)
    ways = channels_of(settings) if "goal_asked" in settings.on else {}
    wanted = context.channel if context is not None else ""
    if wanted in ("", "notify"):
        return "told by the configured notifications" if ways else "no notification is configured"
    if wanted == "inbox":
        return "told nowhere else, as its goal wants"
    if wanted not in ways:
        raise Refused(
            f"nobody can be reached over {wanted!r}, which is not configured in [notify].",
            hint="`llmc inbox` has the question.",
        )
    return f"told by {wanted}"


def _ask(project: Project, action: Action) -> Done:
    """The question is in the inbox since it was decided; here a person is told of it."""
    context = action.delivery_context
    told = how_told(project, context)
    ids = {"work_node_id": action.work_node_id, "assignment_id": action.assignment_id}
    text, since = action.text[:500], action.decided_at
    tell_person(project, action.dispatch_id, text, since, context, goal_id=action.goal_id, **ids)
    return Done(Result.OK, f"in the inbox; {told}")


def tell_person(
    project: Project,
    dispatch_id: str,
    text: str,
    since: float,
    context: DeliveryContext | None = None,
    **ids: str,
) -> None:
    """The event `goal_asked`, of which notifications are made: once for its id, whatever a crash left unsaid. `since`: it cannot have been
    said before.

    Only a tick comes here, and there is one at a time: nobody writes it between the look and the deed.
    """
    if any(
        row.get("dispatch_id") == dispatch_id for row in _events(project, "goal_asked", dispatch_id, since)
    ):
        return
    with project.store.transaction() as tx:
        where = msgspec.to_builtins(context) if context is not None and context.channel else None
        tx.emit(
            "goal_asked", reason=text, dispatch_id=dispatch_id, **ids, **({"deliver": where} if where else {})
        )
