"""git, as flat functions: facts come back as data, and failure is never an empty answer."""

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path

from llmc.errors import ToolFailed
from llmc.tools import proc


@dataclass(frozen=True)
class Divergence:
    """How a commit relates to its base: ahead, behind and both are three different answers."""

    ahead: int
    behind: int


@dataclass(frozen=True)
class TreeState:
    """What `git status` says of a worktree; paths as git prints them."""

    tracked: tuple[str, ...]
    untracked: tuple[str, ...]
    #: None on a branch without a commit
    head: str | None = field(default=None, compare=False)
    #: the branch that is checked out, None when HEAD is detached
    branch: str | None = field(default=None, compare=False)

    @property
    def clean(self) -> bool:
        return not self.tracked and not self.untracked


#: settings that may say that a repository has its checkout elsewhere, or none
_NOT_PLAIN = re.compile(
    r"^\s*(?:bare(?!\s*=\s*false\s*$)|worktree\b|\[include)", re.IGNORECASE | re.MULTILINE
)
_COMMIT_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")

#: settings for one call that do not show in its command line
_NO_HOOKS = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.hooksPath", "GIT_CONFIG_VALUE_0": "/dev/null"}


def git(
    repo: Path,
    *args: str,
    check: bool = True,
    input: bytes | None = None,
    timeout_s: float = 60,
    env: dict[str, str] | None = None,
    hooks: bool = False,
) -> proc.Done:
    """Run git; `hooks` lets the repository's own hooks run: a person's, never those that agents can write."""
    return proc.run(
        ["git", "-C", str(repo), *args],
        check=check,
        input=input,
        timeout_s=timeout_s,
        env=proc.clean_env({**({} if hooks else _NO_HOOKS), **(env or {})}),
    )


def out(repo: Path, *args: str) -> str:
    return git(repo, *args).stdout.strip()


def resolve(repo: Path, ref: str) -> str | None:
    """The commit a name stands for, None if there is no such name."""
    if known := _read(repo, ref):
        return known
    done = git(repo, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}", check=False)
    if done.ok:
        return done.stdout.strip()
    if done.returncode == 1:
        return None
    raise ToolFailed(done.argv, done.returncode, done.stderr)


def _read(repo: Path, name: str) -> str | None:
    """The commit of HEAD or of a branch, from git's own files and without a program; None: git has to be asked."""
    try:
        own, common = _git_directories(repo)
        if name == "HEAD":
            at = (own / "HEAD").read_text().strip()
            name = at.removeprefix("ref: ")
            if name == at:
                return at if _COMMIT_ID.fullmatch(at) else None
        if not name.startswith(("refs/heads/", "refs/remotes/", "refs/llmc/")) or ".." in name:
            return None
        found = (common / name).read_text().strip()
    except (OSError, UnicodeDecodeError):  # packed, odd, or none at all
        return None
    return found if _COMMIT_ID.fullmatch(found) else None


def _git_directories(repo: Path) -> tuple[Path, Path]:
    """Where git keeps what is a worktree's own, and what all of them share; OSError where that cannot be told so."""
    place = repo / ".git"
    if place.is_file():
        place = repo / place.read_text().removeprefix("gitdir:").strip()
        return place, place / (place / "commondir").read_text().strip()
    place = place if place.is_dir() else repo
    os.stat(place / "HEAD")
    return place, place


def is_object_id(text: str) -> bool:
    return _COMMIT_ID.fullmatch(text) is not None


def head(repo: Path) -> str:
    return _read(repo, "HEAD") or out(repo, "rev-parse", "--verify", "HEAD^{commit}")


def tree_of(repo: Path, commit: str) -> str:
    return out(repo, "rev-parse", "--verify", f"{commit}^{{tree}}")


def same_commit(repo: Path, one: str, other: str) -> bool:
    known = [name if _COMMIT_ID.fullmatch(name) else _read(repo, name) for name in (one, other)]
    if all(known):
        return known[0] == known[1]
    names = (f"{one}^{{commit}}", f"{other}^{{commit}}")
    return len(set(out(repo, "rev-parse", *names).split())) == 1


def is_ancestor(repo: Path, older: str, newer: str) -> bool:
    done = git(repo, "merge-base", "--is-ancestor", older, newer, check=False)
    if done.returncode in (0, 1):
        return done.returncode == 0
    raise ToolFailed(done.argv, done.returncode, done.stderr)


def merging_changes_nothing(repo: Path, commit: str, branch: str) -> bool:
    """Whether a merge of the commit into the branch would leave its tree as it is; a dry run, nothing is touched."""
    done = git(repo, "merge-tree", "--write-tree", branch, commit, check=False)
    return done.ok and done.stdout.split("\n")[0] == tree_of(repo, branch)


def divergence(repo: Path, base: str, tip: str) -> Divergence:
    behind, ahead = out(repo, "rev-list", "--left-right", "--count", f"{base}...{tip}").split()
    return Divergence(int(ahead), int(behind))


def tree_state(worktree: Path, *, untracked: bool = True) -> TreeState:
    """Uncommitted changes; never takes the index lock, an agent may be at work there."""
    which = "--untracked-files=normal" if untracked else "--untracked-files=no"
    flags = ["--porcelain=v2", "-z", "--branch", "--no-ahead-behind", "--no-renames", which]
    rows = git(worktree, "--no-optional-locks", "status", *flags).stdout.split("\0")
    head = _after("# branch.oid ", rows)
    branch = _after("# branch.head ", rows)
    return TreeState(
        tracked=tuple(row.split(" ", _FIELDS[row[0]])[-1] for row in rows if row[:1] in _FIELDS),
        untracked=tuple(row[2:] for row in rows if row.startswith("? ")),
        head=None if head == "(initial)" else head,
        branch=None if branch == "(detached)" else branch,
    )


#: how many fields of a row of `status --porcelain=v2` come before the path: of a change, and of a conflict
_FIELDS = {"1": 8, "u": 10}


def _after(start: str, rows: list[str]) -> str | None:
    return next((row.removeprefix(start) for row in rows if row.startswith(start)), None)


def untracked_files(worktree: Path) -> tuple[str, ...]:
    """Every untracked file by itself; of a nested repository only its directory, with a slash at the end."""
    done = git(worktree, "ls-files", "--others", "--exclude-standard", "-z")
    return tuple(name for name in done.stdout.split("\0") if name)


def ignored_of(repo: Path, names: str) -> list[str]:
    """Of NUL-separated names those that git ignores here; a tracked file is not ignored."""
    done = git(
        repo, "check-ignore", "-z", "--stdin", input=names.encode("utf-8", "surrogateescape"), check=False
    )
    if done.returncode > 1:
        raise ToolFailed(done.argv, done.returncode, done.stderr)
    return [name for name in done.stdout.split("\0") if name]


_REBASES = ("rebase-merge", "rebase-apply")


def rebase_in_progress(worktree: Path) -> bool:
    """In a linked worktree `.git` is a file, so git is asked for the paths."""
    return any(path.exists() for path in git_paths(worktree, *_REBASES))


def rebase_and_head(worktree: Path) -> tuple[bool, str]:
    """Whether a rebase is in progress, and the commit of HEAD, in one call."""
    key = _place_of(worktree)
    if key and all(name in _paths.get(key, {}) for name in _REBASES):
        return rebase_in_progress(worktree), head(worktree)
    args = [arg for name in _REBASES for arg in ("--git-path", name)]
    *paths, commit = out(worktree, "rev-parse", *args, "HEAD^{commit}").split("\n")
    return any((worktree / path).exists() for path in paths), commit


def operation_in_progress(worktree: Path) -> str | None:
    """The merge, rebase, cherry-pick or bisect a person is in the middle of, if any."""
    marks = {
        "rebase-merge": "rebase",
        "rebase-apply": "rebase",
        "MERGE_HEAD": "merge",
        "CHERRY_PICK_HEAD": "cherry-pick",
        "REVERT_HEAD": "revert",
        "BISECT_LOG": "bisect",
    }
    for path, name in zip(git_paths(worktree, *marks), marks.values(), strict=True):
        if path.exists():
            return name
    return None


def git_dir(worktree: Path) -> Path:
    """Where git keeps what belongs to this worktree alone (its index, its HEAD)."""
    pointer = worktree / ".git"
    if pointer.is_dir():
        return pointer
    return worktree / pointer.read_text().removeprefix("gitdir:").strip()


def git_paths(worktree: Path, *names: str) -> list[Path]:
    """Where git keeps files of a worktree, one call for all of them; asked once for each linked worktree."""
    key = _place_of(worktree)
    known = _paths.get(key, {}) if key else {}
    if any(name not in known for name in names):
        args = [arg for name in names for arg in ("--git-path", name)]
        answers = out(worktree, "rev-parse", *args).split("\n")
        known = {**known, **dict(zip(names, (worktree / path for path in answers), strict=True))}
        if key:
            _paths[key] = known
    return [known[name] for name in names]


#: what git answered for each linked worktree, as long as it is the same one
_paths: dict[tuple[str, int, int], dict[str, Path]] = {}


def _place_of(worktree: Path) -> tuple[str, int, int] | None:
    """What tells one linked worktree from another at the same place; None for a repository's own checkout."""
    try:
        pointer = os.stat(worktree / ".git")
    except OSError:
        return None
    return (str(worktree), pointer.st_ino, pointer.st_mtime_ns) if stat.S_ISREG(pointer.st_mode) else None


def merge_base(repo: Path, one: str, other: str) -> str | None:
    """Where two commits parted; None when they have no common history."""
    done = git(repo, "merge-base", one, other, check=False)
    if done.ok:
        return done.stdout.split()[0]
    if done.returncode == 1:
        return None
    raise ToolFailed(done.argv, done.returncode, done.stderr)


def last_commit_unix(repo: Path, base: str, branch: str) -> float | None:
    """When the newest commit that the branch has beyond its base was made; None where none can be seen."""
    done = git(repo, "log", "-1", "--format=%ct", f"{base}..refs/heads/{branch}", "--", check=False)
    text = done.stdout.strip()
    return float(text) if done.ok and text.isdecimal() else None


def diff(repo: Path, base: str, tip: str) -> str:
    """What a commit changes, as a patch that does not depend on a person's settings."""
    plain = ["-p", "--full-index", "--find-renames", "--no-ext-diff", "--no-textconv", "--no-color"]
    return git(repo, "diff-tree", "-r", *plain, base, tip, "--", timeout_s=300).stdout


def conflicted_files(worktree: Path) -> tuple[str, ...]:
    done = git(worktree, "diff", "--name-only", "-z", "--diff-filter=U")
    return tuple(path for path in done.stdout.split("\0") if path)


def checked_out_at(repo: Path, branch: str) -> Path | None:
    """The worktree of the repository in which a branch is checked out, or being rebased."""
    if _has_checked_out(repo, branch):
        return Path(os.path.realpath(repo))
    path: str | None = None
    for line in git(repo, "worktree", "list", "--porcelain", "-z").stdout.split("\0"):
        if line.startswith("worktree "):
            path = line.removeprefix("worktree ")
        elif line == "bare":
            path = None
        elif path and (
            line == f"branch refs/heads/{branch}"
            or (line == "detached" and _rebased_branch(Path(path)) == f"refs/heads/{branch}")
        ):
            return Path(path)
    return None


def _has_checked_out(repo: Path, branch: str) -> bool:
    """Whether the repository's own checkout has the branch, from git's files; False: git has to be asked."""
    try:
        at = (repo / ".git/HEAD").read_text()
        return at.strip() == f"ref: refs/heads/{branch}" and not _NOT_PLAIN.search(
            (repo / ".git/config").read_text()
        )
    except (OSError, UnicodeDecodeError):
        return False


def _rebased_branch(worktree: Path) -> str | None:
    """The branch a rebase in progress belongs to: meanwhile git lists the worktree as detached."""
    if not worktree.is_dir():
        return None
    for path in git_paths(worktree, "rebase-merge/head-name", "rebase-apply/head-name"):
        try:
            return path.read_text().strip()
        except OSError:
            continue
    return None


def default_branch(repo: Path) -> str:
    """The branch work lands on: what the source has checked out, or what its HEAD names."""
    # Not --short: with a tag of the same name that prints "heads/main".
    done = git(repo, "symbolic-ref", "HEAD", check=False)
    if done.ok:
        return done.stdout.strip().removeprefix("refs/heads/")
    for name in ("main", "master"):
        if resolve(repo, f"refs/heads/{name}"):
            return name
    raise ToolFailed(
        done.argv,
        done.returncode,
        done.stderr,
        message=f"{repo}: cannot tell which branch work should land on",
    )


_FETCHES = 3
_MOVED_MEANWHILE = re.compile(r"cannot lock ref '[^']*': is at [0-9a-f]+ but expected ")


def fetch(repo: Path, branch: str) -> None:
    """Bring origin/<branch> up to date (the caller holds the repo lock: parallel fetches fail).

    The git of a process that was killed may still be at it, and move the branch under ours: then it is asked again.
    """
    for _ in range(_FETCHES):
        done = git(
            repo,
            *["fetch", "--quiet", "--no-tags", "--no-auto-maintenance", "origin"],
            f"+refs/heads/{branch}:refs/remotes/origin/{branch}",
            check=False,
            timeout_s=300,
        )
        if done.ok:
            return
        if not _MOVED_MEANWHILE.search(done.stderr):
            break
    raise ToolFailed(done.argv, done.returncode, done.stderr)


def config_get(repo: Path, key: str) -> str | None:
    done = git(repo, "config", "--get", key, check=False)
    return done.stdout.strip() or None if done.ok else None
