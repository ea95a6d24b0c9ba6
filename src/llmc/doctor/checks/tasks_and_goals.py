"""Checks of the task list, abandoned claims, and the goal database."""

import contextlib
import shlex
from collections.abc import Iterator

from llmc.base.errors import LlmcError
from llmc.base.names import WorkerName
from llmc.doctor.check import Check, Finding, Sight, Turn, fixable
from llmc.doctor.rules.facts import Facts
from llmc.goals.goals import open_store
from llmc.goals.store.goal_store import SET_ASIDE
from llmc.records.books import Claim
from llmc.repo.project import Project
from llmc.tasks import queue, task_orders
from llmc.tasks.rules.claims import holds, is_abandoned
from llmc.tasks.source import source_of
from llmc.tasks.task_list import overview
from llmc.tasks.worker_tasks import Origins


def _task_problems(at: Sight) -> list[str]:
    if not at.project.config.auto.task_list_id:
        return []
    try:
        return overview(source_of(at.project), recent=0).problems
    except LlmcError as error:
        return [error.message]


def _task_list(_: Facts, seen: tuple[str, ...]) -> Iterator[Finding]:
    fix = "run `llmc tasks list` for details, then fix the task list; auto mode cannot start until then"
    for text in seen:
        yield Finding(text, fix, subject=text)


def _unattended(facts: Facts, seen: tuple[Claim, ...]) -> Iterator[Finding]:
    if facts.daemon.runs:
        return  # it settles its claims itself
    tasks = [worker.record.assignment for worker in facts.workers]
    assigned = {assignment.claim for assignment in tasks if assignment is not None}
    for claim in seen:
        if claim.id not in assigned:
            text = f"task {claim.task.id} is claimed by {claim.worker}, which is not working on it"
            yield fixable(text, ", which releases the task", subject=claim.id)


def _free_task(project: Project, claim_id: str) -> str:
    """Release the task as auto mode does when it starts; a running daemon does it itself."""
    source = source_of(project)
    claim = next((claim for claim in source.books().claims.values() if claim.id == claim_id), None)
    if claim is None or project.daemon_runs():
        return "already resolved"
    if holds(project.store.read().workers.get(WorkerName(claim.worker)), claim):
        return "already resolved"
    queue.release(project, source, claim, "the worker is not working on the task")
    return "released"


def _unowned(project: Project) -> list[str]:
    """Tasks that auto mode would release at its next check."""
    if not project.config.auto.task_list_id:
        return []
    with contextlib.suppress(LlmcError):
        source = source_of(project)
        at_work, books = Origins(project, source).at_work(), source.books()
        tasks = source.listing().tasks.values()
        return [task.id for task in tasks if is_abandoned(task, source.key(task.id), books, at_work)]
    return []


def _in_progress(_: Facts, seen: tuple[str, ...]) -> Iterator[Finding]:
    for task in seen:
        text = f"task {task} is marked in progress, but no worker has claimed it"
        yield fixable(text, f" or `llmc tasks release {shlex.quote(task)}`", subject=task)


def _free_unowned(project: Project, task_id: str) -> str:
    if task_id not in _unowned(project):
        return "already resolved"
    task_orders.release(project, task_id)
    return "set to pending"


def _goals(at: Sight) -> list[tuple[str, str]]:
    """Problems that block goals, each with its fix."""
    store = open_store(at.project)
    if not store.exists():
        return []
    try:
        with store.reading() as found:
            mode = found.safe_mode()
            found.views()
    except LlmcError as error:
        return [(f"goal database: {error.message}", error.hint)]
    if store.damage:
        return [(store.damage, f"restore a good copy of the file; {SET_ASIDE[0].lower()}{SET_ASIDE[1:]}")]
    told = [
        (
            f"{goal}: {why}",
            f"run `llmc goal export` to see the data in {store.name}, then restore the file from a good copy",
        )
        for goal, why in found.unreadable.items()
    ]
    if mode is not None:
        text = f"goals are stopped in safe mode: llmc found the goal database damaged and moved it to {mode.file}"
        told.append((text, "check that file, then run `llmc goal safe-mode --clear`"))
    return told


# fmt: off
CHECKS = (
    Check("task_list", "tasks", "the task list has errors", look=_task_problems, judge=_task_list,
        needs=("config",)),
    Check("claim", "tasks", "a task is claimed by a worker that is not working on it",
        look=lambda at: source_of(at.project).books().claims.values(), judge=_unattended, fix=_free_task, turn=Turn.TASKS, needs=("state",)),
    Check("unowned_task", "tasks", "a task is marked in progress, but no worker has claimed it",
        look=lambda at: _unowned(at.project), judge=_in_progress, fix=_free_unowned, turn=Turn.TASKS,
        needs=("config",)),
    Check("goals", "tasks", "the goal database is damaged, was moved aside or has unreadable data",
        look=_goals, judge=lambda _, seen: (Finding(text, fix, subject=text) for text, fix in seen)),
)
# fmt: on
