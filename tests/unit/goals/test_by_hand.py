"""The user's decisions about plan items, and answers: what they change, and what they do not."""

import pytest
from msgspec.structs import replace

from llmc.base.errors import Refused
from llmc.goals.drive import by_hand
from llmc.goals.drive.by_hand import answered, chosen, questions
from llmc.goals.drive.moves import after, settled
from llmc.goals.model import AssignmentStatus, BlockedReason, GoalView, NodeStatus
from tests.support.goal_records import BLOCKED, assignment, node, view_of

S, A = NodeStatus, AssignmentStatus
WHY = BlockedReason(kind="human", text="not now")


def plan(*, given: AssignmentStatus = A.ACTIVE, leaf: NodeStatus = S.IN_PROGRESS) -> GoalView:
    blocked = {"blocked_reason": BLOCKED} if given is A.BLOCKED else {}
    one = assignment(given, last_dispatch_at=5.0, retry_count=2, backoff_until=9.0, reminders=1, **blocked)
    nodes = (node("P1", S.IN_PROGRESS), node("T1.1", S.IN_PROGRESS), node("S1.1.1", leaf), node("S1.1.2"))
    return view_of(*nodes, assignments=(one,))


@pytest.mark.req("3-054", "3-060")
def test_what_is_blocked_takes_whoever_is_at_it_along_and_back() -> None:
    """Break: leave the assignments out of `block`; or keep the counters in `let_go`."""
    view = plan()
    stopped = after(view, settled(view, by_hand.block(view, view.nodes["P1"], 10.0, WHY), 10.0))
    assert {one.status for one in stopped.nodes.values()} == {S.BLOCKED}
    assert stopped.assignments["A_1"].blocked_reason == WHY
    change = settled(stopped, by_hand.unblock(stopped, stopped.nodes["P1"], 11.0, "go"), 11.0)
    going = after(stopped, change)
    assert [going.nodes[i].status.value for i in ("P1", "T1.1", "S1.1.1", "S1.1.2")] == [
        "queued", "queued", "queued", "queued"
    ]  # fmt: skip
    one = going.assignments["A_1"]
    assert (one.status, one.retry_count, one.backoff_until, one.reminders) == (A.QUEUED, 0, None, 0)
    assert one.last_observed_activity_at is None, "the user's decision is not the worker's progress"
    assert all(event.data["actor"] in ("human", "overseer") for event in change.events)


@pytest.mark.parametrize("act", [by_hand.unblock, by_hand.reopen])
def test_what_does_not_fit_is_refused(act: object) -> None:
    view = plan()
    with pytest.raises(Refused):
        act(view, view.nodes["S1.1.1"], 10.0, "why")  # type: ignore[operator]


def test_a_part_without_open_parts_is_not_blocked() -> None:
    view = view_of(node("P1", S.DONE), node("T1.1", S.DONE))
    with pytest.raises(
        Refused, match="cannot block phase P1: all its children are done, cancelled or already blocked"
    ):
        by_hand.block(view, view.nodes["P1"], 10.0, WHY)
    with pytest.raises(Refused, match="from done to blocked"):
        by_hand.block(view, view.nodes["T1.1"], 10.0, WHY)


def test_what_is_opened_again_waits_for_its_turn() -> None:
    """Break: always QUEUED in `reopen`."""
    nodes = [node(one, S.DONE) for one in ("P1", "T1.1", "S1.1.1", "S1.1.2")]
    nodes[3] = replace(nodes[3], depends_on=("S1.1.1",))
    view = view_of(*nodes)
    first = by_hand.reopen(view, view.nodes["S1.1.1"], 10.0, "it fails")
    assert [one.status for one in first.nodes] == [S.QUEUED]
    opened = after(view, settled(view, first, 10.0))
    second = by_hand.reopen(opened, opened.nodes["S1.1.2"], 11.0, "too")
    assert [one.status for one in second.nodes] == [S.TODO]


def test_questions_are_of_assignments_or_of_leaves_that_nobody_is_at() -> None:
    """Break: list parents, too."""
    view = plan(given=A.BLOCKED, leaf=S.BLOCKED)
    other = replace(node("S1.1.2", S.BLOCKED), blocked_reason=WHY)
    rolled = settled(view, by_hand.moved_to([], []), 10.0)
    view = after(GoalView(view.goal, {**view.nodes, "S1.1.2": other}, view.assignments), rolled)
    assert [(one.id, one.work_node_id, one.reason) for one in questions(view)] == [
        ("A_1", "S1.1.1", BLOCKED),
        ("S1.1.2", "S1.1.2", WHY),
    ]


@pytest.mark.req("3-129")
def test_an_answer_is_an_event_and_lets_the_work_go_on() -> None:
    """Break: leave the node blocked in `answered`."""
    view = plan(given=A.BLOCKED, leaf=S.BLOCKED)
    (question,) = questions(view)
    change = answered(view, question, "2", 12.0)
    assert (change.events[0].type, change.events[0].data["answer"]) == ("assignment.answered", "TSV")
    now = after(view, change)
    assert (now.nodes["S1.1.1"].status, now.assignments["A_1"].status) == (S.QUEUED, A.QUEUED)
    assert questions(now) == []
    with pytest.raises(Refused, match="already been answered"):
        answered(now, question, "1", 13.0)
    # The worker asked, but its item was never marked as blocked.
    half = plan(given=A.BLOCKED, leaf=S.IN_PROGRESS)
    goes_on = after(half, answered(half, questions(half)[0], "CSV, please", 12.0))
    assert goes_on.assignments["A_1"].status is A.QUEUED
    assert goes_on.nodes == half.nodes


@pytest.mark.parametrize(
    ("text", "answer"), [("1", "CSV"), ("2", "TSV"), ("3", "3"), ("0", "0"), ("both", "both")]
)
def test_a_number_means_an_option(text: str, answer: str) -> None:
    assert chosen(text, ("CSV", "TSV")) == answer
