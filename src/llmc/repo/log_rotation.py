"""Keeps the files in logs/ small. Who is where: base/rotation.py renames, base/log_reader.py reads across the names."""

import os
from pathlib import Path

from llmc.base.log_reader import archives
from llmc.base.rotation import Limit, rotate
from llmc.config.model import Logs
from llmc.config.paths import Root
from llmc.repo.project import Project

#: what is rotated; the records of remediations (remediation_*.txt) are no logs, and stay as they are
_GROW = (".log", ".jsonl", ".out")
_MB = 1024 * 1024


def rotate_logs(project: Project) -> list[str]:
    """Rotate every log that is big enough; their names."""
    try:
        names = sorted(entry.name for entry in os.scandir(project.root.logs) if entry.is_file())
    except OSError:
        return []
    grow = [name for name in names if name.endswith(_GROW)]
    return [name for name in grow if rotate_log(project, project.root.logs / name)]


def rotate_log(project: Project, path: Path) -> bool:
    """Rotate this one, if it is big enough; whether it was."""
    return rotate(path, limit_of(project.root, project.config.logs, path))


def limit_of(root: Root, logs: Logs, path: Path) -> Limit:
    """Of the event log nothing is removed: sums, the digest and `undo` are made from it (decision 15)."""
    return Limit(int(logs.max_mb * _MB), None if path == root.events else logs.keep)


def follow_own_output(path: Path) -> None:
    """Our own output went to a log that was renamed: from now on it goes to the new one."""
    renamed = archives(str(path))
    if not renamed:
        return
    old = os.stat(renamed[-1][1])
    for number in (1, 2):
        if os.path.samestat(os.fstat(number), old):
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            os.dup2(fd, number)
            os.close(fd)
