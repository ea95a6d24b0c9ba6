"""How long something has been in the trash, though clocks lie. Pure.

The clock of a machine may be wrong by years when it starts, and be set while llmc runs. So what is in the trash is not
as old as its name says: it is as old as the daemons have seen it there, by the time that they ran. Only a daemon's first
look asks the clock how long none ran, and believes it a day at most.
"""

from collections.abc import Iterable, Mapping

import msgspec

DAY_S = 86400.0
#: time in which no daemon ran may be a clock that was set: it counts this much at most
MOST_UNSEEN_S = DAY_S
#: a gap between two events counts this much at most, for the same reason
MOST_SILENCE_S = 2 * DAY_S
#: what is old must be seen as old for so long, by a daemon that runs, before it goes
SECOND_LOOK_S = DAY_S


class Age(msgspec.Struct, frozen=True):
    """What is known of one entry."""

    #: how long it has been seen in the trash
    lived_s: float = 0.0
    #: how long a running daemon has seen it as old; None when it is not
    old_s: float | None = None


class Book(msgspec.Struct, frozen=True):
    """What all looks so far add up to."""

    #: the latest time that a look was told; 0 before the first one
    newest_unix: float = 0.0
    ages: dict[str, Age] = {}


def look(book: Book, found: Mapping[str, float], *, now: float, ran_s: float | None, keep_s: float) -> Book:
    """The book after one more look at the trash.

    `found` has every entry with its age by the clock. `ran_s` is how long this daemon has run since its last look; None
    for its first one.
    """
    unseen = min(max(0.0, now - book.newest_unix), MOST_UNSEEN_S) if book.newest_unix else 0.0
    passed = unseen if ran_s is None else ran_s
    ages = {name: _older(book.ages.get(name), age, passed, ran_s, keep_s) for name, age in found.items()}
    return Book(max(now, book.newest_unix), ages)


def _older(before: Age | None, by_clock_s: float, passed: float, ran_s: float | None, keep_s: float) -> Age:
    if before is None:
        return Age()
    lived_s = before.lived_s + passed
    if min(lived_s, by_clock_s) < keep_s:
        return Age(lived_s)
    return Age(lived_s, 0.0 if before.old_s is None else before.old_s + (ran_s or 0.0))


def expired(book: Book) -> list[str]:
    """What may go."""
    return [name for name, age in book.ages.items() if (age.old_s or 0.0) >= SECOND_LOOK_S]


def accounted_for(events: Iterable[tuple[float, str]], now: float) -> dict[str, float]:
    """How much time the event log itself shows since each pin that it tells of.

    `events` are times, with the ref where it is the event of a pin. The time of a clock that was set shows as one gap,
    and a clock that was set back shows nothing until it is where it was.
    """
    passed = newest = 0.0
    begun: dict[str, float] = {}
    for at, ref in (*events, (now, "")):
        if newest:
            passed += min(max(0.0, at - newest), MOST_SILENCE_S)
        newest = max(newest, at)
        if ref:
            begun.setdefault(ref, passed)
    return {ref: passed - since for ref, since in begun.items()}
