"""What auto mode remembers between two runs of the daemon. Pure data."""

from collections.abc import Iterable
from typing import Any

import msgspec

from llmc.base.names import TaskId, TaskKey


class AutoState(msgspec.Struct, frozen=True, kw_only=True):
    """The part of state.json that belongs to auto mode."""

    tasks_completed: int = 0
    errors: int = 0
    #: when a task was last completed, and last given out; the supervisor sees from them that work gets on
    last_task_completion_unix: float = 0.0
    last_task_assignment_unix: float = 0.0
    #: uncommitted changes of a person in the source: when to try again, how long the last wait was, how many there were
    source_repo_dirty_retry_after_unix: float = 0.0
    source_repo_dirty_backoff_secs: float = 0.0
    source_repo_dirty_retry_count: int = 0
    #: how the last run of auto mode stands: `running` until it ends in order (`stopped`) or by a failure (`failed`)
    run: str = ""
    run_unix: float = 0.0
    run_cause: str = ""
    run_reason: str = ""
    #: nobody is given work before this time; 0: the fleet is not parked
    parked_until_unix: float = 0.0
    parked_cause: str = ""
    parked_reason: str = ""
    parked_since_unix: float = 0.0
    #: parks in a row without a turn that went well: each waits longer
    parks: int = 0
    #: the worker that was sent ahead when the wait was over, and when
    probe: str = ""
    probe_unix: float = 0.0
    #: when the last park ended: who was stopped before that goes on
    resumed_unix: float = 0.0
    #: auto workers that a person removed since the daemon began
    nuked: tuple[str, ...] = ()
    #: tasks that landed and whose post-accept command has not ended yet
    post_accept_due: tuple[str, ...] = ()
    #: the lists of these, in the same order; shorter where an older llmc wrote the first of them
    post_accept_lists: tuple[str, ...] = ()
    #: and the workers that did them
    post_accept_workers: tuple[str, ...] = ()

    @property
    def due(self) -> tuple["Due", ...]:
        """The tasks whose post-accept command has not ended yet."""
        count = len(self.post_accept_due)
        lists, workers = _padded(self.post_accept_lists, count), _padded(self.post_accept_workers, count)
        rows = zip(lists, self.post_accept_due, workers, strict=True)
        return tuple(Due(TaskKey(name, TaskId(task)), worker) for name, task, worker in rows)


class Due(msgspec.Struct, frozen=True):
    """A task that landed; "" where an older llmc did not say whose work it was."""

    task: TaskKey
    worker: str = ""


def _padded(values: tuple[str, ...], count: int) -> tuple[str, ...]:
    """So many of the last ones."""
    return (("",) * count + values)[len(values) :]


def due_fields(due: Iterable[Due]) -> dict[str, Any]:
    """What `AutoState.due` is made of."""
    rows = tuple(due)
    return {
        "post_accept_due": tuple(row.task.id for row in rows),
        "post_accept_lists": tuple(row.task.list for row in rows),
        "post_accept_workers": tuple(row.worker for row in rows),
    }


#: the state when work has landed
NOT_DIRTY: dict[str, Any] = {
    "source_repo_dirty_retry_after_unix": 0.0,
    "source_repo_dirty_backoff_secs": 0.0,
    "source_repo_dirty_retry_count": 0,
}
