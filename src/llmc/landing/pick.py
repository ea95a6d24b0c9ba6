"""Pick: a worker's commits, put onto the newest base, as a new branch of the source. No checkout is touched.

The commits are made from trees alone, with their authors, committers and dates: the same pick twice is the same branch.
"""

from pathlib import Path

from msgspec import Struct

from llmc.base.errors import Refused, UsageError
from llmc.landing import fast_forward, merging
from llmc.records.worker import Status, WorkerRecord
from llmc.repo import git, lfs, provision, submodules
from llmc.repo.project import Project
from llmc.sessions import intake

#: in the others the agent is at work on its commits
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
    #: what is in the worktree and in no commit, and so not in the branch
    dirty: tuple[str, ...]


def pick(project: Project, name: str, branch: str) -> Picked:
    """Make the branch, and leave the worker as it is; the caller holds its lock. Safe to repeat."""
    _refuse_bad_name(project, branch)
    record = intake.apply_pending(project, name)
    _refuse_unless_at_rest(record)
    worktree = Path(record.worktree_path)
    base = provision.refresh_base(project)
    head = git.head(worktree)
    if git.divergence(worktree, base, head).ahead == 0:
        raise Refused(
            f"{name} has no commits that are not on {project.config.repo.default_branch}",
            hint="`llmc status` shows who has some.",
        )
    submodules.refuse_unknown_commits(project, record)
    tip, count = _onto(project, record, base, head)
    ref = f"refs/llmc/pick/{name}"
    git.git(project.root.path, "update-ref", ref, tip)
    lfs.send(project, ref)
    fast_forward.make_branch(project, ref, tip, branch)
    with project.store.transaction() as tx:
        tx.emit("picked", worker=name, branch=branch, commit=tip, base=base)
    state = git.tree_state(worktree)
    return Picked(name, branch, tip, base, count, (*state.tracked, *state.untracked))


def _refuse_bad_name(project: Project, branch: str) -> None:
    if branch == project.config.repo.default_branch:
        raise UsageError(
            f"pick makes a new branch, it never lands on {branch}", hint="That is `llmc accept`."
        )
    if not git.git(project.root.path, "check-ref-format", "--branch", branch, check=False).ok:
        raise UsageError(
            f"{branch!r} cannot be a branch's name", hint="Choose another one with --branch NAME."
        )


def _refuse_unless_at_rest(record: WorkerRecord) -> None:
    name = record.name
    if record.accept is not None:
        raise Refused(f"{name} is being accepted (step {record.accept.step})", hint="Wait for it to end.")
    if record.status not in CAN_PICK:
        raise Refused(
            f"{name} is {record.status}, its commits may still change",
            hint=f"Wait for it: llmc wait {name} --status needs_review,needs_input",
        )
    if not Path(record.worktree_path, ".git").exists():
        raise Refused(
            f"the worktree of {name} is gone", hint="`llmc up --detach` makes it again, from its branch."
        )
    if git.rebase_in_progress(Path(record.worktree_path)):
        raise Refused(
            f"a rebase is in progress in the worktree of {name}", hint=f"Look at it: llmc attach {name}"
        )


def _onto(project: Project, record: WorkerRecord, base: str, head: str) -> tuple[str, int]:
    """The commits on top of the base, and how many they are; those whose change is there already are left out.

    With merges among them they become one: put there one by one, what a merge itself changed would be lost.
    """
    work = merging.work_of(project, record.name, base, head)
    try:
        tip, count = _as_one(project, work) if work.has_merges else _one_by_one(project, work)
    except merging.Conflicts as found:
        raise Refused(
            f"{record.name} conflicts with {project.config.repo.default_branch} in {found}; nothing was changed",
            hint=f"When it is needs_review, `llmc rebase {record.name}` lets it resolve them.",
        ) from found
    if tip == base:
        branch = project.config.repo.default_branch
        raise Refused(
            f"all that {record.name} changed is on {branch} already", hint="There is nothing to pick."
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
    """One commit on top of another one, by a merge of trees."""
    root = project.root.path
    parent = git.out(root, "rev-parse", "--verify", f"{commit}^")
    if parent == tip:
        return commit
    # The commit's parent is what both sides have in common.
    tree = merging.merge_with(project, parent, tip, commit, base=work.base)
    if tree == git.tree_of(root, tip):
        return tip
    message = git.git(root, "log", "-1", "--no-show-signature", "--format=%B", commit).stdout
    return _commit(project, tree, tip, message, commit)


def _commit(project: Project, tree: str, parent: str, message: str, like: str) -> str:
    """By the people and at the time of another commit: the same pick twice makes the same one."""
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
