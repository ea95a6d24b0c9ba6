"""Validation: the command of [repo].validate, on what a worker's worktree has now."""

from pathlib import Path

from llmc.services import commands
from llmc.services.commands import CommandFailed
from llmc.services.project import Project
from llmc.tools import proc
from llmc.workers.model import Assignment


def validate(project: Project, name: str, worktree: Path, *, so: str = "nothing landed") -> None:
    """Run it, with its output in the worker's log; `so` ends the message of a failure."""
    done = run(project, name, worktree)
    if not done.ok:
        raise failure(project, name, done, so=so)


def run(project: Project, name: str, worktree: Path) -> proc.Done:
    """How it ended, with the end of its output; without a command everything is valid."""
    repo = project.config.repo
    return commands.run_command(project, name, repo.validate, cwd=worktree, timeout_s=repo.validate_timeout_s)


def verify(project: Project, name: str, worktree: Path, task: Assignment) -> None:
    """The task's own acceptance command."""
    limit_s = project.config.repo.validate_timeout_s
    done = commands.run_command(project, name, task.verify, cwd=worktree, timeout_s=limit_s)
    if not done.ok:
        what = f"verify of task {task.task_id}"
        raise commands.failure(project, name, done, what=what, so="nothing landed")


def failure(project: Project, name: str, done: proc.Done, *, so: str) -> CommandFailed:
    return commands.failure(project, name, done, what="validation", so=so)


class NoSlot(Exception):
    """No slot can be used."""


def in_slot(project: Project) -> bool:
    return False


def check_commit(
    project: Project, name: str, commit: str, base: str, *, worktree: Path, task: Assignment | None = None
) -> None:
    raise NoSlot
