"""Which pane is an agent's."""

import os
import subprocess

import pytest

from llmc.base.names import PaneId, SessionName
from llmc.base.panes import Pane, Panes, find, instance_of, parse
from tests.support.waiting import wait_until

OURS = SessionName("llmc-adam")
GONE = 2**22 + 1  # above every pid


def row(pane: str, session: str = OURS, pid: int = GONE, **given: str) -> str:
    mark = given.get("mark", "")
    process = given.get("process", str(pid) if mark else "")
    words = [pane, str(pid), "1", given.get("dead", "0"), given.get("status", ""), given.get("signal", "")]
    return "|".join([*words, given.get("attached", "0"), process, mark, given.get("worker", ""), session])


def found(panes: Panes, pane_id: str = "%5", instance: str = "abc") -> str | None:
    pane = find(panes, "adam", OURS, PaneId(pane_id), instance)
    return None if pane is None else pane.id


def test_a_row() -> None:
    panes = parse([row("%5", "a|b", mark="abc", worker="adam", dead="1", signal="9", attached="1")])
    known = {"attached": True, "dead": True, "exit_code": 137, "pid": GONE, "server_pid": 1}
    assert panes == {"%5": Pane(PaneId("%5"), SessionName("a|b"), instance="abc", worker="adam", **known)}  # type: ignore[arg-type]


def test_half_a_row_is_no_row() -> None:
    """Break: treat each line as a row. An agent's newline in an option would break every command."""
    torn = row("%6", mark="x\ny", worker="a|b", process="1").split("\n")
    rows = [row("%5", mark="abc"), *torn, "", "%x|1", "%7|1|2|0", row("x"), row("%8", pid=-1)]
    assert list(parse(rows)) == ["%5"]
    assert parse([row("%5", dead="1", status="?")])[PaneId("%5")].exit_code is None


@pytest.mark.parametrize(
    ("rows", "is_found"),
    [
        ([row("%5", mark="abc")], True),
        ([row("%7", "hers", mark="abc"), row("%5")], False),
        ([row("%5")], False),
        ([row("%5", mark="other")], False),
        ([row("%5", mark="abc", process="17")], False),
        ([], False),
    ],
    ids=["marked", "moved", "no mark", "of another launch", "respawned", "gone"],
)
def test_only_a_pane_with_the_mark(rows: list[str], is_found: bool) -> None:
    """Break: trust only the id; ids start at %0 again with each server."""
    assert (found(parse(rows)) == "%5") is is_found


def test_the_mark_is_enough() -> None:
    """An interrupted launch has no id in its record; and a session may be renamed."""
    assert found(parse([row("%9", "hers", mark="abc"), row("%1")]), pane_id="") == "%9"


def test_of_a_worker_that_is_offline_it_is_the_latest() -> None:
    """Its screen is read after a crash, and the next launch removes it."""
    marked = [row(pane, mark=pane[1:], worker="adam", dead="1") for pane in ("%9", "%10", "%8")]
    assert found(parse([*marked, row("%11", mark="b", worker="baker")]), instance="") == "%10"
    assert found(parse([row("%9", mark="abc")]), instance="") is None
    assert found(parse([row("%9", pid=os.getpid())]), instance="") is None, "a user's shell"


def test_an_agent_without_marks_is_known_by_its_environment() -> None:
    """Break: treat the session's first pane as the agent; or find nothing without a mark."""
    with subprocess.Popen(["sleep", "60"], env={"LLMC_INSTANCE": "abc"}) as agent:
        shell = os.getpid()
        panes = parse([row("%1", pid=shell), row("%8", "hers", pid=agent.pid)])
        wait_until(
            lambda: found(panes, pane_id="") == "%8"
        )  # a program has its environment a moment after its start
        assert found(panes, pane_id="%8") is None, "a record with an id belongs to a launch with marks"
        assert found(parse([row("%1", pid=shell)]), pane_id="") is None
        assert instance_of(agent.pid) == "abc"
        agent.kill()
    assert instance_of(agent.pid) is None
    ended = parse([row("%10", pid=shell), row("%9", dead="1", status="1")])
    assert found(ended, pane_id="") == "%9"
    missed = parse([row("%9", pid=agent.pid), row("%10", pid=shell)])
    assert found(missed, pane_id="") == "%9", "tmux has not noticed its exit"
