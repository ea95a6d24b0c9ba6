"""Where the git directory of a worktree is, and whose it is: from git's files alone, without running git."""

import os
from pathlib import Path

from llmc.base import inside
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
    apart = own_repo(worktree)
    try:
        if apart is not None:
            # Nothing that its agent can write is asked: a worktree that is none is made again.
            is_ours = apart.parent == repo / root_layout.REPOS
            return is_ours and target_of(worktree / ".git") == str(apart)
        own = worktree / target_of(worktree / ".git")
        os.stat(own / "HEAD")
        back = Path(line_of(own / "gitdir"))
        common = own / line_of(own / "commondir")
        return os.path.samefile(common, repo / ".git") and os.path.samefile(back.parent, worktree)
    except (OSError, ValueError):
        return False


def own_repo(worktree: Path) -> Path | None:
    """The repository that a contained worker has for itself (repo/own_repos.py); None for any other worktree.

    This decides whether git runs in a box. So it asks only what no agent can change, or hold up: whether llmc made that
    repository, and has taken the worktree's entry out of the clone.
    """
    root = worktree.parent.parent
    own = root / root_layout.REPOS / worktree.name
    return own if own.is_dir() and not _has_entry(root, worktree) else None


def _has_entry(root: Path, worktree: Path) -> bool:
    try:
        return line_of(root / ".git/worktrees" / worktree.name / "gitdir") == str(worktree / ".git")
    except OSError:
        return False


def pointer_to(own: Path) -> bytes:
    """The `.git` file of a worktree whose repository this is."""
    return f"gitdir: {own}\n".encode("utf-8", "surrogateescape")


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


def text_in(place: Path, name: str) -> str:
    """The text of a one-line file below a git directory. An agent may write there: no link in the name is followed."""
    return inside.read(place, name, _MOST_LINE).decode("utf-8", "surrogateescape").removesuffix("\n")


def line_of(path: Path) -> str:
    """The text of a one-line file of git's; a path in it may contain a line end. A pipe is not waited for."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        return (file.read(_MOST_LINE) or b"").decode("utf-8", "surrogateescape").removesuffix("\n")
