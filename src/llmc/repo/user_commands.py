"""The user's commands from config.toml, and their logs."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from llmc.base import proc
from llmc.base.errors import ToolFailed
from llmc.base.log_reader import archives
from llmc.base.rotation import Limit, rotate
from llmc.config.model import Logs
from llmc.config.paths import Root
from llmc.repo.project import Project

#: logs that are rotated; remediation records (remediation_*.txt) are not
_GROW = (".log", ".jsonl", ".out")
_MB = 1024 * 1024


def rotate_logs(project: Project) -> list[str]:
    """Rotate every log that is big enough; returns their names."""
    try:
        names = sorted(entry.name for entry in os.scandir(project.root.logs) if entry.is_file())
    except OSError:
        return []
    grow = [name for name in names if name.endswith(_GROW)]
    return [name for name in grow if rotate_log(project, project.root.logs / name)]


def rotate_log(project: Project, path: Path) -> bool:
    """Rotate this log if it is big enough; returns whether it was."""
    return rotate(path, limit_of(project.root, project.config.logs, path))


def limit_of(root: Root, logs: Logs, path: Path) -> Limit:
    """The limit of a log. The event log is never deleted: usage, the digest and `undo` need it (decision 15)."""
    return Limit(int(logs.max_mb * _MB), None if path == root.events else logs.keep)


def follow_own_output(path: Path) -> None:
    """Reopen our own output after its log was rotated."""
    renamed = archives(str(path))
    if not renamed:
        return
    old = os.stat(renamed[-1][1])
    for number in (1, 2):
        if os.path.samestat(os.fstat(number), old):
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.dup2(fd, number)
            os.close(fd)


class CommandFailed(ToolFailed):
    """A command failed; `command` is its line, `output` the end of its output."""

    def __init__(self, done: proc.Done, message: str, hint: str) -> None:
        super().__init__(done.argv, done.returncode, done.stdout, message=message, hint=hint)
        self.command = " ".join(done.argv)
        self.output = done.stdout


def run_command(project: Project, worker: str, command: str, *, cwd: Path, timeout_s: float) -> proc.Done:
    """Run a check or setup in a worktree, with output to the worker's log; the result has the end of the output."""
    if not command:
        return proc.Done([], 0, "", "")
    log = project.root.log(worker)
    rotate_log(project, log)
    return _run_check(project, worker, command, cwd, log, timeout_s=timeout_s, mark={})


def run_in_log(
    project: Project,
    log: str,
    command: str,
    *,
    cwd: Path,
    timeout_s: float,
    answer: Path | None = None,
    about: str = "",
    **env: str,
) -> proc.Done:
    """Run a command of the user with its own log, named `log`; `answer` and `about` as in `run_logged`."""
    if not command:
        return proc.Done([], 0, "", "")
    rotate_log(project, project.root.log(log))
    return proc.run_logged(
        command,
        cwd=cwd,
        env={**proc.command_env(), **project.config.defaults.env, **env},
        log=project.root.log(log),
        timeout_s=timeout_s,
        stopping=project.stopping,
        answer=answer,
        about=about,
    )


def callers_place(project: Project) -> Path:
    """The directory where the daemon was started; the source, or the root, if that is gone."""
    source = Path(project.source)
    place = proc.caller_dir()
    if place.is_dir():
        return place
    return source if source.is_dir() else project.root.path


def where_it_ran(project: Project, code: int) -> str:
    """A note for a command that was not found: relative paths refer to the directory where `up --auto` was run."""
    return f" in {callers_place(project)}, where auto mode was started" if code in (126, 127) else ""


def run_in_slot(
    project: Project, worker: str, command: str, *, slot: Path, output: Path, shown_as: Path, timeout_s: float
) -> proc.Done:
    """Like `run_command`, but in a slot, with output also to a file. The log shows the slot's path as `shown_as`."""
    log = project.root.log(worker)
    rotate_log(project, log)
    output.unlink(missing_ok=True)
    mark = {"LLMC_SLOT": str(slot)}
    try:
        done = _run_check(project, worker, command, slot, output, timeout_s=timeout_s, mark=mark)
    finally:
        if output.exists():
            proc.copy_log(output, log, os.fsencode(slot), os.fsencode(shown_as))
    return replace(done, stdout=done.stdout.replace(str(slot), str(shown_as)))


def _run_check(
    project: Project,
    worker: str,
    command: str,
    place: Path,
    log: Path,
    *,
    timeout_s: float,
    mark: Mapping[str, str],
) -> proc.Done:
    """Run a command, contained if so configured."""
    env = {**proc.command_env(), **project.config.defaults.env, "LLMC_WORKER": worker, **mark}
    through: list[str] = []
    if project.config.checks != "off":
        from llmc.repo import containment  # most checks are not contained

        through, env = containment.hold(project, place, command, env)
    try:
        return proc.run_logged(
            command,
            cwd=place,
            env=env,
            log=log,
            timeout_s=timeout_s,
            stopping=project.stopping,
            through=through,
            untrusted=True,
        )
    finally:
        if through:
            containment.tell_refused(project, worker, place)


def failure(project: Project, worker: str, done: proc.Done, *, what: str, so: str = "") -> CommandFailed:
    """The error for a failed command; `what` names it, `so` says what follows."""
    name = worker.removeprefix("_")  # the log of something else than a worker, such as an undo
    return CommandFailed(
        done,
        message=f"{name}: {what} failed with exit code {done.returncode}" + (f"; {so}" if so else ""),
        hint=f"To see the full output: less {shlex.quote(str(project.root.log(worker)))}",
    )
