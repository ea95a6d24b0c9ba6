"""Status of the goals for others: attention items, counts, and goals.log."""

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from typing import Any

from llmc.attention import raising
from llmc.base.errors import LlmcError
from llmc.base.files import append_line, private_dir
from llmc.goals.drive.decide import Decided
from llmc.goals.drive.intents import Action
from llmc.goals.drive.questions import Question, questions
from llmc.goals.drive.rollup import whole_progress
from llmc.goals.model import AssignmentStatus, Event, Goal, GoalStatus, GoalView, Result
from llmc.goals.store.goal_store import GoalStore
from llmc.goals.ticks import Glance
from llmc.repo.project import Project

_QUESTION, _STALLED, _BUDGET = "goal-question ", "goal-stalled ", "goal-budget "

Concerns = dict[str, dict[str, str]]


def of_goal(view: GoalView) -> Concerns:
    """Attention items of an open goal."""
    found = {}
    for one in questions(view):
        who = f"{one.work_node_id} {one.node_name}".strip()
        said = f"{who} ({one.goal_title}) asks: {one.reason.question or one.reason.text}"
        listed = "".join(f" [{number}] {text}" for number, text in enumerate(one.reason.options, 1))
        answer = f'llmc answer {one.id} "..."'
        found[question_key(one)] = _item("goal_question", "blocked", view.goal.goal_id, said + listed, answer)
    for part in view.assignments.values():
        if part.status is AssignmentStatus.STALLED:
            said = f"{part.work_node_id} of {view.goal.title} has stalled; llmc is trying to recover it"
            why = f"llmc goal why {part.work_node_id}"
            found[f"{_STALLED}{part.assignment_id}"] = _item(
                "goal_stalled", "notice", view.goal.goal_id, said, why
            )
    return found


def question_key(one: Question) -> str:
    return f"{_QUESTION}{one.id}"


def _item(kind: str, severity: str, who: str, text: str, next: str) -> dict[str, str]:
    return {"kind": kind, "severity": severity, "who": who, "text": text[:1000], "next": next}


def over_budget(project: Project, goal: Goal, text: str) -> None:
    """List a goal that was paused over its budget, for as long as it stays paused."""
    more = (
        f"llmc goal update {goal.goal_id} --budget {2 * goal.budget_usd:g} && llmc goal resume {goal.goal_id}"
    )
    with project.store.transaction() as tx:
        tx.raise_item(f"{_BUDGET}{goal.goal_id}", **_item("budget", "waiting", goal.goal_id, text, more))


def tell(project: Project, found: Iterable[Concerns], views: Iterable[GoalView]) -> None:
    """Sync the attention list. Never raises: the next tick does it again."""
    wanted = {key: fields for one in found for key, fields in one.items()}
    paused = {f"{_BUDGET}{view.goal.goal_id}" for view in views if view.goal.status is GoalStatus.PAUSED}
    with contextlib.suppress(LlmcError, OSError):
        for key in paused & project.store.read().attention.keys():
            wanted[key] = raising.fields_of(project.store.read().attention[key])
        raising.sync(project, (_QUESTION, _STALLED, _BUDGET), wanted)


def after_a_word(project: Project, store: GoalStore) -> None:
    """After a change by the user: a daemon ticks by itself, otherwise sync the list here."""
    if project.config.overseer.goals.enabled and project.daemon_runs():
        return
    with contextlib.suppress(LlmcError, OSError):
        with store.reading() as found:
            views = found.views(besides=[one for one in GoalStatus if one.is_over])
        tell(project, map(of_goal, views), views)


class Counts:
    """Counts goals, and recounts only changed ones."""

    def __init__(self) -> None:
        #: by goal: view, done leaves, all leaves, attention items
        self._known: dict[str, tuple[GoalView, int, int, Concerns]] = {}

    def glance(self, views: Mapping[str, GoalView]) -> Glance:
        going = {key: view for key, view in views.items() if view.goal.status.goes_on}
        self._known = {key: self._counted(key, view) for key, view in going.items()}
        active = [row for row in self._known.values() if row[0].goal.status is GoalStatus.ACTIVE]
        return Glance(
            active=len(active),
            done=sum(row[1] for row in active),
            total=sum(row[2] for row in active),
            questions=sum(_questions(row[3]) for row in self._known.values()),
            paused=len(self._known) - len(active),
            completed=sum(view.goal.status is GoalStatus.COMPLETED for view in views.values()),
        )

    def concerns(self) -> list[Concerns]:
        """Attention items by goal, as of the last glance."""
        return [row[3] for row in self._known.values()]

    def _counted(self, goal_id: str, view: GoalView) -> tuple[GoalView, int, int, Concerns]:
        known = self._known.get(goal_id)
        if known is not None and known[0] is view:
            return known
        whole = whole_progress(view)
        return view, whole.done, whole.total, of_goal(view)


def _questions(found: Concerns) -> int:
    return sum(item["kind"] == "goal_question" for item in found.values())


LOG = "goals"
MOST_ACTIONS = 50


def log(project: Project, text: str) -> None:
    """Write to goals.log: in the daemon's own log a warning would stop the daemon."""
    line = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {os.getpid()} {text}".replace("\n", " ")
    with contextlib.suppress(LlmcError, OSError):
        private_dir(project.root.logs)
        append_line(project.root.log(LOG), line.encode(errors="replace"))


class TickWords:
    """Logs one tick; an idle tick logs nothing."""

    def __init__(self, project: Project, reason: str) -> None:
        self._project = project
        self._reason = reason
        self._has_begun = False
        self._told: list[tuple[str, dict[str, Any]]] = []

    def decided(self, decided: Decided) -> None:
        """The decided actions, before they run."""
        self._told += [
            ("goal_stalled", _about(event, reason=str(event.data.get("reason", ""))))
            for event in decided.change.events
            if event.type == "assignment.stalled"
        ]
        for action in decided.actions:
            self._say(f"chose {action.purpose} {action.work_node_id} ({action.mode}, {action.dispatch_id})")

    def outcome(self, action: Action, result: Result, text: str) -> None:
        self._say(f"outcome of {action.dispatch_id}: {text}")
        sent = {"purpose": action.purpose, "mode": action.mode, "result": result}
        self._told.append(("goal_acted", _about(action, **sent, dispatch_id=action.dispatch_id)))

    def end(self, sent: list[str]) -> None:
        self._say(f"ended: {', '.join(sent) or 'records updated'}")
        try:
            with self._project.store.transaction() as tx:
                for action, about in self._told:
                    tx.emit(action, **about)
                tx.emit("goal_ticked", reason=self._reason, actions=sent[:MOST_ACTIONS])
        except (LlmcError, OSError) as error:
            log(self._project, f"tick ({self._reason}) could not be written to the event log: {error}")

    def _say(self, text: str) -> None:
        if not self._has_begun:
            self._has_begun = True
            log(self._project, f"tick ({self._reason}) started")
        log(self._project, f"tick ({self._reason}) {text}")


def _about(one: Event | Action, **more: str) -> dict[str, Any]:
    """Ids for the event log."""
    return {
        "goal_id": one.goal_id,
        "work_node_id": one.work_node_id,
        "assignment_id": one.assignment_id,
        **{key: str(value) for key, value in more.items()},
    }
