"""Lock files that a killed git left behind: git itself never removes them, and every later command would fail."""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from llmc.base import inside, locks, processes
from llmc.base.errors import LockTimeout
from llmc.base.files import read_text
from llmc.base.text import pattern
from llmc.config import root_layout
from llmc.config.paths import Root

#: how long a lock must stay unchanged to count as dead: llmc may not know the program that owns it
WATCH_S = 2.0
#: how long to wait after that for running git commands, which may only be reading
READER_S = 1.0

_NAMED = pattern(
    r"Unable to create '([^\0\n]+?)\.lock': File exists|lock config file ([^\0\n]+?): File exists"
)
_IN_ENVIRONMENT = ("GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE")

#: identifies a file; an inode number alone is soon reused
_Stamp = tuple[int, int, int]


class InUse(Exception):
    """A process may still need the lock."""

    def __init__(self, pids: Sequence[int]) -> None:
        super().__init__(", ".join(f"{pid} ({processes.command_of(pid)[:60]})" for pid in pids))


def named_in(said: str, repo: Path) -> Path | None:
    """The lock that git's error in a directory names; None if it names none."""
    found = _NAMED.search(said)
    return repo / f"{found[1] or found[2]}.lock" if found else None


def drop(root: Path, lock: Path) -> bool:
    """Remove a dead lock in a git directory of the root; False if it is gone, replaced, or locked by another remover.

    Raises InUse if a process may need the lock, and OSError if it is elsewhere or behind a link.
    """
    top = _git_dir_of(root, lock)
    name = os.path.relpath(lock, top)
    with inside.folder_of(top, name) as (folder, last):
        before = _stamp(last, folder)
        if before is None:
            return False
        # The owner is running now, or is dead: a process that starts later did not create the lock.
        pids = lock_holders(*_users_of(root, top, lock), lock=lock)
        owners = [one for pid in pids if (one := processes.identify(pid)) is not None]

        def is_another() -> bool:
            return _stamp(last, folder) != before

        if processes.wait_until(is_another, WATCH_S, interval_s=0.05):
            return False
        processes.wait_until(lambda: not any(one.is_alive for one in owners), READER_S, interval_s=0.05)
        if alive := [one.pid for one in owners if one.is_alive]:
            raise InUse(alive)
        try:
            with turn(root):
                if is_another():
                    return False
                os.unlink(last, dir_fd=folder)
        except LockTimeout:
            return False
    return True


def turn(root: Path) -> AbstractContextManager[None]:
    """Let one process at a time remove locks: otherwise a second one could remove the new lock of the first."""
    return locks.lock(Root(root).lock("git-locks"), locks.Rank.GIT_LOCKS, timeout_s=WATCH_S)


def _stamp(name: str, folder: int) -> _Stamp | None:
    try:
        found = os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def _git_dir_of(root: Path, lock: Path) -> Path:
    """The git directory that contains a lock: the clone's or a worker's."""
    clone, repos = root / ".git", root / root_layout.REPOS
    if lock.is_relative_to(repos) and lock.parent != repos:
        return repos / lock.relative_to(repos).parts[0]
    if lock.is_relative_to(clone):
        return clone
    raise FileNotFoundError(f"{lock} is not in a git directory of {root}")


def _users_of(root: Path, top: Path, lock: Path) -> list[Path]:
    """The directories of git commands that may need the lock: one worktree, or a repository and all its worktrees."""
    entries = top / "worktrees"
    if lock.is_relative_to(entries):
        return [_worktree_of(entries / lock.relative_to(entries).parts[0])]
    linked = [_worktree_of(entry) for entry in entries.iterdir()] if entries.is_dir() else []
    if top == root / ".git":
        return [root, *linked]
    return [root / root_layout.WORKTREES / top.name, top, *linked]


def _worktree_of(entry: Path) -> Path:
    return Path(read_text(entry / "gitdir").strip() or entry).parent


def lock_holders(*places: Path, lock: Path) -> list[int]:
    """The git commands that may work in these places, and the processes that have the lock open."""
    wanted = [str(place) for place in places]
    return [*_git_commands(wanted), *processes.works_in(os.path.realpath(lock))]


def git_commands_in(place: Path) -> list[int]:
    return [pid for pid in processes.works_in(str(place)) if processes.name_of(pid).startswith("git")]


def _git_commands(places: list[str]) -> list[int]:
    """Git commands that work in these places or name them, and those of other users, whose directories are hidden."""
    found = []
    for pid in processes.named("git"):
        there = processes.places_of(pid)
        environment = processes.environment(pid)
        told = [processes.command_of(pid), *(environment.get(name, "") for name in _IN_ENVIRONMENT)]
        is_there = any(f"{path}/".startswith(f"{place}/") for path in there for place in places)
        is_named = any(place in words for words in told for place in places)
        if is_there or is_named or processes.is_hidden(pid):
            found.append(pid)
    return found
