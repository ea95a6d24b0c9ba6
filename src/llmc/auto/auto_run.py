"""One run of auto mode: what its workers share, and what ends it."""

import threading
from collections import Counter
from collections.abc import Callable

from msgspec import Struct, field

from llmc.auto.usage import Spending
from llmc.base.errors import LlmcError
from llmc.base.files import DiskFull
from llmc.base.names import NO_TASK, TaskKey
from llmc.records.books import Claim
from llmc.records.worker import Assignment, Cause, WorkerRecord
from llmc.repo.project import Project
from llmc.tasks.queue import Queue


class HardFailure(Exception):
    """Auto mode cannot continue."""

    def __init__(
        self, cause: Cause, reason: str, *, worker: str = "", task: TaskKey = NO_TASK, output: str = ""
    ) -> None:
        super().__init__(reason)
        self.cause = cause
        self.reason = reason
        self.worker = worker
        self.task = task
        self.output = output


#: first wait before a launch or a delivery is retried
AGAIN_S = 5.0
#: how soon to check a busy worker again
BUSY_S = 2.0
#: attempts to start a task that fail for outside reasons, such as a source that does not answer
BEGINS = 5


class Run(Struct):
    queue: Queue
    workers: tuple[str, ...]
    #: called when tasks may have become ready
    on_change: Callable[[], None]
    #: check a worker again after that many seconds
    look_again: Callable[[str, float], None]
    #: prints a line
    say: Callable[[str], None]
    spending: Spending
    #: the project with the current configuration, which may change while work waits to land; None: as given
    current: Callable[[], Project] | None = None
    max_tasks: int | None = None
    #: why no new tasks are started; "" while they are
    draining: str = ""
    ends_as_asked: bool = False
    #: how often each task was begun: a retry is not another task. Lanes count while the daemon's loop reads
    _begun: Counter[TaskKey] = field(default_factory=Counter)
    _counting: threading.Lock = field(default_factory=threading.Lock)
    #: workers take tasks one at a time
    taking: threading.Lock = field(default_factory=threading.Lock)
    #: one worker at a time checks the default branch
    looking: threading.Lock = field(default_factory=threading.Lock)
    #: commits that were validated on a default branch that itself fails
    not_judged: set[str] = field(default_factory=set)
    #: when work was first refused, by claim and round
    refused_at: dict[tuple[str, int], float] = field(default_factory=dict)
    #: by worker: claims for which the remote does not say whether the work landed
    unsettled: dict[str, Claim] = field(default_factory=dict)
    _trouble: dict[str, int] = field(default_factory=dict)

    def drain(self, why: str, *, asked: bool = False) -> None:
        """Start no new tasks, and let running ones finish. The first reason counts. `asked`: by an option of the run."""
        self.ends_as_asked = asked if not self.draining else self.ends_as_asked
        self.draining = self.draining or why

    def begin(self, task: TaskKey) -> None:
        with self._counting:
            self._begun[task] += 1

    def take_back(self, task: TaskKey) -> None:
        """Uncount a task that was not started after all."""
        with self._counting:
            self._begun[task] -= 1

    @property
    def begun(self) -> frozenset[TaskKey]:
        """The tasks that this run has begun."""
        with self._counting:
            return frozenset(+self._begun)

    @property
    def is_full(self) -> bool:
        """Whether it has begun as many tasks as it may."""
        return self.max_tasks is not None and len(self.begun) >= self.max_tasks

    def wait(self, record: WorkerRecord, wait_s: float = BUSY_S) -> bool:
        """Check the worker again after this time. Always False: it has no next step now."""
        self.look_again(record.name, wait_s)
        return False

    def try_later(self, record: WorkerRecord, what: str, times: int, cause: Cause, error: LlmcError) -> bool:
        """Check again after a wait that doubles, up to `times` times; then fail for good. Always False."""
        count = self.count_trouble(record, what, times, cause, error)
        return self.wait(record, AGAIN_S * 2 ** (count - 1))

    def count_trouble(
        self, record: WorkerRecord, what: str, times: int, cause: Cause, error: LlmcError
    ) -> int:
        """Count failures in a row; too many are a hard failure."""
        key = f"{what} {record.name}"
        count = self._trouble[key] = self._trouble.get(key, 0) + 1
        if count > times or isinstance(error, DiskFull):
            raise self.hard(cause, record, error)
        return count

    def went_well(self, record: WorkerRecord, what: str) -> None:
        self._trouble.pop(f"{what} {record.name}", None)

    def hard(self, cause: Cause, record: WorkerRecord, error: LlmcError) -> HardFailure:
        cause = Cause.DISK if isinstance(error, DiskFull) else cause
        return HardFailure(cause, error.message, worker=record.name, task=task_of(record))


def assignment_of(record: WorkerRecord) -> Assignment:
    assert record.assignment is not None, f"{record.name} has no task"
    return record.assignment


def task_of(record: WorkerRecord) -> TaskKey:
    return record.assignment.task if record.assignment else NO_TASK
