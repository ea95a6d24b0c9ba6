"""Reviews with line comments: the diff as rows, saved drafts, rounds, and one request that sends all drafts."""

from collections.abc import Callable

from msgspec import Struct

from llmc.api import workers
from llmc.base.clock import now_unix
from llmc.base.errors import NotFound, ToolFailed
from llmc.base.text import pattern
from llmc.landing import fresh_review, review
from llmc.landing.review import Review
from llmc.records.worker import WorkerRecord
from llmc.repo import git
from llmc.repo.project import Project
from llmc.reviews import comments
from llmc.reviews.comments import Request as Request
from llmc.reviews.rules import anchors, talk
from llmc.reviews.rules.anchors import Anchor as Anchor
from llmc.reviews.rules.anchors import Fit as Fit
from llmc.reviews.rules.anchors import row_of as row_of
from llmc.reviews.rules.diff_rows import DiffFile as DiffFile
from llmc.reviews.rules.diff_rows import DiffRow as DiffRow
from llmc.reviews.rules.diff_rows import Kind as Kind
from llmc.reviews.rules.diff_rows import files_of
from llmc.reviews.rules.diff_rows import gap_before as gap_before
from llmc.reviews.rules.talk import Comment as Comment
from llmc.reviews.rules.talk import Placed as Placed
from llmc.reviews.rules.talk import Round as Round
from llmc.reviews.rules.talk import Save as Save
from llmc.reviews.rules.talk import Talk
from llmc.sessions.submit import Receipt

_DRAWN = pattern(r"[0-9a-f]{40,64}\.\.[0-9a-f]{40,64}")


class Page(Struct, frozen=True):
    """A worker's change, with the comments on it."""

    worker: str
    #: the change as accept would land it, or the work so far
    review: Review
    files: tuple[DiffFile, ...]
    comments: tuple[Placed, ...]
    rounds: tuple[Round, ...]
    #: the round that the user is in
    round: int
    #: only what changed since this round is shown; 0: everything
    since: int
    #: the paths marked as viewed
    viewed: frozenset[str]
    #: the commit or tree from which the diff was made
    before: str = ""
    #: files that differ only because the base moved, when `since` is set
    by_rebase: tuple[str, ...] = ()

    @property
    def drawn(self) -> str:
        """What identifies the diff: a row number means nothing without it."""
        return f"{self.before}..{self.review.result}"

    @property
    def drafts(self) -> list[Comment]:
        return [one.comment for one in self.comments if not one.comment.round]


def page(project: Project, name: str, since: int = 0) -> Page:
    """The change of a worker; with `since`, only what changed after that round."""
    shown = fresh_review.begin(project, name)
    record = project.store.worker(name)
    said = comments.read(project, record)
    whole = files_of(shown.diff)
    before, files, moved = _since(project, shown, said, since) if since else (_start(shown), whole, ())
    return Page(
        worker=record.name,
        review=shown,
        files=files,
        comments=tuple(talk.placed_in(said, whole, _said(project, name) if said.rounds else ())),
        rounds=talk.settled_rounds(said),
        round=said.round,
        since=since,
        viewed=frozenset(file.path for file in whole if talk.is_viewed(said, file)),
        before=before,
        by_rebase=moved,
    )


def _start(shown: Review) -> str:
    return shown.parting if shown.so_far or shown.conflicts else shown.base


def files_drawn(project: Project, drawn: str) -> tuple[DiffFile, ...]:
    """The files of a diff as a page drew it; the work may have changed since. None are left if git dropped it."""
    if not _DRAWN.fullmatch(drawn):
        return ()
    try:
        return files_of(git.diff(project.root.path, *drawn.split("..")))
    except ToolFailed:
        return ()


def _said(project: Project, name: str) -> list[tuple[float, str]]:
    """The agent's latest messages, each with its time."""
    return [(turn.at_unix, turn.text) for turn in workers.talk(project, name) if turn.role == "assistant"]


def request(project: Project, shown: Page) -> Request | None:
    """The exact prompt that `send` sends to the agent for this change; None if there is nothing to send."""
    return comments.request(project, shown.review, shown.drafts) if shown.drafts else None


def remember(project: Project, shown: Page, *, again: bool = False) -> bool:
    """Record that the user saw the change, so that accept warns if another one would land; returns whether it counts.

    Work so far does not count; a diff since a round does: the user commented on it. `again`: not the first look.
    """
    counts = not shown.review.so_far
    if counts:
        review.remember(project, shown.review, again=again)
    return counts


def _since(
    project: Project, shown: Review, said: Talk, number: int
) -> tuple[str, tuple[DiffFile, ...], tuple[str, ...]]:
    """The tree of a round, the files that changed since, and those that only a rebase changed."""
    sent = next((one for one in talk.settled_rounds(said) if one.number == number), None)
    if sent is None:
        raise NotFound(
            f"no review round {number} for {shown.worker}",
            hint=f"Choose a round before the current one ({said.round}).",
        )
    before = comments.tree_of_round(project, shown, sent)
    root = project.root.path
    files = files_of(git.diff(root, before, shown.result))
    plain = files_of(git.diff(root, sent.head, shown.head))
    kept = {file.path for file in files}
    return before, files, tuple(file.path for file in plain if file.path not in kept)


def file_lines(project: Project, shown: Page, file: DiffFile) -> list[str]:
    """The lines of a file as it would land, including those that the diff leaves out."""
    return git.file_text(project.root.path, shown.review.result, file.path).split("\n")


def add(
    project: Project,
    name: str,
    file: DiffFile | None,
    row: int | None,
    text: str,
    save: Save = talk.ELSEWHERE,
) -> Comment:
    """Add a draft on a row of a file, on a whole file, or on the whole change."""
    anchor = None
    if file is not None:
        anchor = anchors.anchor_at(file, row) if row is not None else anchors.of_file(file)
    made: list[str] = []

    def draft(said: Talk) -> Talk:
        changed, comment_id = talk.drafted(said, anchor, text, now_unix(), save)
        made.append(comment_id)
        return changed

    return _changed(project, name, draft).comment(made[-1])


def edit(
    project: Project,
    name: str,
    comment_id: str,
    text: str,
    rev: int | None = None,
    save: Save = talk.ELSEWHERE,
) -> Comment:
    said = _changed(project, name, lambda said: talk.edited(said, comment_id, text, now_unix(), rev, save))
    return said.comment(comment_id)


def delete(project: Project, name: str, comment_id: str) -> None:
    _changed(project, name, lambda said: talk.removed(said, comment_id))


def close(project: Project, name: str, comment_id: str, *, is_closed: bool = True) -> Comment:
    """Close a sent comment, or open it again."""
    said = _changed(project, name, lambda said: talk.closed(said, comment_id, is_closed=is_closed))
    return said.comment(comment_id)


def mark_viewed(project: Project, name: str, file: DiffFile, *, is_viewed: bool) -> None:
    _changed(project, name, lambda said: talk.viewed(said, file, is_viewed=is_viewed))


def send(project: Project, name: str, general: str = "", seen: str = "") -> Receipt:
    """Send all drafts to the worker, as one request for changes. `seen`: the key of the only one that may be sent."""
    project.store.worker(name)
    with project.worker_lock(name):
        return comments.send(project, name, general, seen)


def _changed(project: Project, name: str, act: Callable[[Talk], Talk]) -> Talk:
    record: WorkerRecord = project.store.worker(name)
    return comments.change(project, record, act)
