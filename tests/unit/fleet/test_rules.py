"""Names in the fleet, and numbered rows that appear late."""

from hypothesis import given
from hypothesis import strategies as st

from llmc.fleet.rules import (
    MISSING_S,
    Node,
    Reading,
    beat_s,
    elsewhere,
    full_name,
    own_name,
    split_name,
    where,
)


def test_a_row_below_those_that_were_read_is_asked_for() -> None:
    """Break: continue from the highest number alone."""
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
    """A reader that requests what is above, and what is missing, gets each row once."""
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


def node(name: str, *workers: str, state: str = "up", is_own: bool = False, is_near: bool = False) -> Node:
    statuses = dict.fromkeys(workers, "working")
    return Node(
        name, f"{name}.lan:/home/me/my {name}", state, 1.0, "1", "2", statuses, 0, [], is_own, is_near
    )


HERE = node("here", "adam", "auto-1", is_own=True, is_near=True)
THERE = node("there", "auto-1", "auto-2", "baker")


def test_a_command_for_another_machine_goes_over_ssh() -> None:
    """Break: leave out the quotes; ssh would end the command at the first space."""
    told = elsewhere(THERE, "llmc attach baker")
    assert told == """ssh there.lan -t 'cd '"'"'/home/me/my there'"'"' && llmc attach baker'"""
    assert elsewhere(node("beside", is_near=True), "llmc down") == "cd '/home/me/my beside' && llmc down"


def test_an_answer_names_the_node_of_its_worker() -> None:
    """Break: replace the worker's name at its first place in the command."""
    short = node("there", "a", "ans", "llmc")
    for name in short.workers:
        assert elsewhere(short, f"llmc answer {name} yes") == f"llmc answer there/{name} yes"
    assert elsewhere(short, "llmc answer 12 yes") == "llmc answer 12 yes"  # a question of the whole fleet


def test_a_worker_of_another_node_is_where_it_is() -> None:
    """Break: check only the worker's name when the node is named, too."""
    said = where("baker", ["message", "baker", "to be"], [HERE, THERE])
    assert said is not None
    assert said[0] == "baker is on node there (there.lan:/home/me/my there), not on this node"
    assert said[1] == "Run: " + elsewhere(THERE, "llmc message baker 'to be'")
    named = where("there/auto-1", ["peek", "there/auto-1"], [HERE, THERE])
    assert named is not None
    assert named[1] == "Run: " + elsewhere(THERE, "llmc peek auto-1")


def test_a_worker_that_several_nodes_have_must_be_named_with_its_node() -> None:
    said = where("auto-2", ["attach", "auto-2"], [HERE, THERE, node("third", "auto-2")])
    assert said == (
        "auto-2 is on there, third, not on this node",
        "Specify the node: llmc attach there/auto-2",
    )


def test_what_no_node_has_is_not_made_up() -> None:
    """Break: name a node although it does not have the worker."""
    nodes = [HERE, THERE]
    assert where("clara", ["attach", "clara"], nodes) is None
    assert where("no/clara", ["attach", "no/clara"], nodes) == (
        "no node 'no' in the fleet",
        "Run `llmc fleet nodes` to see the nodes.",
    )
    assert where("there/clara", ["attach", "there/clara"], nodes) == (
        "node there has no worker 'clara'",
        "Workers on that node: auto-1, auto-2, baker",
    )


def test_a_node_that_is_down_shows_no_workers_but_is_named() -> None:
    said = where("off/adam", ["attach", "off/adam"], [HERE, node("off", state="down")])
    assert said is not None
    assert said[0].endswith("not on this node; that node is down")
