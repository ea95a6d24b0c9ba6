"""git lock files in the root's clone and in the source, and whether a process uses them."""

import contextlib
import os
from collections.abc import Collection, Iterator
from pathlib import Path

from msgspec import Struct

from llmc.base import inside
from llmc.base.clock import age_s, now_unix
from llmc.base.errors import LlmcError
from llmc.base.files import read_text
from llmc.config.paths import Root
from llmc.records.state import State
from llmc.repo import git
from llmc.repo.dead_locks import lock_holders
from llmc.repo.project import Project

#: age from which an unused lock counts as stale: a git command may need a moment to finish
STALE_LOCK_S = 10.0


class GitLock(Struct, frozen=True):
    """A git lock file, in the root's clone or in the source."""

    path: str
    age_s: float
    in_use: bool = False
    of_source: bool = False

    @property
    def trouble(self) -> str:
        """A description of a stale lock; "" while a command may still need it."""
        if self.in_use or self.age_s < STALE_LOCK_S:
            return ""
        return f"stale git lock file {self.path}, {self.age_s / 60:.0f} minutes old"


#: these directories are large and have no relevant locks
_NO_LOCKS_IN = ("objects", "logs")


def git_locks(project: Project, state: State | None) -> tuple[GitLock, ...]:
    """Lock files of the source and of the root's clone, except each worker's index.lock and the locks of slots.

    An index.lock is left to its worker, the locks of a slot to its next user.
    """
    clone = project.root.path / ".git"
    owned = set(state.workers) if state else set()
    found = [
        path
        for path in _lock_files(clone)
        if not (path.parent.parent.name == "worktrees" and _is_seen_elsewhere(project.root, path, owned))
    ]
    own = tuple(_lock(path, project.root.path, of_source=False) for path in found)
    return (*own, *locks_of_source(project))


def _is_seen_elsewhere(root: Root, lock: Path, workers: Collection[str]) -> bool:
    if lock.name == "index.lock" and lock.parent.name in workers:
        return True
    return Path(read_text(lock.with_name("gitdir")).strip()).parent.parent == root.slots


def locks_of_source(project: Project) -> tuple[GitLock, ...]:
    """Lock files that would prevent landing."""
    source = _git_dir(project.source)
    if source is None:
        return ()
    of_branch = source / "refs" / "heads" / f"{project.config.repo.default_branch}.lock"
    found = [*_lock_files(source, deep=False), *([of_branch] if of_branch.exists() else [])]
    return tuple(_lock(path, Path(project.source), of_source=True) for path in found)


def _lock_files(git_dir: Path, *, deep: bool = True) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for at, folders, names in inside.walk(git_dir):
            here = git_dir / at.path
            folders[:] = [n for n in folders if deep and not (here == git_dir and n in _NO_LOCKS_IN)]
            yield from (here / name for name in names if name.endswith(".lock"))


def _lock(path: Path, works_in: Path, *, of_source: bool) -> GitLock:
    try:
        age = age_s(path.stat().st_mtime, now_unix())
    except OSError:
        return GitLock(str(path), 0.0, in_use=True, of_source=of_source)
    return GitLock(str(path), age, in_use=bool(lock_holders(works_in, lock=path)), of_source=of_source)


def _git_dir(source: str) -> Path | None:
    try:
        return git.git_dir(Path(source)) if os.path.isdir(source) else None
    except LlmcError:
        return None
