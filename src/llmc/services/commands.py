"""Commands a person configured ([repo].setup, [repo].validate), run for a worker: one place says how they failed."""

from pathlib import Path

from llmc.errors import ToolFailed
from llmc.services.project import Project
from llmc.tools import proc


def run_configured(
    project: Project, worker: str, command: str, *, cwd: Path, timeout_s: float, what: str, so: str = ""
) -> None:
    """Run it with its output in the worker's log; `what` names it in the message of a failure, `so` ends that."""
    if not command:
        return
    env = {**proc.command_env(), **project.config.defaults.env, "LLMC_WORKER": worker}
    log = project.root.log(worker)
    done = proc.run_logged(command, cwd=cwd, env=env, log=log, timeout_s=timeout_s)
    if not done.ok:
        raise ToolFailed(
            done.argv,
            done.returncode,
            done.stdout,
            message=f"{worker}: {what} failed with code {done.returncode}" + (f", {so}" if so else ""),
            hint=f"Its whole output is in {log}.",
        )
