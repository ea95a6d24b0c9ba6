"""Validation: the command of [repo].validate, on what a worker's worktree has now."""

from pathlib import Path

from llmc.services.commands import run_configured
from llmc.services.project import Project


def validate(project: Project, name: str, worktree: Path, *, so: str = "nothing landed") -> None:
    """Run it, with its output in the worker's log; `so` ends the message of a failure."""
    repo = project.config.repo
    run_configured(
        project,
        name,
        repo.validate,
        cwd=worktree,
        timeout_s=repo.validate_timeout_s,
        what="validation",
        so=so,
    )
