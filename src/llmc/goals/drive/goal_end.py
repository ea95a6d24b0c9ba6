"""The end of a goal: success criteria, a spent budget, failed planning, and their questions. Pure.

A criterion with a command reads "`COMMAND` passes"; it comes from `goal create --verify`, a plan or a planner.
"""

import math
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from llmc.goals.drive.moves import HUMAN, after, commands, is_completed, joined, move_goal, settled
from llmc.goals.drive.words import fit, joined_evidence, of_parts
from llmc.goals.model import (
    Asking,
    BlockedReason,
    Change,
    CriteriaCheck,
    Crystallization,
    Event,
    Evidence,
    Goal,
    GoalStatus,
    GoalView,
    NodeKind,
    NodeStatus,
    Tested,
)
from llmc.goals.plan.plan import children_of


def is_limited(goal: Goal) -> bool:
    """Whether the goal is active and has a budget."""
    return goal.status is GoalStatus.ACTIVE and goal.budget_usd > 0


def used_up(goal: Goal, spent_usd: float) -> str:
    """Why the budget is used up; "" if it is not."""
    if goal.budget_usd <= 0 or spent_usd < goal.budget_usd:
        return ""
    return f"spent ${spent_usd:.2f} of its ${goal.budget_usd:.2f} budget"


def pause(goal: Goal, spent_usd: float, now: float) -> Change:
    """Pause an active goal that is over budget; work in progress finishes."""
    why = used_up(goal, spent_usd)
    if not why or not is_limited(goal):
        return Change()
    paused, event = move_goal(goal, GoalStatus.PAUSED, now, reason=why)
    told = goal.event("goal.budget_reached", now, {"reason": why})
    return Change(goal=paused, events=(event, told))


def budget_notice(goal: Goal, spent_usd: float) -> tuple[str, str]:
    """The notification, with an id that is unique per budget."""
    why = used_up(goal, spent_usd)
    text = f"{goal.title} is paused: {why}. To resume: {budget_raise(goal, spent_usd)}"
    return f"budget-{goal.goal_id}-{goal.budget_usd:g}", text


def budget_raise(goal: Goal, spent_usd: float) -> str:
    """The command that doubles the budget, or raises it above what was spent, and resumes the goal."""
    twice = 2 * goal.budget_usd
    enough_usd = twice if spent_usd < twice else math.ceil(spent_usd) + goal.budget_usd
    return f"llmc goal update {goal.goal_id} --budget {enough_usd:.15g} && llmc goal resume {goal.goal_id}"


#: kinds of question
CRITERIA = "criteria"
CHECK_AGAIN, COMPLETE, CANCEL = "check again", "complete it anyway", "cancel it"
PASSED = "passed"


def wants_check(view: GoalView) -> bool:
    """Whether the plan is done and the success criteria were not checked yet."""
    goal = view.goal
    is_open = goal.status is GoalStatus.ACTIVE and goal.checked is None
    return (
        is_open
        and bool(commands(goal.success_criteria))
        and is_completed([node for node in view.nodes.values() if node.kind is NodeKind.PHASE])
    )


def checked(
    view: GoalView,
    results: Sequence[Tested],
    commit: str,
    now: float,
    ids: Callable[[], str],
    latest: Sequence[Crystallization],
) -> Change:
    """Complete the goal, or ask the user."""
    failed = [one for one in results if one.result != PASSED]
    found = CriteriaCheck(ts=now, commit=commit, passed=not failed, results=tuple(results))
    asks = Asking(reason=_reason(view.goal, failed, commit), since=now) if failed else None
    goal = replace(view.goal, checked=found, asks=asks, updated_at=now)
    data = {"passed": found.passed, "commit": commit, "failed": [one.command for one in failed]}
    event = goal.event("goal.checked", now, data)
    crystal = _crystal(view, results, now, ids, latest)
    return settled(view, Change(goal=goal, crystallizations=(crystal,), events=(event,)), now)


def answered(view: GoalView, answer: str, now: float) -> Change:
    """Apply the user's answer about failed criteria; work.py handles cancelling."""
    goal = replace(view.goal, asks=None, updated_at=now)
    if FORMER.get(answer, answer) == COMPLETE and goal.checked is not None:
        goal = replace(goal, checked=replace(goal.checked, passed=True, by=HUMAN, ts=now))
    else:
        goal = replace(goal, checked=None)
    event = goal.event("goal.answered", now, {"answer": answer, "actor": HUMAN})
    return settled(view, Change(goal=goal, events=(event,)), now)


def unchecked(goal: Goal) -> tuple[str, ...]:
    """Criteria without a command."""
    return tuple(text for text in goal.success_criteria if not commands((text,)))


def _reason(goal: Goal, failed: Sequence[Tested], commit: str) -> BlockedReason:
    said = "; ".join(f"`{one.command}` {one.result}" for one in failed)
    on = f" at commit {commit[:12]}" if commit else ""
    return BlockedReason(
        kind=CRITERIA,
        text=fit(f"the plan is done, but not all success criteria are met{on}: {said}", 1000),
        question=fit(
            f"The plan is done, but not all success criteria are met{on}: {said}. How should llmc proceed?",
            1000,
        ),
        options=(CHECK_AGAIN, COMPLETE, CANCEL),
    )


def _crystal(
    view: GoalView,
    results: Sequence[Tested],
    now: float,
    ids: Callable[[], str],
    latest: Sequence[Crystallization],
) -> Crystallization:
    """The goal's summary, with the commands that ran and the criteria left for the user to judge."""
    newest = {one.work_node_id: one for one in latest}
    parts = [(node, newest.get(node.node_id)) for node in children_of(view.nodes).get("", ())]
    former = newest.get("") or of_parts(ids(), view.goal, None, parts, now)
    passed = sum(one.result == PASSED for one in results)
    asked = [f"Is this success criterion met? {text}" for text in unchecked(view.goal)]
    return replace(
        former,
        crystallization_id=ids(),
        created_at=now,
        current_state=f"{passed} of {len(results)} verify commands passed",
        open_questions=tuple(dict.fromkeys((*former.open_questions, *asked)))[:50],
        evidence=joined_evidence((Evidence(tests_run=tuple(results)), former.evidence)),
    )


#: kinds of question
PLAN = "plan"
REPLAN = "replan"
PLAN_AGAIN, KEEP = "plan it again", "keep the current plan"
#: former texts of options, in questions that are still open
FORMER = {"complete it all the same": COMPLETE, "keep the plan there is": KEEP}


def failed(view: GoalView, why: str, now: float, *, asks: bool = True) -> Change:
    """Record that planning failed; a goal without a plan asks the user."""
    event = view.goal.event("plan.failed", now, {"reason": why})
    if view.nodes or not asks:
        return Change(events=(event,))
    reason = BlockedReason(
        kind=PLAN,
        text=fit(f"planning failed: {why}", 1000),
        question=fit(f"Planning failed: {why}. How should llmc proceed?", 1000),
        options=(PLAN_AGAIN, CANCEL),
    )
    return _asking(view.goal, reason, event)


def not_replanned(view: GoalView, wish: str, why: str, now: float, *, asks: bool = True) -> Change:
    """Record that replanning failed; `wish` is what the user wanted. Another open question stays."""
    event = view.goal.event("plan.failed", now, {"reason": why})
    other = view.goal.asks is not None and view.goal.asks.reason.kind != REPLAN
    if not asks or other or view.goal.status.is_over:
        return Change(events=(event,))
    reason = BlockedReason(
        kind=REPLAN,
        text=wish,
        question=fit(
            f"Replanning failed (reason for replanning: {fit(wish, 300)}): {why}. How should llmc proceed?",
            1000,
        ),
        options=(PLAN_AGAIN, KEEP, CANCEL),
    )
    return _asking(view.goal, reason, event)


def nothing_left(view: GoalView, change: Change, now: float) -> Change:
    """The settled change, plus a question if it leaves nothing but cancelled plan items."""
    made = after(view, change)
    phases = [node.status for node in made.nodes.values() if node.kind is NodeKind.PHASE]
    is_empty = bool(phases) and set(phases) == {NodeStatus.CANCELLED}
    if not is_empty or made.goal.asks is not None or not made.goal.status.goes_on:
        return change
    reason = BlockedReason(
        kind=REPLAN,
        text="all plan items are cancelled",
        question="All plan items are cancelled. How should llmc proceed?",
        options=(PLAN_AGAIN, CANCEL),
    )
    asks = Asking(reason=reason, since=now)
    return joined(change, Change(goal=replace(made.goal, asks=asks, updated_at=now)))


def _asking(goal: Goal, reason: BlockedReason, event: Event) -> Change:
    asks = Asking(reason=reason, since=event.ts)
    return Change(goal=replace(goal, asks=asks, updated_at=event.ts), events=(event,))


def replanned(goal: Goal) -> Goal:
    """The goal without its question about replanning."""
    is_over = goal.asks is not None and goal.asks.reason.kind == REPLAN
    return replace(goal, asks=None) if is_over else goal


def kept(view: GoalView, now: float) -> Change:
    event = view.goal.event("goal.answered", now, {"answer": KEEP, "actor": HUMAN})
    return Change(goal=replace(replanned(view.goal), updated_at=now), events=(event,))


def wish_of(asked: BlockedReason, answer: str) -> str:
    """The user's request for the next plan, plus the answer unless that is just `plan it again`."""
    return asked.text if answer == PLAN_AGAIN else f"{asked.text}. The user says: {answer}"


def hinted(view: GoalView, answer: str) -> str:
    """The problem statement, plus the answer unless that is just `plan it again`."""
    said = view.goal.problem_statement
    return said if answer == PLAN_AGAIN else f"{said}\n\nThe user says: {answer}".strip()
