"""Validation: the command of [repo].validate, on what a worker's worktree has now."""

from pathlib import Path

from llmc.errors import ToolFailed
from llmc.services import commands
from llmc.services.project import Project
from llmc.tools import proc


def validate(project: Project, name: str, worktree: Path, *, so: str = "nothing landed") -> None:
    """Run it, with its output in the worker's log; `so` ends the message of a failure."""
    done = run(project, name, worktree)
    if not done.ok:
        raise failure(project, name, done, so=so)


def run(project: Project, name: str, worktree: Path) -> proc.Done:
    """How it ended, with the end of its output; without a command everything is valid."""
    repo = project.config.repo
    return commands.run_command(project, name, repo.validate, cwd=worktree, timeout_s=repo.validate_timeout_s)


def failure(project: Project, name: str, done: proc.Done, *, so: str) -> ToolFailed:
    return commands.failure(project, name, done, what="validation", so=so)
