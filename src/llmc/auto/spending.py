"""What the workers of auto mode spend, against the limits: recorded at each look, and judged."""

import threading

from msgspec import Struct, field

from llmc.auto.rules import budget
from llmc.auto.rules.budget import Verdict
from llmc.auto.rules.spending import Spent
from llmc.auto.usage import Meters, Totals, record_usage
from llmc.records.worker import WorkerRecord
from llmc.repo.project import Project


class Spending(Struct):
    """One for each run; used by the lanes of all workers."""

    #: dollars after which no new tasks are begun; None: no such limit
    max_cost: float | None = None
    meters: Meters = field(default_factory=Meters)
    _totals: Totals = field(default_factory=Totals)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def look(self, project: Project, record: WorkerRecord) -> Verdict:
        """Put what is new into the event log; how near the limits are. The caller holds the worker's lock."""
        spent = record_usage(project, record.name, self.meters)
        own = record.assignment.budget if record.assignment is not None else None
        allowed = budget.limits(project.config.auto.budget, own)
        if not allowed.limits:
            return Verdict()
        day, run = self._sums(project)
        return budget.verdict(allowed, task=spent, day=day, run=run)

    def is_spent(self, project: Project) -> str:
        """Why --max-cost allows no new task; "" while it does."""
        if self.max_cost is None:
            return ""
        _, run = self._sums(project)
        if run.unpriced:
            return f"--max-cost cannot be checked: no price for {', '.join(run.unpriced)}; `llmc prices list`"
        return f"${run.cost:,.2f} of ${self.max_cost:,.2f} are spent" if run.cost >= self.max_cost else ""

    def _sums(self, project: Project) -> tuple[Spent, Spent]:
        with self._turn:
            return self._totals.read(project)
