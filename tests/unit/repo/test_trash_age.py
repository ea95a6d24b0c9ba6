"""The age of a trash entry, whatever the clock says."""

from hypothesis import given
from hypothesis import strategies as st

from llmc.repo.rules.trash_age import DAY_S, Age, Book, accounted_for, expired, look

HOUR_S = 3600.0
KEEP_S = 30 * DAY_S
NOW = 1.8e9
AGES_AGO = 100 * DAY_S


def looks(book: Book, count: int, *, age_s: float = AGES_AGO, every_s: float = HOUR_S) -> Book:
    """The same daemon checks again and again; the clock says `age_s` each time."""
    for _ in range(count):
        book = look(book, {"a": age_s}, now=NOW, ran_s=every_s, keep_s=KEEP_S)
    return book


def test_what_is_seen_for_the_first_time_is_young() -> None:
    """Break: start with the clock's age. A clock forty days ahead would make a new pin old."""
    first = look(Book(), {"a": AGES_AGO}, now=NOW, ran_s=None, keep_s=KEEP_S)
    assert first.ages == {"a": Age()}
    assert expired(looks(first, 24 * 30)) == []


def test_it_goes_after_its_time_and_a_day_more() -> None:
    """Break: no second check; or count the second day from the first one."""
    begun = look(Book(), {"a": AGES_AGO}, now=NOW, ran_s=None, keep_s=KEEP_S)
    almost = looks(begun, 24 * 31 - 1)
    assert expired(almost) == []
    assert expired(looks(almost, 1)) == ["a"]


def test_the_clock_can_only_make_it_younger() -> None:
    """Break: use the larger of the two ages. A clock set back, or new files, keep the entry."""
    begun = look(Book(), {"a": AGES_AGO}, now=NOW, ran_s=None, keep_s=KEEP_S)
    assert expired(looks(begun, 24 * 90, age_s=KEEP_S - 1)) == []


def test_one_look_that_disagrees_begins_the_second_day_again() -> None:
    begun = look(Book(), {"a": AGES_AGO}, now=NOW, ran_s=None, keep_s=KEEP_S)
    almost = looks(begun, 24 * 31 - 1)
    doubted = looks(almost, 1, age_s=1.0)
    assert expired(looks(doubted, 24)) == []
    assert expired(looks(doubted, 25)) == ["a"]


def test_time_without_a_daemon_counts_a_day_at_most() -> None:
    """Break: trust the clock for time without a daemon, or count it again when the clock jumps back."""
    book = Book(NOW, {"a": Age()})
    for at in (NOW + 40 * DAY_S, NOW, NOW + 40 * DAY_S, NOW - 1e9, NOW + 40 * DAY_S):
        book = look(book, {"a": AGES_AGO}, now=at, ran_s=None, keep_s=KEEP_S)
    assert book.ages == {"a": Age(DAY_S)}


def test_a_day_that_nobody_saw_is_no_second_look() -> None:
    """Break: count time without a daemon towards the second check;
    with `keep_days = 0` a set clock is enough.
    """
    book = Book(NOW, {"a": Age(KEEP_S, 0.0)})
    for days in range(1, 9):
        book = look(book, {"a": AGES_AGO}, now=NOW + days * DAY_S, ran_s=None, keep_s=KEEP_S)
    assert expired(book) == []
    assert expired(looks(book, 24)) == ["a"]


def test_what_is_gone_is_forgotten() -> None:
    book = look(Book(NOW, {"a": Age(5.0), "b": Age(6.0)}), {"b": 1.0}, now=NOW, ran_s=1.0, keep_s=KEEP_S)
    assert book.ages == {"b": Age(7.0)}


clocks = st.floats(0.0, 4e9)


@given(st.lists(st.tuples(clocks, st.one_of(st.none(), st.floats(0.0, HOUR_S))), max_size=60))
def test_no_clock_makes_anything_old_before_its_time(told: list[tuple[float, float | None]]) -> None:
    """Whatever the clock says: a removed entry was seen for a day, and without restarts for all its time."""
    book, ran, restarts = Book(), 0.0, 0
    for now, ran_s in told:
        known = bool(book.ages)
        book = look(book, {"a": 4e9}, now=now, ran_s=ran_s, keep_s=KEEP_S)
        ran += (ran_s or 0.0) if known else 0.0
        restarts += ran_s is None
    assert book.ages.get("a", Age()).lived_s <= ran + restarts * DAY_S + 1e-3
    assert expired(book) == [] or ran >= DAY_S


def test_the_log_accounts_for_time() -> None:
    """Break: count a gap as a whole; or count it twice when the clock went back and returned."""
    log = [
        (NOW, ""),
        (NOW + 10, "one"),
        (NOW + 40 * DAY_S, ""),
        (NOW + 5, "two"),
        (NOW + 40 * DAY_S + 60, ""),
    ]
    assert accounted_for(log, NOW + 40 * DAY_S + 90) == {"one": 2 * DAY_S + 90, "two": 90.0}
    steady = [(NOW, "old"), *((NOW + hour * HOUR_S, "") for hour in range(24 * 31))]
    assert accounted_for(steady, NOW + 31 * DAY_S)["old"] == 31 * DAY_S
    assert accounted_for([(1.0, "boot"), (NOW, "")], NOW) == {"boot": 2 * DAY_S}
    assert accounted_for([], NOW) == {}
