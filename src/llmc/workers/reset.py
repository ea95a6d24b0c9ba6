"""Reset: from any status to a clean idle worker on the latest default branch. Nothing is lost."""

from pathlib import Path

from msgspec import Struct

from llmc.agents.kinds import tool_children
from llmc.agents.protocol import ClientStatus
from llmc.base import processes
from llmc.base.errors import LlmcError, Refused
from llmc.base.faults import step as fault_step
from llmc.base.panes import Pane
from llmc.base.proc import ShuttingDown
from llmc.base.tmux import answered
from llmc.landing import accept_journal, review
from llmc.records.transitions import NOT_REVIEWED, step
from llmc.records.worker import Outcome, SelfReview, Status, WorkerRecord
from llmc.repo import git, git_dirs, provision
from llmc.repo.project import Project
from llmc.sessions import intake, leftovers, persons, sessions, typist
from llmc.tasks import queue

#: how long an interrupted agent may take to become idle before it is restarted
INTERRUPT_S = 5.0
#: how long the children of an interrupted tool may take to exit
CHILDREN_S = 1.0


class Reset(Struct, frozen=True):
    """The result of a reset."""

    worker: str
    status: Status
    base: str
    #: the trash ref of its work; None if there was none
    pinned: str | None
    restarted: bool
    problem: str = ""


def reset_worker(project: Project, name: str) -> Reset:
    """Reset a worker; the caller holds its lock. Safe to repeat after a crash."""
    record = intake.apply_pending(project, name)
    pane = free_pane(project, record)
    base = provision.refresh_base(project)
    with fault_step("reset.cancel"):
        # Record the intent first: from now on the old prompt and the old accept must not continue.
        cancel(project, record, "reset")
    with fault_step("reset.quiet"):
        rests = quieten(project, record, pane)
        if not rests:
            sessions.end(project, name, "reset", last=record.delivery)
    with fault_step("reset.tree"):
        pinned, rests = _reset_tree(project, record, base, rests)
    review.forget(project, name)
    with fault_step("reset.finish"):
        rests = _become_fresh(project, name, rests, base, pinned)
    restarts = not rests and (pane is not None or project.daemon_runs())
    problem = _start(project, name) if restarts else None
    status = project.store.worker(name).status
    return Reset(name, status, base, pinned, restarts, problem or "")


class PersonInWay(Refused):
    """The user's draft or an open dialog is on the agent's screen and would be lost."""


def reset_unattended(project: Project, name: str) -> Reset:
    """An automatic reset: refuse while there is a draft or an open dialog."""
    refusal = typist.person_in_way(project, intake.apply_pending(project, name))
    if refusal is not None:
        raise PersonInWay(str(refusal))
    return reset_worker(project, name)


def free_pane(project: Project, record: WorkerRecord) -> Pane | None:
    """The worker's pane; refuses while the user has the worker, or its work is landing."""
    pane = answered(project.pane_now(record), record.name)
    if taken := sessions.is_taken(record, pane):
        raise Refused(taken)
    journal = record.accept
    if journal is not None and project.others_accept(record.name):
        raise Refused(
            f"cannot stop {record.name}: its work is being accepted (step {journal.step})",
            hint=f"Wait until `llmc accept` finishes, or cancel it with `llmc message {record.name}`; "
            "then run the command again.",
        )
    if record.landing_waits_for:
        raise Refused(
            f"cannot stop {record.name}: its work is waiting for {record.landing_waits_for} and may still land",
            hint=f"Wait for the result. To check whether the work has landed: llmc accept {record.name}",
        )
    if journal is not None and accept_journal.may_have_landed(journal):
        raise Refused(
            f"cannot stop {record.name}: `llmc accept` was interrupted at step {journal.step}, so the work may have landed",
            hint=f"Run `llmc accept {record.name}` to finish it, then run the command again.",
        )
    return pane


def cancel(project: Project, record: WorkerRecord, why: str) -> None:
    """Release the worker's task, and drop its delivery and an accept that cannot have landed."""
    queue.release_task_of(project, record, f"{why} of {record.name}")
    if record.accept is None and record.delivery is None:
        return
    with project.store.transaction() as tx:
        if record.accept is not None:
            tx.emit("accept_failed", worker=record.name, reason="reset", step=record.accept.step)
        if record.delivery is not None and record.delivery.outcome.open:
            tx.emit(
                "prompt_delivered",
                worker=record.name,
                reason="reset",
                prompt_id=record.delivery.prompt_id,
                outcome=Outcome.UNCONFIRMED,
                elapsed_ms=record.delivery.elapsed_ms,
            )
        tx.update(record.name, accept=None, delivery=None, self_review=SelfReview.NO)


def quieten(project: Project, record: WorkerRecord, pane: Pane | None) -> bool:
    """Interrupt a busy agent; whether it is idle now, with nothing left of its old task."""
    if pane is None or pane.dead or not record.instance:
        return False
    if not sessions.is_held_as_wanted(project, record) or provision.needs_new_repository(project, record):
        return False  # its repository will be replaced
    if record.contained and git_dirs.own_repo(Path(record.worktree_path)) is None:
        return False  # likewise: the repository that the agent sees is gone
    if record.delivery is not None and record.delivery.outcome.open:
        return False  # some keys may have been typed, and may still be read
    if leftovers.has_queue(record, pane):
        return False  # an interrupt would send the queued prompt
    if sessions.status_of(record, pane) in (ClientStatus.BUSY, ClientStatus.WAITING):
        sessions.interrupt(project, record, pane)
    if not processes.wait_until(lambda: leftovers.is_idle(record, pane), INTERRUPT_S):
        return False
    children = tool_children(record.instance)
    if children and not processes.wait_until(lambda: not tool_children(record.instance), CHILDREN_S):
        # An agent that is notified of the end of its background work resumes the old task.
        processes.kill(tool_children(record.instance))
        return False
    # The client puts a prompt that was queued, or interrupted early, back into its input box.
    return typist.has_empty_box(project, record) and leftovers.is_idle(record, pane)


def _reset_tree(project: Project, record: WorkerRecord, base: str, rests: bool) -> tuple[str | None, bool]:
    """Reset the worktree; returns the trash ref of its work, and whether the agent is still idle there."""
    try:
        pinned = provision.reset_in_place(project, record, base, "reset")
    except (Refused, git.WaitsForPipe):
        raise
    except (LlmcError, OSError, ValueError, RecursionError) as error:
        if git_dirs.own_repo(Path(record.worktree_path)) is None:
            raise
        # The agent could write this repository: whatever is wrong with it, a reset replaces it.
        rests = False
        sessions.end(project, record.name, "reset", last=record.delivery)
        # Commits with more files than llmc reads can get into the clone: git checks objects one by one.
        provision.start_over(project, record, at_base=isinstance(error, git.TooMuch))
        pinned = provision.reset_in_place(project, record, base, "reset")
    if pinned:
        with project.store.transaction() as tx:
            tx.emit("work_pinned", worker=record.name, reason="reset", ref=pinned)
    provision.provision(project, record)  # retry a failed setup, on a clean tree
    return pinned, rests


def _become_fresh(project: Project, name: str, rests: bool, base: str, pinned: str | None) -> bool:
    """Set the worker to idle if its agent is idle, else offline; whether the agent is still idle."""
    rests = intake.apply_pending(project, name).status is not Status.OFFLINE and rests
    with project.store.transaction() as tx:
        # Becoming idle clears more, but it may be idle already, with a task that was never delivered.
        record = tx.update(
            name,
            current_prompt="",
            current_subject="",
            **NOT_REVIEWED,
            accept=None,
            assignment=None,
            delivery=None,
            crash_count=0,
            last_crash_unix=0.0,
        )
        persons.take_off_list(tx, name)
        tx.emit("worker_reset", worker=name, base=base, ref=pinned)
        if record.status not in (Status.IDLE, Status.OFFLINE):
            record = tx.move(name, step(Status.IDLE, "reset"))
        if not rests and record.status is Status.IDLE:
            record = tx.move(name, step(Status.OFFLINE, "reset"))
        tx.update(name, reason="reset", error_reason="", cause="")
    return rests


def _start(project: Project, name: str) -> str | None:
    """Start the agent; returns the problem if it does not become ready."""
    try:
        sessions.start(project, name)
    except LlmcError as error:
        return error.message
    except ShuttingDown:  # the worker is reset; the next daemon starts its agent
        return "the daemon is stopping"
    return sessions.wait_ready(project, name, project.config.defaults.ready_timeout_s)
