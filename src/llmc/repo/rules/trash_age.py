"""How long an entry has been in the trash, without trusting the clock. Pure.

A machine's clock may be wrong by years at boot, and be set while llmc runs. So the age of a trash entry is not taken
from its name, but from how long running daemons have seen it. Only a daemon's first check asks the clock how long no
daemon ran, and counts at most a day.
"""

from collections.abc import Iterable, Mapping

import msgspec

DAY_S = 86400.0
#: maximum time without a daemon that counts, because the clock may have been set
MOST_UNSEEN_S = DAY_S
#: maximum gap between two events that counts, for the same reason
MOST_SILENCE_S = 2 * DAY_S
#: how long a running daemon must see an entry as old before it is deleted
SECOND_LOOK_S = DAY_S


class Age(msgspec.Struct, frozen=True):
    """Facts about one entry."""

    #: how long it has been seen in the trash
    lived_s: float = 0.0
    #: how long a running daemon has seen it as old; None if it is not old
    old_s: float | None = None


class Book(msgspec.Struct, frozen=True):
    """The sum of all checks so far."""

    #: the time of the latest check; 0 before the first
    newest_unix: float = 0.0
    ages: dict[str, Age] = {}


def look(book: Book, found: Mapping[str, float], *, now: float, ran_s: float | None, keep_s: float) -> Book:
    """The book after one more check of the trash.

    `found` has every entry with its age by the clock. `ran_s`: how long this daemon has run since its last check; None
    for the first.
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
    """Entries that may be deleted."""
    return [name for name, age in book.ages.items() if (age.old_s or 0.0) >= SECOND_LOOK_S]


def accounted_for(events: Iterable[tuple[float, str]], now: float) -> dict[str, float]:
    """How much time the event log shows since each pin it reports.

    `events` are times, with the ref if the event is a pin. A clock set forward shows as one gap, and a clock set back
    counts nothing until it catches up.
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
