"""Goals for the user: create, plan, change, pause, cancel; and their cost."""

import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from llmc.auto.prices import prices_of
from llmc.auto.rules import costs
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, Refused, UsageError
from llmc.base.files import json_row
from llmc.base.given import text
from llmc.base.log_reader import LogReader
from llmc.base.names import TaskId, TaskKey
from llmc.config.options import is_auto_name
from llmc.goals import status
from llmc.goals.drive import goal_end, ladder
from llmc.goals.drive.clean import check_typed
from llmc.goals.drive.moves import HUMAN, move_goal, move_node
from llmc.goals.drive.rollup import settled
from llmc.goals.model import (
    Change,
    DeliveryContext,
    Event,
    Goal,
    GoalStatus,
    GoalView,
    NodeStatus,
    Origin,
    Priority,
    Risk,
)
from llmc.goals.plan.plan import shape_of
from llmc.goals.planner import repo_context
from llmc.goals.store.goal_store import GoalStore
from llmc.notifications import notifiers
from llmc.records.event_log import EventLog
from llmc.records.worker import Spent
from llmc.repo.project import Project
from llmc.tasks.source import TaskSource, source_of

_RECORDED = f'"{costs.ACTION}"'.encode()


class GoalCost(Struct, frozen=True):
    work: float = 0.0
    #: planning
    overhead: float = 0.0
    #: models without a price
    unpriced: tuple[str, ...] = ()

    @property
    def total(self) -> float:
        return self.work + self.overhead


class GoalSpending:
    """Costs of goals; the event log is read once."""

    def __init__(self) -> None:
        self._log: LogReader | None = None
        #: creation time of the oldest goal asked about
        self._since = 0.0
        self._source: TaskSource | None = None
        self._of_task: dict[TaskKey, Spent] = {}
        self._of_goal: dict[str, Spent] = {}

    def of(self, project: Project, view: GoalView) -> GoalCost:
        self._read(project, view.goal.created_at)
        made = self._source.books().dispatches if self._source else {}
        sent = {d.dispatch_id: d.run_id for a in view.assignments.values() for d in a.dispatch_history}
        tasks = {
            made.get(dispatch) or self._whole("", run)
            for dispatch, run in sent.items()
            if run or dispatch in made
        }
        prices = prices_of(project)
        work = [costs.priced(prices, self._of_task.get(task, Spent())) for task in tasks]
        own = costs.priced(prices, self._of_goal.get(view.goal.goal_id, Spent()))
        unpriced = {model for one in (*work, own) for model in one.unpriced}
        return GoalCost(sum(one.cost for one in work), own.cost, tuple(sorted(unpriced)))

    def _read(self, project: Project, since: float) -> None:
        if self._log is None or since < self._since:
            self._log, self._since = EventLog(str(project.root.events)).reader(since), since
            self._source = self._source or source_of(project)
            self._of_task, self._of_goal = {}, {}
        for line in self._log.lines():
            event = json_row(line) if _RECORDED in line else None
            row = costs.usage_row(event) if event else None
            if row is None or event is None:
                continue
            if event.get("goal_id"):
                key = str(event["goal_id"])
                self._of_goal[key] = self._of_goal.get(key, Spent()) + row.spent
            elif row.task_id:
                task = self._whole(text(event.get("task_list")), row.task_id)
                self._of_task[task] = self._of_task.get(task, Spent()) + row.spent

    def _whole(self, list_name: str, task_id: str) -> TaskKey:
        assert self._source is not None
        return self._source.books().whole(TaskKey(list_name, TaskId(task_id)))


#: channels for questions: those of [notify], plus inbox and notify
CHANNELS = ("inbox", "notify", *notifiers.CHANNELS)


class Planner(Protocol):
    """Plans a goal: returns the nodes, the planning record, and the event `plan.generated`.

    LlmcError if there is no plan. Runs without a lock on the store.
    """

    def plan(self, project: Project, view: GoalView, file: Path | None) -> Change: ...


class NewGoal(Struct, frozen=True):
    """The fields of a goal as the user gave them."""

    title: str
    problem: str = ""
    criteria: tuple[str, ...] = ()
    non_goals: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    risks: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    stakeholders: tuple[str, ...] = ()
    priority: str = Priority.NORMAL
    owner: str = ""
    budget_usd: float = 0.0
    from_session: str = ""
    #: channel for questions
    reply_to: DeliveryContext = DeliveryContext()


class Created(Struct, frozen=True):
    """A stored goal, planned or not."""

    view: GoalView
    planned: bool
    problem: str = ""
    hint: str = ""


def open_store(project: Project) -> GoalStore:
    """LLMC_OVERSEER_DIR, else `overseer.goals.storage.dir`, else `.llmc/overseer`."""
    chosen = os.environ.get("LLMC_OVERSEER_DIR") or project.config.overseer.goals.storage.dir
    default = project.root.private / "overseer"
    return GoalStore(project.root.path / os.path.expanduser(chosen) if chosen else default)


def create(
    project: Project,
    wish: NewGoal,
    planner: Planner | None,
    plan_file: Path | None = None,
    on_kept: Callable[[Goal], None] = lambda goal: None,
) -> Created:
    """Store the goal and report it, then plan it if there is a planner. A failed plan leaves the goal as it is.

    With a plan from a file, goal and plan are stored together or not at all.
    """
    if not wish.title.strip():
        raise UsageError("the goal has no title", hint='llmc goal create --title "..."')
    store, now = open_store(project), now_unix()
    goal = _goal_of(replace(wish, from_session=session_key(project, wish.from_session)), now)
    goal = replace(goal, repo_context_snapshot=repo_context(project))
    with store.writing() as tx:
        while tx.goal(goal.goal_id) is not None:
            goal = replace(goal, goal_id=new_id("goal"))
        data = {"title": goal.title, "actor": HUMAN}
        created = Event(ts=now, type="goal.created", goal_id=goal.goal_id, data=data)
        tx.apply(Change(goal=goal, events=(created,)), typed=True)
        if planner is not None and plan_file is not None:
            made = planner.plan(project, GoalView(goal), plan_file)
            tx.apply(settled(GoalView(goal), made, now), typed=True)
    on_kept(goal)
    if planner is None:
        return Created(GoalView(goal), planned=False)
    if plan_file is not None:
        project.wake()
        return Created(store.view(goal.goal_id), planned=True)
    try:
        view = plan(project, goal.goal_id, planner)
    except LlmcError as error:
        hint = error.hint or f"Try again: llmc goal plan {goal.goal_id} (or with --from FILE)"
        return Created(store.view(goal.goal_id), planned=False, problem=error.message, hint=hint)
    return Created(view, planned=True)


def plan(project: Project, goal_id: str, planner: Planner, file: Path | None = None) -> GoalView:
    """Plan a goal that has no plan; a failure is recorded in the goal."""
    store = open_store(project)
    view = store.view(goal_id)
    if view.nodes:
        raise Refused(
            f"goal {goal_id} already has a plan",
            hint=f'To replace it: llmc goal plan {goal_id} --replan --why "..."',
        )
    view = with_repo_context(project, view)
    try:
        made = planner.plan(project, replace(view, goal=replace(view.goal, asks=None)), file)
    except LlmcError as error:
        why = error.message
        # The author of a file sees the error; a planner's failure becomes a question.
        store.update(goal_id, lambda now: goal_end.failed(now, why, now_unix(), asks=file is None))
        project.wake()
        status.after_a_word(project, store)
        raise

    def write(now: GoalView) -> Change:
        if now.nodes:
            raise Refused(
                f"goal {goal_id} was planned by another process in the meantime",
                hint=f"Run `llmc goal show {goal_id}` to see the plan.",
            )
        return settled(now, made, now_unix())

    # A file counts as typed: a secret in it is refused, not removed.
    store.update(goal_id, write, typed=file is not None)
    project.wake()
    status.after_a_word(project, store)
    return store.view(goal_id)


def with_repo_context(project: Project, view: GoalView) -> GoalView:
    """The goal with a current summary of the repository, or the previous one."""
    seen = repo_context(project) or view.goal.repo_context_snapshot
    return replace(view, goal=replace(view.goal, repo_context_snapshot=seen))


def change(project: Project, goal_id: str, fields: dict[str, Any]) -> Goal:
    """Change fields of a goal; the event names them."""

    def write(view: GoalView) -> Change:
        if view.goal.status.is_over:
            raise Refused(f"goal {goal_id} is {view.goal.status}", hint="Create a new one: llmc goal create")
        now = now_unix()
        data = {"fields": sorted(fields), "actor": HUMAN}
        event = Event(ts=now, type="goal.updated", goal_id=goal_id, data=data)
        named = {key: value for key, value in fields.items() if key != "reply_to"}
        if "reply_to" in fields:
            named["origin"] = replace(view.goal.origin, origin_delivery_context=fields["reply_to"])
        if "success_criteria" in fields:  # earlier results do not apply to new criteria
            named |= {"checked": None, "asks": None if view.goal.checked else view.goal.asks}
        return Change(goal=replace(view.goal, updated_at=now, **named), events=(event,))

    _, made = open_store(project).update(goal_id, write, typed=True)
    assert made.goal is not None
    return made.goal


def pause(project: Project, goal_id: str, reason: str = "") -> Goal:
    return _move(project, goal_id, GoalStatus.PAUSED, reason)


def resume(project: Project, goal_id: str, reason: str = "") -> Goal:
    """Resume a paused goal that is within its budget; a completed goal is reopened by its work."""
    view = open_store(project).view(goal_id)
    if view.goal.status is not GoalStatus.PAUSED:
        raise Refused(f"goal {goal_id} is not paused", hint="Run `llmc goal list` to see its status.")
    limit = view.goal.budget_usd
    spent = GoalSpending().of(project, view).total if limit else 0.0
    if goal_end.used_up(view.goal, spent):
        raise Refused(
            f"goal {goal_id} is over budget: spent ${spent:.2f} of ${limit:.2f}",
            hint=f"Raise the budget first: llmc goal update {goal_id} --budget {2 * limit:g}",
        )
    return _move(project, goal_id, GoalStatus.ACTIVE, reason)


def archive(project: Project, goal_id: str, reason: str = "") -> Goal:
    return _move(project, goal_id, GoalStatus.ARCHIVED, reason)


def cancel(project: Project, goal_id: str, reason: str = "") -> Goal:
    """Cancel the goal and its open work; the next tick withdraws what was sent."""
    why = check_typed("reason", reason) or "the goal was cancelled"

    def write(view: GoalView) -> Change:
        now = now_unix()
        goal, event = move_goal(view.goal, GoalStatus.CANCELLED, now, reason=why, actor=HUMAN)
        open_nodes = [
            node for leaf in shape_of(view.nodes).leaves if (node := view.nodes[leaf]).status.is_open
        ]
        nodes = [move_node(one, NodeStatus.CANCELLED, now, reason=why, actor=HUMAN) for one in open_nodes]
        gone = Change(
            goal=goal, nodes=tuple(node for node, _ in nodes), events=(event, *(one for _, one in nodes))
        )
        return settled(view, gone, now)

    return _written(project, goal_id, write)


def new_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(5)}"


def _move(project: Project, goal_id: str, to: GoalStatus, reason: str) -> Goal:
    check_typed("reason", reason)

    def write(view: GoalView) -> Change:
        goal, event = move_goal(view.goal, to, now_unix(), reason=reason, actor=HUMAN)
        return Change(goal=goal, events=(event,))

    return _written(project, goal_id, write)


def _written(project: Project, goal_id: str, write: Callable[[GoalView], Change]) -> Goal:
    store = open_store(project)
    view, made = store.update(goal_id, write)
    project.wake()
    status.after_a_word(project, store)
    return made.goal or view.goal


def _goal_of(wish: NewGoal, now: float) -> Goal:
    return Goal(
        goal_id=new_id("goal"),
        title=wish.title.strip(),
        created_at=now,
        updated_at=now,
        priority=Priority(wish.priority),
        tags=wish.tags,
        problem_statement=wish.problem,
        success_criteria=wish.criteria,
        non_goals=wish.non_goals,
        origin=Origin(source_session_key=wish.from_session, origin_delivery_context=wish.reply_to),
        owner=wish.owner,
        stakeholders=wish.stakeholders,
        constraints=wish.constraints,
        assumptions=wish.assumptions,
        risks=tuple(map(risk_of, wish.risks)),
        budget_usd=wish.budget_usd,
    )


def risk_of(text: str) -> Risk:
    """`risk | impact | mitigation`"""
    parts = [part.strip() for part in text.split("|", 2)]
    return Risk(risk=parts[0], impact="".join(parts[1:2]), mitigation="".join(parts[2:3]))


def reply_to(where: str, thread: str = "", account: str = "") -> DeliveryContext:
    """`CHANNEL[:TO]`: a channel of [notify], `notify` for all of them, or `inbox` for none."""
    channel, _, to = where.partition(":")
    if channel and not (channel in CHANNELS or re.fullmatch(r"url-[1-9][0-9]*", channel)):
        names = ", ".join((*CHANNELS, "url-1 ..."))
        raise UsageError(f"unknown channel {channel!r}", hint=f"Channels: {names}")
    if not channel and (to or thread or account):
        raise UsageError("--reply-to has no channel", hint="Example: --reply-to webhook:ada")
    return DeliveryContext(channel=channel, to=to.strip(), thread=thread.strip(), account=account.strip())


def session_key(project: Project, name: str) -> str:
    """The session key of a worker; a key stays valid when names change."""
    if not name or name.startswith("agent:"):
        return name
    record = project.store.worker(name)
    return ladder.session_key(ladder.HOME if is_auto_name(record.name) else record.name, record.name)
