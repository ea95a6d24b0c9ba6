"""What became of the tasks llmc took, from its own ledger: files may be changed by anybody, the ledger by llmc only."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from llmc.names import TaskId

#: failures that count against a task; at this many it waits for a person
MAX_ATTEMPTS = 3

Action = Literal[
    "claimed", "landing", "completed", "released", "failed", "requeued", "proposed", "approved", "withdrawn"
]


@dataclass(frozen=True)
class Claim:
    """A worker of this root is at a task."""

    id: str
    task: TaskId
    worker: str


@dataclass(frozen=True)
class Failure:
    cause: str
    reason: str
    at_unix: float


@dataclass(frozen=True)
class Kept:
    """Why llmc keeps a task back for a person."""

    #: `quarantined`, `parked`, `blocked` (a goal asks a person) or `withdrawn` (a goal does not want it any more)
    word: str
    reason: str
    at_unix: float


@dataclass(frozen=True)
class Landed:
    commit: str
    at_unix: float


@dataclass
class Books:
    completed: set[TaskId] = field(default_factory=set)
    #: by worker: each is at one task at most
    claims: dict[str, Claim] = field(default_factory=dict)
    #: the latest claim on each task, also one that has ended
    latest: dict[TaskId, str] = field(default_factory=dict)
    #: what counted against a task since it was last put back by a person
    failures: dict[TaskId, list[Failure]] = field(default_factory=dict)
    #: by worker: what failed there since it last completed a task, as task and cause
    streaks: dict[str, list[tuple[TaskId, str]]] = field(default_factory=dict)
    #: tasks that wait for a person since their last attempt
    kept: dict[TaskId, Kept] = field(default_factory=dict)
    #: what the tasks are called, for those whose file is gone
    subjects: dict[TaskId, str] = field(default_factory=dict)
    #: which task was taken for a dispatch of a goal: none is ever made a second time for it
    dispatches: dict[str, TaskId] = field(default_factory=dict)
    #: the part of a goal's plan that a task is for: a goal makes a new task for each attempt at it
    parts: dict[TaskId, str] = field(default_factory=dict)
    #: as what a task landed ("": nothing had to change), and when
    landed: dict[TaskId, Landed] = field(default_factory=dict)
    #: by claim, while it is held: the commit that was about to land last
    landing: dict[str, str] = field(default_factory=dict)

    def copy(self) -> "Books":
        """One of its own: the original can be read while this one is changed."""
        return Books(
            set(self.completed),
            dict(self.claims),
            dict(self.latest),
            {task: list(failures) for task, failures in self.failures.items()},
            {worker: list(streak) for worker, streak in self.streaks.items()},
            dict(self.kept),
            dict(self.subjects),
            dict(self.dispatches),
            dict(self.parts),
            dict(self.landed),
            dict(self.landing),
        )

    def landed_as(self, commit: str) -> TaskId | None:
        """The task whose work is this commit."""
        return next((task for task, one in self.landed.items() if commit and one.commit == commit), None)

    def has_ended(self, claim_id: str, task: str) -> bool:
        """Whether it was a claim of ours, and is none any more."""
        return bool(claim_id) and self.latest.get(TaskId(task)) == claim_id and not self.holds(claim_id)

    def holds(self, claim_id: str) -> bool:
        return any(claim.id == claim_id for claim in self.claims.values())

    def attempts(self, task: str) -> int:
        return len(self.failures.get(TaskId(task), ()))

    def is_quarantined(self, task: str) -> bool:
        return self.attempts(task) >= MAX_ATTEMPTS

    @property
    def highest(self) -> int:
        """The highest number of a task that is known here: a new task of that number would count as that one."""
        known = (*self.completed, *self.failures, *self.subjects, *self.kept)
        return max((int(task) for task in known if task.isascii() and task.isdigit()), default=0)

    def kept_back(self, task: str) -> str:
        """The word for why it waits for a person, as far as the ledger knows; or nothing."""
        kept = self.kept.get(TaskId(task))
        return kept.word if kept else "quarantined" if self.is_quarantined(task) else ""


def hopeless(books: Books, workers: Collection[str], failed: str) -> str:
    """Why going on makes no sense after this worker failed; "" when it does. A task that fails alone is quarantined.

    Only the cause of that failure counts: an old streak of somebody else was dealt with when it was new.
    """
    if not books.streaks.get(failed):
        return ""
    cause = books.streaks[failed][-1][1]
    hit = {worker: _tasks_by(books, worker, cause) for worker in workers}
    own = hit.get(failed, set())
    if _differ(books, own):
        return f"{failed} failed at the tasks {', '.join(sorted(own))}, each time by {cause}"
    if all(hit.values()) and _differ(books, set().union(*hit.values())):
        return f"every worker failed by {cause}"
    return ""


def _differ(books: Books, tasks: Collection[TaskId]) -> bool:
    """Whether it is more than one piece of work: a goal has a part tried again as another task, a few times."""
    return len({books.parts.get(task, task) for task in tasks}) > 1


def _tasks_by(books: Books, worker: str, cause: str) -> set[TaskId]:
    return {task for task, why in books.streaks.get(worker, ()) if why == cause}


def entry(action: Action, claim: Claim, at_unix: float, **details: Any) -> dict[str, Any]:
    """A line of the ledger."""
    return {
        "ts": at_unix,
        "action": action,
        "task": claim.task,
        "worker": claim.worker,
        "claim": claim.id,
        **details,
    }


def fold(books: Books, entries: Iterable[Mapping[str, Any]]) -> Books:
    """The books after these entries. An entry that is repeated changes nothing more."""
    for row in entries:
        task, worker, claim_id = TaskId(str(row.get("task"))), str(row.get("worker")), str(row.get("claim"))
        held = books.claims.get(worker)
        match row.get("action"):
            case "claimed":
                books.claims[worker] = Claim(claim_id, task, worker)
                books.latest[task] = claim_id
                # Who claims what was just withdrawn does not get it, or has to give it back: nobody else may begin it.
                if books.kept_back(task) != "withdrawn":
                    books.kept.pop(task, None)
                if row.get("subject"):
                    books.subjects[task] = str(row["subject"])
                if row.get("dispatch"):
                    books.dispatches[str(row["dispatch"])] = task
                if row.get("part"):
                    books.parts[task] = str(row["part"])
            case "landing" if held is not None and held.id == claim_id:
                books.landing[claim_id] = str(row.get("commit") or "")
            case "completed":
                books.completed.add(task)
                books.landed[task] = Landed(str(row.get("commit") or ""), float(row.get("ts", 0)))
                books.failures.pop(task, None)
                books.kept.pop(task, None)
                books.streaks.pop(worker, None)
                _let_go(books, worker, claim_id)
            case "failed" if held is not None and held.id == claim_id:
                failure = Failure(str(row.get("cause")), str(row.get("reason")), float(row.get("ts", 0)))
                books.failures.setdefault(task, []).append(failure)
                books.streaks.setdefault(worker, []).append((task, failure.cause))
                _keep_back(books, task, row)
                _let_go(books, worker, claim_id)
            case "released":
                _keep_back(books, task, row)
                _let_go(books, worker, claim_id)
            case "withdrawn":
                books.kept[task] = Kept("withdrawn", str(row.get("reason", "")), float(row.get("ts", 0)))
            case "requeued":
                books.failures.pop(task, None)
                books.completed.discard(task)
                books.kept.pop(task, None)
    return books


def _keep_back(books: Books, task: TaskId, row: Mapping[str, Any]) -> None:
    if row.get("hold"):
        books.kept[task] = Kept(str(row["hold"]), str(row.get("reason", "")), float(row.get("ts", 0)))


def _let_go(books: Books, worker: str, claim_id: str) -> None:
    held = books.claims.get(worker)
    if held is not None and held.id == claim_id:
        del books.claims[worker]
        books.landing.pop(claim_id, None)
