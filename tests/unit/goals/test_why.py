"""Why work is where it is: the four questions, and what comes next, from records alone."""

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as replaced

from llmc.goals.drive.ladder import Policy
from llmc.goals.model import (
    AssignmentStatus,
    Event,
    Evidence,
    GoalStatus,
    GoalView,
    Mode,
    Node,
    NodeStatus,
    Result,
)
from llmc.goals.model import Tested as Checked
from llmc.goals.plan.plan import held_up_by, waits_of
from llmc.goals.report.why import Clock, Why, next_of, why_assignment, why_goal, why_node
from tests.support.goal_records import BLOCKED, assignment, crystallization, dispatch, node, view_of

S = AssignmentStatus
NOW = 1000.0
CLOCK = Clock(NOW, lambda at: f"{NOW - at:g}s ago", lambda at: f"at {at:g}")
POLICY = Policy(idle_after_s=100.0, max_retries=2)
STALLED = Event(ts=900.0, type="assignment.stalled", data={"reason": "no activity for 15m"})
GIVEN = assignment(
    S.STALLED,
    session_key="agent:auto:worker:auto-2",
    run_id="17",
    dispatch_history=(
        dispatch("D_1", ts=500.0, result=Result.ACCEPTED),
        dispatch("D_2", ts=900.0, mode=Mode.SEND, purpose="nudge", result=Result.TIMEOUT, notes="no receipt"),
    ),
    last_dispatch_at=900.0,
    last_observed_activity_at=600.0,
    last_progress_at=550.0,
    retry_count=1,
    backoff_until=1020.0,
)
PROOF = crystallization(
    created_at=700.0,
    evidence=Evidence(
        commits=("1a2b3c4",), files_touched=("a.py",), tests_run=(Checked(command="make test"),)
    ),
)


def plan() -> list[Node]:
    """S1.1.2 waits for S1.1.1, the second phase for the first."""
    parts = {one: node(one) for one in ("P1", "T1.1", "S1.1.1", "S1.1.2", "P2", "T2.1")}
    parts["S1.1.2"] = replace(parts["S1.1.2"], depends_on=("S1.1.1",))
    parts["P2"] = replace(parts["P2"], depends_on=("P1",))
    return list(parts.values())


def asked(**fields: object) -> Why:
    view = view_of(*plan(), assignments=(replace(GIVEN, **fields),))
    return why_assignment(view, view.assignments["A_1"], STALLED, [PROOF], POLICY, CLOCK)


@pytest.mark.req("3-130")
def test_the_four_questions_are_answered() -> None:
    """Break: report the first dispatch as the last; drop `backoff`; say `accepted` for a timeout."""
    found = asked()
    text = "\n".join(found.lines)
    assert "status    stalled: no activity for 15m" in text
    assert "sent      status check to the worker 100s ago: unconfirmed (no receipt); 2 sent in total" in text
    assert "backoff   ends at 1020" in text
    assert "last seen 400s ago" in text
    assert "last confirmed 450s ago" in text
    assert "evidence  300s ago: the parser is there" in text
    for word in ("commits: 1a2b3c4", "files: a.py", "tests: make test"):
        assert word in text
    assert "retries   1 of 2 since the last progress" in text
    assert found.data["why"] == "no activity for 15m"
    assert (found.data["stalled"], found.data["accepted"], found.data["backoffUntil"]) == (
        True,
        False,
        1020.0,
    )
    assert found.data["lastDispatch"]["dispatchId"] == "D_2"
    assert found.data["evidence"]["commits"] == ("1a2b3c4",)
    assert (found.data["lastObservedActivityAt"], found.data["lastProgressAt"]) == (600.0, 550.0)
    assert asked(backoff_until=999.0).data["backoffUntil"] is None, "it is over"


def _next(view: GoalView, **fields: object) -> tuple[str, float | None]:
    one = replace(GIVEN, **fields)
    found = next_of(view, one, view.nodes.get("S1.1.1"), POLICY, NOW)
    return found.what, found.at


@pytest.mark.req("3-130")
def test_what_comes_next_follows_from_the_rules() -> None:
    """Break: `next_of` without the ladder, without the goal's status, or without the pending intent."""
    view = view_of(*plan())
    assert _next(view) == ("llmc asks the worker for a status update", 1020.0)
    nudged = tuple(dispatch(f"D_{n}", ts=600.0 + n, purpose="nudge", result=Result.OK) for n in range(2))
    assert _next(view, dispatch_history=nudged)[0] == "llmc reassigns the work to another worker"
    doubtful = (dispatch("D_1", ts=900.0, result=Result.TIMEOUT),)
    assert "sends the instruction again with the same ID" in _next(view, dispatch_history=doubtful)[0]
    assert _next(view, retry_count=9)[0] == "llmc asks you how to proceed"
    waits = (dispatch("D_1", ts=900.0),)
    assert "the next tick completes" in _next(view, dispatch_history=waits)[0]
    assert _next(view, status=S.ACTIVE) == ("without new activity, llmc marks the work as stalled", 1000.0)
    assert "at the first goal tick after the backoff" in _next(view, status=S.QUEUED)[0]
    asks = (dispatch("D_1", ts=900.0, mode=Mode.ESCALATE, purpose="escalate", result=Result.OK),)
    what, at = _next(view, status=S.BLOCKED, blocked_reason=BLOCKED, dispatch_history=asks)
    assert 'llmc answer A_1 "..."' in what
    assert at == 900.0 + POLICY.reminder_every_s
    assert _next(view, status=S.DONE) == ("nothing; the work is done", None)
    paused = replaced(view, goal=replace(view.goal, status=GoalStatus.PAUSED))
    assert f"llmc goal resume {view.goal.goal_id}" in _next(paused)[0]
    assert "policy does not let goals use adam" in _next(view, agent_id="adam")[0]


@pytest.mark.req("3-130")
def test_a_part_and_a_goal_say_what_keeps_them() -> None:
    """Break: treat a phase dependency as one leaf; count only direct dependents."""
    view = view_of(*plan(), assignments=(replace(GIVEN, status=S.ACTIVE),))
    found = waits_of(view)
    assert found.ready == ("S1.1.1",)
    assert found.waiting == {"S1.1.2": ("S1.1.1",), "T2.1": ("P1",)}
    assert list(found.holds_up.items()) == [("S1.1.1", 2), ("S1.1.2", 1)]
    chain = {**view.nodes, "T2.1": replace(view.nodes["T2.1"], depends_on=("S1.1.2",))}
    chain["P2"] = replace(view.nodes["P2"], depends_on=())
    assert waits_of(replaced(view, nodes=chain)).holds_up == {"S1.1.1": 2, "S1.1.2": 1}, "indirect ones, too"
    assert (held_up_by(view, "P1"), held_up_by(view, "T2.1")) == (2, 0)
    text = "\n".join(why_goal(view, 0).lines)
    assert "ready     S1.1.1" in text
    assert "working   S1.1.1" in text
    assert "waiting   T2.1 for P1" in text
    assert "blocking  S1.1.1 (blocks 2 other plan items)" in text
    part = why_node(view, view.nodes["T2.1"])
    assert part.data["waitsFor"] == ["P1"]
    assert "starts after P1" in "\n".join(part.lines)
    done = {**view.nodes, "S1.1.1": replace(view.nodes["S1.1.1"], status=NodeStatus.DONE)}
    after = waits_of(replaced(view, nodes=done))
    assert (after.ready, after.waiting) == (("S1.1.2",), {"T2.1": ("P1",)})
    ready = why_node(replaced(view, assignments={}), view.nodes["S1.1.1"]).data["next"]["what"]
    assert "at the next goal tick" in ready, "not immediately, although workers are idle"
    assert "to run a tick now: llmc goal tick" in ready
    stuck = replace(view.nodes["T2.1"], status=NodeStatus.BLOCKED, blocked_reason=BLOCKED)
    assert "llmc answer T2.1" in why_node(view, stuck).data["next"]["what"]
