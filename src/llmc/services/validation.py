"""The person's own check, `[repo].validate`, run on what is about to land."""

from pathlib import Path

from llmc.errors import ToolFailed
from llmc.services.project import Project
from llmc.tools import proc


def validate(project: Project, name: str, worktree: Path) -> None:
    """Run it in a worktree; raises with the end of its output when it fails. The whole output is in the log."""
    command = project.config.repo.validate
    if not command:
        return
    log = project.root.log(name)
    env = {**proc.command_env(), **project.config.defaults.env, "LLMC_WORKER": name}
    timeout_s = project.config.repo.validate_timeout_s
    done = proc.run_logged(command, cwd=worktree, env=env, log=log, timeout_s=timeout_s)
    if not done.ok:
        raise ToolFailed(
            done.argv,
            done.returncode,
            done.stdout,
            message=f"{name}: validation failed with code {done.returncode}, nothing landed",
            hint=f"Its whole output is in {log}.",
        )
