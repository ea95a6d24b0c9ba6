"""A goal that could not be planned, or not planned again: nothing is guessed, and a person is asked. Pure."""

from msgspec.structs import replace

from llmc.goals.drive.transitions import HUMAN
from llmc.goals.drive.words import fit
from llmc.goals.model import Asking, BlockedReason, Change, Event, Goal, GoalStatus, GoalView

#: what kind of question it is
PLAN = "plan"
REPLAN = "replan"
PLAN_AGAIN, KEEP, CANCEL = "plan it again", "keep the plan there is", "cancel it"


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


def not_replanned(view: GoalView, wish: str, why: str, now: float, *, asks: bool = True) -> Change:
    """The goal goes on with the plan it has; `wish` is what a person wanted of the other one. Another question of it stays."""
    event = Event(ts=now, type="plan.failed", goal_id=view.goal.goal_id, data={"reason": why})
    other = view.goal.asks is not None and view.goal.asks.reason.kind != REPLAN
    if not asks or other or view.goal.status in (GoalStatus.CANCELLED, GoalStatus.ARCHIVED):
        return Change(events=(event,))
    reason = BlockedReason(
        kind=REPLAN,
        text=wish,
        question=fit(f"No other plan was made ({fit(wish, 300)}): {why}. How shall the goal go on?", 1000),
        options=(PLAN_AGAIN, KEEP, CANCEL),
    )
    return Change(
        goal=replace(view.goal, asks=Asking(reason=reason, since=now), updated_at=now), events=(event,)
    )


def replanned(goal: Goal) -> Goal:
    """Whether it was to be planned again is asked no more; anything else still is."""
    is_over = goal.asks is not None and goal.asks.reason.kind == REPLAN
    return replace(goal, asks=None) if is_over else goal


def kept(view: GoalView, now: float) -> Change:
    """A person wants no other plan any more."""
    event = Event(
        ts=now, type="goal.answered", goal_id=view.goal.goal_id, data={"answer": KEEP, "actor": HUMAN}
    )
    return Change(goal=replace(replanned(view.goal), updated_at=now), events=(event,))


def wish_of(asked: BlockedReason, answer: str) -> str:
    """What the next plan is to be, with what a person says about it; a choice alone adds nothing."""
    return asked.text if answer == PLAN_AGAIN else f"{asked.text}. A person says: {answer}"


def hinted(view: GoalView, answer: str) -> str:
    """The problem statement with what a person says about it; a choice alone adds nothing."""
    said = view.goal.problem_statement
    return said if answer == PLAN_AGAIN else f"{said}\n\nA person says: {answer}".strip()
