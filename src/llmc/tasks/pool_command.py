"""Tasks from the user's task pool command, which runs when a worker is idle. Its answer is saved as a file first."""

import os
import time
from collections.abc import Collection
from pathlib import Path

from msgspec.structs import replace

from llmc.base.errors import NotFound, UsageError
from llmc.base.faults import step as fault_step
from llmc.base.files import private_dir, read_text
from llmc.records.task import Task
from llmc.records.worker import Cause
from llmc.repo import user_commands
from llmc.repo.project import Project
from llmc.tasks import task_list
from llmc.tasks.rules.draft import Draft, Failed, NoTask, read_answer
from llmc.tasks.rules.graph import completed_ids
from llmc.tasks.source import TaskSource

LOG = "task_pool"


class PoolFailed(Exception):
    """The task pool command failed."""

    cause = Cause.COMMAND

    def __init__(self, reason: str, output: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.output = output


def take_in(project: Project, source: TaskSource) -> Task | None:
    """Ask for a task and add it to the list; None if there is none, or it is already open.

    The answer is saved as a file first, so that `take_up` can finish after a crash.
    """
    path = _ask(project)
    if path is None:
        return None
    return _make(project, source, path, _open_keys(source))


def _open_keys(source: TaskSource) -> set[str]:
    """A command may give the key of a completed task again."""
    books = source.books()
    tasks = task_list.believed_tasks(source)
    done = completed_ids(tasks, books.completed_in(source.list_name), books.claimed_in(source.list_name))
    return {task.pool_key for task in tasks if task.id not in done}


def take_up(project: Project, source: TaskSource, *, crashed: bool) -> None:
    """Add tasks from saved answers. If another process `crashed`, it may have added one, which may be completed by now."""
    there = {task.pool_key for task in task_list.believed_tasks(source)} if crashed else _open_keys(source)
    for path in sorted(project.root.task_pool.glob("answer-*.txt")):
        _make(project, source, path, there)


def _make(project: Project, source: TaskSource, path: Path, there: Collection[str]) -> Task | None:
    answer = read_answer(0, read_text(path), key=path.stem)
    task = None
    try:
        with fault_step("task_pool.add"):
            if isinstance(answer, Draft) and answer.key not in there:
                task = _add(source, answer)
    except (UsageError, NotFound):
        path.unlink()  # e.g. it names an unknown task: a later attempt would not help
        raise
    if task is not None:
        with project.store.transaction() as tx:
            tx.emit("task_received", **source.key(task.id).fields(), subject=task.subject)
    path.unlink()
    return task


def _add(source: TaskSource, answer: Draft) -> Task:
    """Add the task even if another one that it should come before began in the meantime."""
    try:
        return task_list.add(source, answer)
    except task_list.TooLate as error:
        source.note(error.message)
        before = tuple(name for name in answer.before if name not in error.tasks)
        return task_list.add(source, replace(answer, before=before))


def _ask(project: Project) -> Path | None:
    """The path of the saved answer; None when there is no task."""
    part = private_dir(project.root.task_pool) / "answer.part"
    command = project.config.auto.task_pool_command
    with fault_step("task_pool.ask"):
        done = user_commands.run_in_log(
            project,
            LOG,
            command,
            cwd=user_commands.callers_place(project),
            timeout_s=project.config.auto.task_pool_timeout_secs,
            answer=part,
            LLMC_SOURCE=project.source,
        )
    text = read_text(part)
    match read_answer(done.returncode, text, key="any"):
        case NoTask():
            part.unlink()
            return None
        case Failed(reason):
            part.unlink()
            reason += user_commands.where_it_ran(project, done.returncode)
            raise PoolFailed(reason, "\n".join(filter(None, (done.stdout.strip(), text.strip()))))
    whole = part.with_name(f"answer-{time.time_ns()}.txt")
    os.rename(part, whole)
    return whole
