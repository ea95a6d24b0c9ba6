"""The order of the tests for several workers: none is lost, and each part starts with slow ones."""

from tests.support.order import by_file, in_parts


def test_every_part_begins_with_its_share_and_nothing_is_lost() -> None:
    """Break: cut the list before the quick tests are spread; the first workers would get the slow ones."""
    slow = [(5, ["a1", "a2"]), (9, ["b1"]), (4, ["c1", "c2", "c3"])]
    quick = [f"q{number}" for number in range(10)]
    found = in_parts([slow, [(1, ["t1"])]], quick, 2)
    assert sorted(found) == sorted([*quick, "t1", *(test for _, tests in slow for test in tests)])
    first, second = found[:8], found[8:]
    assert (first[:5], second[0]) == (["a1", "a2", "c1", "c2", "c3"], "b1")
    assert "t1" in (first[5], second[1])
    assert all(test.startswith("q") for test in [*first[6:], *second[2:]])


def test_more_workers_than_tests() -> None:
    assert sorted(in_parts([[(1, ["a"])]], ["b"], 6)) == ["a", "b"]
    assert in_parts([], [], 3) == []


def test_the_tests_of_a_file() -> None:
    assert by_file(["a.py::one", "a.py::two[x::y]", "b.py::one"]) == [("a.py", [0, 1]), ("b.py", [2])]
