"""A goal that could not be planned: nothing is guessed, and a person is asked. Pure."""

from msgspec.structs import replace

from llmc.goals.model import Asking, BlockedReason, Change, Event, GoalView
from llmc.goals.words import fit

#: what kind of question it is
PLAN = "plan"
PLAN_AGAIN, CANCEL = "plan it again", "cancel it"


def failed(view: GoalView, why: str, now: float, *, asks: bool = True) -> Change:
    """The goal as it is kept after that. One that has a plan goes on with it."""
    event = Event(ts=now, type="plan.failed", goal_id=view.goal.goal_id, data={"reason": why})
    if view.nodes or not asks:
        return Change(events=(event,))
    reason = BlockedReason(
        kind=PLAN,
        text=fit(f"it has no plan: {why}", 1000),
        question=fit(f"There is no plan: {why}. How shall the goal go on?", 1000),
        options=(PLAN_AGAIN, CANCEL),
    )
    return Change(
        goal=replace(view.goal, asks=Asking(reason=reason, since=now), updated_at=now), events=(event,)
    )


def hinted(view: GoalView, answer: str) -> str:
    """The problem statement with what a person says about it; a choice alone adds nothing."""
    said = view.goal.problem_statement
    return said if answer == PLAN_AGAIN else f"{said}\n\nA person says: {answer}".strip()
