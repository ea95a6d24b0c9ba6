"""Where the git directory of a worktree is, and whose it is: from git's files alone, without running git."""

import os
from pathlib import Path

from llmc.config import root_layout


def directories_of(repo: Path) -> tuple[Path, Path]:
    """The git directory of a worktree, and the common one; OSError if they cannot be read from files."""
    place = repo / ".git"
    if place.is_file():
        place = repo / target_of(place)
        return place, place / line_of(place / "commondir")
    place = place if place.is_dir() else repo
    os.stat(place / "HEAD")
    return place, place


def is_worktree_of(worktree: Path, repo: Path) -> bool:
    """Whether a directory is a worktree of this repository, on both sides; from git's files alone.

    git itself cannot tell: without its own `.git` it finds the repository of a parent directory.
    """
    if (apart := own_repo(worktree)) is not None:
        return apart.parent == repo / root_layout.REPOS and os.path.lexists(apart / "HEAD")
    try:
        own = worktree / target_of(worktree / ".git")
        os.stat(own / "HEAD")
        back = Path(line_of(own / "gitdir"))
        common = own / line_of(own / "commondir")
        return os.path.samefile(common, repo / ".git") and os.path.samefile(back.parent, worktree)
    except (OSError, ValueError):
        return False


def own_repo(worktree: Path) -> Path | None:
    """The repository that a contained worker has for itself (repo/own_repos.py); None for any other worktree.

    Its agent can change nothing that is looked at here: this decides whether git runs in a box.
    """
    own = worktree.parent.parent / root_layout.REPOS / worktree.name
    try:
        is_own = target_of(worktree / ".git") == str(own) and own.is_dir()
    except (OSError, ValueError):
        return None
    return own if is_own else None


def kept_apart(own: Path) -> Path:
    """llmc's directory beside the repository of a contained worker."""
    place = own.with_name(f".{own.name}.llmc")
    place.mkdir(mode=0o700, exist_ok=True)
    return place


def for_git(own: Path) -> Path:
    """What of it git in a box may write; the files beside it are read and written outside."""
    place = kept_apart(own) / "for-git"
    place.mkdir(mode=0o700, exist_ok=True)
    return place


#: longer than any path
_MOST_LINE = 8192


def target_of(pointer: Path) -> str:
    """Where a `.git` file leads."""
    return line_of(pointer).removeprefix("gitdir: ")


def line_of(path: Path) -> str:
    """The text of a one-line file of git's; a path in it may contain a line end. A pipe is not waited for."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        return (file.read(_MOST_LINE) or b"").decode("utf-8", "surrogateescape").removesuffix("\n")
