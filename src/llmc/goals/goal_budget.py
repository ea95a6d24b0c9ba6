"""What a goal has cost: the work of its tasks, and the planning as a line of its own. From the event log."""

from msgspec import Struct

from llmc.auto.prices import prices_of
from llmc.auto.rules import costs
from llmc.auto.rules.costs import Tally
from llmc.base.files import json_row
from llmc.base.given import text
from llmc.base.log_reader import LogReader
from llmc.base.names import TaskId, TaskKey
from llmc.goals.model import GoalView
from llmc.records.event_log import EventLog
from llmc.records.ledger import Ledger
from llmc.repo.project import Project
from llmc.tasks.queue import open_ledger

_RECORDED = f'"{costs.ACTION}"'.encode()


class GoalCost(Struct, frozen=True):
    """Dollars, as far as prices are known."""

    work: float = 0.0
    #: what the overseer itself used: planning
    overhead: float = 0.0
    #: models whose tokens have no price
    unpriced: tuple[str, ...] = ()

    @property
    def total(self) -> float:
        return self.work + self.overhead


class GoalSpending:
    """Reads on from where the last look ended."""

    def __init__(self) -> None:
        self._log: LogReader | None = None
        #: from when on it was read: the oldest goal that was asked about
        self._since = 0.0
        self._ledger: Ledger | None = None
        self._of_task: dict[TaskKey, Tally] = {}
        self._of_goal: dict[str, Tally] = {}

    def of(self, project: Project, view: GoalView) -> GoalCost:
        self._read(project, view.goal.created_at)
        made = self._ledger.books().dispatches if self._ledger else {}
        sent = {d.dispatch_id: d.run_id for a in view.assignments.values() for d in a.dispatch_history}
        tasks = {
            made.get(dispatch) or self._whole("", run)
            for dispatch, run in sent.items()
            if run or dispatch in made
        }
        prices = prices_of(project)
        work = [self._of_task.get(task, Tally()).priced(prices) for task in tasks]
        own = self._of_goal.get(view.goal.goal_id, Tally()).priced(prices)
        unpriced = {model for one in (*work, own) for model in one.unpriced}
        return GoalCost(sum(one.cost for one in work), own.cost, tuple(sorted(unpriced)))

    def _read(self, project: Project, since: float) -> None:
        if self._log is None or since < self._since:
            self._log, self._since = EventLog(str(project.root.events)).reader(since), since
            self._ledger = self._ledger or open_ledger(project)
            self._of_task, self._of_goal = {}, {}
        for line in self._log.lines():
            event = json_row(line) if _RECORDED in line else None
            row = costs.usage_row(event) if event else None
            if row is None or event is None:
                continue
            if event.get("goal_id"):
                key = str(event["goal_id"])
                self._of_goal[key] = self._of_goal.get(key, Tally()).plus(row)
            elif row.task_id:
                task = self._whole(text(event.get("task_list")), row.task_id)
                self._of_task[task] = self._of_task.get(task, Tally()).plus(row)

    def _whole(self, list_name: str, task_id: str) -> TaskKey:
        assert self._ledger is not None
        return self._ledger.books().whole(TaskKey(list_name, TaskId(task_id)))
