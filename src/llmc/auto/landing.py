"""Work of an auto worker lands without review, behind the gates; what does not pass goes back to its worker."""

import time

from msgspec.structs import replace

from llmc.auto.auto_run import BUSY_S, Run, assignment_of
from llmc.auto.giving_back import give_up
from llmc.auto.hard_failure import HardFailure
from llmc.auto.persons import not_told
from llmc.auto.rules import waiting
from llmc.auto.rules.steps import GiveUp
from llmc.base.errors import LlmcError, LockTimeout, Refused
from llmc.base.text import gist
from llmc.landing import accept, fast_forward, prompts, rebase
from llmc.landing.post_accept import PostAcceptFailed
from llmc.records.causes import Cause
from llmc.records.state import State
from llmc.records.transitions import step
from llmc.records.worker import Status, WorkerRecord
from llmc.repo.commands import CommandFailed
from llmc.repo.git_locks import locks_of_source
from llmc.repo.project import Project
from llmc.sessions import submit
from llmc.tasks import claiming

#: how often work goes back to its worker because a check fails
SEND_BACKS = 2
#: how long work may be refused before its worker is told what is wrong with it
REFUSED_S = 4.0


def land(run: Run, project: Project, record: WorkerRecord) -> bool:
    """Whether it landed; else it waits for the source, or its worker has to do something about it."""
    try:
        done = accept.accept(project, record.name)
    except rebase.Conflict:
        return False  # it is told, and resolves them
    except accept.Cancelled:
        return False  # a person talks with it
    except accept.WorkChanged:
        run.look_again(record.name, BUSY_S)  # it starts over with what is there then
        return False
    except fast_forward.SourceBusy as error:
        _refuse_stale_lock(run, project, record)
        return _wait_for_source(run, project, error)
    except CommandFailed as error:
        return _send_back(run, project, record, error)
    except LockTimeout:
        run.look_again(record.name, BUSY_S)
        return False
    except Refused as error:
        return _refused(run, project, record, error)
    except PostAcceptFailed:
        raise
    except LlmcError as error:
        raise run.hard(Cause.GIT, record, error) from error
    task = assignment_of(record)
    run.went_well(record, "session")
    what = f"{done.commit[:12]} {done.subject[:60]}" if done.commit else "nothing had to land"
    run.say(f"{record.name}: task {task.task_id} completed: {what}")
    run.on_change()
    return True


def _refused(run: Run, project: Project, record: WorkerRecord, error: Refused) -> bool:
    """Its work cannot land as it is: that passes in a moment, or the worker itself has to put it right."""
    task = assignment_of(record)
    key = (task.claim, task.sent_back)
    if time.monotonic() - run.refused_at.setdefault(key, time.monotonic()) < REFUSED_S:
        run.look_again(record.name, BUSY_S)
        return False
    text = prompts.not_landed_prompt(project, record, error.message, task.sent_back + 1, SEND_BACKS)
    return _return_to_worker(run, project, record, text, error.message, code=None)


def _refuse_stale_lock(run: Run, project: Project, record: WorkerRecord) -> None:
    """A person's changes may go away by themselves; what a killed git left does not."""
    for text in filter(None, (lock.trouble for lock in locks_of_source(project))):
        raise run.hard(Cause.GIT, record, LlmcError(text))


def _wait_for_source(run: Run, project: Project, error: LlmcError) -> bool:
    with project.store.transaction() as tx:
        wait = waiting.dirty(tx.state.auto, project.config.auto.dirty_backoff_secs)
        if not wait.over:
            tx.update_auto(
                source_repo_dirty_retry_after_unix=tx.now + wait.wait_s,
                source_repo_dirty_backoff_secs=wait.wait_s,
                source_repo_dirty_retry_count=wait.attempt,
            )
            tx.emit("source_dirty", reason=error.message[:300], retry_in_s=wait.wait_s, attempt=wait.attempt)
    if wait.over:
        raise HardFailure(Cause.GIT, f"the source stayed in use: {error.message}")
    tries = f"attempt {wait.attempt}/{waiting.DIRTY_RETRIES}"
    run.say(
        f"Source repository has uncommitted changes. Will retry in {wait.wait_s:g} seconds ({tries})."
        if "uncommitted changes" in error.message
        else f"{error.message}. Will retry in {wait.wait_s:g} seconds ({tries})."
    )
    return False


def _send_back(run: Run, project: Project, record: WorkerRecord, error: CommandFailed) -> bool:
    """A check fails: its worker gets the output."""
    output = error.output[-rebase.OUTPUT_CHARS :]
    round_ = assignment_of(record).sent_back + 1
    text = prompts.sent_back_prompt(project, record, error.command, output, round_, SEND_BACKS)
    return _return_to_worker(run, project, record, text, error.message, code=error.returncode)


def _return_to_worker(
    run: Run, project: Project, record: WorkerRecord, text: str, why: str, code: int | None
) -> bool:
    task = assignment_of(record)
    if task.sent_back >= SEND_BACKS:
        return give_up(run, project, record, GiveUp(Cause.TASK, gist(why)))
    after = replace(task, sent_back=task.sent_back + 1)
    with project.store.transaction() as tx:
        tx.emit(
            "task_sent_back",
            worker=record.name,
            reason=gist(why, 300),
            **task.task.fields(),
            round=after.sent_back,
            code=code,
        )
    receipt = submit.submit(project, record.name, "verify", text, then=Status.REJECTED, assignment=after)
    return False if receipt.outcome.arrived else not_told(run, project, record, receipt)


def complete_unchanged(run: Run, project: Project, record: WorkerRecord) -> bool:
    task = assignment_of(record)
    claiming.complete(run.queue.files, run.queue.ledger, claiming.claim_of(record.name, task), "")
    with project.store.transaction() as tx:
        accept.completed(tx, record.name, None)
        tx.move(record.name, step(Status.IDLE, "nothing had to change"))
    run.went_well(record, "session")
    run.say(f"{record.name}: task {task.task_id} completed: nothing had to change")
    run.on_change()
    return True


def a_command_comes_first(state: State) -> bool:
    """A task is landing, or has landed and its post-accept command has not ended: between the two nothing begins.

    Both are asked of one state: a task that goes from the first to the second meanwhile would be in neither.
    """
    return bool(state.auto.due) or any(map(_is_landing, state.workers.values()))


def _is_landing(record: WorkerRecord) -> bool:
    """Its work is on the branch or about to be, and its post-accept command is not due yet."""
    return record.assignment is not None and accept.is_past_landing(record.accept)
