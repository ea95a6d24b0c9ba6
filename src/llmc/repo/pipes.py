"""Pipes in place of files that git reads in a worktree, such as `.gitignore`: git would wait for a writer."""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from llmc.base import inside
from llmc.base.clock import monotonic
from llmc.repo.git import WaitsForPipe

#: the files that git and git-lfs open in a worktree, tracked or not
_READ_BY_GIT = {".gitignore", ".gitattributes", ".gitmodules", ".mailmap", ".lfsconfig"}
#: most pipes to remove: a running agent may keep making them
MOST_REMOVED = 20

T = TypeVar("T")


def past(worktree: Path, act: Callable[[], T]) -> T:
    """Call `act`, and again after removing each pipe that git waits for: a pipe has no content to lose."""
    for _ in range(MOST_REMOVED):
        try:
            return act()
        except WaitsForPipe as error:
            with contextlib.suppress(OSError):  # it is gone
                inside.remove(worktree, error.name)
    return act()


def watch(worktree: Path, also: Callable[[], None] | None) -> Callable[[], None]:
    """The function to call while git runs, which raises on a pipe. The longer git runs, the less often it searches."""
    began = monotonic()
    due = began

    def look() -> None:
        nonlocal due
        if also is not None:
            also()
        if monotonic() < due:
            return
        for name in _found(worktree):
            raise WaitsForPipe(worktree, name)
        now = monotonic()
        due = now + (now - began)

    return look


def _found(worktree: Path) -> Iterator[str]:
    """The pipes in a worktree; none in the clone itself, which has no checkout but contains all worktrees."""
    folders = [""] if os.path.isfile(worktree / ".git") else []
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(worktree / folder) as entries:
                for entry in entries:
                    name = os.path.join(folder, entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(name)
                    elif entry.name in _READ_BY_GIT and stat.S_ISFIFO(
                        entry.stat(follow_symlinks=False).st_mode
                    ):
                        yield name
        except OSError:
            continue  # it is gone, or git cannot read it either
