"""Validation: the command of [repo].validate, on what a worker's worktree has now."""

from pathlib import Path

from llmc.errors import ToolFailed
from llmc.services.project import Project
from llmc.tools import proc


def validate(project: Project, name: str, worktree: Path, *, so: str = "nothing landed") -> None:
    """Run it, with its output in the worker's log; `so` ends the message of a failure."""
    command = project.config.repo.validate
    if not command:
        return
    env = {**proc.command_env(), **project.config.defaults.env, "LLMC_WORKER": name}
    log = project.root.log(name)
    limit_s = project.config.repo.validate_timeout_s
    done = proc.run_logged(command, cwd=worktree, env=env, log=log, timeout_s=limit_s)
    if not done.ok:
        raise ToolFailed(
            done.argv,
            done.returncode,
            done.stdout,
            message=f"{name}: validation failed with code {done.returncode}, {so}",
            hint=f"Its whole output is in {log}.",
        )
