"""git as flat functions: facts are returned as data, and a failure is never an empty answer."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from llmc.base import proc
from llmc.base.errors import Exit, ToolFailed
from llmc.base.text import pattern
from llmc.base.urls import split
from llmc.config import root_layout
from llmc.repo import git_dirs


class Divergence(Struct, frozen=True):
    """How a commit relates to its base: ahead, behind, or diverged."""

    ahead: int
    behind: int


#: settings that may move or remove a repository's checkout
_NOT_PLAIN = pattern(r"^\s*(?:bare(?!\s*=\s*false\s*$)|worktree\b|\[include)", re.IGNORECASE | re.MULTILINE)
_COMMIT_ID = pattern(r"[0-9a-f]{40}|[0-9a-f]{64}")

#: most retries after a lock was in the way: another command that met the same lock may be faster
_RETRIES = 3
#: commands that may fail halfway, so that a second try reports another error
_ONCE = {"rebase", "merge", "cherry-pick", "revert", "am", "stash", "commit"}

#: for commits that llmc makes on its own
OWN_IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "llmc"), ("EMAIL", "llmc@localhost"))
}

#: most bytes read of a diff
MOST_DIFF = 32 * 1024 * 1024
#: most bytes read from git in a root, where a few objects of an agent can name millions of files
MOST_OUTPUT = 64 * 1024 * 1024
#: most bytes of a listing: enough for the status of 500,000 changed files with paths of 80 characters
MOST_LISTED = 128 * 1024 * 1024
#: most bytes of a listing of the default branch, whose content was reviewed
MOST_OF_BASE = 1024 * 1024 * 1024
#: memory that a row takes in addition to its text
_ROW_BYTES = 64

#: a hooks directory that cannot contain anything
NO_HOOKS = ("core.hooksPath", "/dev/null")

#: llmc reads what git prints and writes messages as UTF-8, whatever the user wants to see
_AS_DATA = (
    ("i18n.logOutputEncoding", "UTF-8"),
    ("i18n.commitEncoding", "UTF-8"),
    ("log.showSignature", "false"),
)

#: agents share the clone's refs and files: ignore replaced objects and grafts
_AS_IT_IS = {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_GRAFT_FILE": "/dev/null/none"}

#: passes user and password to git on request, without a command line or a file
_ASK_US = (
    '!f() { test "$1" = get && '
    'printf \'username=%s\\npassword=%s\\n\' "$LLMC_GIT_USER" "$LLMC_GIT_PASSWORD"; }; f'
)


#: the command that runs git, the descriptors that git inherits, and a check that raises if git would wait for an agent
Within = tuple[Sequence[str], Sequence[int], Callable[[], None] | None]
NO_BOX: Within = ((), (), None)


class Guard(Protocol):
    """Checks a root's clone before git reads its settings (repo/clone_guard.py)."""

    #: where accepted work lands, as in config.toml; and the ref that work starts from
    source: str
    base: str
    #: the clone, as a URL for git-lfs
    large_files: str

    def look(self, repo: str, words: Sequence[str] = ()) -> None:
        """Check the root before a git call; `words`: the call's arguments."""
        ...

    def box(self, repo: str) -> AbstractContextManager[Within]:
        """The box for git at this path; `NO_BOX` where no contained agent can write."""
        ...

    def free(self, said: str, repo: Path) -> bool:
        """Remove the dead lock that git's error names; whether git can try again."""
        ...


#: guards by root path, set when a root is opened
guards: dict[str, Guard] = {}


def git(
    repo: Path,
    *args: str,
    check: bool = True,
    input: bytes | None = None,
    timeout_s: float = 60,
    env: dict[str, str] | None = None,
    hooks: bool = False,
    asks_for_large_files: bool = False,
    inherits: Sequence[int] = (),
    meanwhile: Callable[[], None] | None = None,
    most_bytes: int = 0,
    encoding: str = "utf-8",
) -> proc.Done:
    """Run git; `hooks` lets the repository's hooks run: the user's, never those that agents can write.

    `asks_for_large_files`: git-lfs may ask a server; otherwise it uses the clone's files. `inherits`, `meanwhile`,
    `encoding`: as in base/proc.py. Raises TooMuch if git prints more than `most_bytes`; a root always has a limit.
    """
    require_worktree(repo)
    guarded = look_first(repo, *args)
    most = most_bytes or (MOST_OUTPUT if guarded else 0)
    settings = [*_AS_DATA] if hooks else [*_AS_DATA, NO_HOOKS]
    settings += [("core.fsmonitor", "false"), ("submodule.recurse", "false")] if guarded else []
    if guarded and not asks_for_large_files:  # overrides any URL in an agent's .lfsconfig
        settings += [("lfs.url", guarded.large_files), ("lfs.pushurl", guarded.large_files)]

    def run() -> proc.Done:
        with guarded.box(str(repo)) if guarded else nullcontext(NO_BOX) as (box, descriptors, look):
            more = (_AS_IT_IS if guarded else {}) | (env or {})
            source = guarded.source if guarded else ""
            return proc.run(
                ["git", "-C", str(repo), *args],
                check=False,
                input=input,
                timeout_s=timeout_s,
                within=box,
                inherits=(*inherits, *descriptors),
                meanwhile=_watched(repo, look or meanwhile) if guarded else meanwhile,
                most_bytes=most,
                encoding=encoding,
                outlived=hooks,
                env=env_in_box(settings, more) if box else proc.clean_env(access(source, settings) | more),
            )

    try:
        done = run()
        for _ in range(_RETRIES):
            if done.ok or not guarded or not guarded.free(done.stderr, repo):
                break
            if inherits or _ONCE & set(args):
                break  # only the caller can retry: neither the descriptors nor these commands work twice
            done = run()
    except proc.PrintedTooMuch as error:
        raise TooMuch(repo, error.argv, error.message) from None
    if check and not done.ok:
        raise ToolFailed(done.argv, done.returncode, done.stderr or done.stdout)
    return done


class TooMuch(proc.PrintedTooMuch):
    """git printed more than llmc reads: an agent may have made objects or an index that name millions of files."""

    def __init__(self, repo: Path, argv: list[str], what: str) -> None:
        name, hint = worker_at(repo)
        message = f"cannot read {name}'s repository: {what}" if name else what
        super().__init__(argv, None, "", message=message, hint=hint)


def worker_at(repo: Path) -> tuple[str, str]:
    """The worker that a directory belongs to, and a hint for when its repository cannot be read."""
    for root in list(guards):
        for folder in (root_layout.WORKTREES, root_layout.REPOS):
            _, inside, rest = f"{repo}/".partition(f"{root}/{folder}/")
            if inside:
                name = rest.partition("/")[0]
                worktree = Path(root, root_layout.WORKTREES, name)
                if git_dirs.own_repo(worktree) is None:
                    return name, f"Run `llmc nuke {name}`, which moves its worktree to the trash."
                return name, f"Run `llmc reset {name}`, which moves the repository to the trash."
    return "", ""


class NoWorktree(ToolFailed):
    """A worker's worktree or its `.git` is gone; git would fail, or use the root's clone instead."""

    exit_code = Exit.REFUSED

    def __init__(self, worktree: Path) -> None:
        super().__init__(
            *(["git", "-C", str(worktree)], None, ""),
            message=f"{worktree.name}'s worktree is missing",
            hint="Run `llmc doctor --repair` to recreate it from its branch, then run the command again.",
        )


def require_worktree(repo: Path) -> None:
    """Raise NoWorktree if a worker's worktree belongs at this path, but there is none."""
    if repo.parent.name == root_layout.WORKTREES and not os.path.lexists(repo / ".git"):
        raise NoWorktree(repo)


class WaitsForPipe(ToolFailed):
    """Git would wait for a pipe in the worktree. `name`: the path of the pipe there."""

    def __init__(self, worktree: Path, name: str) -> None:
        import shlex  # few commands need it

        path = worktree / name
        super().__init__(
            *(["git", "-C", str(worktree)], None, ""),
            message=f"git cannot read {path}: it is a pipe",
            hint=f"Remove it: rm {shlex.quote(str(path))}",
        )
        self.name = name


def _watched(worktree: Path, also: Callable[[], None] | None) -> Callable[[], None]:
    """The function to call while git runs. Most git commands end before the first call."""
    watches: list[Callable[[], None]] = []

    def look() -> None:
        if not watches:
            from llmc.repo import pipes  # few commands need it

            watches.append(pipes.watch(worktree, also))
        watches[0]()

    return look


def env_in_box(
    settings: Sequence[tuple[str, str]] = (), more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment for git in a box: no password, and only the usual ones of the user's variables."""
    from llmc.sandbox.rules import passed_on  # most workers are not contained

    # The user's own list of safe directories is not visible there.
    given = access("", [*settings, ("safe.directory", "*")]) | {**(more or {})}
    return passed_on(proc.clean_env(given), ("LC_ALL", "GIT_*"))


def look_first(repo: Path, *args: str) -> Guard | None:
    """Run the root's guard before git runs in the root or reads from it; returns the guard if git runs in the root."""
    if guard := _guard_of(repo):
        guard.look(str(repo), args)
        return guard
    for root in [root for root in list(guards) if root in args]:
        guards[root].look(root, args)
    return None


def _guard_of(repo: Path) -> Guard | None:
    place = str(repo)
    inside = [root for root in list(guards) if place == root or place.startswith(f"{root}/")]
    return guards[max(inside, key=len)] if inside else None


def access(source: str, settings: Sequence[tuple[str, str]] = ()) -> dict[str, str]:
    """The environment with settings for one git call, including credentials of the source: not on the command line."""
    found, asks = list(settings), split(source)
    given: dict[str, str] = {}
    host = "/".join(asks.address.split("/")[:3])
    if asks.password:
        found += [(f"credential.{host}.helper", ""), (f"credential.{host}.helper", _ASK_US)]
        given = {"LLMC_GIT_USER": asks.user, "LLMC_GIT_PASSWORD": asks.password}
    elif asks.user:
        found.append((f"credential.{host}.username", asks.user))
    for place, (key, value) in enumerate(found):
        given |= {f"GIT_CONFIG_KEY_{place}": key, f"GIT_CONFIG_VALUE_{place}": value}
    return {**given, "GIT_CONFIG_COUNT": str(len(found))}


def out(repo: Path, *args: str) -> str:
    return git(repo, *args).stdout.strip()


def nul_separated(names: Iterable[str]) -> bytes:
    """Names as input for -z, each with a NUL at its end; they may contain any other character."""
    return "".join(f"{name}\0" for name in names).encode("utf-8", "surrogateescape")


def rows(said: str) -> list[str]:
    """Split output of -z at NUL: a name or a subject may contain any other character."""
    return [row for row in said.split("\0") if row]


def listed(
    repo: Path,
    *args: str,
    check: bool = True,
    timeout_s: float = 60,
    env: dict[str, str] | None = None,
    most_bytes: int = 0,
) -> list[str]:
    """The rows that git prints with -z, such as paths. Raises TooMuch before too many become objects in memory."""
    most = most_bytes or (MOST_LISTED if _guard_of(repo) else 0)
    # One byte per character: a single name in another script would make the whole text take up to four.
    done = git(repo, *args, check=check, timeout_s=timeout_s, env=env, most_bytes=most, encoding="latin-1")
    count = done.stdout.count("\0")
    if len(done.stdout) + count * _ROW_BYTES > most > 0:
        raise TooMuch(repo, done.argv, f"`git` listed {count} names")
    return [row.encode("latin-1").decode("utf-8", "surrogateescape") for row in rows(done.stdout)]


def refs(repo: Path, pattern: str, *fields: str) -> list[tuple[str, ...]]:
    """These fields (`refname`, `contents:subject`) of every ref that matches a pattern."""
    shape = "".join(f"%({field})%00" for field in fields)
    *values, _ = git(repo, "for-each-ref", f"--format={shape}", pattern).stdout.split("\0")
    found = [values[at : at + len(fields)] for at in range(0, len(values), len(fields))]
    return [(first.removeprefix("\n"), *rest) for first, *rest in found]


def resolve(repo: Path, ref: str) -> str | None:
    """The commit of a ref; None if it does not exist."""
    if ref.startswith("refs/heads/"):
        look_first(repo, ref)  # a contained worker's branch may not be in the clone yet
    if known := _read(repo, ref):
        return known
    done = git(repo, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}", check=False)
    if done.ok:
        return done.stdout.strip()
    if done.returncode == 1:
        return None
    raise ToolFailed(done.argv, done.returncode, done.stderr)


def _read(repo: Path, name: str) -> str | None:
    """The commit of HEAD or another ref, read from git's files; None: ask git."""
    try:
        own, common = git_dirs.directories_of(repo)
        if name == "HEAD":
            at = git_dirs.text_in(own, "HEAD")
            name = at.removeprefix("ref: ")
            if name == at:
                return at if _COMMIT_ID.fullmatch(at) else None
        if not name.startswith(("refs/heads/", "refs/remotes/", "refs/llmc/")) or ".." in name:
            return None
        found = git_dirs.text_in(common, name)
    except (OSError, ValueError):  # packed, unusual, or missing
        return None
    return found if _COMMIT_ID.fullmatch(found) else None


def is_object_id(text: str) -> bool:
    return _COMMIT_ID.fullmatch(text) is not None


def head(repo: Path) -> str:
    return _read(repo, "HEAD") or out(repo, "rev-parse", "--verify", "HEAD^{commit}")


def is_named(repo: Path, commit: str) -> bool:
    """Whether a ref has this commit."""
    return bool(out(repo, "for-each-ref", "--count=1", "--format=%(refname)", "--contains", commit))


def tree_of(repo: Path, commit: str) -> str:
    return out(repo, "rev-parse", "--verify", f"{commit}^{{tree}}")


def same_commit(repo: Path, one: str, other: str) -> bool:
    known = [name if _COMMIT_ID.fullmatch(name) else _read(repo, name) for name in (one, other)]
    if all(known):
        return known[0] == known[1]
    names = (f"{one}^{{commit}}", f"{other}^{{commit}}")
    return len(set(out(repo, "rev-parse", *names).split())) == 1


def has_commit(repo: Path, commit: str) -> bool:
    return git(repo, "cat-file", "-e", f"{commit}^{{commit}}", check=False).ok


def is_ancestor(repo: Path, older: str, newer: str) -> bool:
    done = git(repo, "merge-base", "--is-ancestor", older, newer, check=False)
    if done.returncode in (0, 1):
        return done.returncode == 0
    raise ToolFailed(done.argv, done.returncode, done.stderr)


def merging_changes_nothing(repo: Path, commit: str, branch: str) -> bool:
    """Whether merging the commit into the branch would not change its tree; a dry run."""
    done = git(repo, "merge-tree", "--write-tree", branch, commit, check=False)
    return done.ok and done.stdout.partition("\n")[0] == tree_of(repo, branch)


def divergence(repo: Path, base: str, tip: str) -> Divergence:
    behind, ahead = out(repo, "rev-list", "--left-right", "--count", f"{base}...{tip}").split()
    return Divergence(int(ahead), int(behind))


def ahead_of(repo: Path, base: str, tip: str) -> int | None:
    """How many commits of `tip` are not in `base`; None if they cannot be compared."""
    try:
        return divergence(repo, base, tip).ahead
    except ToolFailed:
        return None


def value_after(start: str, found: list[str]) -> str | None:
    return next((row.removeprefix(start) for row in found if row.startswith(start)), None)


def git_dir(worktree: Path) -> Path:
    """The git directory of this worktree (its index, its HEAD); raises if there is none."""
    if (own := git_dirs.own_repo(worktree)) is not None:
        return own
    pointer = worktree / ".git"
    try:
        place = pointer if pointer.is_dir() else worktree / git_dirs.target_of(pointer)
        os.stat(place / "HEAD")
    except (OSError, ValueError):
        said = git(worktree, "rev-parse", "--absolute-git-dir").stdout
        return Path(said.removesuffix("\n"))
    return place


def llmc_file(worktree: Path, name: str) -> Path:
    """The path of an llmc file for a worktree: in the git directory, but never where a contained agent can write."""
    if (own := git_dirs.own_repo(worktree)) is None:
        return git_dir(worktree) / name
    return (git_dirs.for_git(own) if name.startswith(_INDEXES) else git_dirs.kept_apart(own)) / name


#: prefixes of files that git itself writes: temporary indexes
_INDEXES = ("llmc-pin", "llmc-staged")


def git_paths(worktree: Path, *names: str) -> list[Path]:
    """Files in the git directory of this worktree."""
    place = git_dir(worktree)
    return [place / name for name in names]


#: by the length of an id: SHA-1 and SHA-256
_EMPTY_TREES = {
    40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    64: "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}


def empty_tree(like: str) -> str:
    """The id of the empty tree, in the hash format of `like`."""
    return _EMPTY_TREES[len(like)]


def files_of(repo: Path, commit: str, *patterns: str) -> list[tuple[str, str, str]]:
    """Mode, object and path of files in a commit that match a pattern; needs no checkout."""
    listing = ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--full-index", empty_tree(commit)]
    fields = listed(repo, *listing, commit, "--", *patterns, timeout_s=300)
    rows_ = [(meta.split(" "), path) for meta, path in zip(fields[::2], fields[1::2], strict=False)]
    return [(mode, blob, path) for (_, mode, _, blob, _), path in rows_]


def merge_base(repo: Path, one: str, other: str) -> str | None:
    """The merge base of two commits; None without common history."""
    done = git(repo, "merge-base", one, other, check=False)
    if done.ok:
        return done.stdout.split()[0]
    if done.returncode == 1:
        return None
    raise ToolFailed(done.argv, done.returncode, done.stderr)


def last_commit_unix(repo: Path, base: str, branch: str) -> float | None:
    """The time of the branch's latest commit beyond its base; None if there is none."""
    done = git(repo, "log", "-1", "--format=%ct", f"{base}..refs/heads/{branch}", "--", check=False)
    text = done.stdout.strip()
    return float(text) if done.ok and text.isdecimal() else None


def diff(repo: Path, base: str, tip: str) -> str:
    """The patch between two commits, independent of the user's settings. Raises TooMuch if it is too large."""
    plain = ["-p", "--full-index", "--find-renames", "--no-ext-diff", "--no-textconv", "--no-color"]
    args = ["diff-tree", "-r", *plain, base, tip, "--"]
    return git(repo, *args, timeout_s=300, most_bytes=MOST_DIFF).stdout


def file_text(repo: Path, tree: str, path: str) -> str:
    """A file of a commit or tree."""
    return git(repo, "cat-file", "blob", f"{tree}:{path}", most_bytes=MOST_DIFF).stdout


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


def worktrees(repo: Path, *, gone: bool = False) -> list[tuple[str, str]]:
    """Path and HEAD of every worktree; `gone`: only those whose directory is missing."""
    listed = git(repo, "worktree", "list", "--porcelain", "-z").stdout.split("\0\0")
    found = [rows(entry) for entry in listed if entry]
    return [
        (lines[0].removeprefix("worktree "), value_after("HEAD ", lines) or "")
        for lines in found
        if not gone or any(line.startswith("prunable") for line in lines)
    ]


def _has_checked_out(repo: Path, branch: str) -> bool:
    """Whether the repository's own checkout is on the branch, from git's files; False: ask git."""
    try:
        at = (repo / ".git/HEAD").read_text()
        return at.strip() == f"ref: refs/heads/{branch}" and not _NOT_PLAIN.search(
            (repo / ".git/config").read_text()
        )
    except (OSError, ValueError):
        return False


def _rebased_branch(worktree: Path) -> str | None:
    """The branch of a rebase in progress, during which git lists the worktree as detached."""
    if not worktree.is_dir():
        return None
    for path in git_paths(worktree, "rebase-merge/head-name", "rebase-apply/head-name"):
        try:
            return path.read_text().strip()
        except OSError:
            continue
    return None


def default_branch(repo: Path) -> str:
    """The branch that work lands on: the one checked out in the source, or named by its HEAD."""
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
        message=f"cannot determine the default branch of {repo}",
    )


_FETCHES = 3
_MOVED_MEANWHILE = pattern(r"cannot lock ref '[^']*': is at [0-9a-f]+ but expected ")


def has_moved(said: str) -> bool:
    """Whether git failed because another process moved the same ref."""
    return _MOVED_MEANWHILE.search(said) is not None


def fetch(repo: Path, source: str, branch: str, *more: str, timeout_s: float = 300) -> None:
    """Update origin/<branch>; the caller holds the repo lock, because parallel fetches fail.

    Fetches from `source` itself: the clone's `origin` is a setting that an agent can change. `more`: other refspecs to
    fetch too. Retries if the ref has moved meanwhile: the git of a killed process may still be fetching.
    """
    for _ in range(_FETCHES):
        done = git(
            repo,
            *["fetch", "--quiet", "--no-tags", "--no-auto-maintenance", source],
            *(f"+refs/heads/{branch}:refs/remotes/origin/{branch}", *more),
            check=False,
            timeout_s=timeout_s,
        )
        if done.ok:
            return
        if not has_moved(done.stderr):
            break
    raise ToolFailed(done.argv, done.returncode, done.stderr)


def own_user(repo: Path) -> dict[str, str]:
    """`user.name` and `user.email` in the repository's own settings."""
    which = ["--local", "-z", "--get-regexp", r"^user\.(name|email)$"]
    found = (row.partition("\n") for row in rows(git(repo, "config", *which, check=False).stdout))
    return {key: value.strip() for key, _, value in found if value.strip()}


def config_get(repo: Path, key: str, *kind: str) -> str | None:
    done = git(repo, "config", *kind, "--get", key, check=False)
    return done.stdout.strip() or None if done.ok else None
