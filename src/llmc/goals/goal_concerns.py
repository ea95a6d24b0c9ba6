"""What of the goals needs a person, on the attention list: questions, and parts in which nothing moves."""

import contextlib
from collections.abc import Iterable

from llmc.attention import raising
from llmc.base.errors import LlmcError
from llmc.goals.drive.questions import Question, questions
from llmc.goals.model import AssignmentStatus, Goal, GoalStatus, GoalView
from llmc.goals.store.store import GoalStore
from llmc.repo.project import Project

_QUESTION, _STALLED, _BUDGET = "goal-question ", "goal-stalled ", "goal-budget "
#: goals of which nothing is asked any more
_OVER = (GoalStatus.CANCELLED, GoalStatus.ARCHIVED)

Concerns = dict[str, dict[str, str]]


def of_goal(view: GoalView) -> Concerns:
    """The items of one goal that is not over."""
    found = {}
    for one in questions(view):
        who = f"{one.work_node_id} {one.node_name}".strip()
        said = f"{who} ({one.goal_title}) asks: {one.reason.question or one.reason.text}"
        listed = "".join(f" [{number}] {text}" for number, text in enumerate(one.reason.options, 1))
        answer = f'llmc overseer answer {one.id} "..."'
        found[question_key(one)] = _item("goal_question", "blocked", view.goal.goal_id, said + listed, answer)
    for part in view.assignments.values():
        if part.status is AssignmentStatus.STALLED:
            said = f"nothing moves in {part.work_node_id} of {view.goal.title}; llmc tries to get it going"
            why = f"llmc overseer why {part.work_node_id}"
            found[f"{_STALLED}{part.assignment_id}"] = _item(
                "goal_stalled", "notice", view.goal.goal_id, said, why
            )
    return found


def question_key(one: Question) -> str:
    return f"{_QUESTION}{one.id}"


def _item(kind: str, severity: str, who: str, text: str, next: str) -> dict[str, str]:
    return {"kind": kind, "severity": severity, "who": who, "text": text[:1000], "next": next}


def over_budget(project: Project, goal: Goal, text: str) -> None:
    """A goal was paused because its budget is used up; that is listed for as long as it stays paused."""
    more = (
        f"llmc goal update {goal.goal_id} --budget {2 * goal.budget_usd:g} && llmc goal resume {goal.goal_id}"
    )
    with project.store.transaction() as tx:
        tx.raise_item(f"{_BUDGET}{goal.goal_id}", **_item("budget", "waiting", goal.goal_id, text, more))


def tell(project: Project, found: Iterable[Concerns], views: Iterable[GoalView]) -> None:
    """The list has what is so now. Never raises: the goals go on without it, and the next tick tells it."""
    wanted = {key: fields for one in found for key, fields in one.items()}
    paused = {f"{_BUDGET}{view.goal.goal_id}" for view in views if view.goal.status is GoalStatus.PAUSED}
    with contextlib.suppress(LlmcError, OSError):
        for key in paused & project.store.read().attention.keys():
            wanted[key] = raising.fields_of(project.store.read().attention[key])
        raising.sync(project, (_QUESTION, _STALLED, _BUDGET), wanted)


def after_a_word(project: Project, store: GoalStore) -> None:
    """A person changed something: a daemon that drives goals ticks by itself, and without one nobody else would tell."""
    if project.config.overseer.goals.enabled and project.daemon_runs():
        return
    with contextlib.suppress(LlmcError, OSError):
        with store.reading() as found:
            views = found.views(besides=_OVER)
        tell(project, map(of_goal, views), views)
