"""Auto mode for one worker: takes the next step that its record calls for."""

import shlex
from collections.abc import Iterable

from msgspec.structs import replace

from llmc.attention import raising
from llmc.auto import handover, parks
from llmc.auto.auto_run import BEGINS, BUSY_S, HardFailure, Run, assignment_of, task_of
from llmc.auto.landing import (
    a_command_comes_first,
    complete_unchanged,
    give_up,
    is_hindered,
    land,
    start_over,
    submit_once,
    tell_again,
)
from llmc.auto.rules import steps, waiting
from llmc.auto.rules.costs import Level, Verdict
from llmc.auto.rules.steps import Do, GiveUp, Situation
from llmc.base.clock import now_unix
from llmc.base.errors import ConfigError, LlmcError, LockTimeout, NotFound, Refused, Unreachable, UsageError
from llmc.base.faults import step as fault_step
from llmc.base.names import TaskKey, WorkerName
from llmc.landing import accept_journal, post_accept, prompts, validation, ways
from llmc.landing.post_accept import PostAcceptFailed
from llmc.records.books import Claim
from llmc.records.worker import Assignment, Cause, Status, WorkerRecord
from llmc.repo import fence, provision
from llmc.repo.project import Project
from llmc.repo.user_commands import CommandFailed
from llmc.sessions import sessions
from llmc.sessions.rules import prompt_text
from llmc.tasks import queue
from llmc.tasks.rules import claims
from llmc.tasks.source import TaskSource
from llmc.workers.rules import Clock
from llmc.workers.start import start_task

#: why a claim that a crash left behind is released
UNKNOWN_CLAIM = "after a restart, the worker was no longer working on the task"


#: attention items of claims that cannot be settled now
UNSETTLED = "unsettled:"


def settle(run: Run, project: Project) -> None:
    """Make claims, files and records agree: complete tasks that landed, release tasks that no record has."""
    raising.sync(project, (UNSETTLED,), {})
    for claim in list(run.queue.source.books().claims.values()):
        _try_to_settle(run, project, claim)
    run.queue.source.settle()


def _try_to_settle(run: Run, project: Project, claim: Claim) -> bool:
    """Settle a claim. False: the remote does not say whether its work landed, so its worker waits, and the user is told."""
    key, wanted = f"{UNSETTLED}{claim.worker}:", {}
    run.unsettled.pop(claim.worker, None)
    try:
        settle_claim(project, run.queue.source, claim)
    except (Unreachable, fence.RemoteRefused) as error:
        run.unsettled[claim.worker] = claim
        text = f"cannot tell whether task {claim.task} landed, so {claim.worker} is waiting: {error.message}"
        about = {"kind": "unsettled", "severity": "blocked", "who": claim.worker, "text": text}
        wanted = {key: {**about, "next": f"git ls-remote {shlex.quote(project.upstream)}"}}
    raising.sync(project, (key,), wanted)
    return not wanted


def _waits_to_settle(run: Run, project: Project, name: str) -> bool:
    """Whether the worker's claim cannot be settled yet. Also tries claims of workers that are not in this run."""
    for claim in list(run.unsettled.values()):
        if claim.worker in run.workers and claim.worker != name:
            continue
        with run.taking:
            if claim.worker in run.unsettled and not _try_to_settle(run, project, claim):
                run.look_again(name, accept_journal.POLL_S)
    return name in run.unsettled


def settle_claim(project: Project, source: TaskSource, claim: Claim) -> None:
    """Complete a claim whose commit landed, or release one that no record has; nothing if it is no longer held.

    A task whose commit landed must not start again, even if the state with that accept is lost.
    """
    books, record = source.books(), project.store.read().workers.get(WorkerName(claim.worker))
    if not books.holds(claim.id):
        return
    is_held = claims.holds(record, claim)
    if record is not None and record.accept is not None and is_held:
        return  # its journal finishes it
    commit = books.landing.get(claim.id)
    if commit and ways.way_of(project).verify(project, commit):
        handover.complete_landed(project, source, claim, commit)
    elif not is_held:
        queue.release(project, source, claim, UNKNOWN_CLAIM)


#: how soon to check a worker again that waits for other work to land before it starts
LANDING_S = 0.2


def attend(run: Run, project: Project, name: str, clock: Clock, problem: LlmcError | None = None) -> None:
    """Take steps until the worker is busy or there is nothing to do. The caller holds its lock.

    `problem`: why the caller could not finish what was interrupted.
    """
    run.went_well(project.store.worker(name), "look")
    try:
        if _is_interrupted(run, project, name, problem) or _waits_to_settle(run, project, name):
            return
        before: steps.Step = Do.WAIT
        while not (project.stopping and project.stopping()):
            run_due(run.current() if run.current is not None else project)
            record = project.store.worker(name)
            spent = run.spending.look(project, record)
            _heed_limits(run, project, record, spent)
            todo = steps.next_step(record, _situation(run, project, record, clock, spent))
            if is_hindered(run, project, record, todo) or todo is Do.WAIT:
                return
            if todo == before:  # the step changed nothing, and would change nothing the next time
                words = f"auto mode cannot continue with {name}: step {todo} had no effect"
                run.try_later(record, "step", BEGINS, Cause.BUG, LlmcError(words))
                return
            before = todo
            if not _do(run, project, record, todo):
                return
    except PostAcceptFailed as error:
        raise _command_failed(error) from error


def run_due(project: Project) -> None:
    """Run the post-accept commands that are due; a hard failure if one fails."""
    try:
        post_accept.run_due(project)
    except PostAcceptFailed as error:
        raise _command_failed(error) from error


def _command_failed(error: PostAcceptFailed) -> HardFailure:
    due = error.due
    return HardFailure(Cause.COMMAND, error.message, worker=due.worker, task=due.task, output=error.output)


def could_not_look(run: Run, project: Project, name: str, error: LlmcError) -> None:
    """Handle a lane that failed before `attend`: retry a few times, then fail for good."""
    cause = Cause.CONFIG if isinstance(error, ConfigError) else Cause.GIT
    run.try_later(project.store.worker(name), "look", BEGINS, cause, error)


def _is_interrupted(run: Run, project: Project, name: str, problem: LlmcError | None) -> bool:
    """Whether an accept in progress could not be finished; it is retried a limited number of times."""
    if isinstance(problem, PostAcceptFailed):
        raise problem
    record = project.store.worker(name)
    if record.landing_waits_for:
        run.look_again(name, accept_journal.POLL_S)
        return True
    if problem is None or record.accept is None:
        run.went_well(record, "finish")
        return False
    if isinstance(problem, Unreachable):
        run.look_again(name, accept_journal.POLL_S)
        return True
    if isinstance(problem, Refused | LockTimeout):
        run.look_again(name, BUSY_S)  # another process has it for a moment
        return True
    run.try_later(record, "finish", BEGINS, Cause.GIT, problem)
    return True


def _situation(run: Run, project: Project, record: WorkerRecord, clock: Clock, spent: Verdict) -> Situation:
    state, now = project.store.read().auto, now_unix()
    task = record.assignment
    busy_s = clock.age_s(max(task.since_unix, waiting.last_resumed(state, record.name))) if task else 0.0
    return Situation(
        taking=not run.draining and not waiting.is_parked(state),
        landing=waiting.source_is_due(state, now),
        ending=bool(run.draining),
        **_base(run, project, record),
        resuming=waiting.may_resume(state, record.name, record.stopped_after, now),
        claimed=task is not None and run.queue.source.renew(task.claim),
        completed=task is not None and run.queue.source.books().is_completed(task.task),
        busy_s=max(0.0, busy_s - task.waited_s) if task else 0.0,
        task_timeout_s=project.config.auto.task_timeout_secs,
        spent=spent,
        needed=steps.waits_for_answer(record) and _is_needed(run, project),
    )


def _base(run: Run, project: Project, record: WorkerRecord) -> dict[str, bool]:
    """The `Situation` of a default branch that fails its own validation. New work may be what fixes it."""
    state = project.store.read()
    if state.failing_base is None:
        return {}
    untried = record.commit_sha is not None and record.commit_sha not in run.not_judged
    waits = any(r.status is Status.NEEDS_REVIEW and r.assignment for r in state.workers.values())
    return {"base_fails": True, "base_due": untried or _base_is_due(project), "work_waits": waits}


def _base_is_due(project: Project) -> bool:
    try:
        return validation.base_is_due(project, provision.refresh_base(project))
    except LlmcError:  # the source does not answer now
        return False


def _look_at_base(run: Run, project: Project, record: WorkerRecord) -> bool:
    """Check the default branch, with the worker's lock released; skip it if another worker is checking."""
    if not run.looking.acquire(blocking=False):
        return False
    try:
        with project.worker_unlocked(record.name):
            validation.look_at_base(project, record.name, provision.refresh_base(project))
        run.look_again(record.name, 0.0)
    except LlmcError as error:  # the source does not answer, or no slot got free
        run.say(f"cannot check the default branch: {error.message}")
    finally:
        run.looking.release()
    return False


def _is_needed(run: Run, project: Project) -> bool:
    """Whether a worker that waits for an answer must give up: for a task with no free worker, or to end the run."""
    workers = project.store.read().workers
    free = sum(steps.is_free(workers.get(WorkerName(name))) for name in run.workers)
    return bool(run.draining) or run.queue.count_ready() > free


def _heed_limits(run: Run, project: Project, record: WorkerRecord, spent: Verdict) -> None:
    """End the run at the limit of its own budget; park the fleet until midnight at the limit of the day's."""
    _tell_budgets(run, project, spent)
    _drain_over_budget(run, project, run.spending.is_spent(project), "notice")  # as requested
    _drain_over_budget(run, project, run.spending.is_blind(project), "waiting")
    over = spent.level is Level.HARD
    if over and spent.concerns("run"):
        _drain_over_budget(run, project, spent.words, "waiting")
    if over and spent.concerns("day"):
        parks.park_until_midnight(run, project, record, spent.words)
    elif parks.end_budget_park(run, project):
        run.on_change()


def _tell_budgets(run: Run, project: Project, spent: Verdict) -> None:
    """List the day and run budgets that are nearly used up; a used-up day budget parks the fleet."""
    near = spent.lines if spent.level is Level.SOFT else ()
    if run.draining:
        return  # this run takes no more tasks anyway
    shown_by = {"day": "day", "run": "task"}
    wanted = {
        f"budget:{scope}": _budget_item("notice", f"budget nearly used up: {line.words}", shown_by[scope])
        for line in near
        if (scope := line.limit.scope) in shown_by
    }
    raising.sync(project, ("budget:",), wanted)


def _budget_item(severity: str, text: str, by: str) -> dict[str, str]:
    command = f"llmc usage --by {by}"
    return {"kind": "budget", "severity": severity, "who": "budget", "text": text, "next": command}


def _drain_over_budget(run: Run, project: Project, words: str, severity: str) -> None:
    if words and not run.draining:
        with project.store.transaction() as tx:
            said = f"auto mode is not starting new tasks because of the budget for this run: {words}"
            tx.raise_item("budget:run", **_budget_item(severity, said, "task"))
            tx.emit("budget_reached", reason=words)
        run.drain(words, asked=severity == "notice")


def _do(run: Run, project: Project, record: WorkerRecord, todo: steps.Step) -> bool:
    """Take one step; whether to look for the next one immediately."""
    match todo:
        case Do.ASSIGN:
            return _assign(run, project, record)
        case Do.DELIVER:
            return _deliver(run, project, record)
        case Do.ACCEPT:
            return land(run, project, record)
        case Do.COMPLETE_UNCHANGED:
            return complete_unchanged(run, project, record)
        case Do.ASK_TO_COMMIT:
            after = replace(assignment_of(record), asked_to_commit=True)
            text = prompts.ask_to_commit_prompt(record)
            return not submit_once(project, record, "commit", text, Status.WORKING, after).outcome.arrived
        case steps.AskToFinish(words):
            after = replace(assignment_of(record), told_of_budget=True)
            submit_once(project, record, "budget", prompts.near_budget_prompt(words), None, after)
            return False
        case GiveUp():
            return give_up(run, project, record, todo)
        case Do.TELL:
            return tell_again(run, project, record)
        case Do.CHECK_BASE:
            return _look_at_base(run, project, record)
        case steps.Park(cause, reason):
            parks.park(run, project, record, cause, reason)
            return False
        case Do.RESUME:
            parks.resume(run, project, record)
            return False
        case steps.Stop(cause, reason):
            raise HardFailure(cause, reason, worker=record.name, task=task_of(record))
        case Do.CLEAN | Do.RESTART:
            return start_over(run, project, record)
        case Do.WAIT:
            return False


def _assign(run: Run, project: Project, record: WorkerRecord) -> bool:
    with run.taking:
        state = project.store.read()
        if state.failing_base is not None:  # found by another worker since
            return False
        if project.config.auto.post_accept_command and a_command_comes_first(state):
            return run.wait(record, LANDING_S)
        # A lost claim: its agent restarted and became idle before it got the prompt.
        lost = run.queue.source.books().claims.get(record.name)
        if lost is not None and not _try_to_settle(run, project, lost):
            return run.wait(record, accept_journal.POLL_S)
        others = state.workers.values()
        labels = {r.assignment.label for r in others if r.assignment and r.name != record.name}
        try:
            backoff_s = project.config.auto.crash_backoff_secs
            only = _to_retry(run) if run.is_full else None
            found = run.queue.take_next(record.name, labels - {""}, backoff_s, only)
        except LockTimeout:
            return run.wait(record)
        except LlmcError as error:
            raise run.hard(Cause.TASK, record, error) from error
        if found is None and run.queue.waits_s:
            return run.wait(record, run.queue.waits_s)
        if found is None:
            return _end_if_full(run, others)
        task, claim = found
        if not handover.take_over(run, project, record, claim):
            return False
        run.begin(claim.task)
        assignment = Assignment(
            task_id=task.id,
            task_list=claim.task.list,
            claim=claim.id,
            since_unix=now_unix(),
            last_prompt=record.delivery.prompt_id if record.delivery else "",
            subject=task.subject,
            label=task.label,
            verify=task.verify,
            model=task.model,
            budget=task.budget,
            dispatch=task.dispatch,
        )
        with fault_step("claim.record"), project.store.transaction() as tx:
            held = tx.worker(record.name).held
            if not held:
                tx.update(record.name, assignment=assignment)
                tx.update_auto(last_task_assignment_unix=tx.now)
                tx.emit(
                    "task_assigned",
                    worker=record.name,
                    **claim.task.fields(),
                    subject=task.subject,
                    label=task.label,
                    claim=claim.id,
                )
        if held:  # by the user, while its task was being chosen
            run.take_back(claim.task)
            queue.release(project, run.queue.source, claim, f"{record.name} is on hold")
            return False
    run.say(f"{record.name}: task {task.id}: {task.subject[:60]}")
    return True


def _to_retry(run: Run) -> list[TaskKey]:
    """Tasks of this run that no worker has and that are not done."""
    books = run.queue.source.books()
    return [
        task
        for task in run.begun
        if not (books.is_completed(task) or books.kept_back(task) or books.claim_on(task))
    ]


def _end_if_full(run: Run, others: Iterable[WorkerRecord]) -> bool:
    """End a run that has begun all tasks that it may, unless one of them may have to be retried. Always False."""
    at_work = any(
        one.assignment is not None and one.assignment.task in run.begun and not steps.waits_for_answer(one)
        for one in others
    )
    if run.is_full and not at_work:
        run.drain(f"--max-tasks {run.max_tasks} reached", asked=True)
    return False  # a worker that ends its task asks again


def _deliver(run: Run, project: Project, record: WorkerRecord) -> bool:
    task = assignment_of(record)
    try:
        found = run.queue.source.one(task.task)
    except LlmcError as error:  # broken since it was claimed: the list reports it, and other tasks continue
        why = "the task file is missing" if isinstance(error, NotFound) else error.message
        return give_up(run, project, record, GiveUp(Cause.TASK, why, counts=False))
    try:
        text = queue.text_of(project, found) + handover.unfinished_work(project, task.task)
    except LlmcError as error:
        raise run.hard(Cause.CONFIG, record, error) from error
    try:
        prompt_text.normalise(text)
    except UsageError as error:  # caused by the task, so the next worker would fail too
        untypable = f"cannot send the task text: {error.message}"
        return give_up(run, project, record, GiveUp(Cause.TASK, untypable, counts=False, hold="quarantined"))
    if not sessions.has_its_model(project, record):
        problem = sessions.relaunch_with_its_model(project, record.name)
        if problem is not None:
            return give_up(run, project, record, GiveUp(Cause.CRASH, problem))
    try:
        receipt = start_task(project, record.name, text, subject=task.subject)
    except CommandFailed as error:
        raise run.hard(Cause.COMMAND, record, error) from error
    except Unreachable as error:
        run.say(f"{record.name} is waiting to start its task: {error.message}")
        return run.wait(record, accept_journal.POLL_S)
    except LlmcError as error:
        return run.try_later(record, "begin", BEGINS, Cause.GIT, error)
    run.went_well(record, "begin")
    return not receipt.outcome.arrived
