"""The trash: what a reset would remove is pinned under a trash ref first."""

import contextlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath

import msgspec

from llmc.base import inside
from llmc.base.errors import LlmcError
from llmc.base.files import explain, private_dir, unique, write_atomic
from llmc.base.names import WorkerName
from llmc.base.text import pattern
from llmc.config.paths import Root
from llmc.records.store import Store
from llmc.repo import git, git_dirs, indexes, uncommitted

#: larger untracked files, and nested repositories, go to the trash directory instead of into git
MAX_PINNED_BYTES = 20 * 1024 * 1024

PREFIX = "refs/llmc/trash/"

#: names that git does not store in a tree, or cannot check out on some systems
_NOT_FOR_GIT = pattern(r"(\.git|git~1)[ .]*([\\:].*)?", re.IGNORECASE | re.DOTALL)

#: subject prefix of commits that save uncommitted files
PINNED = "llmc: pinned before"


class Task(msgspec.Struct, frozen=True):
    """The task of pinned work, with fields as in the worker's record."""

    current_prompt: str = ""
    current_subject: str = ""
    task_prompt: str = ""


class NotSaved(LlmcError):
    """The clone refuses a pin made in a contained worker's repository; nothing was removed."""


def pin(
    root: Root,
    worktree: Path,
    worker: str,
    why: str,
    *,
    branch: str = "",
    ignored: Sequence[str] = (),
    tips: Sequence[str] = (),
    move_out: bool = True,
    known: uncommitted.TreeState | None = None,
    index: Path | None = None,
) -> str:
    """Save HEAD, changed and untracked files of a worktree as a commit; returns its ref.

    With `branch`, its tip is saved too if HEAD is elsewhere, and so are further `tips`. `ignored` names ignored files
    and directories to save. Without `move_out`, untracked files that do not fit into git stay where they are. `known`:
    the caller's recent status of the worktree. `index`: a path from `indexes.own_index`, for an index with exactly what was
    saved; there is none if HEAD has it all. A failed pin raises, which stops the caller from removing anything; the
    worktree is then unchanged.
    """
    ref = _new_ref(root, worker, why)
    head = git.resolve(worktree, "HEAD")  # None: an orphan branch without commits
    state = known or uncommitted.tree_state(worktree)
    untracked = uncommitted.untracked_files(worktree) if state.untracked else ()
    forced = [*_files_at(worktree, ignored), *(_newly_staged(worktree, head) if state.tracked else ())]
    unfit = [*_unfit(worktree, untracked), *_without_content(worktree, state.tracked)]
    too_much = _unfit(worktree, forced) if move_out else [name for name in forced if name.endswith("/")]
    kept_out = {*too_much, *_without_content(worktree, forced)}
    forced = [name for name in forced if name not in kept_out]
    others = [tip for tip in [git.resolve(worktree, f"refs/heads/{branch}")] if tip] if branch else []
    others = [tip for tip in dict.fromkeys([*others, *tips]) if tip != head]
    commit, inexact = head, list[str]()
    with contextlib.nullcontext(index) if index else indexes.own_index(worktree) as at:
        if commit is None or others or ignored or not state.clean:
            made = indexes.Files(worktree, at)
            commit = _snapshot(made, head, others, unfit, forced, f"{PINNED} {why}")
            inexact = made.inexact(head) if move_out or ignored else []
    _keep(root, worktree, ref, commit, worker)
    gone = dict.fromkeys([*(unfit if move_out else ()), *too_much])
    folder, top = folder_of(root, ref), _top(root, worktree)
    copy_out(worktree, inexact, folder, top=top)
    take_out(worktree, gone, folder, top=top)
    return ref


def in_the_way(worktree: Path, head: str | None, commit: str) -> set[str]:
    """Ignored files that `reset --hard` would remove to make room for files of a commit.

    These are ignored files that the commit adds, directories with ignored files where the commit has a file, and files
    where it has a directory.
    """
    before = head or indexes.no_tree(worktree)
    kinds = ["--name-only", "-z", "--no-renames", "--diff-filter=AT"]
    added = git.listed(worktree, "diff-tree", "-r", *kinds, before, commit, timeout_s=300)
    return obstacles(worktree, added)


def of_another_kind(worktree: Path, changed: Iterable[str]) -> set[str]:
    """The same for tracked files whose kind the agent changed; `changed`: those that differ from HEAD."""
    return obstacles(worktree, [name for name in changed if not _is_file(worktree / name)])


def obstacles(worktree: Path, names: Iterable[str]) -> set[str]:
    """What blocks these files: something at the path, or a file where the path needs a directory."""
    return {_obstacle(worktree, name) for name in names} - {""}


def _obstacle(worktree: Path, name: str) -> str:
    """What blocks a path: something at it, or a file where it needs a directory; "" for nothing."""
    place = str(worktree)
    parts = name.split("/")
    if {"", ".", ".."} & {*parts}:  # a forged tree: git does not check it out
        return ""
    for count, part in enumerate(parts, start=1):
        place = os.path.join(place, part)
        if not os.path.lexists(place):
            return ""
        if os.path.islink(place) or not os.path.isdir(place):
            return "/".join(parts[:count])
    return name


def remove_untracked(root: Root, worktree: Path, worker: str, why: str, kept: str | None) -> str | None:
    """Remove what `clean -d` would, but a file only if a ref has its exact content.

    `kept` is the ref of an earlier pin. Files that it lacks are added to it, or to a new ref. Returns the ref, None if
    nothing had to be pinned.
    """
    places = uncommitted.untracked_places(worktree)
    if not places:
        return kept
    names = uncommitted.untracked_files(worktree)
    if names:
        kept = _pin_files(root, worktree, worker, why, kept, names)
    top = _top(root, worktree)
    for name in names:
        place = _below(top, worktree, name)
        try:
            with contextlib.suppress(FileNotFoundError):
                inside.remove(top, place)
        except OSError as error:
            raise explain(error, f"cannot remove {worktree / name}") from error
        _remove_empty(top, worktree, os.path.dirname(name))
    return _sweep(root, worktree, worker, why, kept, places)


def _pin_files(
    root: Root, worktree: Path, worker: str, why: str, kept: str | None, names: Sequence[str]
) -> str | None:
    """Save these files in the ref; nested repositories and huge files move to its trash directory."""
    start = kept or git.head(worktree)
    unfit = _unfit(worktree, names)
    fit = [name for name in names if name not in unfit]
    with indexes.own_index(worktree) as index:
        made = indexes.Files(worktree, index)
        tree = _tree_of_files(made, start, [], fit, rest=False)
        inexact = made.inexact(start)
    known = git.tree_of(worktree, start)
    if kept and tree == known and not unfit:
        return kept
    ref = kept or _new_ref(root, worker, why)
    commit = git.resolve(worktree, start)
    assert commit is not None
    if tree != known:
        commit = _commit(worktree, tree, [commit], f"{PINNED} {why}")
    _keep(root, worktree, ref, commit, worker)
    copy_out(worktree, inexact, folder_of(root, ref), top=_top(root, worktree))
    take_out(worktree, unfit, folder_of(root, ref), top=_top(root, worktree))
    return ref


def _sweep(
    root: Root, worktree: Path, worker: str, why: str, kept: str | None, places: Iterable[str]
) -> str | None:
    """Remove directories without files. A damaged `.git` in them, which git does not list, goes to the trash."""
    top = _top(root, worktree)
    left = [
        name for place in places if place.endswith("/") for name in _odd(top, worktree, place.rstrip("/"))
    ]
    ignored = set(uncommitted.ignored_of(worktree, left)) if left else set()
    damaged = [name for name in left if name.endswith("/.git") and name not in ignored]
    if damaged:
        kept = kept or pin_commit(root, worker, why, git.head(worktree))
        take_out(worktree, damaged, folder_of(root, kept), top=top)
    for name in left:
        if name not in ignored:
            _remove_empty(top, worktree, os.path.dirname(name) if name in damaged else name)
    return kept


def _odd(top: Path, worktree: Path, place: str) -> list[str]:
    """Empty directories below a directory, and anything named `.git`."""
    found = []
    start = worktree.relative_to(top)
    with contextlib.suppress(OSError):  # gone, or replaced by a link, which the next check finds
        for at, folders, files in inside.walk(top, _below(top, worktree, place)):
            if ".git" in (*folders, *files):
                found.append(f"{PurePath(at.path).relative_to(start)}/.git")
                folders[:] = [inner for inner in folders if inner != ".git"]
            elif not folders and not files:
                found.append(str(PurePath(at.path).relative_to(start)))
    return found


def _remove_empty(top: Path, worktree: Path, name: str) -> None:
    """Remove an empty directory, and parents that become empty."""
    if name:
        with contextlib.suppress(OSError):
            inside.remove_empty(top, str(worktree.relative_to(top)), name)


def _top(root: Root, place: Path) -> Path:
    """The worktree or slot that a place is in: an agent can replace a submodule there, but not the worktree itself."""
    for above in (root.worktrees, root.slots):
        if place.is_relative_to(above):
            return above / place.relative_to(above).parts[0]
    return place


def _below(top: Path, place: Path, name: str) -> str:
    return str(place.relative_to(top) / name)


def pin_commit(root: Root, worker: str, why: str, commit: str) -> str:
    """Save a commit that no worktree has checked out; returns its ref."""
    return _pin_made(root, root.path, worker, why, commit)


def _pin_made(root: Root, repo: Path, worker: str, why: str, commit: str) -> str:
    ref = _new_ref(root, worker, why)
    _keep(root, repo, ref, commit, worker)
    return ref


def pin_entry(
    root: Root, place: Path, worker: str, why: str, *, tips: Sequence[str] = (), saved: str | None = None
) -> str | None:
    """Save what only git has of a worktree whose files are gone: HEAD, staged changes and further `tips`.

    `place`: git's entry for it, or the worktree if it has its own repository. Returns the ref, None if there is
    nothing. `saved`: a commit with staged changes that were saved before.
    """
    head = git.resolve(place, "HEAD")
    staged = _tree_of_index(place)
    known = git.out(place, "rev-parse", saved, f"{saved}^@").split() if saved else []
    trees = {git.tree_of(place, commit) for commit in [*([head] if head else []), *known]}
    born = [head] if head else []
    loose = [tip for tip in dict.fromkeys([*born, *tips]) if _is_loose(root, place, tip)]
    if staged is not None and staged not in trees:
        born += [tip for tip in loose if tip != head]
        return _pin_made(root, place, worker, why, _commit(place, staged, born, f"{PINNED} {why}"))
    if not loose:
        return None
    first, *others = loose
    commit = _commit(place, git.tree_of(place, first), loose, f"{PINNED} {why}") if others else first
    return _pin_made(root, place, worker, why, commit)


def _is_loose(root: Root, place: Path, commit: str) -> bool:
    """Whether a commit exists, and no ref of the clone has it."""
    if git.has_commit(root.path, commit):
        return not git.is_named(root.path, commit)
    return git.has_commit(place, commit)


def folder_of(root: Root, ref: str) -> Path:
    """The directory for files of a ref that are not in git."""
    worker, _, rest = short(ref).partition("/")
    return root.trash / f"{worker}-{'-'.join(rest.split('-')[:2])}"


def _new_ref(root: Root, worker: str, why: str) -> str:
    """A new trash ref, logged first, so that a crash leaves nothing unknown."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + f"-{os.urandom(2).hex()}"
    ref = f"{PREFIX}{worker}/{stamp}-{why}"
    # A broken state must not prevent saving work.
    with contextlib.suppress(LlmcError), Store(root).transaction() as tx:
        tx.emit("pinning", worker=worker, reason=why, ref=ref)
    return ref


def _keep(root: Root, repo: Path, ref: str, commit: str, worker: str) -> None:
    """Create the ref, and verify that it and all its objects exist; for a contained worker, in the clone."""
    git.git(repo, *indexes.DURABLE, "update-ref", "-m", "llmc: pinned", ref, commit)
    refused = ""
    if (own := git_dirs.own_repo(repo)) is not None:
        from llmc.repo import own_repos  # most workers are not contained

        refused = own_repos.fetch(root.path, own, f"+{ref}:{ref}")
        repo = root.path
    # Objects on remote-tracking branches existed before and are not checked again.
    walk = ["rev-list", "--objects", "--quiet", commit, "--not", "--remotes"]
    whole = git.git(repo, *walk, check=False, timeout_s=300)
    if refused or not whole.ok or git.resolve(repo, ref) != commit:
        problem = refused or whole.stderr.strip()
        said = f": {problem}" if problem else ""
        raise (NotSaved if refused else LlmcError)(
            f"cannot save the work of {worker} as {ref}{said}; nothing was removed",
            hint="Run `llmc doctor` to check the disk and the root's clone.",
        )
    # Landed or rebased work is not continued, and a night has a lot of it; a submodule's ref is in its own repository.
    if not ref.endswith((f"-{ACCEPTED}", "-rebase")) and git.resolve(root.path, ref):
        _keep_task(root, ref, worker)


def _keep_task(root: Root, ref: str, worker: str) -> None:
    """Save what the worker was doing; a task that cannot be read or written must not prevent saving work."""
    with contextlib.suppress(LlmcError):
        record = Store(root).read().workers.get(WorkerName(worker))
        if record is not None and record.current_prompt:
            task = Task(record.current_prompt, record.current_subject, record.task_prompt)
            private_dir(root.trash_tasks)
            write_atomic(task_file(root, ref), msgspec.json.encode(task))


def task_file(root: Root, ref: str) -> Path:
    """The file for the task of a ref."""
    return root.trash_tasks / f"{folder_of(root, ref).name}.json"


def task_of(root: Root, ref: str) -> Task:
    """The task of a ref; empty if it is not known."""
    try:
        return msgspec.json.decode(task_file(root, ref).read_bytes(), type=Task)
    except (OSError, msgspec.DecodeError):
        return Task()


def safe(name: str) -> str:
    """A name made safe for a ref and a file name."""
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in name).strip("-") or "unnamed"


#: the reason of a pin with a worker's own commits that landed squashed
ACCEPTED = "accepted"


def late_key(about: str) -> str:
    """The key of the attention item about late commits: by ref, or by worker until they are pinned."""
    return f"late:{about}"


def short(ref: str) -> str:
    """The short name of a trash ref: `adam/20261115T101612-1a2a-reset`."""
    return ref.removeprefix(PREFIX)


def _snapshot(
    made: indexes.Files,
    head: str | None,
    others: list[str],
    unfit: list[str],
    forced: Sequence[str],
    message: str,
) -> str:
    """Commit the worktree as it is; further parents hold content that is in neither HEAD nor the files."""
    worktree, tree = made.worktree, _tree_of_files(made, head, unfit, forced)
    staged = _tree_of_index(worktree)
    born = [head] if head else []
    parents = born + [tip for tip in others if head is None or not git.is_ancestor(worktree, tip, head)]
    if staged not in (None, tree, *(git.tree_of(worktree, commit) for commit in born)):
        parents.append(_commit(worktree, str(staged), born, f"{message} (staged changes)"))
    if head and parents == [head] and tree == git.tree_of(worktree, head):
        return head
    return _commit(worktree, tree, parents, message)


def _commit(worktree: Path, tree: str, parents: list[str], message: str) -> str:
    flags = [flag for parent in parents for flag in ("-p", parent)]
    made = git.git(
        worktree, *indexes.DURABLE, "commit-tree", tree, *flags, "-m", message, env=git.OWN_IDENTITY
    )
    return made.stdout.strip()


def is_pin(repo: Path, commit: str) -> bool:
    """Whether llmc made this commit to save uncommitted files."""
    made = git.out(repo, "show", "--no-patch", "--format=%ae %s", commit)
    return made.startswith(f"{git.OWN_IDENTITY['GIT_AUTHOR_EMAIL']} {PINNED}")


def files_as_tree(worktree: Path, head: str) -> tuple[str, tuple[str, ...]]:
    """A worktree's files as a tree, committed or not, and the names that do not fit into one. Changes nothing."""
    changed = uncommitted.tree_state(worktree, untracked=False).tracked
    unfit = [*_unfit(worktree, uncommitted.untracked_files(worktree)), *_without_content(worktree, changed)]
    with indexes.own_index(worktree) as index:
        return _tree_of_files(indexes.Files(worktree, index), head, unfit, ()), tuple(unfit)


def _tree_of_files(
    made: indexes.Files, head: str | None, unfit: list[str], forced: Sequence[str], *, rest: bool = True
) -> str:
    """The files as a tree, made with a separate index: the worktree and its index do not change.

    `forced` are added even if ignored; without `rest`, the other paths stay as in `head`.
    """
    fit = [".", *(f":(exclude,literal){name.rstrip('/')}" for name in unfit)]
    exactly = [f":(literal){name}" for name in forced]
    if head:
        _refuse_too_many(made.worktree, "ls-tree", "-r", "--name-only", "-z", head)
    made.git("read-tree", head or "--empty")
    left_out = indexes.left_out(made.worktree, head) if head and rest else []
    if left_out:
        made.git("update-index", "--skip-worktree", "-z", "--stdin", names=left_out)
    add = ["add", "--pathspec-from-file=-", "--pathspec-file-nul"]
    if rest:
        made.git(*add, "--all", names=fit)
    if exactly:
        made.git(*add, "--force", names=exactly)
    if rest:
        made.require_all(head, left_out, unfit)
    return made.write_tree()


def _refuse_too_many(worktree: Path, *listing: str, env: dict[str, str] | None = None) -> None:
    """Raise git.TooMuch before git writes an index of millions of files, which a few objects can name."""
    git.git(worktree, *listing, env=env, timeout_s=300, most_bytes=git.MOST_LISTED)


def _tree_of_index(worktree: Path) -> str | None:
    """The staged changes as a tree, without conflicted files, whose versions are in commits."""
    index, copy = git.git_dir(worktree) / "index", git.llmc_file(worktree, f"llmc-staged{unique()}")
    env = {"GIT_INDEX_FILE": str(copy)}
    try:
        indexes.copy(worktree, index, copy)
        _refuse_too_many(worktree, "ls-files", "-z", env=env)  # a sparse index names directories
        unmerged = git.listed(worktree, "ls-files", "--unmerged", "-z", env=env)
        if unmerged:
            # Mode 0 removes. With `--force-remove` git needs a worktree, which a lost one is not.
            none = "0" * len(unmerged[0].split()[1])
            names = dict.fromkeys(row.partition("\t")[2] for row in unmerged)
            rows = git.nul_separated(f"0 {none}\t{name}" for name in names)
            git.git(worktree, "update-index", "-z", "--index-info", env=env, input=rows)
        return git.git(worktree, *indexes.DURABLE, "write-tree", env=env).stdout.strip()
    except FileNotFoundError:
        return None
    finally:
        indexes.drop(copy)


def _newly_staged(worktree: Path, head: str | None) -> list[str]:
    """Files that are staged and not in HEAD: git may ignore them and would save only the staged version."""
    flags = ["--cached", "--ita-visible-in-index", "--name-only", "--no-renames", "--diff-filter=A", "-z"]
    since = head or indexes.no_tree(worktree)
    return [name for name in git.listed(worktree, "diff-index", *flags, since) if _is_file(worktree / name)]


def _is_file(path: Path) -> bool:
    """Whether a path is a file or a link, whatever the link points to."""
    return path.is_symlink() or (os.path.lexists(path) and not path.is_dir())


def _files_at(worktree: Path, names: Sequence[str]) -> list[str]:
    """Each name, and for a directory its contents, ignored or not."""
    folders = [name for name in names if not _is_file(worktree / name)]
    inside = uncommitted.untracked_files(worktree, *folders, ignored=True) if folders else ()
    return [*(name for name in names if name not in folders), *inside]


def _unfit(worktree: Path, names: Iterable[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if not _fits_into_git(worktree, name)]


def _fits_into_git(worktree: Path, name: str) -> bool:
    """Whether a file may go into git: a nested repository would become a mere link, a huge file would stay forever."""
    if any(_NOT_FOR_GIT.fullmatch(part) for part in name.split("/")):
        return False
    try:
        found = os.lstat(worktree / name)
    except (FileNotFoundError, NotADirectoryError):
        return True
    return stat.S_ISLNK(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_size <= MAX_PINNED_BYTES)


def _without_content(worktree: Path, names: Iterable[str]) -> list[str]:
    """Pipes, sockets and devices where git has a file: `git add` fails on them."""
    found = []
    for name in names:
        with contextlib.suppress(OSError):  # it is gone
            mode = os.lstat(worktree / name).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
                found.append(name)
    return found


def take_out(place: Path, names: Iterable[str], folder: Path, *, top: Path | None = None) -> None:
    """Move files to the trash, without overwriting. `top`: a directory around `place` that no agent can replace."""
    _bring(inside.move, "move", place, names, folder, top or place)


def copy_out(place: Path, names: Iterable[str], folder: Path, *, top: Path) -> None:
    """Copy files to the trash as they are, without overwriting."""
    _bring(inside.copy, "copy", place, names, folder, top)


def _bring(
    how: Callable[[Path, str, Path, str], None],
    verb: str,
    place: Path,
    names: Iterable[str],
    folder: Path,
    top: Path,
) -> None:
    for name in names:
        try:
            how(top, _below(top, place, name), private_dir(folder), name)
        except OSError as error:
            raise explain(error, f"cannot {verb} {place / name} to {folder}") from error
