"""The list and its cursor: nothing moves under it, whatever happens in the fleet."""

from hypothesis import given
from hypothesis import strategies as st

from llmc.api.other_nodes import others_of
from llmc.api.views import Fleet, Landed, fleet_of
from llmc.fleet.rules import Need, Node, Sighting
from llmc.tui.list_store import IDLE, NEEDS, NODES, SECTIONS, WORKING, Spot, Store

NAMES = [f"w{number}" for number in range(6)]


def fleet(
    statuses: dict[str, str], landed: int = 0, others: int = 0, nodes: dict[str, str] | None = None
) -> Fleet:
    """`nodes`: the other nodes, each with the status of its worker w0."""
    rows = [row(name, status) for name, status in statuses.items()]
    needs = [item("review", name) for name, status in statuses.items() if status == "needs_review"]
    needs += [item("question", name) for name, status in statuses.items() if status == "needs_input"]
    needs += [item("source", f"thing {number}") for number in range(others)]
    view = {
        "root": "/x/shop",
        "daemon": {"running": True, "pid": 1},
        "auto": None,
        "workers": rows,
        "attention": needs,
    }
    landings = [Landed(float(n), "w0", f"c{n}", f"S{n}", "") for n in range(landed)]
    seen = None
    if nodes is not None:
        there = [node(name, status) for name, status in nodes.items()]
        seen = others_of(Sighting(99.0, "here", there), 100.0, 60)
    return fleet_of(view, 100.0, landings, others=seen)


def node(name: str, status: str) -> Node:
    asks = [Need("waiting", "w0", "w0 asks", "llmc answer w0")] if status == "needs_input" else []
    return Node(name, f"{name}.lan:/{name}", "up", 1.0, "1.2", "2.1 (Claude Code)", {"w0": status}, 0, asks)


def row(name: str, status: str) -> dict[str, object]:
    nothing = ("prompt", "task_subject", "accept_step", "commit_sha", "attached")
    plain = {"name": name, "status": status, "since_unix": 1.0, "reviewed": False, "conflicted_files": []}
    return {**dict.fromkeys(nothing), **plain, "prompt": f"Task of {name}", "auto": False, "held": False}


def item(kind: str, who: str) -> dict[str, object]:
    return {
        "key": f"{kind}:{who}",
        "kind": kind,
        "severity": "blocked",
        "who": who,
        "since_unix": 1.0,
        "text": f"{who} waits",
        "next": "llmc x",
    }


def names(store: Store, section: str) -> list[str]:
    return [entry.spot.id for entry in store.shown(section)]


FLEETS = st.builds(
    fleet,
    st.dictionaries(
        st.sampled_from(NAMES), st.sampled_from(["idle", "working", "needs_review", "needs_input", "offline"])
    ),
    st.integers(0, 3),
    st.integers(0, 2),
    st.none() | st.dictionaries(st.sampled_from(["n0", "n1"]), st.sampled_from(["working", "needs_input"])),
)


@given(st.lists(st.one_of(FLEETS, st.sampled_from(["j", "k", "space", "fold", "open"])), max_size=25))
def test_the_cursor_keeps_its_worker_under_any_order_of_changes(steps: list[Fleet | str]) -> None:
    """Break: keep the cursor as a number."""
    store = Store()
    for step in steps:
        before, worker = store.cursor, store.worker
        match step:
            case Fleet():
                store.update(step)
                if (
                    worker
                    and worker in step.rows
                    and store.section_of(Spot("worker", worker)) not in store.folded
                ):
                    assert store.worker == worker
            case "j":
                store.move(1)
            case "k":
                store.move(-1)
            case "space":
                store.next_that_needs()
            case _:
                store.fold(folded=step == "fold")
        shown = [entry.spot for entry in store.entries()]
        assert len(shown) == len(set(shown))
        assert (
            store.cursor in shown
            or (not shown and store.cursor is None)
            or (before is None and store.cursor is None)
        )


@given(FLEETS)
def test_everyone_is_shown_once(seen: Fleet) -> None:
    store = Store()
    store.update(seen)
    store.folded.clear()
    workers = [entry.row.worker for entry in store.entries() if entry.row is not None]
    assert sorted(workers) == sorted(seen.rows)


def test_what_comes_joins_below_until_the_cursor_leaves() -> None:
    """Break: sort the section under the cursor."""
    store = Store()
    store.update(fleet({"w3": "needs_review", "w4": "needs_review", "w5": "working"}))
    store.go_to("w4")
    store.update(fleet({"w1": "needs_review", "w3": "needs_review", "w4": "needs_review", "w5": "working"}))
    assert names(store, NEEDS) == ["w3", "w4", "w1"]
    assert store.worker == "w4"
    store.go_to("w5")
    assert names(store, NEEDS) == ["w1", "w3", "w4"]


def test_space_goes_around_those_that_need_you() -> None:
    store = Store()
    store.update(fleet({"a": "needs_review", "b": "needs_input", "c": "working"}, others=1))
    seen = []
    for _ in range(4):
        assert store.next_that_needs()
        assert store.cursor is not None
        seen.append(store.cursor.id)
    assert sorted(seen[:3]) == ["a", "b", "source:thing 0"]
    assert seen[3] == seen[0]
    store.update(fleet({"c": "working"}))
    assert not store.next_that_needs()


def test_idle_is_one_line_until_it_is_opened() -> None:
    store = Store()
    store.update(fleet({"a": "idle", "b": "idle", "c": "working"}))
    assert names(store, WORKING) == ["c"]
    assert [entry.names for entry in store.shown(IDLE)] == [("a", "b")]
    store.move(1)
    store.fold(folded=False)
    assert (names(store, IDLE), store.worker) == (["a", "b"], "a")
    store.fold(folded=True)
    assert store.cursor == Spot("section", IDLE)


def test_a_filter_narrows_every_section() -> None:
    store = Store()
    store.update(fleet({"anna": "idle", "bert": "working", "carl": "needs_review"}, landed=2))
    store.narrow("AN")
    assert [names(store, section) for section in SECTIONS] == [[], [], ["anna"], [], []]
    assert store.worker == "anna"
    store.narrow("")
    assert len(store.entries()) == 5


def test_another_node_stands_in_a_section_of_its_own() -> None:
    """Break: treat another node's worker as the one of that name here."""
    store = Store()
    store.update(fleet({"w0": "working"}, nodes={"n0": "working", "n1": "needs_input"}))
    assert names(store, WORKING) == ["w0"]
    assert names(store, NODES) == ["n0", "n0/w0", "n1", "n1/w0"]
    assert store.count(NODES) == 2
    assert store.next_that_needs()
    assert store.cursor == Spot("there", "n1/w0")
    assert store.worker == "", "no key acts on it as on a worker of this root"
    store.fold(folded=True)
    assert store.shown(NODES)[0].names == ("n0", "n1")


def test_without_a_fleet_there_are_no_nodes() -> None:
    store = Store()
    store.update(fleet({"w0": "working"}))
    assert store.shown(NODES) == []
