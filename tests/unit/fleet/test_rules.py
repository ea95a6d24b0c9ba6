"""Names in the fleet, and numbered rows that appear late."""

from hypothesis import given
from hypothesis import strategies as st

from llmc.fleet.rules import MISSING_S, Reading, beat_s, full_name, own_name, split_name


def test_a_row_below_those_that_were_read_is_asked_for() -> None:
    """Break: go on from the highest number alone."""
    reading = Reading()
    reading.took([1, 2, 5], now=0.0)
    assert (reading.after, set(reading.missing)) == (5, {3, 4})
    reading.took([4, 6], now=1.0)
    assert (reading.after, set(reading.missing)) == (6, {3})


def test_a_number_that_never_comes_is_given_up() -> None:
    reading = Reading()
    reading.took([3], now=0.0)
    reading.took([], now=MISSING_S - 1)
    assert set(reading.missing) == {1, 2}
    reading.took([], now=MISSING_S)
    assert reading.missing == {}


@given(st.permutations(range(1, 12)), st.lists(st.integers(1, 4)))
def test_every_number_is_taken_once_in_whatever_order_it_appears(order: list[int], sizes: list[int]) -> None:
    """A reader that asks for what is above, and for what is missing, gets each row once."""
    reading, visible, got = Reading(), set[int](), list[int]()
    for size in [*sizes, len(order)]:
        visible |= set(order[:size])
        order = order[size:]
        new = sorted(n for n in visible if n > reading.after or n in reading.missing)
        got += new
        reading.took(new, now=0.0)
    assert sorted(got) == list(range(1, 12))


def test_a_worker_has_its_node_in_the_books_of_all() -> None:
    assert full_name("a", "auto-1") == "a/auto-1"
    assert full_name("a", "b/auto-1") == "b/auto-1"
    assert full_name("a", "") == ""
    assert own_name("a", "a/auto-1") == "auto-1"
    assert own_name("a", "b/auto-1") == "b/auto-1"
    assert split_name("a", "auto-1") == ("a", "auto-1")
    assert split_name("a", "b/auto-1") == ("b", "auto-1")
    assert split_name("a", "") == ("a", "")


def test_a_node_beats_often_enough_for_its_lease() -> None:
    assert beat_s(60) == 10
    assert beat_s(2) == 0.5
