"""Nothing is ever deleted: what a reset would remove is pinned under a trash ref first."""

import contextlib
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from llmc.config.paths import Root
from llmc.errors import LlmcError
from llmc.state.store import Store
from llmc.tools import git
from llmc.tools.files import explain, private_dir

#: larger untracked files, and nested repositories, are moved into the trash directory instead of into git
MAX_PINNED_BYTES = 20 * 1024 * 1024

PREFIX = "refs/llmc/trash/"

_IDENTITY = {
    "GIT_AUTHOR_NAME": "llmc",
    "GIT_AUTHOR_EMAIL": "llmc@localhost",
    "GIT_COMMITTER_NAME": "llmc",
    "GIT_COMMITTER_EMAIL": "llmc@localhost",
}


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
) -> str:
    """Keep HEAD, changed and untracked files of a worktree as a commit; the ref that names it.

    With `branch`, its tip is kept too, when HEAD is somewhere else; so are further `tips`; `ignored` names ignored
    files to keep. Without `move_out`, what does not fit into git stays where it is. A pin that fails raises, and so stops the step that wanted to remove something; the worktree is then as it was.
    """
    ref = _new_ref(root, worker, why)
    head = git.resolve(worktree, "HEAD")  # None: an orphan branch without a commit
    state = git.tree_state(worktree)
    untracked = git.untracked_files(worktree) if state.untracked else ()
    unfit = [name for name in untracked if not _fits_into_git(worktree / name)]
    others = [tip for tip in [git.resolve(worktree, f"refs/heads/{branch}")] if tip] if branch else []
    others = [tip for tip in dict.fromkeys([*others, *tips]) if tip != head]
    commit = head
    if commit is None or others or ignored or not state.clean:
        commit = _snapshot(worktree, head, others, unfit, ignored, f"llmc: pinned before {why}")
    _keep(worktree, ref, commit, worker)
    if move_out:
        take_out(worktree, unfit, folder_of(root, ref))
    return ref


def pin_commit(root: Root, worker: str, why: str, commit: str) -> str:
    """Keep a commit that no worktree has checked out; the ref that names it."""
    ref = _new_ref(root, worker, why)
    _keep(root.path, ref, commit, worker)
    return ref


def folder_of(root: Root, ref: str) -> Path:
    """The directory for what belongs to a ref but is not in git."""
    worker, _, rest = short(ref).partition("/")
    return root.trash / f"{worker}-{'-'.join(rest.split('-')[:2])}"


def _new_ref(root: Root, worker: str, why: str) -> str:
    """A name for what is to be kept, and in the event log: whatever crashes, nothing is here that nobody knows of."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + f"-{os.urandom(2).hex()}"
    ref = f"{PREFIX}{worker}/{stamp}-{why}"
    # A broken state must not keep anybody from keeping work.
    with contextlib.suppress(LlmcError), Store(root).transaction() as tx:
        tx.emit("pinning", worker=worker, reason=why, ref=ref)
    return ref


def _keep(repo: Path, ref: str, commit: str, worker: str) -> None:
    git.git(repo, "update-ref", "-m", "llmc: pinned", ref, commit)
    if git.resolve(repo, ref) != commit:
        raise LlmcError(f"{worker}: its work could not be pinned under {ref}; nothing was removed")


def short(ref: str) -> str:
    """A trash ref as people write it: `adam/20261115T101612-1a2a-reset`."""
    return ref.removeprefix(PREFIX)


def prune(root: Root, keep_days: int, now: float) -> list[str]:
    """Remove what has been in the trash for longer than it is kept; the refs that are gone."""
    oldest = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now - keep_days * 86400))
    refs = git.out(root.path, "for-each-ref", "--format=%(refname)", "refs/llmc/trash").splitlines()
    old = [ref for ref in refs if ref.rpartition("/")[2] < oldest]
    for ref in old:
        git.git(root.path, "update-ref", "-d", ref)
    for folder in root.trash.glob("*-*T*-*"):
        if "-".join(folder.name.rsplit("-", 2)[1:]) < oldest:
            for place, _, _ in os.walk(folder):
                os.chmod(place, 0o700)  # tools' caches have read-only directories
            shutil.rmtree(folder)
    return old


def _snapshot(
    worktree: Path,
    head: str | None,
    others: list[str],
    unfit: list[str],
    ignored: Sequence[str],
    message: str,
) -> str:
    """A commit of the worktree as it is; its further parents keep what is in neither HEAD nor the files."""
    tree = _tree_of_files(worktree, head, unfit, ignored)
    staged = _tree_of_index(worktree)
    born = [head] if head else []
    parents = born + [tip for tip in others if head is None or not git.is_ancestor(worktree, tip, head)]
    if staged not in (None, tree, *(git.tree_of(worktree, commit) for commit in born)):
        parents.append(_commit(worktree, str(staged), born, f"{message} (what was staged)"))
    if head and parents == [head] and tree == git.tree_of(worktree, head):
        return head
    return _commit(worktree, tree, parents, message)


def _commit(worktree: Path, tree: str, parents: list[str], message: str) -> str:
    flags = [flag for parent in parents for flag in ("-p", parent)]
    return git.git(worktree, "commit-tree", tree, *flags, "-m", message, env=_IDENTITY).stdout.strip()


def _tree_of_files(worktree: Path, head: str | None, unfit: list[str], ignored: Sequence[str]) -> str:
    """The files as a tree, made with an index of its own: the worktree and its index do not change."""
    index = git.git_paths(worktree, f"llmc-pin-{os.getpid()}")[0]
    env = {"GIT_INDEX_FILE": str(index)}
    add = ["-c", "core.safecrlf=false", "add", "--pathspec-from-file=-", "--pathspec-file-nul"]
    fit = [".", *(f":(exclude,literal){name.rstrip('/')}" for name in unfit)]
    try:
        git.git(worktree, "read-tree", head or "--empty", env=env)
        git.git(worktree, *add, "--all", env=env, input=_nul_separated(fit), timeout_s=300)
        if ignored:
            exactly = [f":(literal){name}" for name in ignored]
            git.git(worktree, *add, "--force", env=env, input=_nul_separated(exactly), timeout_s=300)
        return git.git(worktree, "write-tree", env=env).stdout.strip()
    finally:
        index.unlink(missing_ok=True)


def _tree_of_index(worktree: Path) -> str | None:
    """What is staged, as a tree; None in the middle of a conflict."""
    index, copy = git.git_paths(worktree, "index", f"llmc-staged-{os.getpid()}")
    try:
        shutil.copyfile(index, copy)
        done = git.git(worktree, "write-tree", env={"GIT_INDEX_FILE": str(copy)}, check=False)
    except FileNotFoundError:
        return None
    finally:
        copy.unlink(missing_ok=True)
    return done.stdout.strip() if done.ok else None


def _nul_separated(names: Sequence[str]) -> bytes:
    return "\0".join(names).encode("utf-8", "surrogateescape")


def _fits_into_git(path: Path) -> bool:
    """A nested repository (the only directory git lists) would become a mere link, a huge file would stay forever."""
    return path.is_symlink() or (not path.is_dir() and _size(path) <= MAX_PINNED_BYTES)


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0


def take_out(worktree: Path, names: list[str], folder: Path) -> None:
    """Out of a worktree, into the trash directory."""
    for name in names:
        target = private_dir(folder) / name.rstrip("/")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(worktree / name, target)
        except OSError as error:
            raise explain(error, f"cannot move {worktree / name} to {folder}") from error
