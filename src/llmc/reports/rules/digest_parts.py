"""The digest: what auto mode did, what it cost, and what needs the user. Pure.

It is computed from the event log and the current state; no model is called. An attempt counts if it ended in the period,
and then in full, including what happened before the period.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec import Struct, field, to_builtins

from llmc.auto.rules.costs import Prices
from llmc.base.hosts import allow_command
from llmc.base.names import TaskId, TaskKey
from llmc.records.items import SEVERITIES, Item, counts
from llmc.records.state import AutoState
from llmc.records.task import Task, TaskStatus, in_order
from llmc.records.worker import Spent, WorkerRecord
from llmc.reports.rules.history import (
    Attempt,
    End,
    History,
    Interruption,
    Landing,
    Park,
    Refusal,
    Row,
    Run,
    RunEnd,
    Span,
    read,
)
from llmc.reports.rules.spend import Spend
from llmc.tasks.rules.graph import needs, unblocks

#: items about a task; `who` is its id
_OF_TASKS = ("quarantined", "parked_task", "proposed", "task_question", "stuck")


class Facts(Struct, frozen=True):
    """The current state, besides the log."""

    #: the attention list
    items: Collection[Item] = ()
    #: None: no task list, or unreadable
    tasks: Collection[Task] | None = None
    #: the configured list
    list_name: str = ""
    #: of that list, from llmc's ledger, which outlives the files
    completed: Collection[str] = ()
    workers: Collection[WorkerRecord] = ()
    auto: AutoState = field(default_factory=AutoState)
    #: for tokens that had no price at the time
    prices: Prices = Prices()
    #: a daemon is running in auto mode
    running: bool = False
    #: last heartbeat of the last run; 0: unknown
    beat_unix: float = 0.0
    #: nodes of a fleet that are not running
    gone: Collection[str] = ()
    #: `sandbox.hosts`
    hosts: Collection[str] = ()
    #: number of plan items that a question blocks, by the key of its item
    held_up: Mapping[str, int] = field(default_factory=dict)


class Waiting(Struct, frozen=True):
    """An item of the attention list, with details from the log."""

    #: as in the attention list
    key: str
    kind: str
    severity: str
    #: one sentence
    what: str
    #: the command, or other help
    command: str
    #: why the last attempt at the task failed
    why: str = ""
    task_id: str | None = None
    worker: str | None = None
    #: the pin of unfinished work
    ref: str | None = None
    since_unix: float | None = None
    #: how many tasks it blocks, directly or not; None if the task list is unknown
    unblocks: int | None = None


def waiting(history: History, facts: Facts) -> tuple[Waiting, ...]:
    """All items, those that unblock the most first, notices last."""
    reach = _Reach(facts)
    latest = {a.task.id: a for a in history.attempts if a.task.list == facts.list_name}
    at_work = {str(record.name): record for record in facts.workers}
    found = [_waiting(item, reach, latest, at_work, facts) for item in facts.items]
    return tuple(sorted(found, key=_rank))


def _rank(item: Waiting) -> tuple[object, ...]:
    urgency = (not counts(item.severity), -(item.unblocks or 0), SEVERITIES.index(item.severity))
    return (*urgency, in_order(item.task_id or ""), item.key)


def _waiting(
    item: Item,
    reach: "_Reach",
    latest: Mapping[TaskId, Attempt],
    at_work: Mapping[str, WorkerRecord],
    facts: Facts,
) -> Waiting:
    record = at_work.get(item.who)
    task = TaskId(item.who) if item.kind in _OF_TASKS else None
    if record is not None and record.assignment is not None:
        task = record.assignment.task_id
    attempt = latest.get(task) if task is not None and item.kind in ("quarantined", "parked_task") else None
    return Waiting(
        key=item.key,
        kind=item.kind,
        severity=item.severity,
        what=f"{item.who}: {item.text}" if record is not None else item.text,
        command=item.next,
        why=_why(attempt),
        task_id=task,
        worker=record.name if record is not None else (attempt and attempt.worker) or None,
        ref=(attempt and attempt.ref) or None,
        since_unix=item.since_unix or None,
        unblocks=_unblocks(item, task, reach, facts),
    )


def _unblocks(item: Item, task: TaskId | None, reach: "_Reach", facts: Facts) -> int | None:
    if item.key in facts.held_up:
        return facts.held_up[item.key]
    if item.kind in ("auto", "source", "no_source", "base_fails"):
        return reach.all()
    return reach.of(task) if task is not None else 0 if reach.known else None


def _why(attempt: Attempt | None) -> str:
    return ": ".join(part for part in (attempt.cause, attempt.reason) if part) if attempt else ""


class _Reach:
    """How many unfinished tasks each task blocks."""

    def __init__(self, facts: Facts) -> None:
        self.known = facts.tasks is not None
        open_tasks = [
            task
            for task in facts.tasks or ()
            if task.status is not TaskStatus.COMPLETED and task.id not in facts.completed
        ]
        self.open = {task.id: task for task in open_tasks}
        # Only unfinished tasks can be unblocked, even if a finished task still names them.
        edges = {task: others for task, others in needs(open_tasks).items() if task in self.open}
        # Only for tasks that the user can act on: for all, a long chain would take minutes.
        held = {TaskId(item.who) for item in facts.items if item.kind in _OF_TASKS}
        taken = {record.assignment.task_id for record in facts.workers if record.assignment is not None}
        self._unblocks = unblocks(edges, (held | taken) & self.open.keys())

    def of(self, task: str) -> int | None:
        return self._unblocks.get(TaskId(task), 0) if self.known else None

    def all(self) -> int | None:
        return len(self.open) if self.known else None


class Accepted(Struct, frozen=True, kw_only=True):
    """What landed: a task, or without a task what the user accepted."""

    task_id: str | None = None
    subject: str
    worker: str
    #: None: no change was needed
    commit: str | None
    at_unix: float
    #: from the claim to the landing; None if the log starts later
    took_s: float | None = None
    #: this one and the failed ones before it
    attempts: int = 1
    conflicts: int = 0
    sent_back: int = 0
    #: for this attempt
    spend: Spend = Spend()


class _Attempted(Struct, frozen=True, kw_only=True):
    """An attempt at a task: who made it, and why it ended."""

    task_id: str
    subject: str
    worker: str
    cause: str
    reason: str
    #: the pin of unfinished work
    ref: str | None


class Ended(_Attempted, frozen=True, kw_only=True):
    """An attempt that did not land, or is still open."""

    began_unix: float | None
    ended_unix: float | None
    spend: Spend


class Held(_Attempted, frozen=True, kw_only=True):
    """A task that has needed the user since its last attempt in this period: it failed, or used up its budget."""

    #: `quarantined` or `parked`
    hold: str
    attempts: int


class Outcome(Struct, frozen=True):
    """The cost of all attempts with the same outcome."""

    attempts: int
    spend: Spend


class Pauses(Struct, frozen=True):
    times: int
    total_s: float


class Commands(Pauses, frozen=True):
    """Runs of the post-accept command."""

    failed: int


class Runs(Struct, frozen=True):
    """The runs of auto mode: how many, how the last one ended, and how fast it was."""

    times: int = 0
    #: running, stopped, failed, killed; None without a run
    how: str | None = None
    reason: str = ""
    cause: str = ""
    worker: str | None = None
    task_id: str | None = None
    ended_unix: float | None = None
    total_s: float = 0.0
    #: how much of that the fleet was parked
    parked_s: float = 0.0
    #: tasks accepted per hour of run time, not counting parks; None without run time
    tasks_per_hour: float | None = None


class TriedHost(Struct, frozen=True, kw_only=True):
    """A host that contained agents tried to connect to in the period, but may not."""

    #: with its port
    host: str
    why: str
    workers: tuple[str, ...]
    #: how often the running agents tried
    tries: int


class Digest(Struct, frozen=True):
    since_unix: float
    until_unix: float
    waiting: tuple[Waiting, ...]
    accepted: tuple[Accepted, ...]
    undone: tuple[Accepted, ...]
    held: tuple[Held, ...]
    failed: tuple[Ended, ...]
    #: `failed` by cause, the most frequent first
    failed_by_cause: dict[str, int]
    released: tuple[Ended, ...]
    #: over their budget
    parked: tuple[Ended, ...]
    open: tuple[Ended, ...]
    #: by outcome, and `other` for tokens of no task; `total_spend` is their sum
    spend: dict[str, Outcome]
    total_spend: Spend
    #: all known cost, divided by the landed tasks; None without either
    cost_per_accepted: float | None
    #: by cause
    parks: dict[str, Pauses]
    dirty_source: Pauses
    post_accept: Commands
    runs: Runs
    #: crashes, failures and remediations, in order
    interruptions: tuple[Interruption, ...] = ()
    refused_hosts: tuple[TriedHost, ...] = ()
    #: the command that allows them; "" for none
    allow_hosts: str = ""
    #: what could not be read
    problems: tuple[str, ...] = ()
    #: the attention list as in `status --json`; `waiting` has more about the same items
    attention: tuple[Item, ...] = ()

    @property
    def waits(self) -> tuple[Waiting, ...]:
        """Items that need an action."""
        return tuple(item for item in self.waiting if counts(item.severity))

    @property
    def is_empty(self) -> bool:
        """Nothing happened in the period."""
        counted = any(row.attempts for row in self.spend.values()) or self.total_spend != Spend()
        return not (counted or self.runs.times or self.undone)


def digest(
    rows: Iterable[Row], since: float, now: float, facts: Facts, problems: tuple[str, ...] = ()
) -> Digest:
    """The digest of everything that ended since then, and of what is open now."""
    history = read(rows, facts.list_name, facts.gone)
    _add_open(history, facts)
    if not facts.running:
        _end_killed(history, facts, now)
    view = _View(history, since, max(now, since), facts)
    by_end = {end: view.attempts(end) for end in End}
    ended = {end: tuple(map(view.ended, attempts)) for end, attempts in by_end.items()}
    landings = [one for one in history.landings if not one.undone and one.at >= since]
    accepted = [view.accepted(attempt) for attempt in by_end[End.ACCEPTED]]
    spent = _spent(view)
    total = Spend.of(sum(spent.values(), Spent()), facts.prices)
    counted = {end.value: len(attempts) for end, attempts in by_end.items()}
    counted[End.ACCEPTED.value] += len(landings)
    causes = Counter(row.cause or "unknown" for row in ended[End.FAILED])
    return Digest(
        since_unix=since,
        until_unix=view.until,
        waiting=waiting(history, facts),
        accepted=_by_time([*accepted, *map(view.landing, landings)]),
        undone=_by_time(view.undone()),
        held=tuple(view.held()),
        failed=ended[End.FAILED],
        failed_by_cause=dict(sorted(causes.items(), key=lambda item: (-item[1], item[0]))),
        released=ended[End.RELEASED],
        parked=ended[End.PARKED],
        open=ended[End.OPEN],
        spend={
            name: Outcome(counted.get(name, 0), Spend.of(one, facts.prices)) for name, one in spent.items()
        },
        total_spend=total,
        cost_per_accepted=total.cost / len(accepted) if accepted and total.cost is not None else None,
        parks=view.parks(),
        dirty_source=view.dirty(),
        post_accept=view.post_accept(),
        runs=view.runs(len(accepted)),
        interruptions=view.interruptions(),
        refused_hosts=view.refused_hosts(),
        allow_hosts=view.allow_hosts(),
        problems=problems,
        attention=tuple(facts.items),
    )


def _add_open(history: History, facts: Facts) -> None:
    """Add the run and the park that are open by the state and began before the rows."""
    auto = facts.auto
    known = any(run.how is RunEnd.RUNNING or run.instance == auto.run_instance for run in history.runs)
    if auto.run == "running" and not known:
        history.runs.append(Run(auto.run_unix, instance=auto.run_instance))
    begun = (auto.parked_since_unix if park.ended is None else park.began or 0.0 for park in history.parks)
    if auto.parked_until_unix > 0 and all(began < auto.parked_since_unix for began in begun):
        history.parks.append(Park(auto.parked_cause, auto.parked_since_unix, auto.parked_until_unix))


def _end_killed(history: History, facts: Facts, now: float) -> None:
    """No daemon runs: an open run was killed after its last heartbeat; if unknown, after the last event."""
    for run in history.runs:
        if run.how is RunEnd.RUNNING:
            at = min(facts.beat_unix or history.last, now)
            run.ended, run.how = max(at, run.began or at), RunEnd.KILLED


def as_json(report: Digest) -> dict[str, Any]:
    """The whole structure as plain data."""
    plain: dict[str, Any] = to_builtins(report)
    return {**plain, "attention": [item._asdict() for item in report.attention]}


class _View:
    """The part of a history in the period."""

    def __init__(self, history: History, since: float, until: float, facts: Facts) -> None:
        self.history, self.since, self.until, self.facts = history, since, until, facts
        self._subjects = {TaskKey(facts.list_name, task.id): task.subject for task in facts.tasks or ()} | {
            task: subject for task, subject in history.subjects.items() if subject
        }
        self._number = _numbered(history.attempts)

    def attempts(self, end: End) -> list[Attempt]:
        """Attempts with this outcome that ended in the period, or are open."""
        return [
            attempt
            for attempt in self.history.attempts
            if attempt.end is end and (attempt.ended is None or attempt.ended >= self.since)
        ]

    def accepted(self, attempt: Attempt) -> Accepted:
        took_s = None
        if attempt.began is not None and attempt.ended is not None:
            took_s = max(0.0, attempt.ended - attempt.began)
        return Accepted(
            task_id=attempt.task.id,
            subject=self.subject(attempt),
            worker=attempt.worker,
            commit=attempt.commit or None,
            at_unix=attempt.ended or 0.0,
            took_s=took_s,
            attempts=self._number[id(attempt)],
            conflicts=attempt.conflicts,
            sent_back=attempt.sent_back,
            spend=Spend.of(attempt.spent, self.facts.prices),
        )

    def landing(self, landing: Landing) -> Accepted:
        subject = landing.prompt.strip().partition("\n")[0]
        return Accepted(subject=subject, worker=landing.worker, commit=landing.commit, at_unix=landing.at)

    def undone(self) -> list[Accepted]:
        """Accepts that were reverted in the period."""
        inside = {commit for commit, at in self.history.undone.items() if at >= self.since}
        attempts = [a for a in self.history.attempts if a.end is End.UNDONE and a.commit in inside]
        landings = [landing for landing in self.history.landings if landing.commit in inside]
        return [*map(self.accepted, attempts), *map(self.landing, landings)]

    def ended(self, attempt: Attempt) -> Ended:
        about = self._attempted(attempt)
        spend = Spend.of(attempt.spent, self.facts.prices)
        return Ended(**about, began_unix=attempt.began, ended_unix=attempt.ended, spend=spend)

    def _attempted(self, attempt: Attempt) -> dict[str, Any]:
        return {
            "task_id": attempt.task.id,
            "subject": self.subject(attempt),
            "worker": attempt.worker,
            "cause": attempt.cause,
            "reason": attempt.reason,
            "ref": attempt.ref or None,
        }

    def held(self) -> Iterable[Held]:
        last = {attempt.task: attempt for attempt in self.history.attempts}  # they are in order
        done = {TaskKey(self.facts.list_name, TaskId(task)) for task in self.facts.completed}
        for attempt in [*self.attempts(End.FAILED), *self.attempts(End.PARKED)]:
            if attempt.hold and last[attempt.task] is attempt and attempt.task not in done:
                count = max(
                    self._number[id(attempt)], attempt.number or 0
                )  # the log may start after the first
                yield Held(**self._attempted(attempt), hold=attempt.hold, attempts=count)

    def subject(self, attempt: Attempt) -> str:
        return attempt.subject or self._subjects.get(attempt.task, "")

    def parks(self) -> dict[str, Pauses]:
        """By cause: how often, and how long while auto mode ran."""
        times: Counter[str] = Counter()
        spans: dict[str, list[Span]] = {}
        for park in self.history.parks:
            if inside := self._parked(park):
                times[park.cause or "unknown"] += 1
                spans.setdefault(park.cause or "unknown", []).extend(inside)
        return {cause: Pauses(times[cause], length(spans[cause])) for cause in sorted(spans)}

    def dirty(self) -> Pauses:
        times = sum(begin >= self.since for begin, _ in self.history.dirty)
        return Pauses(times, length(clip(self.history.dirty, self.period)))

    def post_accept(self) -> Commands:
        runs = [run for run in self.history.post_accepts if run.at >= self.since]
        return Commands(len(runs), math.fsum(run.elapsed_s for run in runs), sum(run.failed for run in runs))

    def runs(self, accepted: int) -> Runs:
        spans = self._run_spans()
        parked = [span for park in self.history.parks for span in self._parked(park)]
        total_s, parked_s = length(spans), length(parked)
        work_h = (total_s - parked_s) / 3600
        inside = [r for r in self.history.runs if r.ended is None or r.ended >= self.since]
        if not inside:
            return Runs()
        last = next((run for run in reversed(inside) if run.how is RunEnd.RUNNING), inside[-1])
        return Runs(
            times=len(inside),
            how=last.how,
            reason=last.reason,
            cause=last.cause,
            worker=last.worker or None,
            task_id=last.task or None,
            ended_unix=last.ended,
            total_s=total_s,
            parked_s=parked_s,
            tasks_per_hour=accepted / work_h if work_h > 0 else None,
        )

    def interruptions(self) -> tuple[Interruption, ...]:
        """Interruptions reported by the supervisor, and runs that failed or were killed."""
        found = list(self.history.interruptions)
        for run in self.history.runs:
            on = f"{run.node}: " if run.node else ""
            if run.how is RunEnd.FAILED and run.ended is not None:
                cause = f" ({run.cause})" if run.cause else ""
                found.append(Interruption(run.ended, f"{on}auto mode failed{cause}: {run.reason}"))
            elif run.how is RunEnd.KILLED and run.ended is not None:
                said = f"{on}the daemon was killed (time shown: its last activity)"
                found.append(Interruption(run.ended, said))
        inside = [one for one in found if one.at_unix >= self.since]
        return tuple(sorted(inside, key=lambda one: one.at_unix))

    def refused_hosts(self) -> tuple[TriedHost, ...]:
        """Each host once, with all workers that tried it."""
        told: dict[str, list[Refusal]] = {}
        for one in self._refusals():
            told.setdefault(one.host, []).append(one)
        tries: Counter[str] = Counter()
        for row in (row for worker in self.facts.workers for row in worker.refused_hosts):
            tries[row.host] += row.tries
        return tuple(
            TriedHost(
                host=host,
                why=rows[-1].why,
                workers=tuple(dict.fromkeys(row.worker for row in rows)),
                tries=tries[host],
            )
            for host, rows in told.items()
        )

    def allow_hosts(self) -> str:
        wanted = [one.allow for one in self._refusals()]
        return allow_command(self.facts.hosts, wanted) if any(wanted) else ""

    def _refusals(self) -> list[Refusal]:
        return [one for one in self.history.refusals if one.at_unix >= self.since]

    @property
    def period(self) -> Span:
        return (self.since, self.until)

    def _run_spans(self) -> list[Span]:
        return clip(map(self._span, self.history.runs), self.period)

    def _parked(self, park: Park) -> list[Span]:
        """The parts of a park in which auto mode ran."""
        return overlap([self._span(park)], self._run_spans())

    def _span(self, one: Run | Park) -> Span:
        begin = self.since if one.began is None else one.began
        return begin, self.until if one.ended is None else one.ended


def _spent(view: _View) -> dict[str, Spent]:
    """By outcome, and `other` for tokens of no task."""
    found = {end.value: sum((attempt.spent for attempt in view.attempts(end)), Spent()) for end in End}
    other = (spent for at, spent in view.history.other_spent if at >= view.since)
    return {**found, "other": sum(other, Spent())}


def _numbered(attempts: Iterable[Attempt]) -> dict[int, int]:
    """The number of each attempt at its task; it restarts after the task landed or the user requeued it."""
    failures: dict[TaskKey, int] = {}
    found = {}
    for attempt in attempts:
        found[id(attempt)] = 1 + failures.get(attempt.task, 0)
        if attempt.hold or attempt.end in (End.ACCEPTED, End.UNDONE):
            failures[attempt.task] = 0
        elif attempt.end is End.FAILED:
            failures[attempt.task] = found[id(attempt)]
    return found


def _by_time(rows: Iterable[Accepted]) -> tuple[Accepted, ...]:
    return tuple(sorted(rows, key=lambda row: (row.at_unix, row.task_id or "", row.commit or "")))


def clip(spans: Iterable[Span], limits: Span) -> list[Span]:
    """The parts of the spans inside the limits."""
    found = [(max(begin, limits[0]), min(end, limits[1])) for begin, end in spans]
    return [(begin, end) for begin, end in found if begin < end]


def overlap(spans: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """The parts of the spans inside any of the others."""
    others = list(others)
    return [part for span in spans for other in others for part in clip([span], other)]


def length(spans: Iterable[Span]) -> float:
    """Their total length; overlaps count once."""
    total, reached = 0.0, -math.inf
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total
