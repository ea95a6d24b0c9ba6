"""What auto mode remembers between two runs of the daemon. Pure data."""

from typing import Any

import msgspec


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
    #: nobody is given work before this time; 0: the fleet is not parked
    parked_until_unix: float = 0.0
    parked_cause: str = ""
    parked_reason: str = ""
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


#: the state when work has landed
NOT_DIRTY: dict[str, Any] = {
    "source_repo_dirty_retry_after_unix": 0.0,
    "source_repo_dirty_backoff_secs": 0.0,
    "source_repo_dirty_retry_count": 0,
}
