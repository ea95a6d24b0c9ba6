"""Review: what a worker's accept would land, or its work so far, as data; and the memory of what a person has seen of it.

Only read: no lock, no change of the state, and the worktree with its index stays as it is, whatever the agent does there
meanwhile.
"""

from pathlib import Path

from msgspec import Struct

from llmc.attention.raising import advice
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, Refused, ToolFailed
from llmc.base.names import WorkerName
from llmc.base.text import some_files
from llmc.landing import merging, rules
from llmc.landing.rules import patch_id
from llmc.records.state import State
from llmc.records.worker import Reviewed, Status, WorkerRecord
from llmc.repo import git, provision, trash
from llmc.repo.project import Project


class Commit(Struct, frozen=True):
    sha: str
    subject: str


class FileChange(Struct, frozen=True):
    """One file; the counts are None for a binary one."""

    path: str
    added: int | None
    deleted: int | None
    renamed_from: str | None = None


class Review(Struct, frozen=True):
    """What a worker's accept would land: the diff from `base`, the newest one, to `result`.

    Where it conflicts with the base, that is from where they parted to the worker's own commit.
    """

    worker: WorkerName
    worktree: Path
    prompt: str
    since_unix: float
    base: str
    head: str
    ahead: int
    behind: int
    commits: tuple[Commit, ...]
    files: tuple[FileChange, ...]
    dirty: tuple[str, ...]
    diff: str
    #: why the default branch could not be looked at freshly; empty when it was
    stale: str = ""
    #: why it was not rebased though the branch moved; empty when it was, or need not be
    not_rebased: str = ""
    #: where the worker's commits and the branch parted
    parting: str = ""
    #: the tree that lands, or the worker's commit where there are conflicts, and in which files
    result: str = ""
    conflicts: tuple[str, ...] = ()
    #: what a reader of the diff could take for the worker's intention, and probably is not
    warnings: tuple[str, ...] = ()
    #: the status of a worker whose work does not wait for review: then this is what it has so far, committed or not
    so_far: str = ""
    #: of that, files that are not in the diff: huge ones, and nested repositories
    left_out: tuple[str, ...] = ()


def longest_waiting(state: State) -> WorkerRecord:
    waiting = [r for r in state.workers.values() if r.status is Status.NEEDS_REVIEW and r.accept is None]
    if not waiting:
        raise Refused("no worker waits for review", hint="`llmc status` shows them.")
    return min(waiting, key=lambda record: record.since_unix)


def refuse_unless_waiting(project: Project, record: WorkerRecord, verb: str) -> None:
    """Only work that waits, and that nobody is landing, can be reviewed or sent back."""
    name = record.name
    if record.accept is not None:
        raise Refused(
            f"{name} is being accepted (at: {record.accept.step}), it cannot be {verb} now",
            hint=f"If that accept was interrupted, `llmc accept {name}` goes on with it.",
        )
    if record.status is not Status.NEEDS_REVIEW:
        raise Refused(
            f"{name} is {record.status}, only a worker in needs_review can be {verb}",
            hint=advice(project, record.name),
        )


def look(project: Project, record: WorkerRecord) -> Review:
    """What an accept would land, read from git; nothing in the worktree is touched. The caller holds the lock."""
    worktree = Path(record.worktree_path)
    stale = ""
    try:
        provision.refresh_base(project)
    except LlmcError as error:
        if git.resolve(worktree, project.base) is None:
            raise
        stale = error.message  # a source that is away now is no reason to show nothing
    head = git.head(worktree)
    shown = _what_lands(project, record.name, head)
    work = shown.work
    changes = git.tree_state(worktree)
    return Review(
        worker=record.name,
        worktree=worktree,
        prompt=record.current_prompt,
        since_unix=record.since_unix,
        base=shown.base,
        head=head,
        ahead=len(work.commits),
        behind=len(work.others),
        commits=tuple(Commit(commit.id, rules.subject(commit.message)) for commit in work.commits),
        files=changed_files(worktree, shown.base, shown.result),
        dirty=(*changes.tracked, *changes.untracked),
        diff=git.diff(worktree, shown.base, shown.result),
        stale=stale,
        parting=work.parting,
        result=shown.result,
        conflicts=shown.conflicts,
        warnings=_warnings(project, record, shown),
    )


class _Shown(Struct, frozen=True):
    work: merging.Work
    base: str
    result: str
    conflicts: tuple[str, ...] = ()


def _what_lands(project: Project, name: str, head: str) -> _Shown:
    """As accept makes it: a merge of trees."""
    base = git.resolve(project.root.path, project.base) or project.base
    work = merging.work_of(project, name, base, head)
    try:
        return _Shown(work, base, merging.merged_tree(project, work))
    except merging.Conflicts as found:
        return _Shown(work, work.parting, head, found.files)


def _warnings(project: Project, record: WorkerRecord, shown: _Shown) -> tuple[str, ...]:
    branch = project.config.repo.default_branch
    found = []
    dropped = merging.dropped_by_merges(project, shown.work)
    if dropped:
        names = some_files(dropped)
        found.append(f"a merge of the worker's takes nothing of what {branch} changed in {names}")
    if not shown.conflicts:
        again = merging.brought_back(project, shown.work, shown.result, record.taken_back)
        if again:
            found.append(f"this was taken back on {branch}, and would land again: {'; '.join(again)}")
    return tuple(found)


def remember(project: Project, review: Review, *, seen: bool = True) -> None:
    """This is the worker reviewed last; and, if its diff was `seen`, what accept compares with."""
    head = git.head(review.worktree)  # a person can look for long; what waits is what is there now
    # It may have been rebased meanwhile, and then it is the same change under another name.
    same = head == review.head or patch_id(_diff_now(project, review, head)) == patch_id(review.diff)
    with project.store.transaction() as tx:
        tx.remember_review(review.worker)
        record = tx.worker(review.worker)
        still_waits = record.status is Status.NEEDS_REVIEW and record.since_unix == review.since_unix
        if seen and still_waits and record.accept is None:
            tx.update(
                review.worker,
                commit_sha=head,
                reviewed_patch=patch_id(review.diff),
                reviewed_sha=head if same else review.head,
                reviewed_unix=now_unix(),
                uncommitted=bool(review.dirty),
            )
        tx.emit("reviewed", worker=review.worker, commit=review.head, behind=review.behind)


def _diff_now(project: Project, review: Review, head: str) -> str:
    try:
        shown = _what_lands(project, review.worker, head)
        return git.diff(review.worktree, shown.base, shown.result)
    except LlmcError:
        return ""  # what cannot be compared is not said to be the same


def compare(record: WorkerRecord, base: str, tip: str) -> Reviewed:
    """Whether base..tip, which is about to land, is the change that was reviewed. Never a reason to stop."""
    if record.reviewed_patch is None:
        return Reviewed.NOT_REVIEWED
    try:
        same = patch_id(git.diff(Path(record.worktree_path), base, tip)) == record.reviewed_patch
    except LlmcError:
        same = False  # what cannot be compared is not said to be the same
    return Reviewed.SAME if same else Reviewed.CHANGED


def changed_files(worktree: Path, base: str, head: str) -> tuple[FileChange, ...]:
    """What differs between two commits or trees."""
    done = git.git(worktree, "diff-tree", "-r", "--numstat", "-z", "--find-renames", base, head, "--")
    fields = iter(done.stdout.split("\0"))
    found = []
    for field in fields:
        if not field:
            continue
        added, deleted, path = field.split("\t", 2)
        old = next(fields) if not path else None  # of a rename, both names follow
        found.append(FileChange(path or next(fields), _count(added), _count(deleted), old))
    return tuple(found)


def _count(text: str) -> int | None:
    return None if text == "-" else int(text)


#: an agent may remove a file while it is read; then all of them are read again
TRIES = 3


def look_so_far(project: Project, record: WorkerRecord) -> Review:
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
        commits=tuple(Commit(commit.id, rules.subject(commit.message)) for commit in work.commits),
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
