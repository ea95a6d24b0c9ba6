"""A contained worker's own git directory, in `.llmc/repos/<worker>`.

A linked worktree cannot be contained: its agent would have to write the refs and objects of all workers, and settings
that run programs. So a contained worker has its own repository, which also reads objects from the root's clone
(alternates). llmc's git in the worktree uses that repository. The guard (repo/clone_guard.py) calls `take` before git
runs in the clone, and `give` before git runs in the worktree, so that both know the same commits.
"""

import os
import shlex
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from llmc.base import inside, locks, processes
from llmc.base.clock import monotonic
from llmc.base.errors import LlmcError, ToolFailed
from llmc.base.files import open_given, private_dir, write_atomic
from llmc.base.processes import wait_until
from llmc.base.text import in_line
from llmc.config import root_layout
from llmc.config.paths import Root
from llmc.repo import dead_locks, git, git_config, git_dirs, indexes, own_large_files
from llmc.repo.git_config import stamp
from llmc.repo.rules.clone_config import CLONE_SETTINGS
from llmc.sandbox import mount_points, probe, rules, shown_programs
from llmc.sandbox.rules import Mount, View

#: parts of a worktree's git entry that are not simply copied to its own repository
_OF_LINK = ("gitdir", "commondir", "config.worktree", "locked", "refs", "logs", "modules")
#: directories of submodules and large files
_OF_THEIR_OWN = ("modules", "lfs")
#: prefix of llmc's own files
OURS = "llmc-"
#: the `commondir` file: git finds the rest of the repository here. Read-only, it cannot name another directory
COMMON = b".\n"
#: where the clone keeps the HEAD of a contained worker
TAKEN = "refs/llmc/in/"

#: refspecs of the clone's remote-tracking branches and tags
_FOLLOWED = ("+refs/remotes/origin/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")
_QUIET = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-maintenance", "--no-recurse-submodules")
#: how long a fetch of one worker's commits may take
MOST_S = 600.0
#: how long a search for pipes may take while git runs
LOOK_S = 1.0
#: most characters of a refusal
_MOST_TEXT = 500
#: most bytes read of a file with an agent's refs
_MOST_REFS = 1 << 20
#: an agent's objects are checked before the clone has them, and on disk before a ref names them. Only version 2 of the
#: protocol serves a commit by its id
_CHECKED = (
    "transfer.fsckObjects=true",
    "core.fsync=committed",
    "core.fsyncMethod=batch",
    "protocol.version=2",
)
#: what a fetch runs in the worker's repository: clients may ask for an object that no ref names
_SERVED = ("git", "-c", "uploadpack.allowAnySHA1InWant=true", "upload-pack")


def path_of(root: Path, name: str) -> Path:
    return root / root_layout.REPOS / name


def branch_of(name: str) -> str:
    return f"refs/heads/llmc/{name}"


def names(root: str) -> list[str]:
    """The workers that use their own repository; one left beside a linked worktree has nothing new."""
    try:
        found = os.listdir(f"{root}/{root_layout.REPOS}")
    except OSError:
        return []
    worktrees = Path(root, root_layout.WORKTREES)
    return [name for name in found if not name.startswith(".") and git_dirs.own_repo(worktrees / name)]


def for_agents(own: Path, root: Path) -> tuple[list[str], list[str]]:
    """The paths of its repository that an agent may write, and those that it may only read."""
    fixed = ("config", "hooks", "info", "commondir", "objects/info/alternates")
    return [str(own)], [*(str(own / name) for name in fixed), str(root / ".git")]


def pointer(worktree: Path, own: Path) -> list[Mount]:
    """The mount of the `.git` file, from a copy that no agent can write.

    Empty unless `.git` is a file: bubblewrap would follow a link and mount elsewhere.
    """
    kept, wanted = git_dirs.kept_apart(own) / "git-file", git_dirs.pointer_to(own)
    if git_config.read_plainly(kept) != wanted:
        write_atomic(kept, wanted, mode=0o644)
    found = stamp(f"{worktree}/.git")
    return [Mount(f"{worktree}/.git", False, str(kept))] if found and stat.S_ISREG(found[0]) else []


@contextmanager
def box(root: Path, name: str) -> Iterator[git.Within]:
    """The box for llmc's git: a program that an agent makes git run is as contained as the agent itself."""
    if probe.bubblewrap() is None:
        raise _refusal(
            root,
            name,
            f"cannot run git in the repository of {name}: bubblewrap is not installed",
            f"Install bubblewrap, or run `llmc reset {name}`, which moves the repository to the trash.",
        )
    own, worktree = path_of(root, name), root / root_layout.WORKTREES / name
    home = os.environ.get("HOME", "")
    guard = git.guards.get(str(root))
    hidden = [place for place in (home, str(root), guard.source if guard else "") if os.path.isabs(place)]
    writable, fixed = for_agents(own, root)
    places = [
        *(Mount(path, True) for path in [*writable, str(worktree), str(git_dirs.for_git(own))]),
        *map(Mount, [*fixed, str(root / root_layout.SUBMODULES)]),
        *pointer(worktree, own),
        *map(Mount, shown_programs.of(("git", "git-lfs"), hidden)),
        *([Mount(f"{home}/.config/git/ignore", False, _ignores(home))] if os.path.isabs(home) else []),
    ]
    seen = (place for place in places if os.path.exists(place.source or place.path))
    system = probe.system_mounts(rules.ETC_OF_GIT)
    covered = ("/tmp", *mount_points.covered(hidden))
    view = View((*system, *seen), empty=covered, links=probe.system_links())
    with probe.box(view) as (words, descriptors):
        yield words, descriptors, lambda: refuse_odd_files(root, name, odd_in(own))


@cache
def _ignores(home: str) -> str:
    """The user's global ignore file, such as for editor files: the only one of their settings visible in a box."""
    usual = os.path.join(os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config", "git/ignore")
    return git.config_get(Path("/"), "core.excludesFile", "--path") or usual


_TAKES = 5
#: part of git's error while `git worktree add` makes another worker's entry, which has no commit for a moment
_UNFINISHED, UNFINISHED_S = "bad object worktrees/", 60.0


def watched(root: str, name: str) -> list[str]:
    """The files that change when `take` has something to do."""
    own = f"{root}/{root_layout.REPOS}/{name}"
    places = [f"{own}/HEAD", f"{own}/packed-refs", f"{own}/{branch_of(name)}"]
    try:
        with open_given(Path(places[0])) as file:
            at = file.read(4096).decode().strip().removeprefix("ref: ")
    except (OSError, ValueError):
        at = ""
    elsewhere = at.startswith("refs/heads/") and ".." not in at
    return [
        *places,
        *([f"{own}/{at}"] if elsewhere else []),
        f"{root}/.git/{TAKEN}{name}",
        f"{root}/.git/{branch_of(name)}",
    ]


def claims(root: Path, name: str, commit: str) -> bool:
    """Whether a worker's refs name a commit, which may be another worker's: an agent can write these files."""
    own = path_of(root, name)
    for path in watched(str(root), name)[:-2]:
        try:
            if commit.encode() in inside.read(own, os.path.relpath(path, own), _MOST_REFS):
                return True
        except (OSError, ValueError):
            continue
    return False


def take(root: Path, name: str, limit_s: float = MOST_S) -> str:
    """Fetch a contained worker's commits into the clone; returns why they are refused, "" if they are not.

    An agent wrote what is read here, so any failure is a refusal, of this worker only.
    """
    try:
        for _ in range(_TAKES):
            refusal = _take(root, name, limit_s)
            if not git.has_moved(refusal):  # else another process took the same commits; look again
                break
    except ToolFailed as error:
        refusal = error.message
    except LlmcError:
        raise  # a problem of the clone
    except Exception as error:
        refusal = f"its repository cannot be read: {str(error) or type(error).__name__}"
    return in_line(refusal)[:_MOST_TEXT]


def _take(root: Path, name: str, limit_s: float) -> str:
    own = path_of(root, name)
    if problem := _problem(root, name):
        return problem
    wanted = {TAKEN + name: git.resolve(own, "HEAD"), branch_of(name): git.resolve(own, branch_of(name))}
    # By id: an agent may move the ref meanwhile, to a commit whose large files were not copied.
    moves = [
        f"+{commit}:{ref}" for ref, commit in wanted.items() if commit and commit != git.resolve(root, ref)
    ]
    if not moves:
        return ""
    asked = "".join(f"{commit}\n" for commit in wanted.values() if commit)
    kinds = git.git(own, "cat-file", "--batch-check=%(objecttype)", input=asked.encode(), check=False).stdout
    if others := {*kinds.split()} - {"commit"}:
        return f"HEAD or {branch_of(name)} is not a commit, but: {', '.join(sorted(others))}"
    return fetch(root, own, *moves, limit_s=limit_s)


def refuse_odd_files(root: Path, name: str, odd: str = "") -> None:
    if problem := f"{odd[:_MOST_TEXT]} is not a regular file" if odd else _problem(root, name):
        raise _refusal(
            root,
            name,
            f"cannot read {name}'s repository: {in_line(problem)}",
            f"Run `llmc reset {name}`, which moves the repository to the trash.",
        )


def refuse_another_repository(root: Path, name: str) -> None:
    """Refuse a changed `.git` of a contained worker; only the user can change it, since the agent may only read it.

    It is not repaired here: a new file in its place would not be read-only for a running agent.
    """
    pointer = root / root_layout.WORKTREES / name / ".git"
    if git_config.read_plainly(pointer) != git_dirs.pointer_to(path_of(root, name)):
        raise _refusal(
            root,
            name,
            f"{pointer} does not point to the repository of {name}",
            f"Run `llmc reset {name}`, which starts a new agent there; the files are kept.",
        )


def _refusal(root: Path, name: str, message: str, hint: str) -> ToolFailed:
    argv = ["git", "-C", str(root / root_layout.WORKTREES / name)]
    return ToolFailed(argv, None, "", message=message, hint=hint)


def _problem(root: Path, name: str) -> str:
    """Why git must not read a worker's repository; "" if it may."""
    if odd := odd_file(root, name):
        return f"{odd[:_MOST_TEXT]} is not a regular file"
    index = path_of(root, name) / "index"
    return indexes.problem(index) if indexes.is_too_large(index) else ""


def odd_file(root: Path, name: str) -> str:
    """A pipe or the like in place of a file that git uses, "" if none: git, and with it every command, would wait."""
    own = f"{root}/{root_layout.REPOS}/{name}"
    files = [
        *watched(str(root), name),
        *(f"{own}/{one}" for one in ("index", "logs/HEAD", f"logs/{branch_of(name)}")),
    ]
    return next((path for path in files if not _is_plain(path)), "")


def odd_in(place: Path | str) -> str:
    """The same for every file of a repository, while git takes longer. An agent's own objects are few."""
    until, folders = monotonic() + LOOK_S, [os.fspath(place)]
    while folders and monotonic() < until:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders += [entry.path] if entry.name not in _OF_THEIR_OWN else []
                    elif _would_wait(entry):
                        return entry.path
        except OSError:
            continue  # it is gone, or git cannot read it either
    return ""


def _would_wait(entry: "os.DirEntry[str]") -> bool:
    """Whether git could wait for an entry, or read it endlessly: neither file nor directory, also behind a link."""
    try:
        mode = entry.stat().st_mode
    except OSError:
        return False  # a link to nothing
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _is_plain(path: str) -> bool:
    found = stamp(path)
    return found is None or stat.S_ISREG(found[0])


def fetch(root: Path, own: Path, *moves: str, limit_s: float = MOST_S) -> str:
    """Fetch commits or trees from a worker's repository into the clone, checked; returns git's refusal, "" if none.

    Their large files come first, so that everything in the clone is complete.
    """
    until = monotonic() + limit_s
    guard = git.guards.get(str(root))
    commits = [move.removeprefix("+").partition(":")[0] for move in moves]
    try:
        own_large_files.take(root, own, commits, guard.base if guard else "", until)
    except ToolFailed as error:
        return error.message
    refusal = _fetch(root, own, *moves, until=until)
    if _UNFINISHED in refusal:
        # The process that makes the worktree holds the repo lock. This thread may hold a later lock, so it only waits.
        most = min(UNFINISHED_S, max(0.0, until - monotonic()))
        wait_until(lambda: not locks.is_locked_by_others(Root(root).lock("repo")), most, interval_s=0.02)
        refusal = _fetch(root, own, *moves, until=until)
    elif dead_locks.named_in(refusal, root) is not None:  # the lock is gone by now, unless it is needed
        refusal = _fetch(root, own, *moves, until=until)
    return refusal


def _fetch(root: Path, own: Path, *moves: str, until: float) -> str:
    began, timeout_s = time.time(), max(0.0, until - monotonic())
    settings = [word for setting in _CHECKED for word in ("-c", setting)]
    with box(root, own.name) as (words, descriptors, look):
        served = [f"--upload-pack={_contained(words, *_SERVED)}"] if words else []
        command = [*settings, "fetch", *_QUIET, "--update-head-ok", *served, str(own), *moves]
        try:
            done = git.git(
                root, *command, check=False, timeout_s=timeout_s, inherits=descriptors, meanwhile=look
            )
        except ToolFailed as error:
            _drop_unfinished_packs(root, began)
            return error.message
    return (
        "" if done.ok else " ".join(done.stderr.split())[:500] or f"git fetch exited with {done.returncode}"
    )


def _drop_unfinished_packs(root: Path, since_unix: float) -> None:
    """Remove the pack that a killed git left unfinished; a running git has its pack open."""
    for path in (root / ".git/objects/pack").glob("tmp_pack_*"):
        with suppress(OSError):
            if path.stat().st_mtime >= since_unix - 1 and not processes.works_in(str(path)):
                path.unlink()


def _contained(words: Sequence[str], *command: str) -> str:
    """A shell command that runs in the box. The box gets no other variables: /proc/1/environ shows them inside."""
    given = [f"{name}={value}" for name, value in git.env_in_box().items()]
    return shlex.join(["env", "-i", *given, *words, *command])


def give(root: Path, name: str, base: str) -> None:
    """Fetch the clone's remote-tracking branches and tags into a worker's repository, if `base` differs."""
    own = path_of(root, name)
    commit = git.resolve(root, base)
    if commit is None or git.resolve(own, base) == commit:
        return
    git.git(own, "fetch", *_QUIET, str(root / ".git"), *_FOLLOWED, timeout_s=300)


def make(root: Path, worker: str, tip: str, settings: Iterable[tuple[str, str]], entry: Path | None) -> Path:
    """Create the repository with its branch at `tip`, completely or not at all.

    `entry`: the worktree's git entry in the clone (index, HEAD, a rebase in progress), to be copied.
    """
    import shutil  # saves 2 ms in most commands

    own = path_of(root, worker)
    new = private_dir(own.parent) / f".{worker}.new"
    beside = new.with_name(f".{worker}.tree")
    for left in (new, beside):  # by a killed process
        shutil.rmtree(left, ignore_errors=True)
    kind = ["--object-format=sha256"] if len(tip) == 64 else []
    branch = branch_of(worker)
    git.git(
        own.parent,
        *["init", "--quiet", "--template=", f"--initial-branch={branch.removeprefix('refs/heads/')}", *kind],
        *[f"--separate-git-dir={new}", str(beside)],
    )
    shutil.rmtree(beside)
    for folder in ("hooks", "info", "objects/info"):
        (new / folder).mkdir(mode=0o700, exist_ok=True)
    write_atomic(new / "objects/info/alternates", f"{root}/.git/objects\n".encode(), mode=0o644)
    write_atomic(new / "commondir", COMMON, mode=0o644)
    for name in ("shallow", "info/exclude"):
        if (root / ".git" / name).exists():
            shutil.copyfile(root / ".git" / name, new / name)
    for key, value in settings:
        git.git(new, "config", "--add", key, value)
    git.git(new, "fetch", *_QUIET, str(root / ".git"), *_FOLLOWED, timeout_s=300)
    git.git(new, "update-ref", branch, tip)
    shutil.rmtree(git_dirs.kept_apart(own))  # from an earlier repository
    if entry is not None:
        _copy(entry, new)
        for path in new.glob(f"{OURS}*"):
            os.rename(path, git_dirs.kept_apart(own) / path.name)
    os.rename(new, own)
    return own


def settings(root: Path, identity: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The clone's settings, adapted to a worker's repository. They are read-only: git must not want to write any.

    `origin` is the clone: an agent does not see the source, and fetches what the clone has from it.
    """
    shared = [(key, value) for key, value in CLONE_SETTINGS.items() if not key.startswith("extensions.")]
    origin = [("remote.origin.url", f"{root}/.git"), *(("remote.origin.fetch", spec) for spec in _FOLLOWED)]
    return [*shared, *origin, ("branch.autoSetupMerge", "false"), *identity]


def _copy(entry: Path, own: Path) -> None:
    """Copy index, HEAD and operations in progress, and reflogs, which name commits that may be worth finding."""
    import shutil  # saves 2 ms in most commands

    for path in entry.iterdir():
        if path.name in _OF_LINK or path.name.endswith(".lock"):
            continue
        if path.is_dir():
            shutil.copytree(path, own / path.name, symlinks=True)
        else:
            shutil.copy2(path, own / path.name, follow_symlinks=False)
    for inner in ("refs", "logs"):
        if (entry / inner).is_dir():
            shutil.copytree(entry / inner, own / inner, dirs_exist_ok=True, symlinks=True)


def point(worktree: Path, own: Path) -> None:
    """Point a worktree to its own repository. No agent may be running in it."""
    write_atomic(worktree / ".git", git_dirs.pointer_to(own), mode=0o644)
