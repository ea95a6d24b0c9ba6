"""Nuke: remove a worker and move everything it had to the trash. Safe to repeat after a crash.

The worker's record goes last: as long as it exists, the next nuke finds what is left and continues.
"""

import contextlib
import os
from pathlib import Path

from msgspec import Struct

from llmc.base import inside
from llmc.base.errors import LlmcError, LockTimeout, Refused
from llmc.base.faults import step as fault_step
from llmc.base.files import explain, private_dir, remove_tree
from llmc.config.load import load_config
from llmc.landing import review
from llmc.records.worker import WorkerRecord
from llmc.repo import git, git_dirs, own_repos, pipes, provision, serena, submodules, trash, worktrees
from llmc.repo.project import Project
from llmc.sessions import intake, sessions
from llmc.workers import reset

#: what a worktree that git cannot read leads to
_UNREADABLE = (LlmcError, OSError, ValueError, RecursionError)
#: where git's files of a worktree or a repository are, in its trashed directory
_GIT_FILES = ".llmc-git"


class _Saved(Struct, frozen=True):
    ref: str | None
    #: why git could not read the worktree; then git's files of it are kept, too
    problem: str = ""


class Removed(Struct, frozen=True):
    worker: str
    #: the trash ref of its commits and changes, and the trashed worktree
    ref: str | None
    directory: Path | None
    #: why its changes are only in that directory, and not in the ref
    problem: str = ""


def nuke_worker(project: Project, name: str) -> Removed:
    """Remove a worker; the caller holds its lock."""
    record = intake.apply_pending(project, name)
    reset.free_pane(project, record)
    with fault_step("nuke.end"):
        reset.cancel(project, record, "nuke")
        sessions.end(project, name, "nuke", last=record.delivery)
    with fault_step("nuke.pin"):
        saved = pipes.past(Path(record.worktree_path), lambda: _pin(project, record))
    ref = saved.ref
    folder = trash.folder_of(project.root, ref) if ref else None
    with fault_step("nuke.move"):
        move_into_trash(Path(record.worktree_path), folder)
        _keep_repository(project, name, folder)
        if saved.problem:
            _keep_entry(project, record, folder)
    with fault_step("nuke.prune"):
        _prune(project, record, ref, folder)
    with fault_step("nuke.forget"):
        review.forget(project, name)
        _forget(project, name)
    directory = folder if folder and folder.exists() else None
    with fault_step("nuke.finish"), project.store.transaction() as tx:
        tx.remove(name)
        if record.refused_hosts:
            from llmc.sessions import connections  # most agents are not contained

            connections.tell(project, tx)
        if record.auto:
            tx.update_auto(nuked=(*tx.state.auto.nuked, name))
        tx.emit("worker_removed", worker=name, ref=ref, directory=str(directory) if directory else None)
    return Removed(name, ref, directory, saved.problem)


def _pin(project: Project, record: WorkerRecord) -> _Saved:
    """Save the worker's work as far as git can; without a worktree, that is what an interrupted nuke saved."""
    root, worktree = project.root, Path(record.worktree_path)
    if os.path.lexists(worktree):
        with contextlib.suppress(*_UNREADABLE):  # what git cannot read goes to the trash as it is
            provision.link(project, record)
            if provision.needs_new_repository(project, record):
                provision.start_over(project, record)
    problem = "it is not a worktree of this root"
    if git_dirs.is_worktree_of(worktree, root.path):
        try:
            ref = trash.pin(
                *(root, worktree, record.name, "nuke"),
                branch=record.branch,
                tips=_loose_tips(project, record, worktree),
                move_out=False,
            )
        except (Refused, LockTimeout, git.WaitsForPipe):
            raise
        except _UNREADABLE as error:  # the last resort must not depend on what is broken
            problem = str(error)
        else:
            _tell(project, record.name, ref)
            return _Saved(ref)
    tip = git.resolve(root.path, f"refs/heads/{record.branch}")
    if not os.path.lexists(worktree):
        earlier = record.removal_ref
        if tip is None or (earlier and git.is_ancestor(root.path, tip, earlier)):
            return _Saved(earlier or None)
    # A directory that git cannot read is pinned as its branch, or at least as its base.
    at = tip or git.out(root.path, "rev-parse", project.base)
    with contextlib.suppress(LlmcError):  # the files that name them go to the trash, too
        kept = [commit for commit in (at, git.resolve(root.path, project.base)) if commit]
        for commit in worktrees.tips_beyond(root.path, _named_in_files(project, record), kept):
            _tell(project, record.name, trash.pin_commit(root, record.name, "nuke", commit))
    ref = trash.pin_commit(root, record.name, "nuke", at)
    _tell(project, record.name, ref)
    return _Saved(ref, problem=problem if os.path.lexists(worktree) else "")


def _tell(project: Project, name: str, ref: str) -> None:
    with project.store.transaction() as tx:
        tx.update(name, removal_ref=ref)
        tx.emit("work_pinned", worker=name, reason="nuke", ref=ref)


def _loose_tips(project: Project, record: WorkerRecord, worktree: Path) -> list[str]:
    """Commits named only by the worktree's reflogs, or by worktrees inside it, which are removed with it."""
    commits = []
    for name in ("HEAD", f"refs/heads/{record.branch}"):
        log = git.git(
            worktree, "log", "--walk-reflogs", *worktrees.PLAIN_LOG, "--format=%H", name, "--", check=False
        )
        commits += git.rows(log.stdout)
    commits += [head for path, head in git.worktrees(worktree) if path.startswith(f"{worktree}/")]
    commits += [*worktrees.unfinished(worktree), *_named_in_files(project, record)]
    kept = [git.resolve(worktree, name) for name in ("HEAD", f"refs/heads/{record.branch}", project.base)]
    return worktrees.tips_beyond(worktree, commits, [commit for commit in kept if commit])


def _named_in_files(project: Project, record: WorkerRecord) -> list[str]:
    """What git's files of a worktree and its branch name: git says nothing of a HEAD or a branch that it cannot read."""
    entry = git_dirs.entry_of(project.root.path, Path(record.worktree_path))
    log = project.root.path / ".git/logs/refs/heads" / record.branch
    return [*(worktrees.named_in_files(entry) if entry else []), *worktrees.ids_in(log)]


def move_into_trash(worktree: Path, folder: Path | None) -> None:
    """Move the whole directory to the trash, including ignored files."""
    if folder is None or not os.path.lexists(worktree):
        return
    try:
        _keep_submodules(worktree)
        private_dir(folder.parent)
        os.rename(worktree, folder)
    except OSError as error:
        raise explain(error, f"cannot move {worktree} to {folder}") from error


def _keep_submodules(worktree: Path) -> None:
    """Save submodule repositories, which may have the worker's commits and live in git's worktree entry."""
    try:
        done = git.git(worktree, "rev-parse", "--git-path", "modules", check=False)
    except LlmcError:
        return  # git cannot read the worktree: they are kept with its entry
    modules = worktree / done.stdout.strip()
    if done.ok and modules.is_dir() and modules.parent.parent.name == "worktrees":
        kept = worktree / ".llmc-submodules"
        os.rename(modules, kept)
        submodules.make_readable(worktree, kept.name)


def _keep_repository(project: Project, name: str, folder: Path | None) -> None:
    """Save the repository of a contained worker, which may have more than its branch."""
    own = own_repos.path_of(project.root.path, name)
    if own.is_dir():
        _into(folder, own)


def _keep_entry(project: Project, record: WorkerRecord, folder: Path | None) -> None:
    """Save git's files of a worktree that git cannot read: what is staged, and where its HEAD was."""
    if entry := git_dirs.entry_of(project.root.path, Path(record.worktree_path)):
        _into(folder, entry)


def _into(folder: Path | None, place: Path) -> None:
    """Move one of git's own places to the trash."""
    if folder is None:
        return
    try:
        inside.move(place.parent, place.name, private_dir(folder), _GIT_FILES)
    except OSError as error:
        raise explain(error, f"cannot move {place} to {folder}") from error


def _prune(project: Project, record: WorkerRecord, ref: str | None, folder: Path | None) -> None:
    root, worktree = project.root.path, Path(record.worktree_path)
    with project.repo_lock():
        for place in (worktree, *git_dirs.nested(root, worktree)):
            git.git(root, "worktree", "unlock", str(place), check=False)
            worktrees.prune(project, place, record.name, saved=ref)
        tip = git.resolve(root, f"refs/heads/{record.branch}")
        loose = root / ".git/refs/heads" / record.branch
        if tip is None and loose.is_file():
            _into(folder, loose)  # git cannot read it: no new worker could have this name
        if tip and not (ref and git.is_ancestor(root, tip, ref)):
            raise Refused(
                f"branch {record.branch} was not removed because it is not in the trash yet",
                hint=f"Run `llmc nuke {record.name}` again.",
            )
        if tip:
            git.git(root, "update-ref", "-d", f"refs/heads/{record.branch}", tip)
    pointer = folder / ".git" if folder else None
    if pointer and pointer.is_file():
        pointer.unlink()  # it would point to the worktree of a new worker with this name


def _forget(project: Project, name: str) -> None:
    """Remove settings, inbox and configuration; the lock file stays, because a process may wait for it."""
    from llmc.config import edit

    for path in project.root.agents.glob(f"{name}.*"):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    with contextlib.suppress(OSError):
        remove_tree(project.root.inbox / name)
    if (cache := project.root.cache(project.root.worktree(name))).is_dir():
        remove_tree(cache)
    serena.forget(project.root.worktree(name))
    with edit.locked(project.root):
        if name in load_config(project.root.config).workers:
            edit.remove_worker(project.root.config, name)
