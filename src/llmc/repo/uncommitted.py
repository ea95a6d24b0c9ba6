"""The uncommitted state of a worktree: changes, untracked and hidden files, conflicts, and operations in progress."""

import os
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from llmc.base.errors import ToolFailed
from llmc.repo.git import git, git_paths, listed, nul_separated, rows, value_after

#: make git check all files, regardless of the clone's settings, which agents can write
LOOK_CLOSELY = (
    *("core.fsmonitor=false", "core.untrackedCache=false"),
    *("core.ignoreStat=false", "core.trustctime=true", "core.checkStat=default"),
)
#: the same, also where a sparse checkout has no files
EVERYWHERE = ("core.sparseCheckout=false", *LOOK_CLOSELY)


class TreeState(Struct, frozen=True):
    """The result of `git status`; paths as git prints them."""

    tracked: tuple[str, ...]
    untracked: tuple[str, ...]
    #: None on a branch without commits
    head: str | None = None
    #: the branch that is checked out, None when HEAD is detached
    branch: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        return (*self.tracked, *self.untracked)

    @property
    def clean(self) -> bool:
        return not self.files


def tree_state(worktree: Path, *, untracked: bool = True) -> TreeState:
    """Uncommitted changes; never takes the index lock, because an agent may be working there."""
    which = "--untracked-files=normal" if untracked else "--untracked-files=no"
    flags = ["--porcelain=v2", "-z", "--branch", "--no-ahead-behind", "--no-renames", which]
    found = listed(worktree, "--no-optional-locks", "status", *flags)
    head = value_after("# branch.oid ", found)
    branch = value_after("# branch.head ", found)
    return TreeState(
        tracked=tuple(row.split(" ", _FIELDS[row[0]])[-1] for row in found if row[:1] in _FIELDS),
        untracked=tuple(row[2:] for row in found if row.startswith("? ")),
        head=None if head == "(initial)" else head,
        branch=None if branch == "(detached)" else branch,
    )


#: number of fields before the path in a row of `status --porcelain=v2`, for a change and for a conflict
_FIELDS = {"1": 8, "u": 10}


def with_settings(settings: Iterable[str]) -> list[str]:
    """The arguments before a git command that has these settings."""
    return [word for setting in settings for word in ("-c", setting)]


def untracked_files(worktree: Path, *paths: str, ignored: bool = False) -> tuple[str, ...]:
    """Every untracked file; a nested repository only as its directory, with a trailing slash.

    `ignored`: include ignored files. `paths`: only at or below these.
    """
    which = [] if ignored else ["--exclude-standard"]
    exactly = [f":(literal){path}" for path in paths]
    return tuple(listed(worktree, "ls-files", "--others", *which, "-z", "--", *exactly, timeout_s=300))


def untracked_places(worktree: Path) -> tuple[str, ...]:
    """The files and directories that `clean -d` would remove, including empty directories."""
    flags = ["--others", "--directory", "--exclude-standard", "-z"]
    return tuple(listed(worktree, "ls-files", *flags, timeout_s=300))


def show_hidden_changes(worktree: Path) -> bool:
    """Clear `assume-unchanged` and `skip-worktree`, which hide changes, on existing files; whether there were any.

    Files that a sparse checkout left out stay out.
    """
    here = [name for name in hidden_files(worktree) if os.path.lexists(worktree / name)]
    if here:
        unhide(worktree, here)
    return bool(here)


def hidden_files(worktree: Path) -> list[str]:
    """Files marked `skip-worktree` (S) or `assume-unchanged` (lower case)."""
    tagged = (row.partition(" ") for row in listed(worktree, "ls-files", "-v", "-z", timeout_s=300))
    return [name for tag, _, name in tagged if tag == "S" or tag.islower()]


def unhide(worktree: Path, names: Iterable[str]) -> None:
    given = nul_separated(names)
    for flag in ("--no-assume-unchanged", "--no-skip-worktree"):  # one at a time: git uses only the last
        git(worktree, "update-index", flag, "-z", "--stdin", input=given, timeout_s=300)


def ignored_of(repo: Path, names: Iterable[str]) -> list[str]:
    """The names that git ignores here; a tracked file is not ignored."""
    done = git(repo, "check-ignore", "-z", "--stdin", input=nul_separated(names), check=False)
    if done.returncode > 1:
        raise ToolFailed(done.argv, done.returncode, done.stderr)
    return rows(done.stdout)


_REBASES = ("rebase-merge", "rebase-apply")


def rebase_in_progress(worktree: Path) -> bool:
    return any(_is_there(path) for path in git_paths(worktree, *_REBASES))


def _is_there(path: Path) -> bool:
    """Whether the path exists and is not a link: git makes no links there, and an agent's links are not followed."""
    return os.path.lexists(path) and not path.is_symlink()


def operations_in_progress(worktree: Path) -> list[str]:
    """The operations in progress: rebase, merge, cherry-pick, revert or bisect."""
    marks = {
        "rebase-merge": "rebase",
        "rebase-apply": "rebase",
        "MERGE_HEAD": "merge",
        "CHERRY_PICK_HEAD": "cherry-pick",
        "REVERT_HEAD": "revert",
        "sequencer": "cherry-pick",  # a sequence, between two commits
        "BISECT_LOG": "bisect",
    }
    found = zip(git_paths(worktree, *marks), marks.values(), strict=True)
    return [name for path, name in found if _is_there(path)]


def operation_in_progress(worktree: Path) -> str | None:
    """The rebase, merge, cherry-pick, revert or bisect in progress, if any."""
    return next(iter(operations_in_progress(worktree)), None)


def conflicted_files(worktree: Path) -> tuple[str, ...]:
    return tuple(listed(worktree, "diff", "--name-only", "-z", "--diff-filter=U"))
