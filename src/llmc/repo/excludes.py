"""The clone's own list of ignored files: what llmc puts into worktrees must never be committed, nor look like work."""

import re
from collections.abc import Sequence

from llmc.base.files import write_atomic
from llmc.repo.project import Project


def exclude(project: Project, names: Sequence[str]) -> None:
    """Ignore these files in every worktree of the root (git has one such list for all of them)."""
    if not names:
        return
    path = project.root.path / ".git/info/exclude"
    with project.repo_lock():
        path.parent.mkdir(exist_ok=True)
        have = path.read_bytes() if path.exists() else b""
        lines = [literal_pattern(name).encode("utf-8", "surrogateescape") for name in names]
        missing = [line for line in lines if line not in have.splitlines()]
        if missing:
            start = have if not have or have.endswith(b"\n") else have + b"\n"
            write_atomic(path, start + b"\n".join(missing) + b"\n")


def literal_pattern(name: str) -> str:
    """The .gitignore pattern for exactly one path."""
    escaped = re.sub(r"([\\*?\[\]!# ])", r"\\\1", name)
    return f"/{escaped}"
