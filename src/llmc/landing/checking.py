"""Checking: `repo.validate` and a task's `verify` on exactly one commit, in a slot or in the worker's own worktree.

In the worktree more is there than the commit: index bits that hide changes, and files that a command leaves behind.
Neither may decide what lands, and what a command left is never taken for the agent's.
"""

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from llmc.base.errors import Refused
from llmc.records.worker import Assignment, WorkerRecord
from llmc.repo import git, trash
from llmc.repo.project import Project


def is_wanted(project: Project, task: Assignment | None) -> bool:
    """Whether any command has to pass."""
    return bool(project.config.repo.validate or (task is not None and task.verify))


def is_apart(project: Project, task: Assignment | None) -> bool:
    """Whether they run where no agent works."""
    if not is_wanted(project, task):
        return False
    from llmc.landing import validation  # a project without a check need not wait for this

    return validation.in_slot(project)


def checked_out(project: Project, record: WorkerRecord, commit: str, base: str) -> None:
    """`repo.validate` on what a worker has checked out. Raises CommandFailed."""
    from llmc.landing.slots import NoSlot

    if is_apart(project, None):
        with contextlib.suppress(NoSlot):
            in_slot(project, record, commit, base)
            return
    if is_wanted(project, None):
        in_worktree(project, record, commit)


def in_slot(
    project: Project, record: WorkerRecord, commit: str, base: str, task: Assignment | None = None
) -> None:
    """Raises CommandFailed; or NoSlot, and then they can run in the worktree, once the commit is there."""
    from llmc.landing import validation

    worktree = Path(record.worktree_path)
    validation.check_commit(project, record.name, commit, base, worktree=worktree, task=task)


def in_worktree(project: Project, record: WorkerRecord, commit: str, task: Assignment | None = None) -> None:
    """Raises CommandFailed. The commit, or one with the same tree, is checked out there."""
    worktree = Path(record.worktree_path)
    if git.tree_of(worktree, "HEAD") != git.tree_of(worktree, commit):
        raise Refused(
            f"{record.name} does not have {commit[:12]} checked out, so it cannot be validated there",
            hint="Try again.",
        )
    from llmc.landing import validation

    refuse_hidden_changes(record)
    with _leaving_nothing(project, record, worktree):
        validation.validate(project, record.name, worktree)
        if task is not None:
            validation.verify(project, record.name, worktree, task)


def refuse_hidden_changes(record: WorkerRecord) -> None:
    """Git looks at all files again; Refused where one that it was told to overlook differs from the commit."""
    worktree = Path(record.worktree_path)
    hidden = _hidden(worktree)
    if not hidden:
        return
    names = "".join(f"{name}\0" for name in hidden).encode("utf-8", "surrogateescape")
    for bit in ("--no-skip-worktree", "--no-assume-unchanged"):  # one at a time: git takes only the last
        git.git(worktree, "update-index", bit, "-z", "--stdin", input=names, timeout_s=300)
    changed = git.tree_state(worktree, untracked=False).tracked
    if changed:
        raise Refused(
            f"{record.name} has uncommitted changes that git was told to overlook: {_some(changed)}",
            hint=f"Ask for a commit: llmc message {record.name} 'Commit these files, or restore them.'",
        )


def _hidden(worktree: Path) -> list[str]:
    """Files marked `skip-worktree` (S) or `assume-unchanged` (a small letter)."""
    rows = git.git(worktree, "ls-files", "-v", "-z", timeout_s=300).stdout.split("\0")
    return [row[2:] for row in rows if row and (row[0] == "S" or row[0].islower())]


@contextmanager
def _leaving_nothing(project: Project, record: WorkerRecord, worktree: Path) -> Iterator[None]:
    before = git.tree_state(worktree)
    try:
        yield
    finally:
        clear_away(project, record, before)


def clear_away(project: Project, record: WorkerRecord, before: git.TreeState) -> str | None:
    """What is in a worktree now and was not before goes into the trash; the ref it is under, None: nothing."""
    worktree = Path(record.worktree_path)
    after = git.tree_state(worktree)
    changed = [name for name in after.tracked if name not in before.tracked]
    new = [name for name in after.untracked if name not in before.untracked]
    if (not changed and not new) or after.head != before.head:
        return None  # or somebody has committed meanwhile: then nobody can tell whose it is
    if changed:
        ref = trash.pin(project.root, worktree, record.name, "validation", move_out=False)
    else:
        ref = trash.pin_commit(project.root, record.name, "validation", git.head(worktree))
    trash.take_out(worktree, new, trash.folder_of(project.root, ref))
    _restore(worktree, changed)
    with project.store.transaction() as tx:
        tx.emit("validation_left", worker=record.name, files=[*changed, *new][:20], ref=ref)
    return ref


def _restore(worktree: Path, names: list[str]) -> None:
    if names:
        exactly = "".join(f":(literal){name}\0" for name in names).encode("utf-8", "surrogateescape")
        flags = ["--source=HEAD", "--staged", "--worktree", "--pathspec-from-file=-", "--pathspec-file-nul"]
        git.git(worktree, "restore", "--quiet", *flags, input=exactly, timeout_s=300)


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
