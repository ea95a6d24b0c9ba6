"""Review: what a worker's accept would land, or its work so far; and the record of what the user has seen.

Looking at work does not change the state, the worktree or its index.

Everything that is shown or compared is read in the root's clone. A contained agent could forge objects in its own
repository, because git checks objects only when they are fetched.
"""

from contextlib import suppress
from pathlib import Path
from shlex import join as shell_join
from typing import Any

from msgspec import Struct

from llmc.attention.raising import advice
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, Refused, ToolFailed
from llmc.base.names import WorkerName
from llmc.base.proc import Overran
from llmc.base.text import some_files
from llmc.landing import merging, rules
from llmc.records.state import State
from llmc.records.worker import Reviewed, Seen, Status, WorkerRecord
from llmc.repo import git, git_dirs, provision, trash, uncommitted
from llmc.repo.project import Project


class Commit(Struct, frozen=True):
    sha: str
    subject: str


class FileChange(Struct, frozen=True):
    """A changed file; the counts are None for a binary file."""

    path: str
    added: int | None
    deleted: int | None
    renamed_from: str | None = None


class Review(Struct, frozen=True):
    """What a worker's accept would land: the diff from the latest `base` to `result`.

    With conflicts: the diff from the merge base to the worker's own commit.
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
    #: of the one commit that lands; the author as `Name <address>`
    message: str = ""
    author: str = ""
    author_date: str = ""
    #: why the default branch could not be fetched; empty if it was
    stale: str = ""
    #: why it was not rebased although the branch moved; empty if it was or need not be
    not_rebased: str = ""
    #: the merge base of the worker's commits and the branch
    parting: str = ""
    #: the tree that lands, or with conflicts the worker's commit, and the conflicted files
    result: str = ""
    conflicts: tuple[str, ...] = ()
    #: warnings about changes that are probably not intended
    warnings: tuple[str, ...] = ()
    #: the diff is too large to show; `files` is complete
    too_large: bool = False
    #: the status of a worker that is not in review: then this is its work so far, committed or not
    so_far: str = ""
    #: files of that work missing from the diff: huge ones, and nested repositories
    left_out: tuple[str, ...] = ()

    @property
    def has_longer_message(self) -> bool:
        """Whether the message that lands has more than the subjects of the commits."""
        return self.message.strip() != "\n\n".join(commit.subject for commit in self.commits)


def longest_waiting(state: State) -> WorkerRecord:
    waiting = [r for r in state.workers.values() if r.status is Status.NEEDS_REVIEW and r.accept is None]
    if not waiting:
        raise Refused("no worker is waiting for review", hint="Run `llmc status` to see all workers.")
    return min(waiting, key=lambda record: record.since_unix)


def refuse_unless_waiting(project: Project, record: WorkerRecord, verb: str) -> None:
    """Refuse unless the worker is in review and not being accepted."""
    name = record.name
    if record.accept is not None:
        raise Refused(
            f"cannot {verb} {name}: its work is being accepted (step {record.accept.step})",
            hint=f"If `llmc accept {name}` was interrupted, run it again to resume.",
        )
    if record.status is not Status.NEEDS_REVIEW:
        raise Refused(
            f"cannot {verb} {name}: its status is {record.status}, not needs_review",
            hint=advice(project, record.name),
        )


def look(project: Project, record: WorkerRecord) -> Review:
    """What an accept would land, read from git; touches nothing in the worktree. The caller holds the lock."""
    worktree = Path(record.worktree_path)
    stale = ""
    try:
        provision.refresh_base(project)
    except LlmcError as error:
        if git.resolve(worktree, project.base) is None:
            raise
        stale = error.message  # show the work even if the source is unreachable
    head = git.head(worktree)
    shown = _what_lands(project, record.name, head)
    return _review(project, record, shown, stale=stale, warnings=_warnings(project, record, shown))


class _Shown(Struct, frozen=True):
    work: merging.Work
    base: str
    result: str
    conflicts: tuple[str, ...] = ()


def _review(
    project: Project, record: WorkerRecord, shown: _Shown, *, warnings: tuple[str, ...] = (), **more: Any
) -> Review:
    root, worktree, work = project.root.path, Path(record.worktree_path), shown.work
    diff, too_large = _diff(root, shown)
    files, too_many = _files_changed(root, shown)
    return Review(
        worker=record.name,
        worktree=worktree,
        prompt=record.current_prompt,
        since_unix=record.since_unix,
        base=shown.base,
        head=work.tip,
        ahead=len(work.commits),
        behind=len(work.others),
        commits=tuple(Commit(commit.id, rules.subject(commit.message)) for commit in work.commits),
        files=files,
        dirty=uncommitted.tree_state(worktree).files,
        diff=diff,
        message=work.message if work.commits else "",
        author=work.author,
        author_date=work.author_date,
        parting=work.parting,
        result=shown.result,
        conflicts=shown.conflicts,
        warnings=(*warnings, *filter(None, (too_large, too_many))),
        too_large=bool(too_large or too_many),
        **more,
    )


def _diff(root: Path, shown: _Shown) -> tuple[str, str]:
    """The diff, or why it is missing: with a few objects, an agent can make a diff that fills the memory."""
    try:
        return git.diff(root, shown.base, shown.result), ""
    except Overran as error:
        by_hand = shell_join(["git", "-C", str(root), "diff", shown.base, shown.result])
        return "", f"the diff is not shown: {error.message}. To see it: {by_hand}"


def _files_changed(root: Path, shown: _Shown) -> tuple[tuple[FileChange, ...], str]:
    try:
        return changed_files(root, shown.base, shown.result), ""
    except Overran as error:
        return (), f"cannot list the changed files: {error.message}"


def _what_lands(project: Project, name: str, head: str) -> _Shown:
    """What would land, merged from trees as in accept."""
    base = git.resolve(project.root.path, project.base) or project.base
    work = merging.work_of(project, name, base, head)
    try:
        return _Shown(work, base, merging.merged_tree(project, work))
    except merging.Conflicts as found:
        return _Shown(work, work.parting, head, found.files)


def tree_on(project: Project, name: str, base: str, head: str) -> str:
    """The tree of a worker's earlier commit on another base; with conflicts, the commit itself."""
    try:
        return merging.merged_tree(project, merging.work_of(project, name, base, head))
    except merging.Conflicts:
        return head


def _warnings(project: Project, record: WorkerRecord, shown: _Shown) -> tuple[str, ...]:
    branch = project.config.repo.default_branch
    found = []
    dropped = merging.dropped_by_merges(project, shown.work)
    if dropped:
        names = some_files(dropped)
        found.append(f"a merge by the worker dropped changes from {branch} in {names}")
    if not shown.conflicts:
        again = merging.brought_back(project, shown.work, shown.result, record.taken_back)
        if again:
            found.append(f"changes that were reverted on {branch} would land again: {'; '.join(again)}")
    return tuple(found)


#: pins the base and the tree that were reviewed, as a commit; only the ids in the record are compared
_REF = "refs/llmc/reviewed/"


def remember(project: Project, review: Review, *, seen: bool = True, again: bool = False) -> None:
    """Record the worker reviewed last and, if its diff was `seen`, all that would have landed, for accept to compare.

    `again`: the same user has seen the same commit before, so no event is emitted.
    """
    head = git.head(review.worktree)  # a review may take long; the work may have changed
    counts = seen and not review.too_large
    lands = _seen(project, review) if counts else None
    # It may have been rebased in the meantime: the same change as another commit.
    same = head == review.head or (lands is not None and is_same(project, review.worker, lands, head))
    with project.store.transaction() as tx:
        tx.remember_review(review.worker)
        record = tx.worker(review.worker)
        if lands is not None and record.accept is None:
            # Record what the user saw, even if the worker has changed it since.
            seen_sha = head if same else review.head
            tx.update(
                review.worker,
                seen=lands,
                reviewed_patch=None,
                reviewed_sha=seen_sha,
                reviewed_unix=now_unix(),
            )
            if record.status is Status.NEEDS_REVIEW and record.since_unix == review.since_unix:
                tx.update(review.worker, commit_sha=head, uncommitted=bool(review.dirty))
        if not again:
            tx.emit("reviewed", worker=review.worker, commit=review.head, behind=review.behind)


def _seen(project: Project, review: Review) -> Seen:
    """What would land; a ref keeps it from `git gc` before it is recorded."""
    root = project.root.path
    tree = git.tree_of(root, review.result) if review.conflicts else review.result
    with suppress(LlmcError):  # without the ref, the change counts as different once the base has moved
        made = merging.commit_on(root, tree, review.base)
        git.git(root, "update-ref", f"{_REF}{review.worker}", made)
    return Seen(base=review.base, tree=tree, **_said(review.message, review.author, review.author_date))


def forget(project: Project, name: str) -> None:
    """Remove the ref of what was reviewed: the work has landed, or is gone."""
    git.git(project.root.path, "update-ref", "-d", f"{_REF}{name}", check=False)


def _said(message: str, author: str, date: str) -> dict[str, str]:
    return {"message": rules.digest(message), "author": rules.digest(f"{author} {date}")}


def compare(project: Project, record: WorkerRecord, made: merging.Made) -> Reviewed:
    """Whether what is about to land is what was reviewed. Never fails."""
    if record.seen is None:
        return Reviewed.CHANGED if record.reviewed_patch else Reviewed.NOT_REVIEWED
    same = equals(project, record.seen, lands_as(made.work, made.tree))
    return Reviewed.SAME if same else Reviewed.CHANGED


def lands_as(work: merging.Work, tree: str) -> Seen:
    message = work.message if work.commits else ""
    return Seen(base=work.base, tree=tree, **_said(message, work.author, work.author_date))


def equals(project: Project, seen: Seen, lands: Seen) -> bool:
    """Whether the reviewed change lands; on another base, as a merge of the reviewed change with that base.

    Line numbers and context are not enough: where the same lines occur twice, a change at either place looks the same.
    """
    if (lands.message, lands.author) != (seen.message, seen.author):
        return False
    if lands.base == seen.base:
        return lands.tree == seen.tree
    try:
        merged = merging.merge_with(project, seen.base, lands.base, seen.tree, base=lands.base)
    except (LlmcError, merging.Conflicts):
        return False  # what cannot be compared does not count as equal
    return lands.tree == merged


def is_same(project: Project, name: str, seen: Seen, head: str, base: str = "") -> bool:
    """Whether a worker's commit would land the reviewed change, on the last known default branch or `base`."""
    try:
        base = base or git.resolve(project.root.path, project.base) or project.base
        work = merging.work_of(project, name, base, head)
        return equals(project, seen, lands_as(work, merging.merged_tree(project, work)))
    except (LlmcError, merging.Conflicts):
        return False


def changed_files(root: Path, base: str, head: str) -> tuple[FileChange, ...]:
    """The changed files between two commits or trees. Raises git.TooMuch."""
    command = ["diff-tree", "-r", "--numstat", "-z", "--find-renames", base, head, "--"]
    fields = iter(git.listed(root, *command, most_bytes=git.MOST_DIFF))
    found = []
    for field in fields:
        added, deleted, path = field.split("\t", 2)
        old = next(fields) if not path else None  # a rename has both names
        found.append(FileChange(path or next(fields), _count(added), _count(deleted), old))
    return tuple(found)


def _count(text: str) -> int | None:
    return None if text == "-" else int(text)


#: an agent may remove a file during the read; then retry
TRIES = 3


def look_so_far(project: Project, record: WorkerRecord) -> Review:
    """The diff from the merge base with the last known default branch to the worker's current files."""
    worktree = Path(record.worktree_path)
    head = git.head(worktree)
    work = merging.work_of(project, record.name, git.resolve(project.root.path, project.base) or head, head)
    tree, left_out = _files(worktree, head)
    _have_in_clone(project, worktree, tree)
    so_far = "being accepted" if record.accept is not None else str(record.status)
    return _review(project, record, _Shown(work, work.parting, tree), so_far=so_far, left_out=left_out)


def _have_in_clone(project: Project, worktree: Path, tree: str) -> None:
    own = git_dirs.own_repo(worktree)
    if own is None:
        return  # a linked worktree has no objects of its own
    from llmc.repo import own_repos  # most workers are not contained

    if refusal := own_repos.fetch(project.root.path, own, tree):
        raise LlmcError(
            f"cannot read {worktree.name}'s work: {refusal}", hint=f"Run `llmc reset {worktree.name}`."
        )


def _files(worktree: Path, head: str) -> tuple[str, tuple[str, ...]]:
    """The files as a tree, and those left out: too large, or nested repositories."""
    for left in reversed(range(TRIES)):
        try:
            return trash.files_as_tree(worktree, head)
        except ToolFailed:
            if not left:
                raise
    raise AssertionError("unreachable")
