"""The post-accept command, after each landed task. Until it finishes, nothing else lands and no task starts."""

import threading
import time

from llmc.base import clock
from llmc.base.errors import LlmcError
from llmc.base.faults import step as fault_step
from llmc.records.state import Due, due_fields
from llmc.repo import user_commands
from llmc.repo.project import Project

TIMEOUT_S = 24 * 3600.0

#: by root; only its daemon runs it, so a lock within the process is enough
_turns: dict[str, threading.Lock] = {}


class PostAcceptFailed(LlmcError):
    """The command failed; the landed commit stays."""

    def __init__(self, due: Due, code: int, output: str, where: str) -> None:
        super().__init__(
            f"the post-accept command failed with code {code}{where}",
            hint="Run `llmc logs post_accept` to see the full output. "
            "Fix the cause, then run `llmc up --auto --detach` again.",
        )
        self.due = due
        self.output = output


def run_due(project: Project) -> None:
    """Run it for each landed task whose command has not finished, one at a time, including those left by a crash."""
    if not project.store.read().auto.post_accept_due:
        return
    turn = _turns.setdefault(str(project.root.path), threading.Lock())
    with clock.waiting(TIMEOUT_S):
        turn.acquire()
    try:
        for due in project.store.read().auto.due:
            _run(project, due)
    finally:
        turn.release()


def _run(project: Project, due: Due) -> None:
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
    with project.store.transaction() as tx:
        left = list(tx.state.auto.due)
        left.remove(due)
        tx.update_auto(**due_fields(left))
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
        raise PostAcceptFailed(
            due, done.returncode, done.stdout, user_commands.where_it_ran(project, done.returncode)
        )
