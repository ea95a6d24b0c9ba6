"""Run the post-accept command after each landed task. Until it finishes, nothing else lands and no task starts.

In a fleet, no other node lands either (fleet/landings.py); if the node dies, another one runs the command.
"""

import threading
import time
from collections.abc import Collection

from llmc.base import clock
from llmc.base.errors import LlmcError
from llmc.base.faults import step as fault_step
from llmc.base.names import TaskKey
from llmc.landing.accept_journal import is_past_landing
from llmc.records.landing_ledger import LandingLedger
from llmc.records.state import Due, State, due_fields
from llmc.records.store import Transaction
from llmc.repo import user_commands
from llmc.repo.project import Project

TIMEOUT_S = 24 * 3600.0

#: by root; only the root's daemon runs the command, so a lock within the process is enough
_turns: dict[str, threading.Lock] = {}


class PostAcceptFailed(LlmcError):
    """The command failed; the landed commit stays."""

    def __init__(self, due: Due, code: int, output: str, where: str, again: str) -> None:
        super().__init__(
            f"the post-accept command failed with exit code {code}{where}",
            hint=f"Run `llmc logs post_accept` to see the full output. Fix the cause, then run `{again}`.",
        )
        self.due = due
        self.output = output


def run_due(project: Project) -> None:
    """Run the command for each landed task that still needs it, one at a time, including those left by a crash."""
    if not project.store.read().auto.post_accept_due:
        return
    turn = _turns.setdefault(str(project.root.path), threading.Lock())
    with clock.waiting(TIMEOUT_S):
        turn.acquire()
    try:
        for due in project.store.read().auto.due:
            if not (project.stopping and project.stopping()):
                _run(project, due)
    finally:
        turn.release()


def take_over(project: Project, ledger: LandingLedger, tasks: Collection[TaskKey]) -> list[Due]:
    """Take over the commands of a lost node, and those that a crash left without an entry here; returns them."""
    taken = []
    for task in _unattended(project.store.read(), tasks):
        worker = ledger.take_post_accept(task)
        if worker is not None:
            taken.append(Due(task, worker))
    if taken:
        with project.store.transaction() as tx:
            known = {due.task for due in tx.state.auto.due}
            new = (due for due in taken if due.task not in known)
            tx.update_auto(**due_fields((*tx.state.auto.due, *new)))
    return taken


def drop(project: Project, ledger: LandingLedger, tasks: Collection[TaskKey]) -> None:
    """End the commands that a crash left without an entry here: this node no longer has a post-accept command."""
    for task in _unattended(project.store.read(), tasks):
        ledger.end_post_accept(task)


def _unattended(state: State, tasks: Collection[TaskKey]) -> set[TaskKey]:
    """The `tasks` from the database that are not due here, and that no accept on this node will make due.

    Read `state` after the database: an accept enters its task there first, and here in its last step.
    """
    due = {one.task for one in state.auto.due}
    records = (record for record in state.workers.values() if is_past_landing(record.accept))
    return set(tasks) - due - {record.assignment.task for record in records if record.assignment}


def _run(project: Project, due: Due) -> None:
    if not _is_ours(project, due):
        with project.store.transaction() as tx:
            _forget(tx, due)
        return
    task = due.task
    began = time.monotonic()
    command = project.config.auto.post_accept_command
    with fault_step("auto.post_accept"):
        done = user_commands.run_in_log(
            project,
            "post_accept",
            command,
            cwd=user_commands.callers_place(project),
            timeout_s=TIMEOUT_S,
            about=f"{due.worker} task {task.id}".strip(),
            LLMC_SOURCE=project.source,
            LLMC_TASK_ID=task.id,
            LLMC_TASK_LIST=task.list,
        )
    if project.shared is not None:
        project.shared.ledger.end_post_accept(task)
    with project.store.transaction() as tx:
        _forget(tx, due)
        if command:
            elapsed_s = round(time.monotonic() - began, 3)
            tx.emit(
                "post_accept",
                worker=due.worker or None,
                **task.fields(),
                code=done.returncode,
                elapsed_s=elapsed_s,
            )
    if not done.ok:
        where = user_commands.where_it_ran(project, done.returncode)
        raise PostAcceptFailed(due, done.returncode, done.stdout, where, project.up_auto(sent=True))


def _is_ours(project: Project, due: Due) -> bool:
    """Whether no other node of the fleet runs the command or has run it."""
    if project.shared is None or not project.config.auto.post_accept_command:
        return True
    return project.shared.ledger.take_post_accept(due.task) is not None


def _forget(tx: Transaction, due: Due) -> None:
    left = list(tx.state.auto.due)
    left.remove(due)
    tx.update_auto(**due_fields(left))
