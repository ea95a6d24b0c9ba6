"""Provision: the one function that makes a worker's worktree what it has to be. Safe to repeat."""

import os
from collections.abc import Sequence
from pathlib import Path

from llmc.errors import LlmcError
from llmc.services import commands, copied_files, lfs, serena, submodules, trash
from llmc.services.project import Project
from llmc.tools import git
from llmc.tools.files import append_line
from llmc.workers.model import WorkerRecord

SETUP_TIMEOUT_S = 1800


def provision(project: Project, record: WorkerRecord) -> list[str]:
    """The worktree is there, on its branch, with the files it needs and its setup done; what is missing all the same."""
    worktree = Path(record.worktree_path)
    if not (worktree / ".git").exists():
        _add_worktree(project, record, worktree)
    # Kept beside the worktree's index, so it goes with the worktree; without it a failed setup would never run again.
    done = git.git_paths(worktree, "llmc-provisioned")[0]
    missing = furnish(project, record, thorough=True)
    if not done.exists():
        setup = project.config.repo.setup
        ran = commands.run_command(project, record.name, setup, cwd=worktree, timeout_s=SETUP_TIMEOUT_S)
        if not ran.ok:
            raise commands.failure(project, record.name, ran, what="[repo].setup")
        done.touch()
    return missing


def furnish(project: Project, record: WorkerRecord, *, thorough: bool = False) -> list[str]:
    """What a worktree needs besides its commit, after each change of that; what cannot be had is said once."""
    worktree = Path(record.worktree_path)
    missing = submodules.update(project, worktree)
    missing += lfs.settle(project, worktree, thorough=thorough)
    missing += copied_files.copy_files(project, record, worktree)
    serena.settle(project, record, worktree)
    return _say_once(project, record, worktree, missing)


def _say_once(project: Project, record: WorkerRecord, worktree: Path, missing: list[str]) -> list[str]:
    """A worktree is provisioned again and again; a problem is news only when it begins."""
    if not missing:
        return []
    said = git.git_paths(worktree, "llmc-said")[0]
    before = said.read_text().splitlines() if said.exists() else []
    news = [text for text in missing if text not in before]
    if news:
        with project.store.transaction() as tx:
            for text in news:
                tx.emit("provision_incomplete", worker=record.name, reason=text)
        for text in news:
            append_line(said, text.replace("\n", " ").encode())
    return news


def refresh_base(project: Project) -> str:
    """Fetch the default branch; the commit it is at now."""
    branch = project.config.repo.default_branch
    commit = git.resolve(project.root.path, project.base)
    if commit is not None and commit == source_tip(project):
        return commit  # to ask is much cheaper than to fetch nothing
    with project.repo_lock():
        git.fetch(project.root.path, project.source, branch)
    commit = git.resolve(project.root.path, project.base)
    if commit is None:
        raise LlmcError(
            f"the source has no branch {branch!r}",
            hint="Set [repo].default_branch to the branch work lands on.",
        )
    return commit


def source_tip(project: Project) -> str | None:
    """Where the default branch of a local source is at this moment; None where only a fetch can tell."""
    source = Path(project.source)
    branch = project.config.repo.default_branch
    return git.resolve(source, f"refs/heads/{branch}") if source.is_dir() else None


def reset_in_place(project: Project, record: WorkerRecord, commit: str, why: str) -> str | None:
    """The worktree at a commit, clean; what was there is pinned first. The agent's directory stays the same one.

    Returns the trash ref, None when nothing had to be pinned. Ignored files (build caches) stay.
    """
    worktree = Path(record.worktree_path)
    modules = submodules.pin_changes(project, record, worktree, why)
    rebasing = git.rebase_in_progress(worktree)
    found = git.tree_state(worktree)
    on_branch, head = found.branch == record.branch, found.head
    if (
        found.clean
        and on_branch
        and not rebasing
        and not modules
        and git.same_commit(worktree, "HEAD", commit)
    ):
        furnish(project, record)
        return None
    # The agent may have left its branch, or be in a rebase of it: its commits are not in HEAD then.
    tip = head if on_branch else git.resolve(worktree, f"refs/heads/{record.branch}")
    overwritten = _in_the_way(worktree, head, commit)
    ref = None
    if rebasing or overwritten or not found.clean or not _are_in(worktree, {head, tip}, commit):
        ref = trash.pin(project.root, worktree, record.name, why, branch=record.branch, ignored=overwritten)
    if rebasing and not git.git(worktree, "rebase", "--quit", check=False).ok:
        # It was an `am`, which asks for an identity even to stop.
        git.git(worktree, *["-c", "user.name=llmc", "-c", "user.email=llmc@localhost"], "am", "--quit")
    if not on_branch:
        # -B takes the worktree back to its branch when the agent left it somewhere else.
        git.git(worktree, "checkout", "--quiet", "--force", "-B", record.branch, commit, timeout_s=300)
    git.git(worktree, "reset", "--quiet", "--hard", commit, timeout_s=300)
    git.git(worktree, "clean", "-fdq")
    submodules.clean(project, record, worktree, modules, why)
    furnish(project, record)
    left = git.tree_state(worktree)
    if left.tracked:
        _write_anew(worktree, left.tracked)
        left = git.tree_state(worktree)
    if not left.clean:
        names = ", ".join([*left.tracked, *left.untracked][:5])
        hint = ""
        if left.tracked:  # line endings that .gitattributes does not allow, or names that differ by case only
            hint = "If a fresh clone shows them as changed too, run `git add --renormalize .` in the source and commit."
        raise LlmcError(f"{record.name}: its worktree did not become clean ({names})", hint=hint)
    return ref


def pin_unfinished(project: Project, record: WorkerRecord, why: str) -> str | None:
    """What a worktree has that the base has not is kept under a trash ref, and stays where it is; None: nothing."""
    worktree = Path(record.worktree_path)
    found = git.tree_state(worktree)
    tip = git.resolve(worktree, f"refs/heads/{record.branch}")
    if found.clean and _are_in(worktree, {found.head, tip}, project.base):
        return None
    return trash.pin(project.root, worktree, record.name, why, branch=record.branch, move_out=False)


def _write_anew(worktree: Path, names: Sequence[str]) -> None:
    """Files as an earlier .gitattributes wanted them, which git took for unchanged: now as this commit wants them."""
    for name in names:
        if (worktree / name).is_file():
            (worktree / name).unlink()
    listed = "".join(f"{name}\0" for name in names).encode(errors="surrogateescape")
    index = ["checkout-index", "--force", "--quiet", "-z", "--stdin"]
    git.git(worktree, *index, input=listed, check=False, timeout_s=300)
    git.git(worktree, "update-index", "-q", "--refresh", check=False, timeout_s=300)


def _are_in(worktree: Path, tips: set[str | None], commit: str) -> bool:
    return all(git.is_ancestor(worktree, tip, commit) for tip in tips if tip)


def _in_the_way(worktree: Path, head: str | None, commit: str) -> list[str]:
    """Files that are here and that the commit adds: checking it out overwrites them, ignored ones too."""
    before = head or git.out(worktree, "hash-object", "-t", "tree", "/dev/null")
    done = git.git(worktree, "diff", "--name-only", "-z", "--no-renames", "--diff-filter=A", before, commit)
    return [name for name in done.stdout.split("\0") if name and os.path.lexists(worktree / name)]


def _add_worktree(project: Project, record: WorkerRecord, worktree: Path) -> None:
    root = project.root.path
    base = refresh_base(project)
    worktree.parent.mkdir(mode=0o700, exist_ok=True)
    with project.repo_lock():
        git.git(root, "worktree", "prune")
        if lfs.is_used(root, base):
            lfs.set_up(root)  # before files are checked out, so that they come whole
        exists = git.resolve(root, f"refs/heads/{record.branch}") is not None
        where = [str(worktree), record.branch] if exists else ["-b", record.branch, str(worktree), base]
        git.git(root, "worktree", "add", "--quiet", *where, timeout_s=600)
