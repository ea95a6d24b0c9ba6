"""Nothing is ever deleted: what a reset would remove is pinned under a trash ref first."""

import os
import time
from pathlib import Path

from llmc.config.paths import Root
from llmc.errors import LlmcError
from llmc.tools import git
from llmc.tools.files import private_dir

#: larger untracked files, and nested repositories, are moved into the trash directory instead of into git
MAX_PINNED_BYTES = 20 * 1024 * 1024

_IDENTITY = {
    "GIT_AUTHOR_NAME": "llmc",
    "GIT_AUTHOR_EMAIL": "llmc@localhost",
    "GIT_COMMITTER_NAME": "llmc",
    "GIT_COMMITTER_EMAIL": "llmc@localhost",
}


def pin(root: Root, worktree: Path, worker: str, why: str) -> str:
    """Keep HEAD, changed and untracked files of a worktree as a commit; the ref that names it.

    A pin that fails raises, and so stops the step that wanted to remove something.
    """
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + f"-{os.urandom(2).hex()}"
    ref = f"refs/llmc/trash/{worker}/{stamp}-{why}"
    head = git.head(worktree)
    _move_out_what_git_should_not_hold(root, worktree, f"{worker}-{stamp}")
    state = git.tree_state(worktree)
    commit = head if state.clean else _commit_everything(worktree, head, why)
    git.git(worktree, "update-ref", "-m", f"llmc: {why}", ref, commit)
    if git.resolve(worktree, ref) != commit:
        raise LlmcError(f"{worker}: its work could not be pinned under {ref}; nothing was removed")
    return ref


def _commit_everything(worktree: Path, head: str, why: str) -> str:
    """A commit of the worktree as it is, made with an index of its own: the worktree does not change."""
    index = git.out(worktree, "rev-parse", "--git-path", f"llmc-pin-{os.getpid()}")
    index_path = worktree / index
    env = {"GIT_INDEX_FILE": str(index_path), **_IDENTITY}
    try:
        git.git(worktree, "read-tree", head, env=env)
        git.git(worktree, "add", "--all", env=env, timeout_s=300)
        tree = git.git(worktree, "write-tree", env=env).stdout.strip()
        done = git.git(worktree, "commit-tree", tree, "-p", head, "-m", f"llmc: pinned before {why}", env=env)
    finally:
        index_path.unlink(missing_ok=True)
    return done.stdout.strip()


def _move_out_what_git_should_not_hold(root: Root, worktree: Path, folder: str) -> None:
    for name in git.tree_state(worktree).untracked:
        path = worktree / name
        if _is_nested_repository(path) or _size(path) > MAX_PINNED_BYTES:
            target = private_dir(root.trash / folder) / name.rstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(path, target)


def _is_nested_repository(path: Path) -> bool:
    return (
        path.is_dir()
        and not path.is_symlink()
        and any(p.name == ".git" for p in [path / ".git"] if p.exists())
    )


def _size(path: Path) -> int:
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(entry.lstat().st_size for entry in path.rglob("*") if not entry.is_dir())
