"""How a parent's status follows from its children: exactly when something is done, everywhere the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from llmc.goals.drive.moves import (
    after,
    joined,
    progress,
    rolled_up,
    settled,
    status_of,
)
from llmc.goals.model import Change, GoalStatus, GoalView, Node, NodeKind, NodeStatus
from llmc.goals.plan.plan import children_of, is_ready, shape_of
from tests.support.goal_records import node, view_of

S = NodeStatus
FINISHED = (S.DONE, S.CANCELLED)


def _plans() -> st.SearchStrategy[GoalView]:
    """Plans of any size; parents have any status, as after a crash or a manual edit."""

    @st.composite
    def build(draw: st.DrawFn) -> GoalView:
        nodes = []
        status = st.sampled_from(S)
        for p in range(1, draw(st.integers(1, 3)) + 1):
            nodes.append(node(f"P{p}", draw(status), overridden=draw(st.booleans())))
            for t in range(1, draw(st.integers(1, 3)) + 1):
                nodes.append(node(f"T{p}.{t}", draw(status), overridden=draw(st.integers(0, 4)) == 0))
                for s in range(1, draw(st.integers(0, 3)) + 1):
                    nodes.append(node(f"S{p}.{t}.{s}", draw(status)))
        goal = draw(st.sampled_from([GoalStatus.ACTIVE, GoalStatus.PAUSED, GoalStatus.COMPLETED]))
        return view_of(*nodes, status=goal)

    return build()


PLANS = _plans()


@pytest.mark.req("3-056", "3-057", "3-058", "3-X24")
@given(PLANS)
def test_a_parent_is_done_exactly_when_all_its_parts_are_finished(view: GoalView) -> None:
    """Break: `found <= {*FINISHED}` becomes `S.DONE in found` in status_of or is_completed."""
    rolled = after(view, rolled_up(view, 9.0))
    children = children_of(rolled.nodes)
    for one in rolled.nodes.values():
        below = [child.status for child in children.get(one.node_id, ())]
        before = view.nodes[one.node_id]
        if not below or one.overridden or before.status is S.CANCELLED:
            assert one == before, "leaves, overrides and cancelled items are left alone"
            continue
        finished = all(status in FINISHED for status in below)
        assert (one.status is S.DONE) == (finished and S.DONE in below)
        assert (one.status is S.CANCELLED) == (set(below) == {S.CANCELLED})
        assert (one.status is S.BLOCKED) == (one.blocked_reason is not None)
    phases = [one.status for one in children.get("", ())]
    reached = all(status in FINISHED for status in phases) and S.DONE in phases
    assert (rolled.goal.status is GoalStatus.COMPLETED) == reached
    if not reached and view.goal.status is GoalStatus.PAUSED:
        assert rolled.goal.status is GoalStatus.PAUSED


@pytest.mark.req("3-059")
@given(PLANS)
def test_rolling_up_is_settled_in_one_go_and_each_change_has_an_event(view: GoalView) -> None:
    """Break: start with the phases in _DEEPEST_FIRST; or leave the event out."""
    change = rolled_up(view, 9.0)
    rolled = after(view, change)
    assert rolled_up(rolled, 10.0).is_empty()
    assert len(change.events) == len(change.nodes) + (change.goal is not None)
    assert {event.work_node_id for event in change.events} >= {one.node_id for one in change.nodes}
    shuffled = GoalView(view.goal, dict(reversed(view.nodes.items())), view.assignments)
    assert after(shuffled, rolled_up(shuffled, 9.0)).nodes == rolled.nodes


@pytest.mark.req("3-059")
@given(PLANS)
def test_a_percentage_is_100_exactly_when_everything_is_done(view: GoalView) -> None:
    """Break: count subtasks of a cancelled task; or round up."""
    rolled = after(view, rolled_up(view, 9.0))
    found = progress(rolled)
    for one in rolled.nodes.values():
        part = found[one.node_id]
        assert 0 <= part.done <= part.total
        if one.status is S.DONE:
            assert part.percent == 100
        if one.kind is not NodeKind.PHASE and not children_of(rolled.nodes).get(one.node_id):
            assert part.percent == (100 if one.status is S.DONE else 0)
    whole = found[""]
    phases = [found[one.node_id] for one in children_of(rolled.nodes).get("", ())]
    assert (whole.done, whole.total) == (sum(p.done for p in phases), sum(p.total for p in phases))
    if rolled.goal.status is GoalStatus.COMPLETED:
        assert whole.percent == 100


@pytest.mark.parametrize(
    ("children", "parent"),
    [
        ("todo todo", "todo"),
        ("queued todo", "queued"),
        ("in_progress todo", "in_progress"),
        ("done todo", "in_progress"),
        ("done queued", "in_progress"),
        ("blocked todo", "blocked"),
        ("blocked done", "blocked"),
        ("blocked queued", "queued"),
        ("blocked in_progress", "in_progress"),
        ("done cancelled", "done"),
        ("done done", "done"),
        ("cancelled cancelled", "cancelled"),
        ("cancelled todo", "todo"),
    ],
)
def test_parents_follow_their_parts(children: str, parent: str) -> None:
    """Break: swap any two lines of status_of."""
    parts = [node(f"S1.1.{i}", S(word)) for i, word in enumerate(children.split(), 1)]
    assert status_of(node("T1.1"), parts) == parent


@pytest.mark.req("3-X24", "3-058")
def test_what_is_opened_again_opens_all_above_it() -> None:
    """Break: leave out `elif goal.status is COMPLETED` in _rolled_goal."""
    names = ("P1", "T1.1", "S1.1.1", "S1.1.2", "P2", "T2.1")
    view = view_of(*(node(name, S.DONE) for name in names), status=GoalStatus.COMPLETED)
    again = Change(nodes=(replace(view.nodes["S1.1.2"], status=S.TODO),))
    change = settled(view, again, 9.0)
    now = after(view, change)
    assert [now.nodes[name].status.value for name in names] == [
        "in_progress", "in_progress", "done", "todo", "done", "done"
    ]  # fmt: skip
    assert now.goal.status is GoalStatus.ACTIVE
    assert [event.type for event in change.events] == ["work.reopened", "work.reopened", "goal.reopened"]
    assert progress(now)[""].percent == 66


def test_a_blocked_parent_names_what_blocks_it() -> None:
    view = view_of(node("P1"), node("T1.1"), node("S1.1.1", S.BLOCKED))
    change = rolled_up(view, 9.0)
    reasons = {one.node_id: one.blocked_reason.text for one in change.nodes if one.blocked_reason}
    assert reasons == {"T1.1": "S1.1.1 blocked", "P1": "T1.1 blocked: S1.1.1 blocked"}


def test_only_leaves_are_given_out_and_only_when_their_turn_has_come() -> None:
    """Break: leave `_closed_above`, or the parents' `depends_on`, out of goals/plan/plan.py."""

    def ready(view: GoalView, one: Node) -> bool:
        return is_ready(one.node_id, view.nodes, shape_of(view.nodes))

    first = node("S1.1.1")
    second = node("S1.1.2", depends_on=("S1.1.1",))
    later = node("S2.1.1")
    view = view_of(
        node("P1"),
        node("T1.1"),
        first,
        second,
        node("P2", depends_on=("P1",)),
        node("T2.1"),
        later,
        node("T2.2"),
    )
    assert list(shape_of(view.nodes).leaves) == ["S1.1.1", "S1.1.2", "S2.1.1", "T2.2"]
    assert [ready(view, one) for one in (first, second, later)] == [True, False, False]
    done = after(
        view,
        Change(
            nodes=(replace(first, status=S.DONE), replace(view.nodes["P1"], status=S.DONE, overridden=True))
        ),
    )
    assert ready(done, later)
    assert not ready(done, second), "a phase that the user closed has nothing left to do"
    opened = after(view, Change(nodes=(replace(first, status=S.CANCELLED),)))
    assert ready(opened, second)


def test_two_changes_are_one() -> None:
    """Break: keep the first of two records with the same id in `joined`."""
    first = Change(nodes=(node("T1.1", S.QUEUED),), removed_nodes=("S9.9.9",))
    then = Change(nodes=(node("T1.1", S.IN_PROGRESS), node("P1", S.IN_PROGRESS)))
    both = joined(first, then)
    assert [(one.node_id, one.status.value) for one in both.nodes] == [
        ("T1.1", "in_progress"),
        ("P1", "in_progress"),
    ]
    assert both.removed_nodes == ("S9.9.9",)
