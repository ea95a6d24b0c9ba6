"""Commands a person configured ([repo].setup, [repo].validate), run for a worker: one place says how they failed."""

from pathlib import Path

from llmc.errors import ToolFailed
from llmc.services.project import Project
from llmc.tools import proc


def run_command(project: Project, worker: str, command: str, *, cwd: Path, timeout_s: float) -> proc.Done:
    """How it ended, with the end of its output; all of it is in the worker's log. Without a command all is well."""
    if not command:
        return proc.Done([], 0, "", "")
    env = {**proc.command_env(), **project.config.defaults.env, "LLMC_WORKER": worker}
    log = project.root.log(worker)
    return proc.run_logged(command, cwd=cwd, env=env, log=log, timeout_s=timeout_s, stopping=project.stopping)


def failure(project: Project, worker: str, done: proc.Done, *, what: str, so: str = "") -> ToolFailed:
    """What to say of one that failed; `what` names it, `so` says what follows from it."""
    return ToolFailed(
        done.argv,
        done.returncode,
        done.stdout,
        message=f"{worker}: {what} failed with code {done.returncode}" + (f", {so}" if so else ""),
        hint=f"Its whole output is in {project.root.log(worker)}.",
    )
