"""Lock files that a killed git left behind: git itself never removes them, and every later command would fail."""

import os
from collections.abc import Callable
from pathlib import Path

from llmc.base import inside, processes
from llmc.base.clock import age_s, now_unix
from llmc.base.text import pattern
from llmc.config import root_layout

#: how long another git command may hold a lock before we check which process it is
LOCK_S = 2.0
#: how long a git command that only reads may delay that check
READER_S = 1.0
#: by how much the clock of the file system may differ
CLOCK_S = 1.0

_LOCK = pattern(r"Unable to create '(.+?\.lock)': File exists")
_CONFIG = pattern(r"could not lock config file (.+?): File exists")


class InUse(Exception):
    """A process may still need the lock."""

    def __init__(self, pids: list[int]) -> None:
        super().__init__(", ".join(f"{pid} ({processes.command_of(pid)[:60]})" for pid in pids) or "unknown")


def free(root: str, said: str, repo: Path) -> tuple[bool, str]:
    """Remove the lock because of which git failed with these words, if it is in a git directory of the root.

    Returns whether git can try again, and the lock, unless its owner removed it.
    """
    found = _LOCK.search(said) or _CONFIG.search(said)
    lock = repo / (found[1].removesuffix(".lock") + ".lock") if found else repo
    top = _git_dir_of(root, str(lock))
    if not found or not top:
        return False, ""
    try:
        name = os.path.relpath(lock, top)
        dropped = drop(Path(top), name, lambda: _may_have_made(Path(root), lock))
    except (InUse, OSError):
        return False, ""
    return True, str(lock) if dropped else ""


def _git_dir_of(root: str, place: str) -> str:
    """The clone or the worker's repository in which this is; "" if it is elsewhere."""
    clone, repos = f"{root}/.git", f"{root}/{root_layout.REPOS}/"
    if place.startswith(repos):
        return repos + place.removeprefix(repos).partition("/")[0]
    return clone if place.startswith(f"{clone}/") else ""


def drop(top: Path, name: str, holders: Callable[[], list[int]]) -> bool:
    """Remove the lock `name` below `top`; False if its owner did. Raises InUse, and OSError where a link is in the way."""
    lock = top / name
    try:
        before = os.lstat(lock)
    except FileNotFoundError:
        return False
    fresh_s = max(0.0, LOCK_S - age_s(before.st_mtime, now_unix()))
    if processes.wait_until(lambda: not os.path.lexists(lock), fresh_s, interval_s=0.05):
        return False
    if not processes.wait_until(lambda: not holders(), READER_S, interval_s=0.1):
        raise InUse(holders())
    try:
        with inside.folder_of(top, name) as (folder, last):
            if os.lstat(last, dir_fd=folder).st_ino != before.st_ino:
                raise InUse([])
            os.unlink(last, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


def lock_holders(repo: Path, lock: Path) -> list[int]:
    """The git commands that run in a repository or worktree, and the processes that have the lock open."""
    return [*git_commands_in(repo), *processes.works_in(os.path.realpath(lock))]


def git_commands_in(place: Path) -> list[int]:
    return [pid for pid in processes.works_in(str(place)) if processes.name_of(pid).startswith("git")]


def _may_have_made(place: Path, lock: Path) -> list[int]:
    """The holders that began before the lock was made: in a root, some git is always at work."""
    try:
        made = os.lstat(lock).st_mtime + CLOCK_S
    except OSError:
        return []
    return [pid for pid in lock_holders(place, lock) if (processes.began_unix(pid) or 0.0) <= made]
