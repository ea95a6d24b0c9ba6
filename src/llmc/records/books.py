"""What happened to tasks, from llmc's own ledger. Anyone may change the task files; only llmc writes the ledger."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import fields, replace

from llmc.base.given import number, text
from llmc.base.names import TaskId, TaskKey
from llmc.records.task import is_number

#: failed attempts after which a task is quarantined
MAX_ATTEMPTS = 3
#: the hold of a task that failed too often
QUARANTINED = "quarantined"
#: see `name_the_unnamed`
_UNNAMED = "unnamed_are_of"
#: the cause when an agent exited in the middle of a task
CRASH = "crash"
#: the cause when work failed its verify command
TASK = "task"
#: if this many different tasks in a row fail their checks, no single task is to blame
CHECKS_IN_A_ROW = 5

Action = Literal[
    "created",
    "made",
    "approved",
    "claimed",
    "landing",
    "completed",
    "released",
    "failed",
    "requeued",
    "withdrawn",
]


class Claim(Struct, frozen=True):
    """A worker of this root holds a task."""

    id: str
    task: TaskKey
    worker: str


class Failure(Struct, frozen=True):
    cause: str
    reason: str
    at_unix: float


class Kept(Struct, frozen=True):
    """Why llmc holds a task for the user."""

    #: `quarantined`, `parked`, `blocked` (a goal asks the user) or `withdrawn` (by its goal)
    word: str
    reason: str
    at_unix: float


class Landed(Struct, frozen=True):
    commit: str
    at_unix: float


class Made(Struct, frozen=True):
    """A task made by a worker's session, known from a hook. Its file cannot be trusted for this."""

    worker: str
    #: the task that the worker was working on
    at: str = ""
    #: the root of that worker: lists may be shared, and only that root can approve the task
    root: str = ""
    #: the hook event: the same event again is the same task; another one means that the number was reused
    event: str = ""
    #: `proposed` until the user approves it; "" if `auto.worker_tasks` accepts it
    hold: str = ""
    #: the approved metadata that llmc acts on, because the file may change later
    verify: str = ""
    budget: dict[str, Any] | None = None
    model: str = ""

    @property
    def told(self) -> dict[str, str]:
        """The fields for the ledger."""
        return {"at": self.at, "root": self.root, "event": self.event, "hold": self.hold}


class Books(Struct):
    #: the list that rows without a list belong to (see `name_the_unnamed`)
    unnamed: str = ""
    #: by list
    completed: dict[str, set[TaskId]] = field(default_factory=dict)
    #: tasks whose files llmc wrote, for the user, a goal or the task pool
    created: set[TaskKey] = field(default_factory=set)
    #: what tasks were made from, so that a later import knows them
    keys: dict[TaskKey, str] = field(default_factory=dict)
    #: tasks made by workers' sessions
    made: dict[TaskKey, Made] = field(default_factory=dict)
    #: by worker: each has at most one
    claims: dict[str, Claim] = field(default_factory=dict)
    #: the latest claim on each task, including ended ones
    latest: dict[TaskKey, str] = field(default_factory=dict)
    #: failed attempts of a task since the user last requeued it
    failures: dict[TaskKey, list[Failure]] = field(default_factory=dict)
    #: by worker: failures since it last completed a task, as task and cause
    streaks: dict[str, list[tuple[TaskKey, str]]] = field(default_factory=dict)
    #: failures since any worker completed a task, as worker, task and cause
    lately: list[tuple[str, TaskKey, str]] = field(default_factory=list)
    #: tasks held for the user since their last attempt
    kept: dict[TaskKey, Kept] = field(default_factory=dict)
    #: subjects, for tasks whose file is gone
    subjects: dict[TaskKey, str] = field(default_factory=dict)
    #: the task of each goal dispatch: a dispatch never gets a second task
    dispatches: dict[str, TaskKey] = field(default_factory=dict)
    #: the plan item of a task: a goal makes a new task for each attempt
    parts: dict[TaskKey, str] = field(default_factory=dict)
    #: the commit that a task landed as ("": no changes needed), and when
    landed: dict[TaskKey, Landed] = field(default_factory=dict)
    #: by open claim: the last commit that was about to land
    landing: dict[str, str] = field(default_factory=dict)

    def copy(self) -> "Books":
        """A copy: the original can be read while the copy changes."""
        return Books(**{one.name: _copied(getattr(self, one.name)) for one in fields(self)})

    def whole(self, task: TaskKey) -> TaskKey:
        """The key with its list, which records of an older llmc lack."""
        return task if task.list else TaskKey(self.unnamed, task.id)

    def is_completed(self, task: TaskKey) -> bool:
        task = self.whole(task)
        return task.id in self.completed.get(task.list, ())

    def completed_in(self, list_name: str) -> frozenset[TaskId]:
        return frozenset(self.completed.get(list_name, ()))

    def claimed_in(self, list_name: str) -> frozenset[TaskId]:
        """Tasks claimed by workers of this root."""
        return frozenset(claim.task.id for claim in self.claims.values() if claim.task.list == list_name)

    def proposed_in(self, list_name: str) -> frozenset[TaskId]:
        """Tasks made by workers and not approved yet."""
        return frozenset(task.id for task, made in self.made.items() if made.hold and task.list == list_name)

    def landed_as(self, commit: str) -> TaskKey | None:
        """The task that landed as this commit."""
        return next((task for task, one in self.landed.items() if commit and one.commit == commit), None)

    def has_ended(self, claim_id: str, task: TaskKey) -> bool:
        """Whether it was a claim of ours that has ended."""
        return bool(claim_id) and self.latest.get(self.whole(task)) == claim_id and not self.holds(claim_id)

    def holds(self, claim_id: str) -> bool:
        return any(claim.id == claim_id for claim in self.claims.values())

    def claim_on(self, task: TaskKey) -> Claim | None:
        """The claim on a task."""
        return next((claim for claim in self.claims.values() if claim.task == self.whole(task)), None)

    def attempts(self, task: TaskKey) -> int:
        return len(self.failures.get(self.whole(task), ()))

    def is_quarantined(self, task: TaskKey) -> bool:
        return self.attempts(task) >= MAX_ATTEMPTS

    def pause_s(self, task: TaskKey, backoff_s: float) -> float:
        """How long a task waits after its last failure, if its agent crashed; doubled by each further crash."""
        failures = self.failures.get(self.whole(task), [])
        crashes = [failure for failure in failures if failure.cause == CRASH]
        if not crashes or failures[-1].cause != CRASH:
            return 0.0
        return float(backoff_s * 2 ** (len(crashes) - 1))

    def waits_s(self, task: TaskKey, backoff_s: float, now: float) -> float:
        """How long a task still waits after its agent crashed; 0: it may start."""
        pause_s = self.pause_s(task, backoff_s)
        age_s = now - self.failures[self.whole(task)][-1].at_unix if pause_s else 0.0
        # If the clock was set back, the age is unknown.
        return max(0.0, pause_s - age_s) if age_s >= 0 else 0.0

    def highest_in(self, list_name: str) -> int:
        """The highest known task number; a new task must not reuse one."""
        keys = (*self.created, *self.made, *self.failures, *self.subjects, *self.kept)
        known = (*self.completed.get(list_name, ()), *(key.id for key in keys if key.list == list_name))
        return max((int(task) for task in known if is_number(task)), default=0)

    def kept_back(self, task: TaskKey) -> str:
        """Why the ledger holds it for the user; "" if it does not."""
        kept, made = self.kept.get(self.whole(task)), self.made.get(self.whole(task))
        if made is not None and made.hold:
            return made.hold
        return kept.word if kept else QUARANTINED if self.is_quarantined(task) else ""

    def why_kept(self, task: TaskKey) -> tuple[str, str]:
        """What happened to a quarantined task, and the reason; "" if only its file says so.

        A failure that would repeat quarantines at once; then there are no failed attempts.
        """
        kept, failures = self.kept.get(self.whole(task)), self.failures.get(self.whole(task), [])
        if kept is not None and kept.word == QUARANTINED:
            return "cannot be done as written", kept.reason
        if not failures:
            return "is quarantined", ""
        times = "once" if len(failures) == 1 else f"{len(failures)} times"
        return f"failed {times}", failures[-1].reason or failures[-1].cause

    def is_known(self, task: TaskKey) -> bool:
        """Whether llmc wrote its file, knows who made it, or has claimed it before."""
        return task in self.created or task in self.made or task in self.latest


def _copied(value: Any) -> Any:
    """A deep copy of a collection."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return type(value)(value) if isinstance(value, set | list) else value


def hopeless(books: Books, workers: Collection[str], failed: str) -> str:
    """Why auto mode should stop after this worker failed; "" if it should not. A task that fails alone is quarantined.

    Only the cause of that failure counts: another worker's old streak was handled when it was new. A failed check is
    usually the task's own fault, so it takes many tasks in a row.
    """
    if not books.streaks.get(failed):
        return ""
    cause = books.streaks[failed][-1][1]
    hit = {
        worker: {task for who, task, why in books.lately if (who, why) == (worker, cause)}
        for worker in workers
    }
    everybodys = set().union(*hit.values())
    if cause == TASK:
        if _pieces(books, everybodys) < CHECKS_IN_A_ROW:
            return ""
        return f"{len(everybodys)} tasks in a row failed their checks: {_listed(everybodys)}"
    own = {task for task, why in books.streaks[failed] if why == cause}
    if _pieces(books, own) > 1:
        return f"tasks {_listed(own)} failed on {failed} for the same reason ({cause})"
    if all(hit.values()) and _pieces(books, everybodys) > 1:
        return f"tasks failed on every worker for the same reason ({cause}): {_listed(everybodys)}"
    return ""


def _listed(tasks: Collection[TaskKey]) -> str:
    return ", ".join(sorted(map(str, tasks)))


def _pieces(books: Books, tasks: Collection[TaskKey]) -> int:
    """The number of distinct pieces of work: a goal retries a plan item as a new task."""
    return len({books.parts.get(task) or task for task in tasks})


def entry(action: Action, claim: Claim, at_unix: float, **details: Any) -> dict[str, Any]:
    """An entry of the ledger."""
    return {
        "ts": at_unix,
        "action": action,
        "task": claim.task.id,
        "list": claim.task.list,
        "worker": claim.worker,
        "claim": claim.id,
        **details,
    }


def name_the_unnamed(list_name: str, at_unix: float) -> dict[str, Any]:
    """The entry that names the list of rows from an older llmc, which wrote only ids.

    Written once, by the first newer llmc, with the list configured then: later the list would be unknown.
    """
    return {"ts": at_unix, "action": _UNNAMED, "list": list_name}


def has_unnamed(books: Books) -> bool:
    """Whether some rows still have no list."""
    return not books.unnamed and ("" in books.completed or any(not task.list for task in books.latest))


def is_told_again(made: Made, event: str) -> bool:
    """Whether a hook names a known task: from the same hook, or recorded without one because the hook came late."""
    return not made.event or made.event == event


def is_entry(row: Mapping[str, Any]) -> bool:
    """Whether a row has an action and a task."""
    return isinstance(row.get("action"), str) and ("task" in row or row["action"] == _UNNAMED)


def fold(books: Books, entries: Iterable[Mapping[str, Any]]) -> Books:
    """The books after these entries. A repeated entry changes nothing."""
    for row in filter(is_entry, entries):
        _enter(books, row)
    return books


def _enter(books: Books, row: Mapping[str, Any]) -> None:
    list_name, at_unix = str(row.get("list") or ""), number(row.get("ts")) or 0.0
    task = books.whole(TaskKey(list_name, TaskId(str(row.get("task")))))
    worker, claim_id = str(row.get("worker")), str(row.get("claim"))
    held = books.claims.get(worker)
    match row.get("action"):
        case "unnamed_are_of" if list_name and not books.unnamed:
            _name(books, list_name)
        case "created":
            books.created.add(task)
            if row.get("key"):
                books.keys[task] = str(row["key"])
            _note_goal(books, task, row)
        case "made":
            said = {name: text(row.get(name)) for name in ("at", "root", "event", "hold")}
            told = Made(worker, said["at"], said["root"], said["event"], said["hold"])
            if (before := books.made.get(task)) is None or not is_told_again(before, told.event):
                books.made[task] = told
        case "approved" if (made := books.made.get(task)) is not None:
            budget = row.get("budget")
            limits = budget if isinstance(budget, dict) else None
            said = {"verify": text(row.get("verify")), "model": text(row.get("model"))}
            books.made[task] = replace(made, hold="", budget=limits, **said)
        case "claimed":
            _claim(books, Claim(claim_id, task, worker), row)
        case "landing" if held is not None and held.id == claim_id:
            books.landing[claim_id] = str(row.get("commit") or "")
        case "completed":
            books.completed.setdefault(task.list, set()).add(task.id)
            books.landed[task] = Landed(str(row.get("commit") or ""), at_unix)
            books.failures.pop(task, None)
            books.kept.pop(task, None)
            books.streaks.pop(worker, None)
            books.lately.clear()
            _let_go(books, worker, claim_id)
        case "failed" if held is not None and held.id == claim_id:
            failure = Failure(str(row.get("cause")), str(row.get("reason")), at_unix)
            books.failures.setdefault(task, []).append(failure)
            books.streaks.setdefault(worker, []).append((task, failure.cause))
            books.lately.append((worker, task, failure.cause))
            _keep_back(books, task, row)
            _let_go(books, worker, claim_id)
        case "released":
            _keep_back(books, task, row)
            _let_go(books, worker, claim_id)
        case "withdrawn":
            books.kept[task] = Kept("withdrawn", str(row.get("reason", "")), at_unix)
        case "requeued":
            books.failures.pop(task, None)
            books.completed.get(task.list, set()).discard(task.id)
            books.kept.pop(task, None)


def _claim(books: Books, claim: Claim, row: Mapping[str, Any]) -> None:
    books.claims[claim.worker] = claim
    books.latest[claim.task] = claim.id
    # A claim on a task that was just withdrawn fails or is released: no other worker may start it.
    if books.kept_back(claim.task) != "withdrawn":
        books.kept.pop(claim.task, None)
    if row.get("subject"):
        books.subjects[claim.task] = str(row["subject"])
    _note_goal(books, claim.task, row)


def _note_goal(books: Books, task: TaskKey, row: Mapping[str, Any]) -> None:
    if row.get("dispatch"):
        books.dispatches[str(row["dispatch"])] = task
    if row.get("part"):
        books.parts[task] = str(row["part"])


def _name(books: Books, list_name: str) -> None:
    """Assign this list to all entries without one."""
    books.unnamed = list_name
    books.completed.setdefault(list_name, set()).update(books.completed.pop("", set()))
    books.claims = {worker: replace(one, task=books.whole(one.task)) for worker, one in books.claims.items()}
    books.dispatches = {dispatch: books.whole(task) for dispatch, task in books.dispatches.items()}
    books.streaks = {
        worker: [(books.whole(task), cause) for task, cause in streak]
        for worker, streak in books.streaks.items()
    }
    books.lately = [(worker, books.whole(task), cause) for worker, task, cause in books.lately]
    by_task: list[dict[TaskKey, Any]] = [
        books.latest,
        books.failures,
        books.kept,
        books.subjects,
        books.parts,
        books.landed,
    ]
    for found in by_task:
        for task in [task for task in found if not task.list]:
            found.setdefault(books.whole(task), found.pop(task))


def _keep_back(books: Books, task: TaskKey, row: Mapping[str, Any]) -> None:
    if row.get("hold"):
        at_unix = number(row.get("ts")) or 0.0
        books.kept[task] = Kept(str(row["hold"]), str(row.get("reason", "")), at_unix)


def _let_go(books: Books, worker: str, claim_id: str) -> None:
    held = books.claims.get(worker)
    if held is not None and held.id == claim_id:
        del books.claims[worker]
        books.landing.pop(claim_id, None)
