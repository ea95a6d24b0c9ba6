"""User commands on goals (change, pause, resume, cancel), their cost, attention items and goals.log."""

import contextlib
import os
import re
import secrets
import shlex
import time
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from llmc.attention import raising
from llmc.auto.prices import prices_of
from llmc.auto.rules import costs
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, Refused, UsageError
from llmc.base.files import append_line, json_row, private_dir
from llmc.base.given import text
from llmc.base.log_reader import LogReader
from llmc.base.names import TaskId, TaskKey
from llmc.config.options import is_auto_name
from llmc.goals.drive import goal_end, ladder
from llmc.goals.drive.by_hand import Question, moved_to, questions
from llmc.goals.drive.clean import check_typed
from llmc.goals.drive.moves import HUMAN, joined, move_goal, move_node, settled
from llmc.goals.model import (
    AssignmentStatus,
    Change,
    DeliveryContext,
    Goal,
    GoalStatus,
    GoalView,
    NodeStatus,
    Risk,
)
from llmc.goals.plan.plan import shape_of
from llmc.goals.store.goal_store import AnyGoalStore, GoalStore
from llmc.goals.store.rows import Reader
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
    """Costs of goals; reads each line of the event log once."""

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


def open_store(project: Project) -> AnyGoalStore:
    """The goal store: in the fleet's database, or in a file if there is no fleet."""
    store: AnyGoalStore = goal_file(project)
    if url := project.config.fleet.database:
        from llmc.fleet.database import open_database
        from llmc.goals.store.shared_goals import SharedGoals

        store = SharedGoals(open_database(url, "goals"))
    store.before_writing = project.store.refuse_elsewhere
    return store


def goal_file(project: Project) -> GoalStore:
    """The store in LLMC_OVERSEER_DIR, else in `overseer.goals.storage.dir`, else in `.llmc/overseer`."""
    chosen = os.environ.get("LLMC_OVERSEER_DIR") or project.config.overseer.goals.storage.dir
    default = project.root.private / "overseer"
    return GoalStore(project.root.path / os.path.expanduser(chosen) if chosen else default)


def open_views(found: Reader) -> list[GoalView]:
    """Goals that may have questions."""
    return found.views(besides=[one for one in GoalStatus if one.is_over])


def change(project: Project, goal_id: str, fields: dict[str, Any]) -> Goal:
    """Change fields of a goal; the event names them."""

    def write(view: GoalView) -> Change:
        if view.goal.status.is_over:
            raise Refused(
                f"cannot change goal {goal_id}: it is {view.goal.status}",
                hint="To create a new goal: llmc goal create --title ...",
            )
        now = now_unix()
        event = view.goal.event("goal.updated", now, {"fields": sorted(fields), "actor": HUMAN})
        named = {key: value for key, value in fields.items() if key != "reply_to"}
        if "reply_to" in fields:
            named["origin"] = replace(view.goal.origin, origin_delivery_context=fields["reply_to"])
        if "success_criteria" in fields:  # earlier results do not apply to new criteria
            named |= {"checked": None, "asks": None if view.goal.checked else view.goal.asks}
        changed = Change(goal=replace(view.goal, updated_at=now, **named), events=(event,))
        return settled(view, changed, now)  # without a command, a finished plan completes the goal

    return _written(project, goal_id, write, typed=True)


def pause(project: Project, goal_id: str, reason: str = "") -> Goal:
    return _move(project, goal_id, GoalStatus.PAUSED, reason)


def resume(project: Project, goal_id: str, reason: str = "") -> Goal:
    """Resume a paused goal that is within its budget; a completed goal is reopened by reopening a plan item."""
    view = open_store(project).view(goal_id)
    if view.goal.status is not GoalStatus.PAUSED:
        raise Refused(
            f"cannot resume goal {goal_id}: it is not paused", hint="Run `llmc goal list` to see its status."
        )
    limit = view.goal.budget_usd
    spent = GoalSpending().of(project, view).total if limit else 0.0
    if goal_end.used_up(view.goal, spent):
        raise Refused(
            f"cannot resume goal {goal_id}: it has spent ${spent:.2f} of its ${limit:.2f} budget",
            hint=f"To raise the budget and resume: {goal_end.budget_raise(view.goal, spent)}",
        )
    return _move(project, goal_id, GoalStatus.ACTIVE, reason)


def archive(project: Project, goal_id: str, reason: str = "") -> Goal:
    return _move(project, goal_id, GoalStatus.ARCHIVED, reason)


def cancel(project: Project, goal_id: str, reason: str = "") -> Goal:
    """Cancel the goal and its open work; the next tick withdraws the tasks that were sent."""
    why = check_typed("reason", reason) or "the goal was cancelled"

    def write(view: GoalView) -> Change:
        now = now_unix()
        goal, event = move_goal(view.goal, GoalStatus.CANCELLED, now, reason=why, actor=HUMAN)
        leaves = [view.nodes[leaf] for leaf in shape_of(view.nodes).leaves]
        gone = [
            move_node(leaf, NodeStatus.CANCELLED, now, reason=why, actor=HUMAN)
            for leaf in leaves
            if leaf.status.is_open
        ]
        return settled(view, joined(Change(goal=goal, events=(event,)), moved_to(gone, [])), now)

    return _written(project, goal_id, write)


def new_goal(title: str, **fields: Any) -> Goal:
    if not title.strip():
        raise UsageError("the goal title must not be empty", hint='Example: llmc goal create --title "..."')
    now = now_unix()
    return Goal(goal_id=new_id("goal"), title=title.strip(), created_at=now, updated_at=now, **fields)


def new_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(5)}"


def _move(project: Project, goal_id: str, to: GoalStatus, reason: str) -> Goal:
    check_typed("reason", reason)

    def write(view: GoalView) -> Change:
        goal, event = move_goal(view.goal, to, now_unix(), reason=reason, actor=HUMAN)
        return Change(goal=goal, events=(event,))

    return _written(project, goal_id, write)


def _written(
    project: Project, goal_id: str, write: Callable[[GoalView], Change], *, typed: bool = False
) -> Goal:
    store = open_store(project)
    view, made = store.update(goal_id, write, typed=typed)
    after_change(project, store)
    return made.goal or view.goal


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
        raise UsageError(
            "the reply options require --reply-to CHANNEL", hint="Example: --reply-to webhook:ada"
        )
    return DeliveryContext(channel=channel, to=to.strip(), thread=thread.strip(), account=account.strip())


def session_key(project: Project, name: str) -> str:
    """The session key of a worker; a session key is returned unchanged."""
    if not name or name.startswith("agent:"):
        return name
    record = project.store.worker(name)
    return ladder.session_key(ladder.HOME if is_auto_name(record.name) else record.name, record.name)


_QUESTION, _STALLED, _BUDGET = "goal-question ", "goal-stalled ", "goal-budget "

Concerns = dict[str, dict[str, str]]


def of_goal(view: GoalView) -> Concerns:
    """Attention items of an open goal."""
    found = {}
    for one in questions(view):
        who = f"{one.work_node_id} {one.node_name}".strip()
        said = f"{who} ({one.goal_title}) asks: {one.reason.question or one.reason.text}"
        listed = "".join(f" [{number}] {text}" for number, text in enumerate(one.reason.options, 1))
        answer = f'{one.command} "..."'
        found[question_key(one)] = _item("goal_question", "blocked", view.goal.goal_id, said + listed, answer)
    for part in view.assignments.values():
        if part.status is AssignmentStatus.STALLED:
            said = f"{part.work_node_id} ({view.goal.title}) has stalled; llmc is trying to recover it"
            why = f"llmc goal why {shlex.quote(part.work_node_id)} --goal {part.goal_id}"
            found[f"{_STALLED}{part.assignment_id}"] = _item(
                "goal_stalled", "notice", view.goal.goal_id, said, why
            )
    return found


def question_key(one: Question) -> str:
    return f"{_QUESTION}{one.goal_id} {one.id}"


def _item(kind: str, severity: str, who: str, text: str, next: str) -> dict[str, str]:
    return {"kind": kind, "severity": severity, "who": who, "text": text[:1000], "next": next}


def over_budget(project: Project, goal: Goal, spent_usd: float) -> None:
    """List a goal that was paused over its budget, for as long as it stays paused."""
    text = f"{goal.title} is paused: {goal_end.used_up(goal, spent_usd)}"
    item = _item("budget", "waiting", goal.goal_id, text, goal_end.budget_raise(goal, spent_usd))
    with project.store.transaction() as tx:
        tx.raise_item(f"{_BUDGET}{goal.goal_id}", **item)


def tell(project: Project, found: Iterable[Concerns], views: Iterable[GoalView]) -> None:
    """Sync the attention list. Never raises: the next tick does it again."""
    wanted = {key: fields for one in found for key, fields in one.items()}
    paused = {f"{_BUDGET}{view.goal.goal_id}" for view in views if view.goal.status is GoalStatus.PAUSED}
    with contextlib.suppress(LlmcError, OSError):
        for key in paused & project.store.read().attention.keys():
            wanted[key] = raising.fields_of(project.store.read().attention[key])
        raising.sync(project, (_QUESTION, _STALLED, _BUDGET), wanted)


def after_change(project: Project, store: AnyGoalStore) -> None:
    """Wake the daemon after a change by the user, so that it ticks; without one, sync the attention list here."""
    project.wake()
    if project.config.overseer.goals.enabled and project.daemon_runs():
        return
    with contextlib.suppress(LlmcError, OSError):
        with store.reading() as found:
            views = open_views(found)
        tell(project, map(of_goal, views), views)


LOG = "goals"


def log(project: Project, text: str) -> None:
    """Write to goals.log; a warning in the daemon's own log would stop the daemon."""
    line = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {os.getpid()} {text}".replace("\n", " ")
    with contextlib.suppress(LlmcError, OSError):
        private_dir(project.root.logs)
        append_line(project.root.log(LOG), line.encode(errors="replace"))
