"""Creates worktrees of contained workers, and moves a worktree from the clone to its own repository and back.

A move changes no file in the worktree. Git's data about it (index, branch, a rebase in progress) moves along.
"""

import os
import shutil
from pathlib import Path

from llmc.base import processes
from llmc.base.errors import LlmcError, Refused
from llmc.base.faults import step as fault_step
from llmc.base.files import private_dir, remove_tree
from llmc.records.worker import WorkerRecord
from llmc.repo import git, git_dirs, indexes, lfs, own_repos, trash, uncommitted, worktrees
from llmc.repo.project import Project
from llmc.sandbox import probe


def ensure(project: Project, record: WorkerRecord, base: str) -> None:
    """Create the worktree or point it to its repository again; existing files stay unchanged. Safe to repeat."""
    _refuse_while_it_runs(record)
    root, worktree = project.root.path, Path(record.worktree_path)
    own, ref = own_repos.path_of(root, record.name), None
    with project.repo_lock():
        has_files = os.path.lexists(worktree) and (
            not worktree.is_dir() or {*os.listdir(worktree)} - {".git"}
        )
        if (entry := git_dirs.entry_of(root, worktree)) is not None:
            worktrees.discard(project, entry, record.name)  # the worktree would still count as linked
        is_known = (own / "HEAD").exists()
        if not is_known:
            own = _new_repository(project, record, base)
        private_dir(worktree.parent)
        worktree.mkdir(exist_ok=True)
        if os.path.lexists(worktree / ".git") and not git_dirs.is_worktree_of(worktree, root):
            ref = trash.pin_commit(project.root, record.name, "relink", base)
            trash.take_out(worktree, [".git"], trash.folder_of(project.root, ref))
        if not has_files:
            git_dirs.checkout_mark(own).touch()  # before git counts its files as deleted
        own_repos.point(worktree, own)
        if not has_files and is_known:
            _save_index(project, record, worktree, base)
        _check_out_once(project, record, worktree)
    if has_files:
        with project.store.transaction() as tx:
            tx.emit("worktree_linked", worker=record.name, ref=ref)


def _save_index(project: Project, record: WorkerRecord, worktree: Path, base: str) -> None:
    """Pin what a repository has of a worktree whose files are gone, then remove the index.

    A repository that cannot be read goes to the trash, and a new one replaces it.
    """
    own = own_repos.path_of(project.root.path, record.name)
    try:
        tips = worktrees.unfinished(worktree)
        trash.pin_entry(project.root, worktree, record.name, "worktree", tips=tips)
    except trash.NotSaved:
        raise  # the clone refuses it, perhaps only for now
    except (LlmcError, OSError, ValueError):
        (worktree / ".git").unlink()  # if llmc is killed meanwhile, the worktree is still a lost one
        _new_repository(project, record, base)
        git_dirs.checkout_mark(own).touch()
        own_repos.point(worktree, own)
    (own / "index").unlink(missing_ok=True)


def _check_out_once(project: Project, record: WorkerRecord, worktree: Path) -> None:
    """Complete the first checkout, or make an index for files that have none; files with an index stay unchanged."""
    own = own_repos.path_of(project.root.path, record.name)
    is_first = git_dirs.checkout_mark(own).exists()
    if not os.path.lexists(own / "index"):
        worktrees.drop_dead_locks(project, record)
        git.git(worktree, "reset", "--quiet", *(["--hard"] if is_first else []), timeout_s=600)
    git_dirs.checkout_mark(own).unlink(missing_ok=True)


def move_apart(project: Project, record: WorkerRecord, base: str) -> None:
    """Give a linked worktree its own repository. No agent may be running in it."""
    worktree = Path(record.worktree_path)
    entry = git.git_dir(worktree)
    worktrees.drop_dead_locks(project, record)
    with project.repo_lock():
        own = _new_repository(project, record, base, entry)
        with fault_step("contain.move"):
            # In this order: `git worktree repair` would link the worktree to a leftover entry.
            remove_tree(entry)
            own_repos.point(worktree, own)


def move_back(project: Project, record: WorkerRecord, base: str) -> None:
    """Link a worktree to the clone again, unless a git operation is in progress. Its repository goes to the trash."""
    worktree, own = Path(record.worktree_path), own_repos.path_of(project.root.path, record.name)
    if uncommitted.operations_in_progress(worktree):
        return  # an uncontained agent can work there too
    with fault_step("contain.pin"):  # including staged files, which only this repository has
        ref = trash.pin(
            project.root, worktree, record.name, "uncontained", branch=record.branch, move_out=False
        )
    if refused := own_repos.take(project.root.path, record.name):
        raise LlmcError(
            f"cannot link {record.name}'s worktree to the clone: failed to fetch the worker's commits: {refused}",
            hint=f"Run `llmc reset {record.name}`, which moves them to the trash.",
        )
    kept = [*git_dirs.kept_apart(own).glob(f"{own_repos.OURS}*")]
    aside = own.with_name(f".{record.name}.aside")
    with project.repo_lock(), fault_step("contain.move"):
        _take_out_leftover(project, record, aside, base)
        os.rename(own, aside)
        worktrees.link_again(project, record, worktree, base)
        for path in kept:
            shutil.copy2(path, git.git_dir(worktree) / path.name)
        index = aside / "index"  # git would follow a link; staged files are already pinned
        if index.is_file() and not index.is_symlink() and not indexes.is_too_large(index):
            indexes.copy(worktree, index, git.git_dir(worktree) / "index")
    trash.take_out(aside.parent, [aside.name], trash.folder_of(project.root, ref))


def start_over(project: Project, record: WorkerRecord, base: str, *, at_base: bool) -> None:
    """Move a repository that git refuses to the trash as it is, and create a new one. No agent may be running in it.

    Without bubblewrap, link the worktree to the clone instead. `at_base`: leave out the worker's commits that are in
    the clone; they are pinned.
    """
    _refuse_while_it_runs(record)
    root, worktree = project.root, Path(record.worktree_path)
    tip = git.resolve(root.path, f"refs/heads/{record.branch}") if at_base else None
    ref = trash.pin_commit(root, record.name, "refused", tip or base)
    folder = trash.folder_of(root, ref)
    with project.repo_lock():
        own = own_repos.path_of(root.path, record.name)
        trash.take_out(own.parent, [own.name], folder)
        if probe.bubblewrap() is None:
            if at_base:
                git.git(root.path, "update-ref", f"refs/heads/{record.branch}", base)
            worktrees.link_again(project, record, worktree, base)
            return
        if os.path.lexists(worktree / ".git"):
            trash.take_out(worktree, [".git"], folder)
        own_repos.point(worktree, _new_repository(project, record, base, at_base=at_base))
        git.git(worktree, "reset", "--quiet", timeout_s=300)


def _refuse_while_it_runs(record: WorkerRecord) -> None:
    """Refuse while the agent is running: a new `.git` or repository would not be read-only for it."""
    if record.instance and processes.marked("LLMC_INSTANCE", record.instance):
        raise Refused(
            f"{record.name}'s agent is running, and its repository was changed or lost",
            hint=f"Run `llmc reset {record.name}`, which ends the agent and gives it a new one.",
        )


def _take_out_leftover(project: Project, record: WorkerRecord, left: Path, tip: str) -> None:
    """Move what an interrupted move left at this path, if anything, to the trash."""
    if os.path.lexists(left):
        ref = trash.pin_commit(project.root, record.name, "relink", tip)
        trash.take_out(left.parent, [left.name], trash.folder_of(project.root, ref))


def _new_repository(
    project: Project, record: WorkerRecord, base: str, entry: Path | None = None, *, at_base: bool = False
) -> Path:
    root = project.root.path
    tip = (None if at_base else git.resolve(root, f"refs/heads/{record.branch}")) or base
    left = own_repos.path_of(root, record.name)
    _take_out_leftover(project, record, left, tip)
    found = [(key, git.config_get(root, key)) for key in ("user.name", "user.email")]
    identity = [(key, value) for key, value in found if value]
    made = own_repos.make(root, record.name, tip, own_repos.settings(root, identity), entry)
    if lfs.is_used(root, base):
        lfs.set_up(made)
    return made
