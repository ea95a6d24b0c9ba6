"""Check that the source's default branch can be moved now, and move it, by fast-forward only."""

import os
import shlex
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Self

from llmc.base import locks, proc
from llmc.base.clock import Aside
from llmc.base.errors import LlmcError, Refused, ToolFailed
from llmc.base.processes import wait_until
from llmc.base.text import some_files
from llmc.records.items import NO_SOURCE
from llmc.records.store import Transaction
from llmc.repo import git, lfs, provision, uncommitted
from llmc.repo.project import Project

#: how long the user's git command may hold the index of the source
INDEX_LOCK_S = 2.0

#: the key of the attention item about a blocked source
SOURCE = "source"

_FETCH = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head")

_REFUSED_BY_HOOK = "Fix the error that git or the hook reported, then run the command again."


class BaseMoved(Exception):
    """The branch is no longer where it was when the commit was validated."""


class SourceBusy(Refused):
    """Uncommitted changes, a git operation, a hook or the remote is in the way; nothing was touched."""


class Unfinished(SourceBusy):
    """The user's git operation is unfinished, such as a merge with conflicts."""


class Ahead:
    """Facts about the source for an accept, collected in parallel."""

    def __init__(self, project: Project) -> None:
        self._stack = ExitStack()
        self._is_begun = False
        self.source = Aside(lambda: (time.monotonic(), check_source(project)))
        self.base = Aside(lambda: provision.refresh_base(project), limit_s=1000)

    def begin(self) -> None:
        if self._is_begun:
            return
        self._is_begun = True
        for aside in (self.source, self.base):
            self._stack.enter_context(aside)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


@contextmanager
def ticket(project: Project, timeout_s: float = 7200.0) -> Iterator[None]:
    """Hold the landing ticket: of all machines that share the remote, only its holder lands.

    First come, first served. The ticket ends with its holder's process.
    """
    shared = project.shared
    own = locks.lock(project.root.lock("ticket"), locks.Rank.TICKET, timeout_s=timeout_s)
    with own, shared.ledger.turn(timeout_s, project.stopping) if shared else nullcontext():
        yield


def merge_lock(project: Project) -> AbstractContextManager[None]:
    """Held while the branch moves."""
    return locks.lock(project.root.lock("merge"), locks.Rank.MERGE, timeout_s=600)


def check_source(project: Project) -> Path | None:
    """Refuse early if the source is missing or has uncommitted changes; returns the checkout that was checked.

    If work lands elsewhere, nothing of the user's can be in the way.
    """
    if project.lands_elsewhere:
        return None
    if provision.source_tip(project) is None:
        from llmc.repo import sources  # few sources are missing

        if missing := sources.look(project):
            raise missing
    return _check_checkout(project)


def _check_checkout(project: Project) -> Path | None:
    place = _checkout(project)
    if place is not None:
        _refuse_if_busy(place)
    return place


def blocked(project: Project, *, listed: bool) -> SourceBusy | None:
    """What blocks an accept: an unfinished git operation, or anything else if it is `listed` on the attention list."""
    try:
        if not project.lands_elsewhere:
            _check_checkout(project)
    except SourceBusy as error:
        return error if listed or isinstance(error, Unfinished) else None
    return None


def tell_source_busy(project: Project, tx: Transaction, error: SourceBusy) -> None:
    """Raise an attention item until work can land again, or `status` sees that the source is clean."""
    where = shlex.quote(project.upstream)
    look = f"git ls-remote {where}" if project.lands_elsewhere else f"git -C {where} status"
    about = {"kind": "source", "severity": "blocked", "who": project.upstream}
    tx.raise_item(SOURCE, text=error.message, next=look, **about)


def source_is_free(project: Project) -> None:
    """Clear the attention items about the source: it is there, and nothing of the user's is in the way."""
    over = [SOURCE]
    if provision.source_tip(project) is not None:  # None for a URL: only a fetch tells
        over.append(f"{NO_SOURCE}{project.config.repo.default_branch}")
    listed = project.store.read().attention
    if any(key in listed for key in over):
        with project.store.transaction() as tx:
            for key in over:
                tx.clear_item(key)


def _refuse_if_busy(place: Path) -> None:
    operation = uncommitted.operation_in_progress(place)
    if operation:
        raise Unfinished(
            f"cannot land in {place}: a {operation} is in progress",
            hint=f"Finish or abort the {operation}, then run the command again.",
        )
    lock = git.git_dir(place) / "index.lock"
    if not wait_until(lambda: not lock.exists(), INDEX_LOCK_S):
        raise SourceBusy(
            f"cannot land in {place}: {lock} exists, so a git command is running there or was killed",
            hint="Wait for the git command to finish. If no git command is running, run "
            f"`rm {shlex.quote(str(lock))}`. Then run the command again.",
        )
    changed = uncommitted.tree_state(place, untracked=False).tracked
    if changed:
        names = some_files(changed)
        raise SourceBusy(
            f"cannot land in {place}: it has uncommitted changes: {names}",
            hint="Commit or stash them there, then run the command again.",
        )


def refuse_files_in_the_way(project: Project, place: Path, worktree: Path) -> None:
    """Refuse before validation if untracked files in the source would be overwritten."""
    files = in_the_way(place, added_files(project, worktree))
    if files:
        names = some_files(files)
        raise SourceBusy(
            f"cannot land in {place}: untracked files would be overwritten: {names}",
            hint="Move or commit them, then run the command again.",
        )


def added_files(project: Project, worktree: Path) -> list[str]:
    """Files that a worktree's commits add since the merge base, read in the clone: an agent may forge its own trees."""
    flags = ["-r", "--name-only", "-z", "--no-renames", "--diff-filter=AT"]
    since = ["--merge-base", project.base, git.head(worktree)]
    try:
        return git.listed(project.root.path, "diff-tree", *flags, *since, timeout_s=300)
    except git.TooMuch:
        raise
    except ToolFailed:  # no common history, or refused by the clone: the merge reports it
        return []


def in_the_way(place: Path, added: list[str]) -> list[str]:
    """The files to add whose path is taken by an untracked file, ignored or not."""
    taken = [path for path in (_taken_by(place, name) for name in added) if path]
    taken = list(dict.fromkeys(taken))[:1000]  # enough to refuse, and short enough for a command line
    if not taken:
        return []
    tracked = git.git(
        place, "--literal-pathspecs", "ls-files", "-z", "--", *taken, timeout_s=300
    ).stdout.split("\0")
    tracked_here = {
        parent for name in tracked for parent in (name, *map(str, Path(name).parents)) if parent != "."
    }
    return [path for path in taken if path not in tracked_here]


def _taken_by(place: Path, name: str) -> str | None:
    """The path itself if something is there, or a parent that is not a directory."""
    if {"", ".", ".."} & {*name.split("/")}:  # a forged tree: git does not check it out
        return None
    for parent in reversed(Path(name).parents[:-1] if len(Path(name).parents) > 1 else ()):
        if os.path.lexists(place / parent) and (
            (place / parent).is_symlink() or not (place / parent).is_dir()
        ):
            return str(parent)
    return name if os.path.lexists(place / name) else None


def is_landed(project: Project, commit: str) -> bool:
    """Whether the branch has the commit, or all of its changes: the test for "already merged"."""
    root = project.root.path
    with project.repo_lock():
        if provision.known_tip(project) == commit:
            git.git(
                root, "update-ref", project.base, commit
            )  # the root made it, so there is nothing to fetch
            return True
        provision.fetch_base(project)
    if not git.has_commit(root, commit):  # if it were on the branch, it would have been fetched
        return False
    return git.is_ancestor(root, commit, project.base) or git.merging_changes_nothing(
        root, commit, project.base
    )


def land(project: Project, worker: str, commit: str, base: str, *, checked: Path | None = None) -> None:
    """Fast-forward the branch from `base` to `commit`. The caller holds the merge lock.

    `checked`: the recent result of `check_source`; without it the source is checked again.
    """
    branch = project.config.repo.default_branch
    if _tip(project) != base:
        raise BaseMoved
    ref = keep(project, worker, commit)
    lfs.send(project, ref, project.source)
    if not _is_local(project):
        _push(project, commit, branch)
        return
    place = checked or _check_checkout(project)
    source = place or Path(project.source)
    if place is None:
        _move_ref(project, source, ref, branch, base)
        return
    # The merge that follows runs git's maintenance.
    git.git(source, *_FETCH, "--no-auto-maintenance", str(project.root.path), ref)
    # Plain --ff-only would silently overwrite ignored files that the commit adds.
    # A generous timeout: stopped halfway, it would leave the user's checkout half updated.
    merge = ["merge", "--quiet", "--ff-only", "--no-overwrite-ignore", commit]
    done = git.git(source, *merge, check=False, timeout_s=1800, hooks=True)
    if not done.ok:
        at = git.head(source)
        if at == commit:  # it has landed, whatever was printed after that
            return
        if at != base:
            raise BaseMoved
        _take_back(source, base, commit)
        said = (done.stderr or done.stdout).strip()[:600]
        hint = "Move or commit those files, then run the command again."
        if "by hook" in said:
            hint = _REFUSED_BY_HOOK
        raise SourceBusy(f"git refused to fast-forward {source}: {said}", hint=hint)


def keep(project: Project, worker: str, commit: str) -> str:
    """Create a ref for a commit that is to land, so that `git gc` keeps it; returns the ref."""
    ref = f"refs/llmc/land/{worker}"
    if git.resolve(project.root.path, ref) != commit:
        git.git(project.root.path, "update-ref", ref, commit)
    return ref


def _take_back(place: Path, base: str, commit: str) -> None:
    """Restore the files after a hook or a locked branch stopped git too late."""
    index = git.git(place, "write-tree", check=False)
    if index.ok and index.stdout.strip() == git.tree_of(place, commit):
        git.git(place, "read-tree", "-m", "-u", commit, base, timeout_s=1800)


def _tip(project: Project) -> str | None:
    """The current commit of the branch, from the source itself."""
    if _is_local(project):
        return provision.source_tip(project)
    from llmc.repo import sources  # few sources are URLs

    with project.repo_lock():
        sources.fetch(project)
    return git.resolve(project.root.path, project.base)


def make_branch(project: Project, ref: str, commit: str, branch: str) -> None:
    """Create a branch in the source at a ref of the root; an existing branch is never moved."""
    target = f"refs/heads/{branch}"
    taken = Refused(
        f"cannot create branch {branch}: it already exists in the source repository",
        hint="Choose another name with --branch NAME, or delete that branch.",
    )
    if not _is_local(project):
        lease = f"--force-with-lease={target}:"  # the branch must not exist
        done = _pushed(project, lease, project.source, f"{commit}:{target}")
        if not done.ok:
            if "[rejected]" in done.stdout:
                raise taken
            raise ToolFailed(done.argv, done.returncode, done.stderr or done.stdout)
        return
    source = Path(project.source)
    there = git.resolve(source, target)
    if there == commit:
        return
    if there is not None:
        raise taken
    git.git(source, *_FETCH, str(project.root.path), f"{ref}:{target}", timeout_s=300, hooks=True)


def push_onward(project: Project) -> str | None:
    """With [repo].push_after_accept, push the source's branch to its remote; returns the problem if that fails."""
    if not project.config.repo.push_after_accept or not _is_local(project):
        return None
    branch = project.config.repo.default_branch
    remote = git.config_get(Path(project.source), f"branch.{branch}.remote") or "origin"
    done = git.git(
        Path(project.source), "push", "--quiet", remote, branch, check=False, timeout_s=300, hooks=True
    )
    return None if done.ok else (done.stderr or done.stdout).strip()[-500:]


def _move_ref(project: Project, source: Path, ref: str, branch: str, base: str) -> None:
    there = f"{ref}:refs/heads/{branch}"
    done = git.git(source, *_FETCH, str(project.root.path), there, check=False, hooks=True)
    if not done.ok:
        if git.resolve(source, f"refs/heads/{branch}") != base:
            raise BaseMoved
        said = (done.stderr or done.stdout).strip()[:600]
        raise SourceBusy(f"git refused to move {branch} in {source}: {said}", hint=_REFUSED_BY_HOOK)


def _push(project: Project, commit: str, branch: str) -> None:
    done = _pushed(project, project.source, f"{commit}:refs/heads/{branch}")
    if not done.ok:
        if "[rejected]" in done.stdout:
            raise BaseMoved
        if "[remote rejected]" in done.stdout:
            said = (done.stderr or done.stdout).strip()[-600:]
            raise SourceBusy(f"{project.source} rejected the push: {said}", hint=_REFUSED_BY_HOOK)
        raise ToolFailed(done.argv, done.returncode, done.stderr or done.stdout)


def _pushed(project: Project, *args: str) -> proc.Done:
    return git.git(project.root.path, "push", "--porcelain", *args, check=False, timeout_s=300)


def _is_local(project: Project) -> bool:
    return Path(project.source).is_dir()


def _checkout(project: Project) -> Path | None:
    """The worktree of the source with the branch checked out."""
    if not _is_local(project):
        return None
    place = git.checked_out_at(Path(project.source), project.config.repo.default_branch)
    if place is not None and not place.is_dir():
        raise LlmcError(
            f"cannot land: {place} is registered as a worktree of the source repository but does not exist",
            hint="Run `git worktree prune` in the source repository, then run the command again.",
        )
    return place
