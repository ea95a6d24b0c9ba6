"""Landing: a commit becomes the tip of the default branch of the source, by fast-forward and nothing else."""

from pathlib import Path

from llmc.errors import LlmcError, Refused, ToolFailed
from llmc.services.project import Project
from llmc.tools import git


class BaseMoved(Exception):
    """The branch is no longer where it was when the commit was validated."""


class SourceBusy(Refused):
    """A person's uncommitted work or operation is in the way; nothing was touched."""


def check_source(project: Project) -> None:
    """Refuse before any work is done if landing would meet a person's uncommitted changes."""
    place = _checkout(project)
    if place is None:
        return
    operation = git.operation_in_progress(place)
    if operation:
        raise SourceBusy(
            f"a {operation} is in progress in {place}", hint="Finish or abort it, then accept again."
        )
    changed = git.tree_state(place, untracked=False).tracked
    if changed:
        names = ", ".join(changed[:5]) + (" ..." if len(changed) > 5 else "")
        raise SourceBusy(
            f"{place} has uncommitted changes: {names}", hint="Commit or stash them there, then accept again."
        )


def is_landed(project: Project, commit: str) -> bool:
    """Whether the branch has the commit, or all of what it changes: the one test for "already merged"."""
    root = project.root.path
    with project.repo_lock():
        git.fetch(root, project.config.repo.default_branch)
    return git.is_ancestor(root, commit, project.base) or git.merging_changes_nothing(
        root, commit, project.base
    )


def land(project: Project, worker: str, commit: str, base: str) -> None:
    """Move the branch from `base` to `commit`. The caller holds the merge lock."""
    branch = project.config.repo.default_branch
    with project.repo_lock():
        git.fetch(project.root.path, branch)
    if git.resolve(project.root.path, project.base) != base:
        raise BaseMoved
    ref = f"refs/llmc/land/{worker}"
    git.git(project.root.path, "update-ref", ref, commit)
    if not _is_local(project):
        _push(project, commit, branch)
        return
    place = _checkout(project)
    source = place or Path(project.source)
    if place is None:
        _move_ref(project, source, ref, branch, base)
        return
    check_source(project)
    git.git(source, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", str(project.root.path), ref)
    # Plain --ff-only would silently overwrite ignored files that the commit adds.
    # The time is ample: stopped halfway, it would leave a person's checkout half updated.
    merge = ["merge", "--quiet", "--ff-only", "--no-overwrite-ignore", commit]
    done = git.git(source, *merge, check=False, timeout_s=1800)
    if not done.ok:
        if git.head(source) not in (base, commit):
            raise BaseMoved
        raise SourceBusy(
            f"git would not fast-forward {source}: {(done.stderr or done.stdout).strip()[:600]}",
            hint="Move those files away or commit them, then accept again.",
        )


def push_onward(project: Project) -> str | None:
    """With [repo].push_after_accept, the source's branch goes to its own remote; the problem if it does not."""
    if not project.config.repo.push_after_accept or not _is_local(project):
        return None
    branch = project.config.repo.default_branch
    remote = git.config_get(Path(project.source), f"branch.{branch}.remote") or "origin"
    done = git.git(Path(project.source), "push", "--quiet", remote, branch, check=False, timeout_s=300)
    return None if done.ok else (done.stderr or done.stdout).strip()[-500:]


def _move_ref(project: Project, source: Path, ref: str, branch: str, base: str) -> None:
    done = git.git(
        source,
        *["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", str(project.root.path)],
        f"{ref}:refs/heads/{branch}",
        check=False,
    )
    if not done.ok:
        if git.resolve(source, f"refs/heads/{branch}") != base:
            raise BaseMoved
        raise ToolFailed(done.argv, done.returncode, done.stderr)


def _push(project: Project, commit: str, branch: str) -> None:
    done = git.git(
        project.root.path,
        "push",
        "--porcelain",
        project.source,
        f"{commit}:refs/heads/{branch}",
        check=False,
        timeout_s=300,
    )
    if not done.ok:
        if "[rejected]" in done.stdout:
            raise BaseMoved
        raise ToolFailed(done.argv, done.returncode, done.stderr or done.stdout)


def _is_local(project: Project) -> bool:
    return Path(project.source).is_dir()


def _checkout(project: Project) -> Path | None:
    """The worktree of the source that has the branch checked out."""
    if not _is_local(project):
        return None
    place = git.checked_out_at(Path(project.source), project.config.repo.default_branch)
    if place is not None and not place.is_dir():
        raise LlmcError(
            f"{place} is a worktree of the source, but is gone", hint="Run `git worktree prune` there."
        )
    return place
