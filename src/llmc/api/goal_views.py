"""Goals for front ends: progress, cost, questions and events."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from llmc.api.goal_orders import undriven
from llmc.attention import raising
from llmc.base.errors import LlmcError, UsageError
from llmc.goals.drive.by_hand import Question as Question
from llmc.goals.drive.goal_end import unchecked as unchecked
from llmc.goals.drive.moves import progress
from llmc.goals.goals import GoalCost as GoalCost
from llmc.goals.goals import GoalSpending, goal_file, open_store
from llmc.goals.model import Assignment, Crystallization, PlanRevision
from llmc.goals.model import Event as Event
from llmc.goals.model import Goal as Goal
from llmc.goals.model import GoalStatus as GoalStatus
from llmc.goals.model import GoalView as GoalView
from llmc.goals.report import draw, handoff
from llmc.goals.report.draw import mermaid as mermaid
from llmc.goals.report.handoff import event_row as event_row
from llmc.goals.report.handoff import goal_tree as goal_tree
from llmc.goals.report.why import reason_of
from llmc.goals.store.goal_store import AnyGoalStore, unknown_goal
from llmc.goals.store.rows import Reader
from llmc.goals.store.rows import SafeMode as SafeMode
from llmc.goals.work import clock as clock
from llmc.goals.work import open_questions as open_questions
from llmc.goals.work import why as why
from llmc.records.items import Item, counts
from llmc.repo.project import Project, open_project
from llmc.workers.answering import question_of


class Troubles(msgspec.Struct, frozen=True):
    """Problems with the store: damage, safe mode, and goals that cannot be read."""

    damage: str
    safe_mode: SafeMode | None
    unreadable: dict[str, str]


class Goals(msgspec.Struct, frozen=True):
    views: list[GoalView]
    troubles: Troubles


class GoalsStatus(msgspec.Struct, frozen=True):
    """The goals that are not archived, and every open assignment."""

    goals: Goals
    assignments: list[dict[str, Any]]
    enabled: bool
    #: why no goal makes progress now
    undriven: str


def known(root: str | None) -> list[GoalView]:
    """All goals, for completion; empty if they cannot be read."""
    try:
        with open_store(open_project(root)).reading() as found:
            return found.views()
    except (LlmcError, OSError):
        return []


def troubles(project: Project) -> Troubles:
    store = open_store(project)
    with store.reading() as found:
        return _troubles(store, found)


def _troubles(store: AnyGoalStore, found: Reader) -> Troubles:
    return Troubles(store.damage, found.safe_mode(), dict(found.unreadable))


def goals(project: Project) -> Goals:
    """All goals; a damaged store is an error, because "no goals" would be wrong."""
    store = open_store(project)
    with store.reading() as found:
        views = found.views()
        if store.damage:
            raise store.damaged()
        return Goals(views, _troubles(store, found))


def the_goal(project: Project, given: str | None) -> str:
    """The given goal; by default the only unfinished one, or the only one."""
    if given:
        return given
    found = goals(project)
    every = [view.goal for view in found.views]
    going = [goal for goal in every if goal.status.goes_on]
    meant = going or every
    if len(meant) == 1:
        return meant[0].goal_id
    if not meant and found.troubles.unreadable:
        unreadable = ", ".join(found.troubles.unreadable)
        raise LlmcError(
            f"cannot read any goal: {unreadable}", hint="Run `llmc goal export` to see the stored data."
        )
    problem = f"no goal specified; there are {len(meant)} goals" if meant else "there are no goals"
    hint = (
        "Specify a goal ID; run `llmc goal list` to list the goals."
        if meant
        else "To create one: llmc goal create --title ..."
    )
    raise UsageError(problem, hint=hint)


class Asking(msgspec.Struct, frozen=True):
    """An open question of a worker."""

    worker: str
    since: float
    text: str
    options: tuple[str, ...]
    #: the command that answers it
    next: str


def inbox(project: Project) -> list[Question | Asking]:
    """Open questions of goals and workers, oldest first."""
    asking = [_asking(project, item) for item in raising.current(project) if item.kind == "question"]
    return sorted([*open_questions(project), *asking], key=lambda one: one.since)


def _asking(project: Project, item: Item) -> Asking:
    """The question as in the attention list, but with separate options if `answer` takes their numbers."""
    listed = Asking(item.who, item.since_unix, item.text, (), item.next)
    if not item.next.startswith("llmc answer "):
        return listed
    try:
        text, options = question_of(project, item.who)
    except LlmcError:
        return listed  # it was just answered
    return msgspec.structs.replace(listed, text=text, options=options)


def others_waiting(project: Project) -> int:
    """How many items of the attention list need the user, besides the questions."""
    listed = raising.current(project)
    return sum(counts(item.severity) and item.kind not in ("question", "goal_question") for item in listed)


def goal(project: Project, goal_id: str) -> GoalView:
    return open_store(project).view(goal_id)


def cost(project: Project, view: GoalView) -> GoalCost:
    return GoalSpending().of(project, view)


def said(project: Project, view: GoalView) -> dict[str, Any]:
    """Decisions, open questions and next actions that workers reported."""
    return handoff.said_of(view, _crystals(project, view))


def handoff_text(project: Project, view: GoalView) -> str:
    """The handoff document of a goal, as Markdown."""
    return handoff.handoff(view, _crystals(project, view), _percents(view))


def _crystals(project: Project, view: GoalView) -> list[Crystallization]:
    with open_store(project).reading() as found:
        return found.crystallizations(view.goal.goal_id)


def plan_tree(view: GoalView, width: int) -> list[list[tuple[str, str]]]:
    """The plan as lines of (text, style)."""
    return [list(line) for line in draw.plan_tree(view, _percents(view), width)]


def plan_rows(view: GoalView) -> list[draw.PlanRow]:
    """Every plan item with its progress, worker and blocker, for a screen that draws its own tree."""
    return draw.plan_rows(view, _percents(view))


def revision_lines(revision: PlanRevision) -> list[str]:
    """What a new plan changed."""
    words = ("added", "changed", "removed")
    lines = [f"{word}: {', '.join(ids)}" for word in words if (ids := getattr(revision, word))]
    lines += [f"moved: {old} is now {new}" for old, new in revision.moved.items()]
    return lines or ["the plan did not change"]


def _percents(view: GoalView) -> dict[str, int]:
    return {node_id: one.percent for node_id, one in progress(view).items()}


def summary(view: GoalView) -> dict[str, Any]:
    """One goal in a few fields."""
    whole = progress(view)[""]
    goal = view.goal
    return {
        "goalId": goal.goal_id,
        "title": goal.title,
        "status": goal.status,
        "priority": goal.priority,
        "tags": list(goal.tags),
        "percent": whole.percent,
        "done": whole.done,
        "total": whole.total,
        "nodes": dict(Counter(str(node.status) for node in view.nodes.values())),
        "assignments": dict(Counter(str(one.status) for one in view.assignments.values())),
        "updatedAt": goal.updated_at,
    }


def status(project: Project) -> GoalsStatus:
    store = open_store(project)
    with store.reading() as found:
        views = found.views(besides=("archived",))
        shown = Goals(views, _troubles(store, found))
        rows = [
            _assignment_row(
                one,
                found.last_event("assignment.stalled", one.assignment_id),
                found.crystallizations(one.goal_id),
            )
            for view in views
            for one in view.assignments.values()
            if one.status.is_open
        ]
    return GoalsStatus(shown, rows, project.config.overseer.goals.enabled, undriven(project))


def _assignment_row(
    one: Assignment, stalled: Event | None, proofs: Iterable[Crystallization]
) -> dict[str, Any]:
    """One open assignment: why it waits, the last message and its result, the backoff, and the latest evidence."""
    last = one.last_dispatch
    ours = [proof for proof in proofs if proof.work_node_id == one.work_node_id]
    return {
        "assignmentId": one.assignment_id,
        "goalId": one.goal_id,
        "workNodeId": one.work_node_id,
        "agentId": one.agent_id,
        "sessionKey": one.session_key,
        "status": one.status,
        "why": reason_of(one, stalled),
        "lastDispatch": msgspec.to_builtins(last) if last else None,
        "retryCount": one.retry_count,
        "backoffUntil": one.backoff_until,
        "lastObservedActivityAt": one.last_observed_activity_at,
        "evidence": msgspec.to_builtins(ours[-1].evidence) if ours else None,
    }


def events(project: Project, goal_id: str, since: float, last: int | None) -> list[tuple[int, Event]]:
    """The goal events, each with its number in the log."""
    with open_store(project).reading() as found:
        if goal_id and found.goal(goal_id) is None:
            raise unknown_goal(goal_id, found.goal_ids())
        return list(found.events(goal_id, since=since, last=last))


def export(project: Project) -> tuple[dict[str, Any], Goals]:
    """All goal data as one JSON object, and the goals."""
    store = open_store(project)
    with store.reading() as found:
        views = found.views()
        proofs = [one for view in views for one in found.crystallizations(view.goal.goal_id)]
        log = [event for _, event in found.events()]
        unreadable = {goal_id: found.raw(goal_id) for goal_id in found.unreadable}
        shown = Goals(views, _troubles(store, found))
    if store.damage:  # so that an empty export does not replace a good one
        raise store.damaged()
    everything = {**handoff.export(views, proofs, log), **({"unreadable": unreadable} if unreadable else {})}
    return everything, shown


def end_safe_mode(project: Project) -> bool:
    """End safe mode; returns whether it was on."""
    return open_store(project).clear_safe_mode() is not None


def damaged_file(project: Project, mode: SafeMode) -> Path:
    return goal_file(project).directory / mode.file
