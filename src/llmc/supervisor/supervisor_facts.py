"""What the supervisor finds out when the daemon has failed, and all that a remediation has to know."""

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from llmc.base.errors import LlmcError
from llmc.base.files import read_text
from llmc.config.paths import Root
from llmc.records.state import State
from llmc.records.worker import WorkerRecord
from llmc.repo import git
from llmc.repo.project import Project
from llmc.supervisor.model import Failure, Identity
from llmc.supervisor.rules import decide
from llmc.supervisor.rules.prompt import LINES, Situation, WorkerLine

#: below this much free space nothing can be written any more
DISK_FULL_BYTES = 4 * 1024 * 1024
#: so much of a log's end is read for its last lines
TAIL_BYTES = 256 * 1024
MANUAL = "manual_intervention_needed_"


def at_work(state: State) -> list[WorkerRecord]:
    """Auto workers that are at a task, but for those that wait for a person."""
    return [
        r for r in state.workers.values() if r.auto and r.assignment is not None and not r.waits_for_a_person
    ]


def stalled_workers(project: Project) -> list[str]:
    """Those that are at a task."""
    try:
        return [record.name for record in at_work(project.store.read())]
    except LlmcError:
        return []


def disk_is_full(root: Root) -> bool:
    try:
        return shutil.disk_usage(root.path).free < DISK_FULL_BYTES
    except OSError:
        return False


def manual_notes(root: Root) -> list[decide.Note]:
    """The files in which somebody asks for a person."""
    found = sorted(root.private.glob(f"{MANUAL}*.txt"))
    return [decide.Note(str(path), read_text(path)) for path in found]


def situation(project: Project, failure: Failure, daemon: Identity | None) -> Situation:
    """Everything for the remediation prompt; whatever cannot be found out is said in words."""
    root = project.root
    workers, problem = _workers(project)
    logs = (root.logs / "daemon.jsonl", root.log("task_pool"), root.log("post_accept"))
    stamp = time.strftime("%Y%m%dT%H%M%S")
    return Situation(
        instructions=project.config.overseer.remediation_prompt,
        failure=failure,
        root=str(root.path),
        source=project.source,
        daemon=daemon,
        logs={str(path): last_lines(path) for path in logs},
        workers=workers,
        state_problem=problem,
        git_status=_in_words(lambda: _git_status(project)),
        manual_file=str(root.private / f"{MANUAL}{stamp}.txt"),
    )


def last_lines(path: Path, count: int = LINES) -> tuple[str, ...]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ()
    return tuple(text.splitlines()[-count:])


def _workers(project: Project) -> tuple[tuple[WorkerLine, ...] | None, str]:
    try:
        state = project.store.read()
    except LlmcError as error:
        return None, f"{error.message} {error.hint}".strip()
    return tuple(
        WorkerLine(
            name=r.name,
            status=r.status,
            reason=r.reason,
            task_id=r.assignment.task_id if r.assignment else "",
            error=r.error_reason,
            worktree=r.worktree_path,
        )
        for _, r in sorted(state.workers.items())
    ), ""


def _git_status(project: Project) -> str:
    if not os.path.isdir(project.source):
        return f"{project.source} is no directory here"
    done = git.git(Path(project.source), "status", "--short", "--branch", check=False)
    return done.stdout if done.ok else done.stderr


def _in_words(probe: Callable[[], str]) -> str:
    try:
        return probe()
    except LlmcError as error:
        return error.message
