"""What waits for a person, as the morning report lists it: the attention list, what unblocks the most tasks first. Pure."""

from collections.abc import Collection, Mapping

from msgspec import Struct, field

from llmc.base.names import TaskId
from llmc.records.auto import AutoState
from llmc.records.items import SEVERITIES, Item, counts
from llmc.records.task import Task, TaskStatus, in_order
from llmc.records.worker import WorkerRecord
from llmc.reports.rules.digest_history import Attempt, History
from llmc.tasks.rules.graph import needs, unblocks

#: items about a task; `who` is its id
_OF_TASKS = ("quarantined", "parked_task", "proposed", "task_question", "stuck")


class Facts(Struct, frozen=True):
    """How things are now, beside the log."""

    #: the attention list
    items: Collection[Item] = ()
    #: None: there is no task list, or it cannot be read
    tasks: Collection[Task] | None = None
    #: the list that is configured
    list_name: str = ""
    #: of that list, by llmc's own ledger, which outlives the files
    completed: Collection[str] = ()
    workers: Collection[WorkerRecord] = ()
    auto: AutoState = field(default_factory=AutoState)
    #: a daemon in auto mode runs
    running: bool = False
    #: parts of plans that cannot begin before a question is answered, by the key of its item
    held_up: Mapping[str, int] = field(default_factory=dict)


class Waiting(Struct, frozen=True):
    """An item of the attention list, with what the report knows besides."""

    #: as in the attention list
    key: str
    kind: str
    severity: str
    #: one sentence
    what: str
    #: the command, or what else helps
    command: str
    #: of a task: how its last attempt failed
    why: str = ""
    task_id: str | None = None
    worker: str | None = None
    #: where unfinished work is pinned
    ref: str | None = None
    since_unix: float | None = None
    #: how many tasks can go on then, directly or not; None where the task list is not known
    unblocks: int | None = None


def waiting(history: History, facts: Facts) -> tuple[Waiting, ...]:
    """Every item, what unblocks the most first; what is only worth knowing comes last."""
    reach = _Reach(facts)
    latest = {a.task.id: a for a in history.attempts if a.task.list == facts.list_name}
    at_work = {str(record.name): record for record in facts.workers}
    found = [_waiting(item, reach, latest, at_work, facts) for item in facts.items]
    return tuple(sorted(found, key=_rank))


def _rank(item: Waiting) -> tuple[bool, int, int, tuple[int, int, str], str]:
    severity = SEVERITIES.index(item.severity)
    return (
        not counts(item.severity),
        -(item.unblocks or 0),
        severity,
        in_order(item.task_id or ""),
        item.key,
    )


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
    if item.kind in ("auto", "source"):
        return reach.all()
    return reach.of(task) if task is not None else 0 if reach.known else None


def _why(attempt: Attempt | None) -> str:
    return ": ".join(part for part in (attempt.cause, attempt.reason) if part) if attempt else ""


class _Reach:
    """How many unfinished tasks each task holds up."""

    def __init__(self, facts: Facts) -> None:
        self.known = facts.tasks is not None
        open_tasks = [
            task
            for task in facts.tasks or ()
            if task.status is not TaskStatus.COMPLETED and task.id not in facts.completed
        ]
        self.open = {task.id: task for task in open_tasks}
        # Only what is unfinished can be unblocked, also where a finished task still names it.
        edges = {task: others for task, others in needs(open_tasks).items() if task in self.open}
        # Of those that a person can do something about: of all, a long chain would take minutes.
        held = {TaskId(item.who) for item in facts.items if item.kind in _OF_TASKS}
        taken = {record.assignment.task_id for record in facts.workers if record.assignment is not None}
        self._unblocks = unblocks(edges, (held | taken) & self.open.keys())

    def of(self, task: str) -> int | None:
        return self._unblocks.get(TaskId(task), 0) if self.known else None

    def all(self) -> int | None:
        return len(self.open) if self.known else None
