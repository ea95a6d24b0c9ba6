"""Whether a goal is reached once its plan is done: criteria with a command are run, and the others are for a person. Pure.

A criterion with a command reads "`COMMAND` passes": `goal create --verify` makes it, a plan or a planner may write it.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from llmc.goals.drive.reached import commands
from llmc.goals.drive.rollup import children_of, is_completed, settled
from llmc.goals.drive.transitions import HUMAN
from llmc.goals.drive.words import fit
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
    Tested,
)
from llmc.goals.report.crystals import joined_evidence, of_parts

#: what kind of question it is when a criterion is not met
CRITERIA = "criteria"
CHECK_AGAIN, COMPLETE, CANCEL = "check again", "complete it all the same", "cancel it"
PASSED = "passed"


def wants_check(view: GoalView) -> bool:
    """Whether the plan is done, and nobody has seen yet whether the goal is reached."""
    goal = view.goal
    if (
        goal.status is not GoalStatus.ACTIVE
        or goal.checked is not None
        or not commands(goal.success_criteria)
    ):
        return False
    return is_completed([node for node in view.nodes.values() if node.kind is NodeKind.PHASE])


def checked(
    view: GoalView,
    results: Sequence[Tested],
    commit: str,
    now: float,
    ids: Callable[[], str],
    latest: Sequence[Crystallization],
) -> Change:
    """What follows from the results: the goal is completed, or a person is asked."""
    failed = [one for one in results if one.result != PASSED]
    found = CriteriaCheck(ts=now, commit=commit, passed=not failed, results=tuple(results))
    asks = Asking(reason=_reason(view.goal, failed, commit), since=now) if failed else None
    goal = replace(view.goal, checked=found, asks=asks, updated_at=now)
    event = _event(
        goal, "goal.checked", now, passed=found.passed, commit=commit, failed=[one.command for one in failed]
    )
    crystal = _crystal(view, results, now, ids, latest)
    return settled(view, Change(goal=goal, crystallizations=(crystal,), events=(event,)), now)


def answered(view: GoalView, answer: str, now: float) -> Change:
    """A person's answer to a criterion that is not met; to cancel the goal is another way."""
    goal = replace(view.goal, asks=None, updated_at=now)
    if answer == COMPLETE and goal.checked is not None:
        goal = replace(goal, checked=replace(goal.checked, passed=True, by=HUMAN, ts=now))
    else:
        goal = replace(goal, checked=None)
    event = _event(goal, "goal.answered", now, answer=answer, actor=HUMAN)
    return settled(view, Change(goal=goal, events=(event,)), now)


def unchecked(goal: Goal) -> tuple[str, ...]:
    """The criteria that no command can show."""
    return tuple(text for text in goal.success_criteria if not commands((text,)))


def _event(goal: Goal, kind: str, now: float, **data: object) -> Event:
    return Event(ts=now, type=kind, goal_id=goal.goal_id, data=dict(data))


def _reason(goal: Goal, failed: Sequence[Tested], commit: str) -> BlockedReason:
    said = "; ".join(f"`{one.command}`: {one.result}" for one in failed)
    on = f" on {commit[:12]}" if commit else ""
    return BlockedReason(
        kind=CRITERIA,
        text=fit(f"the plan is done, but not what it is for: {said}{on}", 1000),
        question=fit(f"The plan is done, and {said}{on}. How shall the goal go on?", 1000),
        options=(CHECK_AGAIN, COMPLETE, CANCEL),
    )


def _crystal(
    view: GoalView,
    results: Sequence[Tested],
    now: float,
    ids: Callable[[], str],
    latest: Sequence[Crystallization],
) -> Crystallization:
    """The goal's handoff, with what was run, and what is left for a person to judge."""
    newest = {one.work_node_id: one for one in latest}
    parts = [(node, newest.get(node.node_id)) for node in children_of(view).get("", ())]
    former = newest.get("") or of_parts(ids(), view.goal, None, parts, now)
    passed = sum(one.result == PASSED for one in results)
    asked = [f"Is it so? {text}" for text in unchecked(view.goal)]
    return replace(
        former,
        crystallization_id=ids(),
        created_at=now,
        current_state=f"{passed} of {len(results)} success criteria with a command passed",
        open_questions=tuple(dict.fromkeys((*former.open_questions, *asked)))[:50],
        evidence=joined_evidence((Evidence(tests_run=tuple(results)), former.evidence)),
    )
