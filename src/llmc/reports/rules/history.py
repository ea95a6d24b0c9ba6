"""What auto mode did, from the event log: attempts at tasks, landed commits, runs, parks. Pure.

The log may start in the middle of things: a row with a missing field, or without its predecessor, is used as far as it
goes. Each attempt has one end, however many rows mention it.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from llmc.auto.rules.costs import usage_row
from llmc.base.given import number, text
from llmc.base.names import TaskKey, task_of
from llmc.records.worker import Spent

Span = tuple[float, float]


class End(StrEnum):
    """The outcome of an attempt."""

    ACCEPTED = "accepted"
    #: landed, then reverted with `llmc undo`
    UNDONE = "undone"
    FAILED = "failed"
    #: released, without a failure of the task
    RELEASED = "released"
    #: over its budget
    PARKED = "parked"
    #: in progress
    OPEN = "open"


class RunEnd(StrEnum):
    """How a run of auto mode ended."""

    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"
    #: without an event: killed, or the machine went down
    KILLED = "killed"


class Attempt(Struct):
    """One worker on one task, from the claim to the end."""

    task: TaskKey
    worker: str = ""
    claim: str = ""
    subject: str = ""
    #: None: before the start of the log
    began: float | None = None
    ended: float | None = None
    end: End = End.OPEN
    cause: str = ""
    reason: str = ""
    #: the pin of unfinished work
    ref: str = ""
    commit: str = ""
    #: the number of this failure of the task
    number: int | None = None
    #: `quarantined` or `parked`, if the task has needed the user since
    hold: str = ""
    conflicts: int = 0
    sent_back: int = 0
    spent: Spent = Spent()


class Landing(Struct):
    """A commit that landed without a task: accepted by the user."""

    commit: str
    worker: str
    prompt: str
    at: float
    undone: bool = False


class Run(Struct):
    began: float | None
    ended: float | None = None
    how: RunEnd = RunEnd.RUNNING
    reason: str = ""
    cause: str = ""
    worker: str = ""
    task: str = ""
    #: of a fleet; "" for a root that works alone
    node: str = ""
    #: its daemon; "" if an older llmc recorded it
    instance: str = ""


class Park(Struct):
    cause: str
    #: None: before the start of the log
    began: float | None
    #: its latest planned end
    until: float | None = None
    ended: float | None = None
    node: str = ""


class Interruption(Struct, frozen=True):
    """An interruption of auto mode, or its recovery."""

    at_unix: float
    #: one sentence, with the cause
    text: str


class Refusal(Struct, frozen=True):
    """A host that a contained agent tried to connect to, but may not."""

    at_unix: float
    worker: str
    #: with its port
    host: str
    why: str
    #: what to add to `sandbox.hosts`
    allow: str


class PostAccept(Struct):
    at: float
    failed: bool
    elapsed_s: float


class History(Struct):
    """The whole log, in order."""

    attempts: list[Attempt] = field(default_factory=list)
    landings: list[Landing] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    parks: list[Park] = field(default_factory=list)
    dirty: list[Span] = field(default_factory=list)
    #: what the supervisor found and did
    interruptions: list[Interruption] = field(default_factory=list)
    post_accepts: list[PostAccept] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    #: when each commit was reverted
    undone: dict[str, float] = field(default_factory=dict)
    #: tokens of no task, and when they were used
    other_spent: list[tuple[float, Spent]] = field(default_factory=list)
    subjects: dict[TaskKey, str] = field(default_factory=dict)
    #: time of the last row
    last: float = 0.0


Row = Mapping[str, Any]

#: events about a task; those without one are ignored
_OF_TASKS = (
    *("task_assigned", "task_completed", "task_failed", "task_released", "task_sent_back"),
    *("task_quarantined", "task_parked", "task_proposed"),
)
#: events that are only listed as interruptions, and their text
_INTERRUPTIONS = {
    "base_failed": "auto mode started no new tasks",
    "base_passed": "the default branch passes validation again",
    "overseer_restart": "the supervisor restarted the daemon",
}
#: the events that count; `_Reader` has a method of the same name for each of the others
ACTIONS = frozenset(
    {
        *_OF_TASKS,
        *_INTERRUPTIONS,
        *("accepted", "undone", "post_accept", "rebase_resolved", "usage_recorded", "source_dirty"),
        *("auto_started", "auto_stopped", "auto_failed", "daemon_started", "daemon_stopped"),
        *("fleet_parked", "fleet_resumed"),
        *("overseer_failure", "overseer_remediation", "overseer_stopped", "host_refused"),
    }
)


def read(rows: Iterable[Row], unnamed: str = "", gone: Collection[str] = ()) -> History:
    """The history in these rows, oldest first; unknown actions are ignored.

    `unnamed`: the task list of rows from an older llmc, which recorded only ids. `gone`: nodes that do not run now.
    """
    reader = _Reader(unnamed)
    for row in rows:
        reader.take(row)
    reader.finish(gone)
    return reader.history


def lacks_a_start(history: History, since: float, nodes: Collection[str] = ()) -> bool:
    """Whether something that did not end before then began before the rows: earlier ones are needed.

    `nodes`: of a fleet, those that run. A worker has one task at a time, so an attempt after another one of its worker
    has no start in the log.
    """
    known: set[str] = set()
    for attempt in history.attempts:
        if attempt.worker and attempt.worker not in known and _is_cut(attempt, since):
            return True
        known.add(attempt.worker)
    spans: list[Run | Park] = [*history.runs, *history.parks]
    is_cut = any(_is_cut(one, since) for one in spans)
    return is_cut or not {run.node for run in history.runs}.issuperset(nodes)


def _is_cut(one: Attempt | Run | Park, since: float) -> bool:
    return one.began is None and (one.ended is None or one.ended >= since)


class _Reader:
    """Builds a history row by row."""

    def __init__(self, unnamed: str = "") -> None:
        self._unnamed = unnamed
        self.history = History()
        self.now = self.before = 0.0
        #: the node of the row, and the time of the last row of each node
        self._node = ""
        self._last: dict[str, float] = {}
        self._latest: dict[TaskKey, Attempt] = {}
        self._by: dict[tuple[TaskKey, str], Attempt] = {}
        #: the current attempt of each worker
        self._at: dict[str, Attempt] = {}
        self._by_commit: dict[str, Attempt] = {}
        #: open attempts whose task or worker has been seen elsewhere since, and when; their end may still come
        self._left: dict[int, tuple[Attempt, float]] = {}

    def take(self, row: Row) -> None:
        at, action = number(row.get("ts")), text(row.get("action"))
        self._node = text(row.get("node"))
        self.before, self.now = self._last.get(self._node, 0.0), self.now if at is None else at
        self._last[self._node] = self.now
        self.history.last = max(self.history.last, self.now)
        if action in _INTERRUPTIONS:
            self._interrupted(_INTERRUPTIONS[action], row)
        elif action in _OF_TASKS:
            if (task := self._task(row)) is not None:
                getattr(self, action)(task, row)
        elif action in ACTIONS:
            getattr(self, action)(row)

    def finish(self, gone: Collection[str]) -> None:
        for run in self.history.runs:
            if run.how is RunEnd.RUNNING and run.node in gone:
                run.ended, run.how = self._last[run.node], RunEnd.KILLED
        for attempt, at in self._left.values():
            if attempt.end is End.OPEN:
                attempt.end, attempt.ended = End.RELEASED, at
                attempt.reason = "the end of the attempt was not recorded in the event log"

    def task_assigned(self, task: TaskKey, row: Row) -> None:
        worker, claim = text(row.get("worker")), text(row.get("claim"))
        before = self._latest.get(task)
        if before is not None and claim and before.claim == claim:
            return
        for lost in (before, self._at.get(worker)):
            if lost is not None and lost.end is End.OPEN:
                self._left.setdefault(id(lost), (lost, self.now))
        subject = text(row.get("subject"))
        if subject:
            self.history.subjects[task] = subject
        self._begin(Attempt(task, worker, claim, subject, began=self.now))

    def task_completed(self, task: TaskKey, row: Row) -> None:
        attempt, commit = self._attempt(task, row), text(row.get("commit"))
        if commit and attempt.commit and commit != attempt.commit:
            attempt = self._begin(Attempt(task, text(row.get("worker"))))
        if commit:
            landings = self.history.landings
            self.history.landings = [landing for landing in landings if landing.commit != commit]
        self._land(attempt, commit)

    def accepted(self, row: Row) -> None:
        """The landing itself; `task_completed`, before or after it, has the task."""
        commit, worker = text(row.get("commit")), text(row.get("worker"))
        if commit in self._by_commit or any(landing.commit == commit for landing in self.history.landings):
            return
        attempt = self._at.get(worker)
        if attempt is not None and attempt.end is End.OPEN:
            self._land(attempt, commit)
        elif commit:
            self.history.landings.append(
                Landing(commit, worker, text(row.get("subject")) or text(row.get("prompt")), self.now)
            )

    def undone(self, row: Row) -> None:
        commit = text(row.get("commit"))
        if not commit:
            return
        self.history.undone[commit] = self.now
        if commit in self._by_commit:
            self._by_commit[commit].end = End.UNDONE
        for landing in self.history.landings:
            landing.undone = landing.undone or landing.commit == commit

    def task_failed(self, task: TaskKey, row: Row) -> None:
        attempt, count = self._attempt(task, row), _count(row, "attempt")
        is_another = attempt.end is End.FAILED and not attempt.hold and count not in (None, attempt.number)
        if is_another and attempt.number is not None:
            attempt = self._begin(Attempt(task, text(row.get("worker"))))
        self._close(attempt, End.FAILED, row)

    def task_quarantined(self, task: TaskKey, row: Row) -> None:
        self._hold(task, row, "quarantined", End.FAILED)

    def task_parked(self, task: TaskKey, row: Row) -> None:
        self._hold(task, row, "parked", End.PARKED)

    def task_released(self, task: TaskKey, row: Row) -> None:
        self._close(self._attempt(task, row), End.RELEASED, row)

    def task_proposed(self, task: TaskKey, row: Row) -> None:
        self.history.subjects.setdefault(task, text(row.get("subject")))

    def task_sent_back(self, task: TaskKey, row: Row) -> None:
        self._attempt(task, row).sent_back += 1

    def rebase_resolved(self, row: Row) -> None:
        attempt = self._at.get(text(row.get("worker")))
        if attempt is not None and attempt.end is End.OPEN:
            attempt.conflicts += 1

    def usage_recorded(self, row: Row) -> None:
        if (usage := usage_row(row)) is None:
            return
        task = self._task(row)
        if task is not None:
            self._attempt(task, row).spent += usage.spent
        elif (at := self._at.get(usage.worker)) is not None and at.end is End.OPEN:
            at.spent += usage.spent
        else:
            self.history.other_spent.append((self.now, usage.spent))

    def auto_started(self, row: Row) -> None:
        self._kill(self._open_run(), row)
        if (park := self._open_park()) is not None and park.until is not None and park.until <= self.now:
            park.ended = max(park.began or 0.0, park.until)  # it ended while no daemon was running
        self.history.runs.append(Run(self.now, node=self._node, instance=_instance(row)))

    def daemon_started(self, row: Row) -> None:
        """A run before it that has no end was killed."""
        run, killed = self._open_run(), text(row.get("killed"))
        runs = (other for other in self.history.runs if other.node == self._node)
        if run is None and killed and not any(other.instance == killed for other in runs):
            run = self._new_run(killed)
        self._kill(run, row)

    def _kill(self, run: Run | None, row: Row) -> None:
        """A killed run ended at its last heartbeat; if unknown, at the last event before this row."""
        if run is None:
            return
        silent_s = number(row.get("silent_s"))
        at = self.before if silent_s is None else self.now - silent_s
        run.ended, run.how = min(max(at, run.began or at), self.now), RunEnd.KILLED

    def auto_stopped(self, row: Row) -> None:
        self._end_run(row, RunEnd.STOPPED)

    def auto_failed(self, row: Row) -> None:
        self._end_run(row, RunEnd.FAILED)

    def daemon_stopped(self, row: Row) -> None:
        had_begun = row.get("auto")
        if had_begun is True or (had_begun is None and self._open_run() is not None):
            reason = text(row.get("reason")) or "the daemon was stopped"
            self._end_run({**row, "reason": reason}, RunEnd.STOPPED)

    def fleet_parked(self, row: Row) -> None:
        cause, until, park = text(row.get("cause")), number(row.get("until_unix")), self._open_park()
        if park is not None and park.cause == cause:
            park.until = until  # a probe failed: the same park continues
            return
        if park is not None:
            park.ended = self.now
        self.history.parks.append(Park(cause, self.now, until, node=self._node))

    def fleet_resumed(self, row: Row) -> None:
        if (park := self._open_park()) is not None:
            park.ended = self.now
        elif not any(park.node == self._node for park in self.history.parks):
            self.history.parks.append(Park(text(row.get("cause")), None, ended=self.now, node=self._node))

    def source_dirty(self, row: Row) -> None:
        self.history.dirty.append((self.now, self.now + max(0.0, number(row.get("retry_in_s")) or 0.0)))

    def post_accept(self, row: Row) -> None:
        elapsed_s = max(0.0, number(row.get("elapsed_s")) or 0.0)
        self.history.post_accepts.append(PostAccept(self.now, row.get("code") != 0, elapsed_s))

    def host_refused(self, row: Row) -> None:
        worker, host, why, allow = (text(row.get(name)) for name in ("worker", "host", "reason", "allow"))
        self.history.refusals.append(Refusal(self.now, worker, host, why, allow))

    def overseer_failure(self, row: Row) -> None:
        self._interrupted(f"the supervisor found a failure ({text(row.get('kind'))})", row)

    def overseer_remediation(self, row: Row) -> None:
        count = _count(row, "attempt")
        if outcome := text(row.get("outcome")):
            took = number(row.get("duration_s"))
            self._interrupted(f"remediation {count} {outcome}" + (f" in {took:.0f} s" if took else ""), row)
        else:
            self._interrupted(f"remediation {count} started", row)

    def overseer_stopped(self, row: Row) -> None:
        if row.get("code") != 0:
            self._interrupted(f"the supervisor exited with code {_count(row, 'code')}", row)

    def _interrupted(self, what: str, row: Row) -> None:
        said = ": ".join(filter(None, (self._node, what, text(row.get("reason")))))
        self.history.interruptions.append(Interruption(self.now, said))

    def _begin(self, attempt: Attempt) -> Attempt:
        self.history.attempts.append(attempt)
        self._latest[attempt.task] = self._by[attempt.task, attempt.worker] = attempt
        if attempt.worker:
            self._at[attempt.worker] = attempt
        return attempt

    def _attempt(self, task: TaskKey, row: Row) -> Attempt:
        """The attempt of a row: its worker's, else the latest; a new one if the log starts in the middle of it.

        A released task can have its next worker before the row about its last one is written.
        """
        worker, latest = text(row.get("worker")), self._latest.get(task)
        if (task, worker) in self._by:
            return self._by[task, worker]
        if latest is not None and (not worker or not latest.worker):
            return latest
        return self._begin(Attempt(task, worker))

    def _land(self, attempt: Attempt, commit: str) -> None:
        if attempt.end is not End.UNDONE:
            attempt.ended = self.now if attempt.end is not End.ACCEPTED else attempt.ended
            attempt.end, attempt.hold = End.ACCEPTED, ""
        attempt.commit = attempt.commit or commit
        if commit:
            self._by_commit[commit] = attempt

    def _close(self, attempt: Attempt, end: End, row: Row) -> None:
        """The first end counts; a later row about it may add the reason."""
        if attempt.end is End.OPEN:
            attempt.end, attempt.ended = end, self.now
        if attempt.end is end:
            attempt.cause = attempt.cause or text(row.get("cause"))
            attempt.reason = attempt.reason or text(row.get("reason"))
            attempt.ref = attempt.ref or text(row.get("ref"))
            if attempt.number is None:
                attempt.number = _count(row, "attempt")

    def _hold(self, task: TaskKey, row: Row, hold: str, end: End) -> None:
        attempt = self._attempt(task, row)
        if attempt.end in (End.ACCEPTED, End.UNDONE):
            attempt = self._begin(Attempt(task, text(row.get("worker"))))
        if attempt.end is not End.OPEN:
            attempt.end = end
        self._close(attempt, end, row)
        attempt.hold = hold

    def _task(self, row: Row) -> TaskKey | None:
        task = task_of(row)
        return task if task is None or task.list else TaskKey(self._unnamed, task.id)

    def _last_run(self) -> Run | None:
        return next((run for run in reversed(self.history.runs) if run.node == self._node), None)

    def _open_run(self) -> Run | None:
        run = self._last_run()
        return run if run is not None and run.how is RunEnd.RUNNING else None

    def _open_park(self) -> Park | None:
        park = next((park for park in reversed(self.history.parks) if park.node == self._node), None)
        return park if park is not None and park.ended is None else None

    def _new_run(self, instance: str) -> Run:
        """A run whose start is not in the log."""
        self.history.runs.append(Run(None, node=self._node, instance=instance))
        return self.history.runs[-1]

    def _end_run(self, row: Row, how: RunEnd) -> None:
        run, instance = self._last_run(), _instance(row)
        if run is None or (instance and run.instance and instance != run.instance):
            self._kill(self._open_run(), {})
            run = self._new_run(instance)
        elif run.how is not RunEnd.RUNNING and (how is RunEnd.STOPPED or run.how is RunEnd.FAILED):
            return  # the first end has the reason
        run.ended, run.how = self.now, how
        run.reason, run.cause = text(row.get("reason")), text(row.get("cause"))
        run.worker, run.task = text(row.get("worker")), str(self._task(row) or "")


def _instance(row: Row) -> str:
    return text(row.get("instance_id"))


def _count(row: Row, name: str) -> int | None:
    value = number(row.get(name))
    return None if value is None else int(value)
