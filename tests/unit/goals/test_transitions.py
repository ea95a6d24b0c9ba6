"""The moves of goals, nodes and assignments: every pair of each table, with evidence and reasons."""

from itertools import product

import pytest
from msgspec.structs import replace

from llmc.base.errors import Exit
from llmc.goals.drive.moves import (
    ASSIGNMENT_MOVES,
    GOAL_MOVES,
    NODE_MOVES,
    IllegalMove,
    move_assignment,
    move_goal,
    move_node,
    override_node,
    release_node,
)
from llmc.goals.model import AssignmentStatus, BlockedReason, Evidence, GoalStatus, NodeStatus, Priority
from tests.support.goal_records import BLOCKED, assignment, crystallization, goal, node

PROOF = Evidence(commits=("1a2b3c4",))
N, A, G = NodeStatus, AssignmentStatus, GoalStatus


@pytest.mark.req("3-046", "3-047", "3-048")
def test_the_statuses_are_those_of_the_document() -> None:
    """Break: add a status, or rename one."""
    assert [s.value for s in N] == ["todo", "queued", "in_progress", "blocked", "done", "cancelled"]
    words = "queued dispatched active stalled blocked done cancelled"
    assert [s.value for s in A] == words.split()
    assert [s.value for s in G] == ["active", "paused", "completed", "cancelled", "archived"]
    assert [p.value for p in Priority] == ["low", "normal", "high", "urgent"]


def refusal(before: str, after: str) -> str:
    return f"is already {after}" if before == after else f"from {before} to {after}"


@pytest.mark.req("3-049", "3-051", "3-052", "3-069")
@pytest.mark.parametrize(("before", "after"), list(product(N, N)))
def test_every_pair_of_a_node(before: NodeStatus, after: NodeStatus) -> None:
    """Breaks when `move_node` does not check the table, or does not set a time."""
    one = node("S1.1.1", before, started_at=2.0 if before is N.DONE else None)
    if (before, after) not in NODE_MOVES:
        with pytest.raises(IllegalMove, match=refusal(before, after)) as refused:
            move_node(one, after, 50.0, blocked=BLOCKED, proof=PROOF)
        assert refused.value.exit_code is Exit.REFUSED
        return
    moved, event = move_node(one, after, 50.0, blocked=BLOCKED, proof=PROOF, reason="because")
    assert (moved.status, moved.updated_at) == (after, 50.0)
    assert moved.ended_at == (50.0 if after in (N.DONE, N.CANCELLED) else None)
    if after is N.IN_PROGRESS:
        assert moved.started_at == 50.0
    assert moved.blocked_reason == (BLOCKED if after is N.BLOCKED else None)
    assert event.type == ("work.reopened" if before is N.DONE else f"work.{after}")
    assert (event.goal_id, event.work_node_id, event.ts) == (one.goal_id, one.node_id, 50.0)
    assert {
        "from": before,
        "to": after,
        "reason": "because",
        "actor": "overseer",
    }.items() <= event.data.items()


@pytest.mark.req("3-050", "3-051", "3-052")
@pytest.mark.parametrize(("before", "after"), list(product(A, A)))
def test_every_pair_of_an_assignment(before: AssignmentStatus, after: AssignmentStatus) -> None:
    """Breaks when `move_assignment` does not check the table."""
    one = assignment(before)
    if (before, after) not in ASSIGNMENT_MOVES:
        with pytest.raises(IllegalMove, match=refusal(before, after)):
            move_assignment(one, after, 50.0, blocked=BLOCKED, proof=PROOF)
        return
    moved, event = move_assignment(one, after, 50.0, blocked=BLOCKED, proof=PROOF)
    assert (moved.status, moved.updated_at) == (after, 50.0)
    assert moved.blocked_reason == (BLOCKED if after is A.BLOCKED else None)
    assert event.type == f"assignment.{after}"
    assert (event.assignment_id, event.work_node_id, event.goal_id) == ("A_1", "S1.1.1", one.goal_id)
    assert event.data["reason"]


@pytest.mark.req("3-048", "3-052")
@pytest.mark.parametrize(("before", "after"), list(product(G, G)))
def test_every_pair_of_a_goal(before: GoalStatus, after: GoalStatus) -> None:
    """Breaks when `move_goal` does not check the table."""
    one = goal(status=before)
    if (before, after) not in GOAL_MOVES:
        with pytest.raises(IllegalMove):
            move_goal(one, after, 50.0)
        return
    moved, event = move_goal(one, after, 50.0, reason="because", actor="human")
    assert (moved.status, moved.updated_at) == (after, 50.0)
    assert event.type.startswith("goal.")
    assert event.data == {"from": before, "to": after, "reason": "because", "actor": "human"}


@pytest.mark.req("3-049", "3-050", "3-051")
def test_the_tables_hold_what_the_document_lists_and_nothing_leaves_cancelled() -> None:
    """Break: remove a line from NODE_MOVES or ASSIGNMENT_MOVES, or let something leave `cancelled`."""
    nodes = (
        "todo>queued queued>in_progress in_progress>done queued>blocked in_progress>blocked blocked>queued"
    )
    nodes += " queued>cancelled in_progress>cancelled blocked>cancelled"
    assert {tuple(move.split(">")) for move in nodes.split()} <= NODE_MOVES.keys()
    given = "queued>dispatched dispatched>active active>stalled stalled>active stalled>blocked active>done"
    given += " stalled>done blocked>done"
    assert {tuple(move.split(">")) for move in given.split()} <= ASSIGNMENT_MOVES.keys()
    assert not [move for move in NODE_MOVES if move[0] is N.CANCELLED]
    assert not [move for move in ASSIGNMENT_MOVES if move[0] in (A.CANCELLED, A.DONE)]
    assert all(before != after for before, after in (*NODE_MOVES, *ASSIGNMENT_MOVES, *GOAL_MOVES))
    assert all((*NODE_MOVES.values(), *ASSIGNMENT_MOVES.values(), *GOAL_MOVES.values()))


@pytest.mark.req("3-053")
@pytest.mark.parametrize("proof", [None, Evidence(), crystallization(summary=" ")])
def test_done_needs_a_proof(proof: object) -> None:
    """Break: `_shown` returns {} instead of raising without evidence."""
    for move in (
        lambda: move_node(node("S1.1.1", N.IN_PROGRESS), N.DONE, 5.0, proof=proof),  # type: ignore[arg-type]
        lambda: move_assignment(assignment(A.ACTIVE), A.DONE, 5.0, proof=proof),  # type: ignore[arg-type]
        lambda: override_node(node("T1.1"), N.DONE, 5.0, reason="why", proof=proof),  # type: ignore[arg-type]
    ):
        with pytest.raises(IllegalMove, match="without evidence"):
            move()
    _, by_handoff = move_node(node("S1.1.1", N.IN_PROGRESS), N.DONE, 5.0, proof=crystallization())
    assert by_handoff.data["crystallizationId"] == "C_1"
    _, by_anchor = move_assignment(assignment(A.ACTIVE), A.DONE, 5.0, proof=PROOF)
    assert by_anchor.data["evidence"] == {"commits": ["1a2b3c4"]}


@pytest.mark.req("3-054", "3-055")
@pytest.mark.parametrize(
    "reason", [None, BlockedReason(kind="human", text=""), BlockedReason(kind=" ", text="why")]
)
def test_blocked_needs_a_reason(reason: BlockedReason | None) -> None:
    """Break: `_shown` does not check the reason. So nothing is blocked merely because it is silent."""
    with pytest.raises(IllegalMove, match=r"cannot block .* without a reason"):
        move_assignment(assignment(A.STALLED), A.BLOCKED, 5.0, blocked=reason)
    with pytest.raises(IllegalMove, match=r"cannot block .* without a reason"):
        move_node(node("S1.1.1", N.QUEUED), N.BLOCKED, 5.0, blocked=reason)
    moved, event = move_assignment(assignment(A.STALLED), A.BLOCKED, 5.0, blocked=BLOCKED)
    assert moved.blocked_reason == BLOCKED
    assert event.data["reason"] == "which format?"


@pytest.mark.req("3-060")
def test_an_override_says_who_and_why_and_can_be_taken_back() -> None:
    """Break: leave `actor` out of `_data`, or `overridden=True` out of override_node."""
    one = node("T1.1", N.IN_PROGRESS)
    for actor in ("human", "overseer"):
        moved, event = override_node(one, N.DONE, 5.0, reason="enough", actor=actor, proof=crystallization())
        assert (moved.status, moved.overridden) == (N.DONE, True)
        assert (event.type, event.data["reason"], event.data["actor"]) == ("work.overridden", "enough", actor)
    with pytest.raises(IllegalMove, match="without a reason"):
        override_node(one, N.TODO, 5.0, reason=" ")
    with pytest.raises(IllegalMove, match="from cancelled to todo"):
        override_node(replace(one, status=N.CANCELLED), N.TODO, 5.0, reason="why")
    freed, event = release_node(moved, 6.0, reason="it is not")
    assert (freed.overridden, event.type) == (False, "work.released")
    with pytest.raises(IllegalMove, match="is not overridden"):
        release_node(freed, 7.0, reason="again")
