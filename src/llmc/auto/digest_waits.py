"""What waits for a person, and the command for each; what unblocks the most tasks comes first. Pure."""

from collections.abc import Collection, Iterable, Iterator

from msgspec import Struct, field

from llmc.auto.digest_history import Attempt, History, RunEnd
from llmc.auto.model import AutoState
from llmc.names import TaskId
from llmc.tasks.graph import needs, unblocks
from llmc.tasks.model import Task, TaskStatus, in_order
from llmc.workers.model import Status, WorkerRecord

#: what a person does about a task that waits, by why it waits
_FOR_TASKS = {"proposed": "approve", "quarantined": "requeue", "parked": "requeue"}
#: what has to be done first, by the cause of a failure
_FIRST = {
    "auth": "log in again with `claude`",
    "config": "llmc config check",
    "disk": "free some disk space",
}
_ASKS = ("question", "permission")


class GoalQuestion(Struct, frozen=True):
    """Something that a part of a goal asks a person."""

    id: str
    goal_title: str
    part: str
    question: str
    since_unix: float
    #: parts of the plan that cannot begin before it is answered
    unblocks: int


class Facts(Struct, frozen=True):
    """How things are now, beside the log."""

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
    source: str = ""
    questions: Collection[GoalQuestion] = ()


class Waiting(Struct, frozen=True):
    """Something only a person can do."""

    #: `run`, `source`, `question`, `quarantined`, `parked`, `proposed`, or `worker`
    kind: str
    #: what it is about: a task's subject, a worker's status
    what: str
    #: the command, or what else helps
    command: str
    why: str = ""
    task_id: str | None = None
    worker: str | None = None
    #: where unfinished work is pinned
    ref: str | None = None
    since_unix: float | None = None
    #: how many tasks can go on then, directly or not; None where the task list is not known
    unblocks: int | None = None


def waiting(history: History, facts: Facts) -> tuple[Waiting, ...]:
    """Everything that waits now, what unblocks the most first."""
    reach = _Reach(facts)
    found = [
        *_run(history, facts, reach),
        *_source(facts, reach),
        *map(_question, facts.questions),
        *_tasks(history, facts, reach),
        *(item for record in facts.workers for item in _worker(record, facts, reach)),
    ]
    kinds = ("run", "source", "question", "quarantined", "parked", "worker", "proposed")

    def rank(item: Waiting) -> tuple[int, int, tuple[int, int, str], str]:
        kind = kinds.index(item.kind) if item.kind in kinds else len(kinds)
        return (-(item.unblocks or 0), kind, in_order(item.task_id or ""), item.worker or "")

    return tuple(sorted(found, key=rank))


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
        held = {task.id for task in open_tasks if task.waits_for_a_person}
        taken = {record.assignment.task_id for record in facts.workers if record.assignment is not None}
        self._unblocks = unblocks(edges, held | taken)

    def of(self, task: str) -> int | None:
        return self._unblocks.get(TaskId(task), 0) if self.known else None

    def all(self) -> int | None:
        return len(self.open) if self.known else None


def _run(history: History, facts: Facts, reach: _Reach) -> Iterator[Waiting]:
    run = history.runs[-1] if history.runs else None
    if run is None or run.how is RunEnd.STOPPED or (run.how is RunEnd.RUNNING and facts.running):
        return
    again = "llmc up --auto"
    if run.how is RunEnd.FAILED:
        what = f"auto mode failed ({run.cause})" if run.cause else "auto mode failed"
        command = f"{_FIRST.get(run.cause, 'llmc logs daemon')}, then {again}"
    elif reach.all() == 0:
        return  # nothing is left to do for it
    else:
        what, command = "auto mode ended without a word", again
    yield Waiting(
        "run", what, command, run.reason, run.task or None, run.worker or None, None, run.ended, reach.all()
    )


def _question(one: GoalQuestion) -> Waiting:
    return Waiting(
        "question",
        f"{one.part} ({one.goal_title}) asks: {one.question}",
        f'llmc overseer answer {one.id} "..."',
        since_unix=one.since_unix,
        unblocks=one.unblocks,
    )


def _source(facts: Facts, reach: _Reach) -> Iterator[Waiting]:
    if facts.auto.source_repo_dirty_retry_after_unix > 0:
        yield Waiting(
            "source",
            "uncommitted changes in the source keep work from landing",
            f"commit them: git -C {facts.source} status",
            unblocks=reach.all(),
        )


def _tasks(history: History, facts: Facts, reach: _Reach) -> Iterator[Waiting]:
    latest = {
        attempt.task.id: attempt for attempt in history.attempts if attempt.task.list == facts.list_name
    }
    holds = {task.id: row for task, row in history.holds.items() if task.list == facts.list_name}
    subjects = {
        task.id: subject for task, subject in history.subjects.items() if task.list == facts.list_name
    }
    if facts.tasks is None:
        held = {task: hold for task, (hold, _) in holds.items()}
    else:
        held = {task.id: task.waits_for_a_person for task in reach.open.values() if task.waits_for_a_person}
    for task, hold in held.items():
        attempt = latest.get(task) if hold != "proposed" else None
        known = holds.get(task)
        yield Waiting(
            hold,
            reach.open[task].subject if task in reach.open else subjects.get(task, ""),
            f"llmc tasks {_FOR_TASKS.get(hold, 'show')} {task}",
            _why(attempt),
            task,
            (attempt and attempt.worker) or None,
            (attempt and attempt.ref) or None,
            known[1] if known is not None and known[0] == hold else None,
            reach.of(task),
        )


def _why(attempt: Attempt | None) -> str:
    return ": ".join(part for part in (attempt.cause, attempt.reason) if part) if attempt else ""


def _worker(record: WorkerRecord, facts: Facts, reach: _Reach) -> Iterable[Waiting]:
    command = _for_worker(record)
    if not command:
        return
    task = record.assignment.task_id if record.assignment else None
    subject = record.assignment.subject if record.assignment else record.current_prompt.partition("\n")[0]
    yield Waiting(
        "worker",
        f"{record.name} is {record.status}" + (f": {subject}" if subject else ""),
        command,
        record.error_reason or record.reason,
        task,
        record.name,
        None,
        record.since_unix or None,
        reach.of(task) if task is not None else 0 if reach.known else None,
    )


def _for_worker(record: WorkerRecord) -> str:
    """What a person does about a worker; nothing where auto mode goes on by itself."""
    name = record.name
    if record.status is Status.ERROR:
        reset = f"llmc reset {name}"
        return f"{_FIRST.get(record.cause, f'llmc peek {name}')}, then {reset}"
    if record.status is Status.NEEDS_INPUT and record.reason in _ASKS:
        return f"llmc attach {name}"
    if record.auto:
        return f"llmc release {name}" if record.held else ""
    if record.status is Status.NEEDS_INPUT:
        return f"llmc attach {name}"
    return f"llmc review {name}" if record.status is Status.NEEDS_REVIEW else ""
