"""The user's decisions about plan items, and answers: what they change, and what they do not."""

import pytest
from msgspec.structs import replace

from llmc.base.errors import Refused
from llmc.goals.drive import by_hand, words
from llmc.goals.drive.by_hand import answered, chosen, questions
from llmc.goals.drive.moves import after, settled
from llmc.goals.model import AssignmentStatus, BlockedReason, GoalView, NodeStatus
from tests.support.goal_records import BLOCKED, assignment, node, view_of

S, A = NodeStatus, AssignmentStatus
WHY = BlockedReason(kind="human", text="not now", by="human")


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


@pytest.mark.parametrize("node_id", ["P1", "T1.1"])
def test_what_an_override_blocks_is_not_unblocked(node_id: str) -> None:
    """Unblocking its leaves would change nothing. Break: look only for blocked leaves in `unblock`."""
    view = plan()
    task = view.nodes["T1.1"]
    change = by_hand.override(view, task, S.BLOCKED, 10.0, "stop", "human", None)
    view = after(view, settled(view, change, 10.0))
    assert view.nodes["P1"].status is S.BLOCKED
    with pytest.raises(
        Refused, match=f"cannot unblock .* {node_id}: T1.1 is blocked by an override"
    ) as error:
        by_hand.unblock(view, view.nodes[node_id], 11.0, "go")
    assert error.value.hint.endswith('llmc work override T1.1 --goal goal_1 --clear --reason "..."')
    leaf = replace(view.nodes["S1.1.2"], status=S.BLOCKED, blocked_reason=WHY)
    view = replace(view, nodes={**view.nodes, "S1.1.2": leaf})
    with pytest.raises(Refused, match="by an override"):
        by_hand.unblock(view, view.nodes["T1.1"], 11.0, "go")
    assert by_hand.unblock(view, leaf, 11.0, "go").nodes[0].status is not S.BLOCKED


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


@pytest.mark.parametrize("status", list(S))
def test_what_is_to_be_done_again_is_not_held(status: NodeStatus) -> None:
    """A leaf that waits for a worker would be done again and again, since no landing changes what is overridden.

    Break: keep `overridden` for a leaf that waits.
    """
    view = view_of(node("P1"), node("T1.1"), node("S1.1.1", S.QUEUED))
    proof = by_hand.proof_by_user(view.nodes["S1.1.1"], "enough", (), 5.0, "C_1")
    for node_id, holds in (("S1.1.1", not status.is_waiting), ("T1.1", True)):
        change = by_hand.override(view, view.nodes[node_id], status, 5.0, "again", "human", proof)
        (moved,) = change.nodes
        assert (moved.status, moved.overridden) == (status, holds)
        assert [event.type for event in change.events] == ["work.overridden"]


def test_what_needs_no_work_asks_nothing() -> None:
    """A blocked leaf below a parent that the user marked done. Break: leave `is_closed` out of `questions`."""
    view = plan(given=A.BLOCKED, leaf=S.BLOCKED)
    view = replace(view, nodes={**view.nodes, "S1.1.2": node("S1.1.2", S.BLOCKED, blocked_reason=WHY)})
    assert [one.id for one in questions(view)] == ["A_1", "S1.1.2"]
    task = view.nodes["T1.1"]
    proof = by_hand.proof_by_user(task, "enough", (), 5.0, "C_1")
    change = by_hand.override(view, task, S.DONE, 5.0, "enough", "human", proof)
    assert questions(after(view, settled(view, change, 5.0))) == []


@pytest.mark.parametrize("said", ["3", "cancel it"])
def test_every_option_of_our_own_question_is_followed(said: str) -> None:
    """Break: leave the cancelling out of `answered`; or cancel whatever the kind of the question is."""
    view = plan(given=A.BLOCKED, leaf=S.BLOCKED)
    for failed in (True, False):
        why = words.stalled_reason(view.nodes["S1.1.1"], "it is silent", failed)
        asking = replace(view, assignments={"A_1": replace(view.assignments["A_1"], blocked_reason=why)})
        now = after(asking, settled(asking, answered(asking, questions(asking)[0], said, 12.0), 12.0))
        assert now.nodes["S1.1.1"].status is S.CANCELLED
        assert (now.assignments["A_1"].answer, questions(now)) == ("", []), "no worker is told"
    of_worker = replace(BLOCKED, options=("A", "B", "cancel it"))
    asking = replace(view, assignments={"A_1": replace(view.assignments["A_1"], blocked_reason=of_worker)})
    now = after(asking, answered(asking, questions(asking)[0], said, 12.0))
    assert now.nodes["S1.1.1"].status is S.QUEUED
    assert now.assignments["A_1"].answer == "cancel it", "its own words, for its own question"
