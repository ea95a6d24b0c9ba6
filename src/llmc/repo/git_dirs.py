"""Finds the git directory of a worktree and its owner from git's files alone, without running git."""

import contextlib
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
    """Whether a directory is a worktree of this repository, and both point to each other; from git's files alone.

    Git itself cannot tell: in a directory without `.git` it finds the repository of a parent directory.
    """
    apart = own_repo(worktree)
    try:
        if apart is not None:
            # Use nothing that the agent can write: a worktree that fails this check is recreated.
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
    """A contained worker's own repository (repo/own_repos.py); None for any other worktree.

    This decides whether git runs in a box, so it uses only facts that no agent can change or delay: llmc has created
    that repository, and has removed the worktree's entry from the clone.
    """
    root = worktree.parent.parent
    own = root / root_layout.REPOS / worktree.name
    return own if own.is_dir() and entry_of(root, worktree) is None else None


def entries(root: Path) -> list[Path]:
    """The clone's entry of each linked worktree."""
    place = root / ".git/worktrees"
    try:
        return [place / name for name in os.listdir(place)]
    except FileNotFoundError:
        return []


def entry_of(root: Path, worktree: Path) -> Path | None:
    """The clone's entry of a worktree. Git names it like the worktree, unless that name was taken."""
    wanted = str(worktree / ".git")
    for entry in sorted(entries(root), key=lambda entry: entry.name != worktree.name):
        with contextlib.suppress(OSError):
            if line_of(entry / "gitdir") == wanted:
                return entry
    return None


def nested(root: Path, worktree: Path) -> list[Path]:
    """The clone's linked worktrees inside another one, whether their directories exist or not."""
    found = []
    for entry in entries(root):
        with contextlib.suppress(OSError):
            place = Path(line_of(entry / "gitdir")).parent
            if worktree in place.parents:
                found.append(place)
    return found


def pointer_to(own: Path) -> bytes:
    """The content of the `.git` file of a worktree with this repository."""
    return f"gitdir: {own}\n".encode("utf-8", "surrogateescape")


def kept_apart(own: Path) -> Path:
    """llmc's directory beside the repository of a contained worker."""
    place = own.with_name(f".{own.name}.llmc")
    place.mkdir(mode=0o700, exist_ok=True)
    return place


def checkout_mark(own: Path) -> Path:
    """The file that exists until the first checkout of a contained worker's files is complete."""
    return kept_apart(own) / "checking-out"


def for_git(own: Path) -> Path:
    """The part of `kept_apart` that git in a box may write; the other files are used only outside the box."""
    place = kept_apart(own) / "for-git"
    place.mkdir(mode=0o700, exist_ok=True)
    return place


#: longer than any path
_MOST_LINE = 8192


def target_of(pointer: Path) -> str:
    """The path that a `.git` file names."""
    return line_of(pointer).removeprefix("gitdir: ")


def text_in(place: Path, name: str) -> str:
    """The text of a one-line file below a git directory. An agent can write there, so no link in `name` is followed."""
    return inside.read(place, name, _MOST_LINE).decode("utf-8", "surrogateescape").removesuffix("\n")


def line_of(path: Path) -> str:
    """The text of a one-line git file; a path in it may contain a line break. Does not wait if the file is a pipe."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        return (file.read(_MOST_LINE) or b"").decode("utf-8", "surrogateescape").removesuffix("\n")
