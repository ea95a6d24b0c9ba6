"""When a goal has cost what it may cost, and what follows from it. Pure."""

from llmc.goals.drive.transitions import move_goal
from llmc.goals.model import Change, Event, Goal, GoalStatus


def is_limited(goal: Goal) -> bool:
    """Whether it matters what the goal has cost: it goes on, and has a budget."""
    return goal.status is GoalStatus.ACTIVE and goal.budget_usd > 0


def used_up(goal: Goal, spent_usd: float) -> str:
    """Why nothing more may be spent on it; "" while something may."""
    if goal.budget_usd <= 0 or spent_usd < goal.budget_usd:
        return ""
    return f"its budget of ${goal.budget_usd:.2f} is used up: ${spent_usd:.2f}"


def pause(goal: Goal, spent_usd: float, now: float) -> Change:
    """A goal that goes on is paused once its budget is used up; what somebody is at comes to its end."""
    why = used_up(goal, spent_usd)
    if not why or not is_limited(goal):
        return Change()
    paused, event = move_goal(goal, GoalStatus.PAUSED, now, reason=why)
    told = Event(ts=now, type="goal.budget_reached", goal_id=goal.goal_id, data={"reason": why})
    return Change(goal=paused, events=(event, told))


def word(goal: Goal, why: str) -> tuple[str, str]:
    """What a person is told of it, and the id under which that is said once for each budget."""
    go_on = f"llmc goal update {goal.goal_id} --budget {2 * goal.budget_usd:g}, then llmc goal resume {goal.goal_id}"
    text = f"{goal.title} is paused: {why}. To go on: {go_on}"
    return f"budget-{goal.goal_id}-{goal.budget_usd:g}", text
