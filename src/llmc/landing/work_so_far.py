"""A worker's work in progress, for a person to look at: its commits, and what is not committed yet.

Only read: no lock, no change of the state, and the worktree with its index stays as it is, whatever the agent does there
meanwhile.
"""

from pathlib import Path

from llmc.base.errors import Refused, ToolFailed
from llmc.landing import merging
from llmc.landing.review import Commit, Review, changed_files
from llmc.landing.rules import messages
from llmc.records.worker import WorkerRecord
from llmc.repo import git, trash
from llmc.repo.project import Project

#: an agent may remove a file while it is read; then all of them are read again
TRIES = 3


def look(project: Project, record: WorkerRecord) -> Review:
    """The diff from where it parted from the default branch, as that was last seen, to its files as they are."""
    worktree = Path(record.worktree_path)
    if not (worktree / ".git").exists():
        raise Refused(
            f"the worktree of {record.name} is gone",
            hint="`llmc up --detach` makes it again, from its branch.",
        )
    head = git.head(worktree)
    work = merging.work_of(project, record.name, git.resolve(project.root.path, project.base) or head, head)
    changes = git.tree_state(worktree)
    tree, left_out = _files(worktree, head)
    return Review(
        worker=record.name,
        worktree=worktree,
        prompt=record.current_prompt,
        since_unix=record.since_unix,
        base=work.parting,
        head=head,
        ahead=len(work.commits),
        behind=len(work.others),
        commits=tuple(Commit(commit.id, messages.subject(commit.message)) for commit in work.commits),
        files=changed_files(worktree, work.parting, tree),
        dirty=(*changes.tracked, *changes.untracked),
        diff=git.diff(worktree, work.parting, tree),
        parting=work.parting,
        result=tree,
        so_far="being accepted" if record.accept is not None else str(record.status),
        left_out=left_out,
    )


def _files(worktree: Path, head: str) -> tuple[str, tuple[str, ...]]:
    """The files as a tree, and those that are in none: too large, or a repository of their own."""
    for left in reversed(range(TRIES)):
        try:
            return trash.files_as_tree(worktree, head)
        except ToolFailed:
            if not left:
                raise
    raise AssertionError("unreachable")
