"""The other nodes on the screens: what needs the user first, each item once, and nothing unknown claimed."""

import pytest

from llmc.api.other_nodes import others_of
from llmc.cli.fleet import _say_nodes
from llmc.fleet.rules import Need, Node, Sighting
from llmc.records.statuses import AT_WORK, Status

NOW = 1000.0
TASK = Need("waiting", "7", "task 7 failed 3 times", "llmc tasks requeue 7", "task:7", "quarantined")
ASKS = Need(
    "waiting",
    "auto-2",
    "auto-2 asks: Which color?",
    "llmc answer auto-2, or llmc attach auto-2",
    "asks:auto-2",
    "question",
)


def node(name: str, workers: dict[str, str], *needs: Need, state: str = "up") -> Node:
    return Node(name, f"{name}.lan:/home/me/{name}", state, 4.0, "1.2", "2.1", workers, 0, list(needs))


def seen(*nodes: Node, more: int = 0) -> Sighting:
    return Sighting(NOW - 3, "here", list(nodes), more)


def test_what_needs_the_user_comes_first_with_the_command_to_type_here() -> None:
    """Break: show the command as its own node would type it."""
    workers = {"auto-1": "idle", "auto-2": "needs_input", "auto-3": "working"}
    (one,) = others_of(seen(node("far", workers, ASKS)), NOW, 60).nodes
    assert [(there.who, there.look.name) for there in one.there] == [
        ("auto-2", "asks"),
        ("auto-3", "works"),
        ("auto-1", "idle"),
    ]
    assert one.there[0].next == "llmc answer far/auto-2"
    assert [there.question for there in one.there] == [ASKS.text, "", ""], "only a question can be answered"
    assert one.there[1].attach == "ssh far.lan -t 'cd /home/me/far && llmc attach auto-3'"
    assert (one.busy, one.workers, one.need, one.seen_unix) == (1, 3, 1, NOW - 7)
    assert one.command == "ssh far.lan -t 'cd /home/me/far && llmc'"


def test_status_and_the_screens_count_the_same_workers_as_busy(capsys: pytest.CaptureFixture[str]) -> None:
    """Break: let `status --fleet` count workers that wait for the user, or have nothing to change."""
    far = node("far", {f"auto-{number}": status for number, status in enumerate(Status)})
    _say_nodes([far])
    (on_screen,) = others_of(seen(far), NOW, 60).nodes
    assert on_screen.busy == len(far.busy) == len(AT_WORK)
    assert f"  {on_screen.busy}/{len(Status)} workers busy  " in capsys.readouterr().out


def test_a_task_of_all_nodes_needs_the_user_once() -> None:
    """Break: count it on every node that shows it; or drop a worker with the same question as another."""
    far, further = node("far", {}, TASK), node("further", {"auto-2": "needs_input"}, TASK, ASKS)
    both = others_of(seen(far, further), NOW, 60)
    assert [(one.name, [there.who for there in one.there]) for one in both.nodes] == [
        ("far", ["7"]),
        ("further", ["auto-2"]),
    ]
    assert both.need == 2
    assert others_of(seen(far), NOW, 60, {TASK.key}).need == 0, "this node shows it"
    alike = others_of(seen(node("a", {"auto-2": "needs_input"}, ASKS), further), NOW, 60)
    assert [len(one.there) for one in alike.nodes] == [1, 2]


def test_what_needs_the_user_looks_as_it_does_at_home() -> None:
    """Break: draw a question as an error because it blocks."""
    blocked = Need("blocked", "auto-1", "auto-1 waits", "llmc attach auto-1")
    looks = {"needs_input": "asks", "needs_review": "review", "error": "broken"}
    for status, look in looks.items():
        (one,) = others_of(seen(node("far", {"auto-1": status}, blocked)), NOW, 60).nodes
        assert one.there[0].look.name == look
    (one,) = others_of(seen(node("far", {}, TASK)), NOW, 60).nodes
    assert one.there[0].look.name == "notice"


def test_a_notice_does_not_need_the_user() -> None:
    (one,) = others_of(
        seen(node("far", {}, Need("notice", "disk", "the disk is filling", ""))), NOW, 60
    ).nodes
    assert (one.need, one.there) == (0, ())


def test_a_node_looks_as_it_is() -> None:
    states = {"up": "idle", "draining": "held", "silent": "broken", "down": "offline"}
    for state, look in states.items():
        (one,) = others_of(seen(node("far", {"auto-1": "idle"}, state=state)), NOW, 60).nodes
        assert one.look.name == look
    (busy,) = others_of(seen(node("far", {"auto-1": "rebasing"})), NOW, 60).nodes
    assert busy.look.name == "works"


def test_an_old_sighting_says_so() -> None:
    """Break: show what was known before the database was lost as if it were current."""
    assert not others_of(seen(), NOW, 60).stale
    assert others_of(seen(more=2), NOW + 60, 60).stale
    assert others_of(seen(more=2), NOW, 60).more == 2
