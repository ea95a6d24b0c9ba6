"""Token usage: records each token of a transcript once in the event log, and sums usage for budgets."""

import threading
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct, field

from llmc.agents.kinds import reader_of
from llmc.agents.protocol import Meter
from llmc.auto.prices import prices_of
from llmc.auto.rules import costs
from llmc.auto.rules.costs import Delta, Reading, Row, Verdict, cost_of, measure
from llmc.base.clock import now_unix
from llmc.base.faults import step as fault_step
from llmc.base.files import json_row
from llmc.base.log_reader import LogReader
from llmc.base.names import TaskKey, task_of
from llmc.config.paths import OverseerRoot
from llmc.records.event_log import EventLog, ts_of
from llmc.records.worker import Metered, Spent, Tokens, WorkerRecord
from llmc.repo.project import Project


class Meters:
    """Remembers how far each transcript was read, so that an unchanged one costs only a stat.

    The caller of `read` holds the worker's lock.
    """

    def __init__(self) -> None:
        self._meters: dict[str, dict[str, Meter]] = {}

    def read(self, record: WorkerRecord, transcripts: set[str]) -> Mapping[str, Mapping[str, Tokens]]:
        """The totals of these transcripts; forgets the worker's other transcripts."""
        known, transcript = self._meters.get(record.name, {}), reader_of(record.agent).transcript
        found = {path: known.get(path) or transcript(path).meter() for path in transcripts if path}
        self._meters[record.name] = found
        return {path: meter.read() for path, meter in found.items()}


def record_usage(project: Project, name: str, cache: Meters | None = None) -> Spent:
    """Record new tokens in the event log; returns the usage of the worker's assignment.

    The caller holds the worker's lock. Events and counts are one transaction, so a kill leaves both or neither.
    """
    record = project.store.worker(name)
    before = record.metered or Metered()
    totals = (cache or Meters()).read(record, {before.transcript, record.transcript_path})
    left = totals.get(before.transcript, {})
    here, skipped = Reading(record.transcript_path, totals.get(record.transcript_path, {})), list[Reading]()
    if here.totals and here.transcript != before.transcript:
        here, skipped = _known_of(project, record, before, here)
    after, deltas = measure(before, left, here, record.assignment, skipped)
    if after != before:
        _write(project, record, after, deltas)
    if record.assignment is None or record.assignment.claim != after.claim:
        return Spent()
    return costs.spent_on(prices_of(project), after.spent)


def _write(project: Project, record: WorkerRecord, after: Metered, deltas: list[Delta]) -> None:
    prices, transcript = prices_of(project), reader_of(record.agent).transcript
    with fault_step("usage.record"), project.store.transaction() as tx:
        tx.update(record.name, metered=after)
        for delta in deltas:
            tx.emit(
                costs.ACTION,
                worker=record.name,
                task_id=delta.task.id if delta.task else None,
                task_list=delta.task.list if delta.task else None,
                model=delta.model,
                **msgspec.structs.asdict(delta.tokens),
                cost=cost_of(prices, delta.model, delta.tokens),
                claude_session_id=transcript(delta.transcript).session,
            )


def _known_of(
    project: Project, record: WorkerRecord, before: Metered, here: Reading
) -> tuple[Reading, list[Reading]]:
    """The current conversation with its usage in the log, and those that started and ended since the last check.

    Reads the log once per conversation: it may be a resumed one, or the record may have been rebuilt.
    """
    transcript = reader_of(record.agent).transcript
    present = transcript(here.transcript)
    last, session = transcript(before.transcript).session, present.session
    started, told = _sessions(project, record.name, last, session)
    sessions = [other for other, _ in started]
    after_last = len(started) - sessions[::-1].index(last) if last in sessions else 0
    skipped = []
    for other, task in dict(started[after_last:]).items():
        if other not in (last, session):
            that = present.sibling(other)
            skipped.append(Reading(str(that.path), that.meter().read(), told.get(other, {}), task))
    return Reading(here.transcript, here.totals, told.get(session, {})), skipped


def _sessions(
    project: Project, worker: str, last: str, session: str
) -> tuple[list[tuple[str, TaskKey | None]], dict[str, dict[str, Tokens]]]:
    """The worker's conversations in order, each with its task, and their usage in the log, by model.

    Starts with the conversation counted `last`, and includes the whole current `session`.
    """
    started: list[tuple[str, TaskKey | None]] = []
    told: dict[str, dict[str, Tokens]] = {}
    task: TaskKey | None = None
    for event in _events_of(project, worker, last, session):
        if (row := costs.usage_row(event)) is not None:
            counted = told.setdefault(row.claude_session_id, {})
            counted[row.model] = counted.get(row.model, Tokens()) + row.tokens
        elif event.get("action") == "session_started" and event.get("claude_session_id"):
            started.append((str(event["claude_session_id"]), task))
        elif event.get("action") in _TASK_BEGAN_OR_ENDED:
            task = task_of(event) if event["action"] == "task_assigned" else None
    return started, told


def _events_of(project: Project, worker: str, last: str, session: str) -> list[dict[str, Any]]:
    """A worker's events about conversations, oldest first, back to the start of `last` and `session`."""
    found: list[dict[str, Any]] = []
    missing = {last, session} - {""}
    for event in EventLog(str(project.root.events)).newest(*_ABOUT_SESSIONS):
        if event.get("worker") != worker:
            continue
        found.append(event)
        if event["action"] == "session_started" and event.get("source") != "resume":
            missing.discard(str(event.get("claude_session_id")))
        # Older conversations are counted already. The task of this one was assigned before it started.
        if event["action"] == "worker_added" or (last and not missing and event["action"] == "task_assigned"):
            break
    return found[::-1]


def rows(project: Project, since: float = 0.0) -> Iterator[Row]:
    """The `usage_recorded` events since then, from the fleet's log and the supervisor's."""
    logs = (project.root.events, OverseerRoot(project.root.path).events)
    lines = (line for log in logs for line in EventLog(str(log)).lines_since(since))
    return (row for row in map(_row, lines) if row is not None and row.ts >= since)


class Totals:
    """Usage of today and of this run, from the event log; continues where it last stopped reading."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._day = 0.0
        self._log: LogReader | None = None
        self._of_day = self._of_run = Spent()

    def read(self, project: Project, now: float | None = None) -> tuple[Spent, Spent]:
        """Usage of the local calendar day and of the run (since the latest `auto_started`), at current prices."""
        ahead_s = project.store.read().auto.ahead_s or 0.0
        with self._turn:
            self._update(project, day_start(now_unix() if now is None else now, ahead_s))
            prices = prices_of(project)
            return costs.priced(prices, self._of_day), costs.priced(prices, self._of_run)

    def _update(self, project: Project, day: float) -> None:
        lines = list(self._log.lines()) if self._log is not None and day == self._day else []
        if self._log is None or day != self._day or self._log.truncated:
            self._day, self._log = day, _reader(project, day)
            self._of_day = self._of_run = Spent()
            lines = list(self._log.lines())
        for line in lines:
            if _STARTED in line and (json_row(line) or {}).get("action") == "auto_started":
                self._of_run = Spent()
            if (row := _row(line)) is not None:
                self._of_run = self._of_run + row.spent
                if row.ts >= self._day:
                    self._of_day = self._of_day + row.spent


def _reader(project: Project, day: float) -> LogReader:
    """Read from the start of the day, or of the run if that is earlier."""
    log = EventLog(str(project.root.events))
    started = next((ts_of(row) for row in log.newest(_STARTED) if row.get("action") == "auto_started"), day)
    return log.reader(min(day, started))


def day_start(now: float, ahead_s: float = 0.0) -> float:
    """The local midnight before `now`; this machine's clock is `ahead_s` ahead of the fleet's."""
    midnight = datetime.fromtimestamp(now - ahead_s).replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight.timestamp() + ahead_s


def next_midnight(now: float, ahead_s: float = 0.0) -> float:
    """The local midnight after `now`; this machine's clock is `ahead_s` ahead of the fleet's."""
    today = datetime.fromtimestamp(day_start(now, ahead_s) - ahead_s)
    return (today + timedelta(days=1)).timestamp() + ahead_s


#: skips most lines of a log without parsing them
_RECORDED = f'"{costs.ACTION}"'.encode()
_STARTED = b'"auto_started"'
_TASK_BEGAN_OR_ENDED = ("task_assigned", "task_completed", "task_released", "task_failed", "task_parked")
_ABOUT_SESSIONS = (
    _RECORDED,
    b'"worker_added"',
    b'"session_started"',
    *(f'"{action}"'.encode() for action in _TASK_BEGAN_OR_ENDED),
)


def _row(line: bytes) -> Row | None:
    event = json_row(line) if _RECORDED in line else None
    return None if event is None else costs.usage_row(event)


class Spending(Struct):
    """What a run has used and may use; shared by the lanes of all workers."""

    #: dollars after which no new tasks are started; None means no limit
    max_cost: float | None = None
    meters: Meters = field(default_factory=Meters)
    #: what the other nodes of a fleet used, today and in their runs
    others: tuple[Spent, Spent] = (Spent(), Spent())
    _totals: Totals = field(default_factory=Totals)

    def look(self, project: Project, record: WorkerRecord) -> Verdict:
        """Record new usage in the event log; returns how close the limits are. The caller holds the worker's lock."""
        spent = record_usage(project, record.name, self.meters)
        own = record.assignment.budget if record.assignment is not None else None
        allowed = costs.limits(project.config.auto.budget, own)
        if not allowed.limits:
            return Verdict()
        day, run = self._used(project)
        return costs.verdict(allowed, task=spent, day=day, run=run)

    def own(self, project: Project) -> tuple[Spent, Spent]:
        """What this root used today and in this run."""
        return self._totals.read(project)

    def _used(self, project: Project) -> tuple[Spent, Spent]:
        """What all nodes used today and in their runs."""
        day, run = self.own(project)
        return day + self.others[0], run + self.others[1]

    def is_spent(self, project: Project) -> str:
        """Why --max-cost allows no new task; "" if it does."""
        if self.max_cost is None:
            return ""
        _, run = self._used(project)
        return (
            f"spent ${run.cost:,.2f} of ${self.max_cost:,.2f} (--max-cost)"
            if run.cost >= self.max_cost
            else ""
        )

    def is_blind(self, project: Project) -> str:
        """Why llmc cannot tell whether --max-cost is reached; "" if it can."""
        if self.max_cost is None:
            return ""
        _, run = self._used(project)
        missing = ", ".join(run.unpriced)
        return (
            f"cannot check --max-cost without a price for {missing} (see `llmc prices list`)"
            if missing
            else ""
        )
