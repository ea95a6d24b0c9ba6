"""Pick: copy a worker's commits onto the latest default branch, as a new branch in the source. Touches no checkout.

The commits are made from trees, with their authors, committers and dates, so that repeating a pick gives the same branch.
"""

from pathlib import Path

from msgspec import Struct

from llmc.base.errors import Refused, UsageError
from llmc.landing import default_branch, merging
from llmc.records.worker import Status, WorkerRecord
from llmc.repo import git, lfs, provision, submodules, uncommitted
from llmc.repo.project import Project
from llmc.sessions import intake

#: in the other statuses the agent is still changing its commits
CAN_PICK = (
    Status.IDLE,
    Status.NEEDS_INPUT,
    Status.NEEDS_REVIEW,
    Status.NO_CHANGES,
    Status.OFFLINE,
    Status.ERROR,
)


class Picked(Struct, frozen=True):
    worker: str
    branch: str
    commit: str
    base: str
    commits: int
    #: uncommitted files, which are not in the branch
    dirty: tuple[str, ...]


def pick(project: Project, name: str, branch: str) -> Picked:
    """Create the branch and leave the worker unchanged; the caller holds its lock. Safe to repeat."""
    _refuse_bad_name(project, branch)
    record = intake.apply_pending(project, name)
    _refuse_unless_at_rest(record)
    worktree = Path(record.worktree_path)
    base = provision.refresh_base(project)
    head = git.head(worktree)
    if git.divergence(project.root.path, base, head).ahead == 0:
        raise Refused(
            f"nothing to pick: {name} has no commits ahead of {project.config.repo.default_branch}",
            hint="Run `llmc status` to see all workers.",
        )
    submodules.refuse_unknown_commits(project, record)
    tip, count = _onto(project, record, base, head)
    ref = f"refs/llmc/pick/{name}"
    git.git(project.root.path, "update-ref", ref, tip)
    lfs.send(project, ref, project.source)
    default_branch.make_branch(project, ref, tip, branch)
    with project.store.transaction() as tx:
        tx.emit("picked", worker=name, branch=branch, commit=tip, base=base)
    return Picked(name, branch, tip, base, count, uncommitted.tree_state(worktree).files)


def _refuse_bad_name(project: Project, branch: str) -> None:
    if branch == project.config.repo.default_branch:
        raise UsageError(
            f"cannot create branch {branch}: it is the default branch",
            hint="Choose another name with --branch NAME. To land the work, run `llmc accept`.",
        )
    if not git.git(project.root.path, "check-ref-format", "--branch", branch, check=False).ok:
        raise UsageError(
            f"{branch!r} is not a valid branch name", hint="Choose another name with --branch NAME."
        )


def _refuse_unless_at_rest(record: WorkerRecord) -> None:
    name = record.name
    if record.accept is not None:
        raise Refused(
            f"cannot pick {name}: its work is being accepted (step {record.accept.step})",
            hint=f"Run `llmc status` to follow its progress. If the worker still has commits afterward, run `llmc pick {name}` again.",
        )
    if record.status not in CAN_PICK:
        raise Refused(
            f"cannot pick {name}: its status is {record.status}, so its commits may still change",
            hint=f"To wait for it: llmc wait {name} --status needs_review,needs_input",
        )
    if uncommitted.rebase_in_progress(Path(record.worktree_path)):
        raise Refused(
            f"cannot pick {name}: a rebase is in progress in its worktree",
            hint=f"Run `llmc attach {name}` and finish or abort the rebase, then run `llmc pick {name}` again.",
        )


def _onto(project: Project, record: WorkerRecord, base: str, head: str) -> tuple[str, int]:
    """Replay the commits on the base, without those it already has; returns the new tip and their number.

    If there are merges, all become one commit: one by one, changes made in a merge would be lost.
    """
    work = merging.work_of(project, record.name, base, head)
    try:
        tip, count = _as_one(project, work) if work.has_merges else _one_by_one(project, work)
    except merging.Conflicts as found:
        name, branch = record.name, project.config.repo.default_branch
        hint = merging.asking(project, name, f"Rebase your work onto origin/{branch}.")
        if record.status is Status.NEEDS_REVIEW:
            hint = f"Run `llmc rebase {name}`; when {name} has resolved the conflicts, run `llmc pick {name}` again."
        raise Refused(
            f"cannot pick {name}: its commits conflict with {branch} in {found}", hint=hint
        ) from found
    if tip == base:
        branch = project.config.repo.default_branch
        raise Refused(
            f"nothing to pick: every change from {record.name} is already on {branch}",
            hint="Run `llmc status` to see all workers.",
        )
    return tip, count


def _as_one(project: Project, work: merging.Work) -> tuple[str, int]:
    tree = merging.merged_tree(project, work)
    if tree == work.base_tree:
        return work.base, 0
    return _commit(project, tree, work.base, work.message, work.tip), 1


def _one_by_one(project: Project, work: merging.Work) -> tuple[str, int]:
    flags = ["--reverse", "--topo-order", "--cherry-pick", "--right-only"]
    commits = git.out(project.root.path, "rev-list", *flags, f"{work.base}...{work.tip}").split()
    tip, count = work.base, 0
    for commit in commits:
        made = _replay(project, work, commit, tip)
        count += made != tip
        tip = made
    return tip, count


def _replay(project: Project, work: merging.Work, commit: str, tip: str) -> str:
    """Apply one commit on top of another, by a merge of trees."""
    root = project.root.path
    parent = git.out(root, "rev-parse", "--verify", f"{commit}^")
    if parent == tip:
        return commit
    # The commit's parent is the common ancestor.
    tree = merging.merge_with(project, parent, tip, commit, base=work.base)
    if tree == git.tree_of(root, tip):
        return tip
    message = git.git(root, "log", "-1", "--no-show-signature", "--format=%B", commit).stdout
    return _commit(project, tree, tip, message, commit)


def _commit(project: Project, tree: str, parent: str, message: str, like: str) -> str:
    """A commit with the author, committer and dates of `like`, so that repeating a pick gives the same commit."""
    root = project.root.path
    text = message.rstrip("\n").encode("utf-8", "surrogateescape") + b"\n"
    args = ["commit-tree", tree, "-p", parent, "-F", "-"]
    return git.git(root, *args, input=text, env=_people(root, like)).stdout.strip()


def _people(root: Path, commit: str) -> dict[str, str]:
    names = (
        "AUTHOR_NAME",
        "AUTHOR_EMAIL",
        "AUTHOR_DATE",
        "COMMITTER_NAME",
        "COMMITTER_EMAIL",
        "COMMITTER_DATE",
    )
    shape = "--format=%an%x00%ae%x00%aI%x00%cn%x00%ce%x00%cI"
    values = git.git(root, "log", "-1", "--no-show-signature", shape, commit).stdout.rstrip("\n").split("\0")
    return {f"GIT_{name}": value for name, value in zip(names, values, strict=True)}
