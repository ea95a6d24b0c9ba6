"""The budget of a goal: when it is used up, and what follows from that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmc.goals.drive import goal_end
from llmc.goals.model import GoalStatus
from tests.support.goal_world import START, goal


@pytest.mark.parametrize("status", list(GoalStatus))
@pytest.mark.parametrize("limit", [0.0, 5.0])
@pytest.mark.parametrize("spent", [0.0, 4.99, 5.0, 6.0])
def test_a_goal_that_goes_on_is_paused_when_its_budget_is_used_up(
    status: GoalStatus, limit: float, spent: float
) -> None:
    """Break: pause a goal that the user paused or that is over; or treat 0 as a budget."""
    kept = goal(status=status, budget_usd=limit)
    change = goal_end.pause(kept, spent, START + 9)
    wanted = status is GoalStatus.ACTIVE and limit > 0 and spent >= limit
    assert change.is_empty() is not wanted
    if wanted:
        assert change.goal is not None
        assert (change.goal.status, change.goal.updated_at) == (GoalStatus.PAUSED, START + 9)
        assert [event.type for event in change.events] == ["goal.paused", "goal.budget_reached"]
        reasons = {str(event.data["reason"]) for event in change.events}
        assert reasons == {f"spent ${spent:.2f} of its $5.00 budget"}
        assert goal_end.pause(change.goal, spent, START + 10).is_empty(), "once"


@given(st.floats(0.01, 1e6), st.floats(0, 1e6))
def test_what_is_said_of_a_budget_goes_with_what_is_done(limit: float, spent: float) -> None:
    """Break: let `used_up` need more than the budget, while `pause` needs only the budget itself."""
    kept = goal(budget_usd=limit)
    assert goal_end.is_limited(kept)
    assert (
        bool(goal_end.used_up(kept, spent))
        is (spent >= limit)
        is not goal_end.pause(kept, spent, START).is_empty()
    )


def test_each_budget_is_told_of_under_an_id_of_its_own() -> None:
    """Break: use an id without the budget: a raised budget that is used up, too, would not be reported."""
    first = goal_end.budget_notice(goal(budget_usd=5.0), 12.0)
    assert first == goal_end.budget_notice(goal(budget_usd=5.0, updated_at=START + 9), 12.0)
    assert first[0] != goal_end.budget_notice(goal(budget_usd=10.0), 12.0)[0]
    assert "llmc goal resume goal_1" in first[1]


@given(st.integers(1, 10**8), st.integers(0, 10**9))
def test_the_budget_that_is_suggested_is_enough(limit_cents: int, more_cents: int) -> None:
    """`goal resume` accepts it, however much was spent; usually it is twice the budget.

    Break: always suggest twice the budget; or show six digits of it.
    """
    limit, spent = limit_cents / 100, (limit_cents + more_cents) / 100
    kept = goal(budget_usd=limit)
    update, resume = goal_end.budget_raise(kept, spent).split(" && ")
    suggested = float(update.rpartition("--budget ")[2])
    assert resume == "llmc goal resume goal_1"
    assert not goal_end.used_up(goal(budget_usd=suggested), spent)
    assert suggested == 2 * limit or spent >= 2 * limit
