"""Directories that an agent or a check may leave: too deep for recursion, with paths too long to open."""

import os
from pathlib import Path


def nested(folder: Path, name: str, depth: int, *, mode: int = 0o755) -> None:
    """Nested directories, with a file and a link to `kept` in the innermost."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=at)
        above, at = at, os.open(name, os.O_RDONLY, dir_fd=at)
        os.fchmod(above, mode)
        os.close(above)
    os.symlink(folder.parent / "kept", "link", dir_fd=at)
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=at))
    os.fchmod(at, mode)
    os.close(at)
