"""state.json as a whole, with what auto mode remembers between two runs. Fields of a newer version survive a rewrite. Pure data."""

import types
import typing
from collections.abc import Iterable
from functools import cache
from typing import Any, ClassVar

import msgspec

from llmc.base.names import TaskId, TaskKey, WorkerName
from llmc.records.worker import WorkerRecord


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


VERSION = 1


class Raised(msgspec.Struct, frozen=True, kw_only=True):
    """An item of the attention list that was seen from outside the state (records/items.py); its key is beside it."""

    kind: str
    severity: str
    who: str
    text: str
    since_unix: float
    next: str = ""


class FailingBase(msgspec.Struct, frozen=True, kw_only=True):
    """A commit of the default branch that fails `repo.validate` (landing/failing_base.py)."""

    commit: str
    command: str
    #: the configuration that the command ran with
    checks: str = ""
    #: when it was last checked, and how long that took
    at_unix: float = 0.0
    took_s: float = 0.0


class UndoJournal(msgspec.Struct, frozen=True, kw_only=True):
    """How far an undo got (landing/undo.py); written before each step acts, so that a crash resumes there."""

    identity: ClassVar[str] = "started_unix"
    step: str
    started_unix: float
    #: the accept that is taken back
    worker: str
    commit: str
    prompt: str = ""
    #: origin/<default branch> that the revert is on
    base: str = ""
    #: the one commit that lands; stored before it lands
    revert: str = ""
    attempt: int = 1
    #: what can be done again, in words, and the task that is
    returned: str = ""
    task_id: str = ""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Everything llmc remembers between commands."""

    version: int = VERSION
    workers: dict[WorkerName, WorkerRecord] = {}
    last_reviewed_worker: WorkerName | None = None
    patrol_last_run_unix: float = 0.0
    #: which task each auto worker is at; the same as in the workers' records, and written with them
    active_task_ids: dict[WorkerName, TaskId] = {}
    auto: AutoState = AutoState()
    #: auto mode is wanted: it began, and neither ended as planned nor was ended by a person. Whether it runs is
    #: another question: a daemon that died leaves this
    auto_mode: bool = False
    #: the workers that auto mode drives; the same as in the workers' records, and written with them
    auto_workers: tuple[WorkerName, ...] = ()
    #: what needs a person and does not follow from the rest of the state, by its stable key
    attention: dict[str, Raised] = {}
    #: an undo that is under way or was interrupted, or that ended and of which no person was told yet
    undo: UndoJournal | None = None
    #: the default branch fails its own validation: nothing can land, and auto mode starts no tasks
    failing_base: FailingBase | None = None
    #: a supervisor looks after the daemon, which does not know of it; one that was killed leaves this (see its lock)
    overseer_active: bool = False
    #: number of the newest event, and the events of the newest write (see records/store.py)
    event_seq: int = 0
    recent_events: list[dict[str, Any]] = []


def keep_unknown(kind: Any, old: Any, new: Any) -> Any:
    """`new` (plain data of struct type `kind`) plus whatever `old` had that the type has no field for.

    Where a struct names an `identity` field, `old` counts only while that field is the same.
    """
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    if _is_struct(kind):
        return new if _is_other(kind, old, new) else _merge_struct(kind, old, new)
    if typing.get_origin(kind) is dict:
        value_kind = typing.get_args(kind)[1]
        return {key: keep_unknown(value_kind, old.get(key), value) for key, value in new.items()}
    return new


def _merge_struct(kind: Any, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    known, nested = _fields(kind)
    merged = dict(new)
    for key, value_kind in nested.items():
        merged[key] = keep_unknown(value_kind, old.get(key), new[key])
    return merged | {key: value for key, value in old.items() if key not in known}


@cache
def _fields(kind: Any) -> tuple[frozenset[str], dict[str, Any]]:
    """All fields of a struct, and those that hold structs themselves."""
    hints = {key: _unless_none(hint) for key, hint in typing.get_type_hints(kind).items()}
    nested = {key: hint for key, hint in hints.items() if _is_struct(hint) or typing.get_origin(hint) is dict}
    return frozenset(hints), nested


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _unless_none(kind: Any) -> Any:
    """`X` for `X | None`."""
    some = [arg for arg in typing.get_args(kind) if arg is not type(None)]
    return some[0] if isinstance(kind, types.UnionType) and len(some) == 1 else kind


def _is_other(kind: Any, old: dict[str, Any], new: dict[str, Any]) -> bool:
    key: str = getattr(kind, "identity", "")
    return bool(key) and old.get(key) != new.get(key)
