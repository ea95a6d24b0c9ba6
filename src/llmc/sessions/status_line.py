"""The status line in the sessions of a root's tmux server: set as options, which tmux draws on its own.

Only our own server is changed. The texts are values of options, and tmux does not expand formats inside these values.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from llmc.attention import raising
from llmc.base.errors import LlmcError
from llmc.base.names import SessionName
from llmc.base.text import printable, shortened
from llmc.base.tmux import KEYS, LEFT, NEXT, RIGHT, exact, no_format
from llmc.records.items import Item, counts
from llmc.records.worker import WorkerRecord
from llmc.repo.project import Project

TASK_CELLS = 40
#: most waiting names shown; the rest are only counted
NAMED = 2


class Member(Struct, frozen=True):
    """A worker, as its session shows it."""

    name: str
    session: str
    status: str
    task: str


class Line(Struct, frozen=True):
    """What one session shows."""

    #: worker, task and status
    left: str
    #: the names that need the user, and their number
    right: str
    #: the session that the key switches to; "" if no other worker waits
    next: str


def lines(members: Iterable[Member], items: Iterable[Item]) -> dict[str, Line]:
    """The line of each session."""
    known = {member.name: member for member in members}
    waiting = list(dict.fromkeys(item.who for item in items if counts(item.severity)))
    return {
        member.session: Line(
            left=_left(member),
            right=_right([who for who in waiting if who != member.name], member.name in waiting),
            next=_next(member, [known[who] for who in waiting if who in known]),
        )
        for member in known.values()
    }


def _left(member: Member) -> str:
    parts = [member.name, shortened(printable(member.task), TASK_CELLS), member.status]
    return " · ".join(part for part in parts if part)


def _right(others: list[str], itself: bool) -> str:
    count = len(others) + itself
    if not count:
        return "nothing needs you"
    named = " ".join(printable(who) for who in others[:NAMED])
    total = "1 needs you" if count == 1 else f"{count} need you"
    return f"{named} · {total}" if named else total


def _next(member: Member, waiting: list[Member]) -> str:
    """The session of the next waiting worker after this one, wrapping around."""
    names: Mapping[str, int] = {one.name: at for at, one in enumerate(waiting)}
    start = names.get(member.name, -1) + 1
    order = [*waiting[start:], *waiting[:start]]
    return next((one.session for one in order if one.name != member.name), "")


class StatusLine:
    """Keeps the lines of a root's sessions current while a terminal is attached; sets only what changed."""

    def __init__(self) -> None:
        self._shown: dict[str, Line] = {}

    def show(self, project: Project, workers: Iterable[WorkerRecord], items: Iterable[Item]) -> None:
        if not project.tmux.is_watched():
            self._shown = {}  # `prepare` may set other lines before the next call
            return
        found = _lines(workers, items)
        changed = {session: line for session, line in found.items() if self._shown.get(session) != line}
        if changed:
            _set(project, changed)
            self._shown = found


def _lines(workers: Iterable[WorkerRecord], items: Iterable[Item]) -> dict[str, Line]:
    return lines([_member(record) for record in workers], items)


def _member(record: WorkerRecord) -> Member:
    first = next((line for line in record.current_prompt.splitlines() if line.strip()), "")
    subject = record.assignment.subject if record.assignment else record.current_subject
    return Member(record.name, record.session_id, record.status, subject or first)


def _set(project: Project, changed: Mapping[str, Line]) -> None:
    """Set the lines of these sessions; a session that is gone does not affect the others."""
    for session, line in changed.items():
        target = ["-t", exact(SessionName(session))]
        words: list[str] = []
        for name, value in (
            (LEFT, line.left),
            (RIGHT, line.right),
            (NEXT, f"={line.next}:" if line.next else ""),
        ):
            words += ["set-option", *target, name, no_format(value), ";"]
        try:
            project.tmux.run(*words[:-1], check=False)
        except LlmcError:
            return  # tmux does not answer; the next change sets them


def prepare(project: Project, session: SessionName, prefix: str, *, nested: bool) -> None:
    """Before the user attaches: set the current lines, even without a daemon, and the keys of this terminal.

    Inside another tmux with the same prefix (`nested`), the prefix is pressed twice.
    """
    press = f"{prefix} {prefix}" if nested else prefix
    keys = f"{press} Space next · {press} d back"
    project.tmux.run("set-option", "-t", exact(session), KEYS, no_format(keys), check=False)
    try:
        _set(project, _lines(project.store.read().workers.values(), raising.current(project)))
    except LlmcError:
        pass  # an unreadable state must not keep the user from attaching
