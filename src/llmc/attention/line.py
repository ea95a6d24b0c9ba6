"""The status line of a session that the user is attached to: its worker, who else needs them, and where the key goes. Pure."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from llmc.base.text import printable, shortened
from llmc.records.items import Item, counts

TASK_CELLS = 40
#: how many that wait are named; the rest are counted
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
    #: who needs the user
    right: str
    #: the session that the key goes to; "" if no other one waits
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
    """The one that waits after this one, around the list."""
    names: Mapping[str, int] = {one.name: at for at, one in enumerate(waiting)}
    start = names.get(member.name, -1) + 1
    order = [*waiting[start:], *waiting[:start]]
    return next((one.session for one in order if one.name != member.name), "")
