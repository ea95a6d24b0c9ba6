"""Another plan for a goal that has one: what is done stays; assigned work continues or is told why not."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from llmc.goals.model import (
    Assignment,
    AssignmentStatus,
    Change,
    Goal,
    GoalView,
    Node,
    NodeKind,
    NodeStatus,
    PlannerRef,
    PlanRevision,
)
from llmc.goals.plan.plan import Limits, Plan, Provenance, Split
from llmc.goals.plan.plan_check import check_plan, check_split
from llmc.goals.plan.plan_text import read_plan
from llmc.goals.plan.replan import (
    current_id,
    merge_plan,
    replan_wait_s,
    room_for_split,
    settled_ids,
    split_leaf,
)
from tests.support.goal_plans import Json, all_nodes, has_circle, leaf_graph, node, plan, plans, small_plan

GOAL = Goal(goal_id="goal_1", title="Ship it", created_at=1.0, updated_at=1.0)


def checked(value: Json, view: GoalView | None = None) -> Plan:
    found = check_plan(json.dumps(value), Limits(), settled_ids(view) if view else ())
    assert isinstance(found, Plan), [str(problem) for problem in found]
    return found


def applied(view: GoalView, change: Change | tuple[object, ...]) -> GoalView:
    """The view after a change, as a store would write it."""
    assert isinstance(change, Change), [str(problem) for problem in change]
    nodes = {id: found for id, found in view.nodes.items() if id not in change.removed_nodes}
    return GoalView(
        change.goal or view.goal,
        nodes | {found.node_id: found for found in change.nodes},
        dict(view.assignments) | {found.assignment_id: found for found in change.assignments},
    )


def planned(value: Json) -> GoalView:
    return applied(GoalView(GOAL), merge_plan(GoalView(GOAL), checked(value), 10.0, "first plan"))


def with_status(view: GoalView, **statuses: NodeStatus) -> GoalView:
    """`S1_1_1=DONE`: a keyword cannot contain dots."""
    changed = {id.replace("_", "."): status for id, status in statuses.items()}
    nodes = {id: replace(found, status=changed.get(id, found.status)) for id, found in view.nodes.items()}
    return GoalView(view.goal, nodes, view.assignments)


def assigned(view: GoalView, **nodes: str) -> GoalView:
    made = {
        name: Assignment(
            assignment_id=name,
            goal_id="goal_1",
            work_node_id=node_id,
            session_key=f"agent:auto:worker:{name}",
            status=AssignmentStatus.ACTIVE,
            created_at=11.0,
            updated_at=11.0,
        )
        for name, node_id in nodes.items()
    }
    return GoalView(view.goal, view.nodes, made)


@pytest.mark.req("3-065", "3-088")
def test_the_first_plan_is_one_change_with_its_origin() -> None:
    """Break: write the nodes without the event, or leave the provenance to another function."""
    ref = PlannerRef(model_ref="m", prompt_template_id="t", prompt_template_hash="h")
    origin = Provenance(
        ref,
        {"title": "Ship it"},
        json.dumps(small_plan()),
        ("attempt 1: $: the text is empty; expected JSON",),
    )
    change = merge_plan(GoalView(GOAL), checked(small_plan()), 10.0, "first plan", origin)
    assert isinstance(change, Change)
    assert [event.type for event in change.events] == ["plan.generated"]
    assert {found.node_id for found in change.nodes} == {
        "P1",
        "P2",
        "T1.1",
        "T1.2",
        "T2.1",
        "S1.1.1",
        "S1.1.2",
    }
    goal = change.goal
    assert goal is not None
    assert (goal.planner, goal.planner_inputs) == (ref, {"title": "Ship it"})
    assert goal.raw_planner_output_json == json.dumps(small_plan())
    assert goal.validation_errors == ("attempt 1: $: the text is empty; expected JSON",)
    assert goal.success_criteria == ("It ships",)
    (revision,) = goal.plan_revision_history
    assert (revision.ts, revision.why, len(revision.added)) == (10.0, "first plan", 7)
    view = applied(GoalView(GOAL), change)
    assert view.nodes
    assert merge_plan(view, checked(small_plan()), 20.0, "the same again") == Change()


def test_criteria_of_the_person_and_of_the_plan() -> None:
    """Break: drop the plan's criteria where the user gave some, or restore what the user removed."""
    own = replace(GOAL, success_criteria=("make test passes", "It ships"))
    change = merge_plan(GoalView(own), checked(small_plan()), 10.0, "first plan")
    assert isinstance(change, Change)
    assert change.goal is not None
    assert change.goal.success_criteria == ("make test passes", "It ships")
    other = replace(GOAL, success_criteria=("make test passes",))
    change = merge_plan(GoalView(other), checked(small_plan()), 10.0, "first plan")
    assert isinstance(change, Change)
    assert change.goal is not None
    assert change.goal.success_criteria == ("make test passes", "It ships")
    view = applied(GoalView(other), change)
    fewer = GoalView(replace(view.goal, success_criteria=("make test passes",)), view.nodes, view.assignments)
    assert merge_plan(fewer, checked(small_plan()), 20.0, "again") == Change()


@pytest.mark.req("3-X15")
def test_what_is_done_stays_and_live_work_is_taken_along_or_ended_with_a_reason() -> None:
    """Break: drop `_kept`, or leave an assignment on a removed node."""
    view = planned(small_plan())
    view = with_status(view, S1_1_1=NodeStatus.DONE, S1_1_2=NodeStatus.IN_PROGRESS, T1_2=NodeStatus.QUEUED)
    view = assigned(view, keeps="S1.1.2", loses="T1.2", moves="T2.1")
    done = view.nodes["S1.1.1"]
    new = plan(
        node("P1", tasks=[node("T1.1", subtasks=[node("S1.1.2", name="Better words"), node("S1.1.3")])]),
        node("P3", tasks=[node("T3.1", name=" name  of T2.1", deps=["S1.1.1"])]),
    )
    change = merge_plan(view, checked(new, view), 20.0, "it was too large")
    after = applied(view, change)

    kept = after.nodes["S1.1.1"]
    assert replace(kept, blocks=done.blocks, position=done.position) == done
    assert after.nodes["S1.1.1"].blocks == ("T3.1",)
    assert after.nodes["S1.1.2"].status is NodeStatus.IN_PROGRESS
    assert after.nodes["S1.1.2"].name == "Better words"
    assert [found.node_id for found in children(after, "T1.1")] == ["S1.1.1", "S1.1.2", "S1.1.3"]
    assert after.nodes.keys() == {"P1", "T1.1", "S1.1.1", "S1.1.2", "S1.1.3", "P3", "T3.1"}

    assert after.assignments["keeps"] == view.assignments["keeps"]
    assert after.assignments["loses"].status is AssignmentStatus.CANCELLED
    assert after.assignments["moves"].work_node_id == "T3.1"
    assert after.assignments["moves"].status is AssignmentStatus.ACTIVE
    events = {(event.type, event.assignment_id): event.data for event in change.events}  # type: ignore[union-attr]
    assert events["assignment.cancelled", "loses"]["reason"] == "T1.2 is not in the new plan"
    assert events["assignment.moved", "moves"] == {"from": "T2.1"}

    revision = after.goal.plan_revision_history[-1]
    assert revision.why == "it was too large"
    assert (set(revision.added), set(revision.removed)) == ({"S1.1.3", "P3"}, {"T1.2", "P2"})
    assert set(revision.changed) == {"S1.1.2", "T3.1"}
    assert revision.moved == {"T2.1": "T3.1"}
    assert current_id(after.goal, "T2.1") == "T3.1"
    assert current_id(after.goal, "S1.1.1") == "S1.1.1"

    again = plan(node("P1", tasks=[node("T2.1", name="Something else")]), new["phases"][1])
    refused = merge_plan(after, checked(again, after), 30.0, "again")
    assert [str(problem) for problem in refused] == [  # type: ignore[union-attr]
        "$: id T2.1 was already used for T3.1; use a new id for new work"
    ]


@pytest.mark.req("3-X15")
def test_what_a_plan_calls_done_is_done_with_a_word_about_it() -> None:
    """Break: leave out the crystallization, or the work of an assigned worker."""
    text = "# G\n## P1: P\n### T1: A\naccept: x\n### [x] T2: B\naccept: x\n"
    view = planned(plan(node("P1", tasks=[node("T1"), node("T2")])))
    found = read_plan(text, Limits())
    assert isinstance(found, Plan)
    change = merge_plan(assigned(view, one="T1", two="T2"), found, 20.0, "by hand")
    after = applied(assigned(view, one="T1", two="T2"), change)
    assert after.nodes["T2"].status is NodeStatus.DONE
    assert after.assignments["one"].status is AssignmentStatus.ACTIVE
    assert after.assignments["two"].status is AssignmentStatus.CANCELLED
    assert isinstance(change, Change)
    assert [(crystal.work_node_id, crystal.level) for crystal in change.crystallizations] == [("T2", "task")]
    assert [event.type for event in change.events] == ["plan.revised", "work.done", "assignment.cancelled"]


def children(view: GoalView, parent: str) -> list[Node]:
    found = [item for item in view.nodes.values() if item.parent_id == parent]
    return sorted(found, key=lambda item: item.position)


@pytest.mark.req("3-X15")
@given(plans(), plans(), st.randoms(use_true_random=False))
def test_no_new_plan_loses_finished_work(before: Json, after: Json, dice: random.Random) -> None:
    """Any plan in place of any other, with anything done or assigned: finished nodes and their ancestors
    remain; no live assignment is on a node that is gone or not a leaf;
    and the graph is still sound, both ways.

    Break: keep a finished node without its parents, or use the new plan's text for it.
    """
    for item, _ in all_nodes(after):
        item["name"] = dice.choice(["New", item["name"]])
    view = planned(before)
    leaves = [id for id in view.nodes if not children(view, id)]
    statuses = {id: dice.choice([NodeStatus.DONE, NodeStatus.TODO, NodeStatus.IN_PROGRESS]) for id in leaves}
    view = with_status(view, **{id.replace(".", "_"): status for id, status in statuses.items()})
    view = assigned(
        view, **{f"a{n}": id for n, id in enumerate(leaves) if statuses[id] is not NodeStatus.DONE}
    )
    change = merge_plan(view, checked(after, view), 20.0, "why not")
    if isinstance(change, tuple):
        assert all(problem.text for problem in change)
        return
    new = applied(view, change)
    for id, status in statuses.items():
        if status is NodeStatus.DONE:
            assert new.nodes[id].status is NodeStatus.DONE
            assert new.nodes[id].name == view.nodes[id].name
    for id, found in new.nodes.items():
        assert not found.parent_id or found.parent_id in new.nodes
        assert all(id in new.nodes[needed].blocks for needed in found.depends_on)
        assert all(id in new.nodes[later].depends_on for later in found.blocks)
    for assignment in new.assignments.values():
        if assignment.status is not AssignmentStatus.CANCELLED:
            assert assignment.work_node_id in new.nodes
            assert not children(new, assignment.work_node_id)
    assert not has_circle(leaf_graph(as_json(new)))


def as_json(view: GoalView) -> Json:
    def below(parent: str) -> list[Json]:
        return [
            {"id": n.node_id, "deps": list(n.depends_on), "subtasks": below(n.node_id)}
            for n in children(view, parent)
        ]

    return {"phases": below("")}


@pytest.mark.req("3-X15")
def test_a_plan_that_contradicts_what_is_done_changes_nothing() -> None:
    """Break: add new work to a finished task, or count the limits without the nodes that stay."""
    view = with_status(
        planned(small_plan()), S1_1_1=NodeStatus.DONE, S1_1_2=NodeStatus.DONE, T1_1=NodeStatus.DONE
    )
    more = small_plan()
    more["phases"][0]["tasks"][0]["subtasks"].append(node("S9"))
    found = merge_plan(view, checked(more, view), 20.0, "more")
    assert isinstance(found, tuple)
    assert [str(problem) for problem in found] == [
        "$.phases[0].tasks[0].subtasks[2]: T1.1 is done; new work cannot be added to it"
    ]
    other = plan(node("P1", tasks=[node(f"N{n}") for n in range(7)]), node("T1.2", tasks=[node("X1")]))
    found = merge_plan(view, checked(other, view), 20.0, "other")
    assert isinstance(found, tuple)
    assert [str(problem) for problem in found] == ["$.phases[1].id: T1.2 is already a task in the plan"]
    large = plan(node("P1", tasks=[node(f"N{n}") for n in range(7)]))
    found = merge_plan(view, checked(large, view), 20.0, "large")
    assert isinstance(found, tuple)
    assert [str(problem) for problem in found] == [
        "$: P1 would have 8 tasks (1 finished); at most 7 are allowed"
    ]


def split(*parts: Json, view: GoalView, most: int = 7) -> Split:
    found = check_split(json.dumps({"planVersion": 1, "subtasks": list(parts)}), most, view.nodes)
    assert isinstance(found, Split)
    return found


@pytest.mark.req("3-X15")
def test_a_leaf_that_is_too_large_becomes_subtasks() -> None:
    """A subtask is replaced by others, and what waited for it waits for all of them; a task gets subtasks,
    and is no longer in progress itself.

    Break: forget the dependents in `_waiting_for`, or the assignment of a task that is now a group.
    """
    view = with_status(planned(small_plan()), S1_1_1=NodeStatus.IN_PROGRESS, T1_2=NodeStatus.IN_PROGRESS)
    view = assigned(view, one="S1.1.1", two="T1.2")
    parts = split(node("S1.1.1.1"), node("S1.1.1.2", deps=["S1.1.1.1"]), view=view)
    after = applied(view, split_leaf(view, "S1.1.1", parts, 20.0, "no progress"))
    assert [found.node_id for found in children(after, "T1.1")] == ["S1.1.1.1", "S1.1.1.2", "S1.1.2"]
    assert after.nodes["S1.1.2"].depends_on == ("S1.1.1.1", "S1.1.1.2")
    assert after.assignments["one"].status is AssignmentStatus.CANCELLED
    assert after.goal.plan_revision_history[-1].removed == ("S1.1.1",)

    parts = split(node("A1"), node("A2"), view=after)
    change = split_leaf(after, "T1.2", parts, 30.0, "too vague")
    final = applied(after, change)
    assert [found.kind for found in children(final, "T1.2")] == [NodeKind.SUBTASK] * 2
    assert final.nodes["T1.2"].status is NodeStatus.TODO
    assert final.nodes["T1.2"].depends_on == ("T1.1",)
    assert final.assignments["two"].status is AssignmentStatus.CANCELLED
    types = [event.type for event in change.events]  # type: ignore[union-attr]
    assert types == ["plan.revised", "work.todo", "assignment.cancelled"]


@pytest.mark.req("3-086", "3-X15")
def test_a_leaf_is_split_only_where_there_is_room() -> None:
    """Break: count the leaf itself among its siblings, or split a finished leaf."""
    parts = [node(f"S{n}") for n in range(6)]
    view = planned(plan(node("P1", tasks=[node("T1", subtasks=parts), node("T2")])))
    assert room_for_split(view, "S0", Limits()) == 2
    assert room_for_split(view, "S0", Limits(subtasks=6)) == 1
    assert room_for_split(view, "T2", Limits()) == 7
    assert room_for_split(view, "T1", Limits()) == 0
    assert room_for_split(view, "P1", Limits()) == 0
    assert room_for_split(view, "nobody", Limits()) == 0
    assert room_for_split(with_status(view, S0=NodeStatus.DONE), "S0", Limits()) == 0
    three = split(node("A1"), node("A2"), node("A3"), view=view)
    assert isinstance(split_leaf(view, "S0", three, 20.0, "why"), tuple)


@pytest.mark.req("3-086", "3-X15")
def test_rules_ask_for_a_new_plan_only_now_and_then() -> None:
    """Break: compare with the oldest revision, or let a clock that was set back make an age negative."""
    revisions = [PlanRevision(ts=ts, why="w") for ts in (0.0, 5000.0)]
    assert replan_wait_s([], 0.0) == 0.0
    assert replan_wait_s(revisions, 5000.0 + 600) == 1200.0
    assert replan_wait_s(revisions, 5000.0 + 1800) == 0.0
    assert replan_wait_s(revisions, 4000.0) == 1800.0
    many = [PlanRevision(ts=float(n * 2000), why="w") for n in range(6)]
    assert replan_wait_s(many, 20_000.0) == 86400.0 - 20_000.0
    assert replan_wait_s(many, 86400.0) == 0.0
