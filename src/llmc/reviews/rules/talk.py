"""The comments on one task's work, in rounds: drafts, what was sent, and whether it was addressed. Pure."""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from llmc.base.errors import NotFound, Refused, UsageError
from llmc.base.text import in_line
from llmc.reviews.rules.anchors import Anchor, Fit, placed
from llmc.reviews.rules.diff_rows import DiffFile

#: longer comments are refused: a prompt has a limit
MOST_CHARS = 20_000
#: starts the line in which an agent names the comments it addressed
CLAIM = "Addressed:"
_CLAIMED = re.compile(rf"^\W*{CLAIM}(?P<ids>.*)$", re.MULTILINE | re.IGNORECASE)


class Save(Struct, frozen=True):
    """One save of the text in a form. Saves may arrive in any order; the one with the highest step counts."""

    form: str = ""
    step: int = 0


#: a text that does not come from a form in a browser
ELSEWHERE = Save()


class Comment(Struct, frozen=True, kw_only=True):
    """A comment on a line or a file of a diff, or on the whole diff."""

    #: unique within a talk
    id: str
    #: None: about the whole change
    anchor: Anchor | None
    text: str
    at_unix: float
    #: the revision; an edit based on an older one is refused
    rev: int = 1
    #: the round it was sent with; 0: a draft
    round: int = 0
    #: closed by the user
    closed: bool = False
    #: the save that its text came with
    save: Save = ELSEWHERE


class Round(Struct, frozen=True, kw_only=True):
    """One request for changes."""

    number: int
    #: what the user looked at; the commit is pinned under `ref`
    base: str
    head: str
    ref: str
    at_unix: float
    prompt_id: str
    #: the comments that are being sent; empty once it is known that they arrived
    pending: tuple[str, ...] = ()
    #: whether the request is known to have arrived; in older files, only `pending` says so
    sent: bool = True

    @property
    def is_open(self) -> bool:
        """Whether it is unknown if the request arrived."""
        return not self.sent or bool(self.pending)


class Talk(Struct, frozen=True, kw_only=True):
    """The comments and rounds about one task of a worker."""

    #: the prompt that started the task
    task: str = ""
    comments: tuple[Comment, ...] = ()
    rounds: tuple[Round, ...] = ()
    #: files marked as viewed, by path, with what was viewed (`exact`)
    viewed: dict[str, str] = field(default_factory=dict)
    #: how many comments there ever were, so that no id is used twice
    made: int = 0

    @property
    def drafts(self) -> tuple[Comment, ...]:
        return tuple(comment for comment in self.comments if not comment.round)

    @property
    def round(self) -> int:
        """The current round: one more than were sent."""
        return len(settled_rounds(self)) + 1

    @property
    def open_round(self) -> Round | None:
        """The round that is being sent, if any."""
        return self.rounds[-1] if self.rounds and self.rounds[-1].is_open else None

    def comment(self, comment_id: str) -> Comment:
        found = next((one for one in self.comments if one.id == comment_id), None)
        if found is None:
            raise NotFound(
                f"no comment {comment_id!r}", hint="Run `llmc review WORKER --comments` to list the comments."
            )
        return found


def drafted(
    talk: Talk, anchor: Anchor | None, text: str, now: float, save: Save = ELSEWHERE
) -> tuple[Talk, str]:
    """Add a draft, or change the one that the same form made; also returns its id."""
    made_by_it = (
        one.id for one in talk.comments if not one.round and save.form and one.save.form == save.form
    )
    if (known := next(made_by_it, None)) is not None:
        return edited(talk, known, text, now, save=save), known
    made = talk.made + 1
    comment = Comment(id=f"c{made}", anchor=anchor, text=_checked(text), at_unix=now, save=save)
    return replace(talk, comments=(*talk.comments, comment), made=made), comment.id


def edited(
    talk: Talk, comment_id: str, text: str, now: float, rev: int | None = None, save: Save = ELSEWHERE
) -> Talk:
    """Change the text of a draft. `rev`: the revision that the writer saw; not checked for saves of the same form."""
    old = talk.comment(comment_id)
    _refuse_sent(talk, old)
    is_same = bool(save.form) and save.form == old.save.form
    if is_same and save.step <= old.save.step:
        return talk
    if rev is not None and rev != old.rev and not is_same:
        raise Refused(
            f"cannot save comment {comment_id}: it was changed elsewhere after you opened it",
            hint="Check the current text of the comment, then edit it again.",
        )
    return _with(talk, replace(old, text=_checked(text), at_unix=now, rev=old.rev + 1, save=save))


def removed(talk: Talk, comment_id: str) -> Talk:
    """Delete a draft."""
    _refuse_sent(talk, talk.comment(comment_id))
    return replace(talk, comments=tuple(one for one in talk.comments if one.id != comment_id))


def closed(talk: Talk, comment_id: str, *, is_closed: bool = True) -> Talk:
    """Close a sent comment, or open it again."""
    old = talk.comment(comment_id)
    if not old.round:
        raise Refused(
            f"cannot close comment {comment_id}: it is a draft",
            hint="Send your comments first, or delete the draft.",
        )
    return _with(talk, replace(old, closed=is_closed))


def viewed(talk: Talk, file: DiffFile, *, is_viewed: bool) -> Talk:
    """Mark a file as viewed, or not. The mark is gone once the file differs, before or after its change."""
    others = {path: exact for path, exact in talk.viewed.items() if path != file.path}
    return replace(talk, viewed={**others, file.path: file.exact} if is_viewed else others)


def is_viewed(talk: Talk, file: DiffFile) -> bool:
    return talk.viewed.get(file.path) == file.exact


def sending(talk: Talk, sent: Round) -> Talk:
    """Before a request is sent: record which comments it has."""
    if talk.open_round is not None:
        raise Refused(
            "nothing was sent: the previous request for changes may still arrive",
            hint="If you are attached to the worker, detach. Then send your comments again.",
        )
    drafts = tuple(comment.id for comment in talk.drafts)
    return replace(talk, rounds=(*talk.rounds, replace(sent, pending=drafts, sent=False)))


def arrived(talk: Talk) -> Talk:
    """The request arrived: its comments are sent."""
    *before, last = talk.rounds
    comments = tuple(
        replace(one, round=last.number) if one.id in last.pending else one for one in talk.comments
    )
    return replace(talk, comments=comments, rounds=(*before, replace(last, pending=(), sent=True)))


def failed(talk: Talk) -> Talk:
    """The request did not arrive: its comments are drafts again."""
    return replace(talk, rounds=settled_rounds(talk))


def settled_rounds(talk: Talk) -> tuple[Round, ...]:
    return tuple(one for one in talk.rounds if not one.is_open)


class Placed(Struct, frozen=True):
    """A comment at its place in the current diff, with what git shows and what the agent says about it."""

    comment: Comment
    anchor: Anchor | None
    #: whether the commented lines, or the file, changed since the comment was made; None: it is about the whole change
    lines_changed: bool | None = None
    #: the agent says that it addressed the comment
    claimed: bool = False

    @property
    def standing(self) -> str:
        """Its state, as text; only the user closes a comment."""
        if not self.comment.round:
            return "draft"
        if self.comment.closed:
            return "closed"
        said = "marked as addressed by the agent" if self.claimed else ""
        shown = {True: "lines changed", False: "lines unchanged", None: ""}[self.lines_changed]
        return " · ".join(part for part in (said, shown) if part and (said or self.lines_changed)) or "open"

    @property
    def is_doubtful(self) -> bool:
        """Whether the agent says that it addressed the comment, but git shows no change there."""
        return self.claimed and self.lines_changed is False and not self.comment.closed


def placed_in(talk: Talk, files: Sequence[DiffFile], said: Sequence[tuple[float, str]] = ()) -> list[Placed]:
    """Every comment at its place in a diff. `said`: what the agent said, each with its time."""
    sent = {one.number: one.at_unix for one in settled_rounds(talk)}
    return [
        Placed(
            one,
            place := placed(one.anchor, files) if one.anchor else None,
            _lines_changed(one.anchor, place, files),
            one.round in sent and one.id in claimed_in(text for at, text in said if at > sent[one.round]),
        )
        for one in talk.comments
    ]


def _lines_changed(made: Anchor | None, now: Anchor | None, files: Sequence[DiffFile]) -> bool | None:
    if made is None or now is None:
        return None
    if now.fit in (Fit.LINE_GONE, Fit.FILE_GONE):
        return True
    return made.line is None and all(
        file.patch_id != made.patch_id for file in files if file.path == now.path
    )


def claimed_in(texts: Iterable[str]) -> set[str]:
    """The ids of the comments that an agent says it addressed."""
    found = (match["ids"] for text in texts for match in _CLAIMED.finditer(text))
    return {name.lower() for ids in found for name in re.findall(r"\bc\d+\b", ids, re.IGNORECASE)}


def request_text(comments: Iterable[Comment], general: str = "") -> str:
    """The comments as one request to the agent."""
    parts = [general.strip()] if general.strip() else []
    whole = [one for one in comments if one.anchor is None]
    parts += [one.text.strip() for one in whole]
    lines = [one for one in comments if one.anchor is not None]
    if lines:
        count = f"{len(lines)} comments" if len(lines) > 1 else "1 comment"
        parts.append(f"{count} on lines of your diff. Address each one:")
    parts += [_on_lines(one, one.anchor) for one in lines if one.anchor is not None]
    if lines:
        ids = ", ".join(one.id for one in lines)
        parts.append(
            f"End your last message with a line that names the comments you addressed, for example:\n{CLAIM} {ids}"
        )
    return "\n\n".join(parts)


def _on_lines(comment: Comment, anchor: Anchor) -> str:
    where = in_line(anchor.path) + (f":{anchor.line}" if anchor.line else "")
    side = " (removed line)" if anchor.line and anchor.side == "old" else ""
    quote = "".join(f"> {in_line(line)}\n" for line in anchor.quote)
    return f"[{comment.id}] {where}{side}\n{quote}{comment.text.strip()}"


def _checked(text: str) -> str:
    if not text.strip():
        raise UsageError("the comment is empty")
    if len(text) > MOST_CHARS:
        raise UsageError(f"the comment must be at most {MOST_CHARS} characters long, not {len(text)}")
    return text


def _refuse_sent(talk: Talk, comment: Comment) -> None:
    """Refuse unless the comment is a draft that is not being sent: the agent would get another text than the user sees."""
    is_pending = talk.open_round is not None and comment.id in talk.open_round.pending
    if comment.round or is_pending:
        how = f"was sent in round {comment.round}" if comment.round else "is being sent"
        raise Refused(
            f"cannot change comment {comment.id}: it {how}",
            hint="Add a new comment instead.",
        )


def _with(talk: Talk, new: Comment) -> Talk:
    return replace(talk, comments=tuple(new if one.id == new.id else one for one in talk.comments))
