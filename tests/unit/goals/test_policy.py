"""Which workers the goals' supervisor may touch, and which may report to it."""

import pytest
from msgspec.structs import replace

from llmc.goals.drive.decide import decide
from llmc.goals.drive.ladder import Policy, may_report, may_touch, session_key
from llmc.goals.drive.liveness import Signals
from llmc.goals.model import Assignment, AssignmentStatus, GoalView
from tests.support.goal_world import START, goal, plan

ACROSS = Policy(allow_cross_agent=True, allow_agents=("auto", "eve"))


def assignment(agent: str, worker: str = "", **fields: object) -> Assignment:
    kept: dict[str, object] = {
        "assignment_id": "A_1",
        "goal_id": "goal_1",
        "work_node_id": "S1.1.1",
        "agent_id": agent,
        "session_key": session_key(agent, worker) if worker else "",
        "status": AssignmentStatus.ACTIVE,
        "created_at": START,
        "updated_at": START,
        **fields,
    }
    return Assignment(**kept)  # type: ignore[arg-type]


@pytest.mark.req("3-113")
@pytest.mark.parametrize(
    ("agent", "policy", "allowed"),
    [
        ("auto", Policy(), True),
        ("eve", Policy(), False),
        ("eve", Policy(allow_agents=("eve",)), False),
        ("eve", Policy(allow_cross_agent=True), False),
        ("eve", ACROSS, True),
        ("adam", ACROSS, False),
        ("adam", Policy(allow_cross_agent=True, allow_agents=("*",)), True),
        ("adam", Policy(allow_cross_agent=True, allow_agents=()), False),
        ("auto", Policy(allow_agents=()), False),
    ],
)
def test_who_is_supervised(agent: str, policy: Policy, allowed: bool) -> None:
    """Across agents, both the switch and the list are needed.

    Break: `or` instead of `and` in `may_supervise`.
    """
    assert may_touch(assignment(agent), policy) is allowed


@pytest.mark.req("3-112")
def test_what_is_not_ours_is_not_touched_at_all() -> None:
    """An assignment of another pool: no change, no action, no question, however long it is silent.

    Break: leave out `may_touch` in `decide`.
    """
    nodes = plan(1, 1, 1)
    theirs = assignment("eve", "eve", last_dispatch_at=START)
    view = GoalView(goal(), nodes, {"A_1": theirs})
    silent = {"A_1": Signals(reachable=True, messages=())}
    late = START + 100_000
    assert decide(view, silent, Policy(), late, iter("abc").__next__).change.is_empty()
    ours = decide(view, silent, ACROSS, late, iter("abc").__next__)
    assert [action.purpose for action in ours.actions] == ["nudge"]


@pytest.mark.req("3-114")
@pytest.mark.parametrize(
    ("worker", "session", "fields", "allowed"),
    [
        ("auto-1", "s-1", {}, True),
        ("auto-2", "s-1", {}, False),
        ("auto-10", "s-1", {}, False),
        ("", "s-1", {}, False),
        ("auto-1", "s-2", {}, False),
        ("auto-1", "s-2", {"session_id": ""}, True),
        ("auto-1", "s-1", {"session_key": ""}, False),
        ("auto-1", "s-1", {"status": AssignmentStatus.BLOCKED}, True),
        ("auto-1", "s-1", {"status": AssignmentStatus.DONE}, False),
        ("auto-1", "s-1", {"status": AssignmentStatus.CANCELLED}, False),
    ],
)
def test_a_worker_reports_on_its_own_assignment(
    worker: str, session: str, fields: dict[str, object], allowed: bool
) -> None:
    """And on nothing else. Break: do not compare the session key in `may_report`."""
    own = replace(assignment("auto", "auto-1", session_id="s-1"), **fields)
    assert may_report(worker, session, own) is allowed
