"""Provision: the one function that makes a worker's worktree what it has to be. Safe to repeat."""

import os
import shutil
from pathlib import Path

from llmc.errors import LlmcError, ToolFailed
from llmc.services import trash
from llmc.services.project import Project
from llmc.tools import git, proc
from llmc.workers.model import WorkerRecord


def provision(project: Project, record: WorkerRecord) -> None:
    """The worktree is there, on its branch, with the files it needs and its setup done."""
    worktree = Path(record.worktree_path)
    if not (worktree / ".git").exists():
        _add_worktree(project, record, worktree)
    # Kept beside the worktree's index, so it goes with the worktree; without it a failed setup would never run again.
    done = git.git_paths(worktree, "llmc-provisioned")[0]
    if not done.exists():
        _copy_files(project, worktree)
        _run_setup(project, record, worktree)
        done.touch()


def refresh_base(project: Project) -> str:
    """Fetch the default branch; the commit it is at now."""
    branch = project.config.repo.default_branch
    with project.repo_lock():
        git.fetch(project.root.path, branch)
    commit = git.resolve(project.root.path, project.base)
    if commit is None:
        raise LlmcError(
            f"the source has no branch {branch!r}",
            hint="Set [repo].default_branch to the branch work lands on.",
        )
    return commit


def reset_in_place(project: Project, record: WorkerRecord, commit: str, why: str) -> str | None:
    """The worktree at a commit, clean; what was there is pinned first. The agent's directory stays the same one.

    Returns the trash ref, None when nothing had to be pinned. Ignored files (build caches) stay.
    """
    worktree = Path(record.worktree_path)
    rebasing = git.rebase_in_progress(worktree)
    overwritten = _in_the_way(worktree, commit)
    ref = None
    if (
        rebasing
        or overwritten
        or not git.tree_state(worktree).clean
        or not _is_in(worktree, "HEAD", commit)
        # The agent may have left its branch, or be in a rebase of it: its commits are not in HEAD then.
        or not _is_in(worktree, f"refs/heads/{record.branch}", commit)
    ):
        ref = trash.pin(project.root, worktree, record.name, why, branch=record.branch, ignored=overwritten)
    if rebasing and not git.git(worktree, "rebase", "--quit", check=False).ok:
        # It was an `am`, which asks for an identity even to stop.
        git.git(worktree, *["-c", "user.name=llmc", "-c", "user.email=llmc@localhost"], "am", "--quit")
    # -B also takes the worktree back to its branch when the agent left it somewhere else.
    git.git(worktree, "checkout", "--quiet", "--force", "-B", record.branch, commit, timeout_s=300)
    git.git(worktree, "reset", "--quiet", "--hard", commit, timeout_s=300)
    git.git(worktree, "clean", "-fdq")
    left = git.tree_state(worktree)
    if not left.clean:
        names = ", ".join([*left.tracked, *left.untracked][:5])
        raise LlmcError(f"{record.name}: its worktree did not become clean ({names})")
    return ref


def _is_in(worktree: Path, ref: str, commit: str) -> bool:
    tip = git.resolve(worktree, ref)
    return tip is None or git.is_ancestor(worktree, tip, commit)


def _in_the_way(worktree: Path, commit: str) -> list[str]:
    """Files that are here and that the commit adds: checking it out overwrites them, ignored ones too."""
    head = git.resolve(worktree, "HEAD") or git.out(worktree, "hash-object", "-t", "tree", "/dev/null")
    done = git.git(worktree, "diff", "--name-only", "-z", "--no-renames", "--diff-filter=A", head, commit)
    return [name for name in done.stdout.split("\0") if name and os.path.lexists(worktree / name)]


def _add_worktree(project: Project, record: WorkerRecord, worktree: Path) -> None:
    root = project.root.path
    base = refresh_base(project)
    worktree.parent.mkdir(mode=0o700, exist_ok=True)
    with project.repo_lock():
        git.git(root, "worktree", "prune")
        exists = git.resolve(root, f"refs/heads/{record.branch}") is not None
        where = [str(worktree), record.branch] if exists else ["-b", record.branch, str(worktree), base]
        git.git(root, "worktree", "add", "--quiet", *where, timeout_s=600)


def _copy_files(project: Project, worktree: Path) -> None:
    """Ignored files a build needs, from the source by glob: `.env`, large assets."""
    source = Path(project.source)
    if not source.is_dir():
        return
    for pattern in project.config.repo.copy:
        for path in source.glob(pattern):
            target = worktree / path.relative_to(source)
            if path.is_file() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)


def _run_setup(project: Project, record: WorkerRecord, worktree: Path) -> None:
    command = project.config.repo.setup
    if not command:
        return
    env = {**proc.command_env(), **project.config.defaults.env, "LLMC_WORKER": record.name}
    log = project.root.log(record.name)
    done = proc.run_logged(command, cwd=worktree, env=env, log=log, timeout_s=1800)
    if not done.ok:
        raise ToolFailed(
            done.argv,
            done.returncode,
            done.stdout,
            message=f"{record.name}: [repo].setup failed with code {done.returncode}",
            hint=f"Its output is in {log}.",
        )
