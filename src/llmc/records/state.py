"""The contents of state.json, including what auto mode remembers. Fields of a newer version survive a rewrite. Pure data."""

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
    #: when a task was last completed, and last claimed; the supervisor detects stalls from them
    last_task_completion_unix: float = 0.0
    last_task_assignment_unix: float = 0.0
    #: uncommitted changes in the source: when to retry, how long the last wait was, and how many waits there were
    source_repo_dirty_retry_after_unix: float = 0.0
    source_repo_dirty_backoff_secs: float = 0.0
    source_repo_dirty_retry_count: int = 0
    #: the last run of auto mode: `running` until it ends normally (`stopped`), by a failure (`failed`), or with its
    #: daemon although nobody ended auto mode (`interrupted`), and why; no reason if the user ended it. A killed daemon
    #: leaves `running`
    run: str = ""
    #: the daemon of that run; "" if an older llmc started it
    run_instance: str = ""
    run_unix: float = 0.0
    run_cause: str = ""
    run_reason: str = ""
    #: the options that it was started with, as a shell takes them, and the time of its `--until`
    run_options: dict[str, str] = {}
    run_until_unix: float = 0.0
    #: the fleet is parked until this time; 0: not parked
    parked_until_unix: float = 0.0
    #: how long that was when it was parked; 0: an older llmc did not record it
    parked_for_s: float = 0.0
    parked_cause: str = ""
    parked_reason: str = ""
    parked_since_unix: float = 0.0
    #: the node whose park this one follows; "" if the park is its own
    parked_by: str = ""
    #: how far this machine's clock is ahead of the fleet's; None: unknown, or not in a fleet
    ahead_s: float | None = None
    #: parks in a row without a successful turn: each is longer
    parks: int = 0
    #: the worker that tries first after a park, and when it started
    probe: str = ""
    probe_unix: float = 0.0
    #: when the last park ended
    resumed_unix: float = 0.0
    #: how often a probing worker, or the whole fleet, was told to continue: workers stopped before that continue
    resumes: int = 0
    #: auto workers that the user removed since the daemon started
    nuked: tuple[str, ...] = ()
    #: landed tasks whose post-accept command has not finished yet
    post_accept_due: tuple[str, ...] = ()
    #: their lists, in the same order; shorter if an older llmc wrote the first of them
    post_accept_lists: tuple[str, ...] = ()
    #: and their workers
    post_accept_workers: tuple[str, ...] = ()

    @property
    def due(self) -> tuple["Due", ...]:
        """The tasks whose post-accept command has not finished yet."""
        count = len(self.post_accept_due)
        lists, workers = _padded(self.post_accept_lists, count), _padded(self.post_accept_workers, count)
        rows = zip(lists, self.post_accept_due, workers, strict=True)
        return tuple(Due(TaskKey(name, TaskId(task)), worker) for name, task, worker in rows)


class Due(msgspec.Struct, frozen=True):
    """A landed task whose post-accept command is due; `worker` is "" if an older llmc did not record it."""

    task: TaskKey
    worker: str = ""


def _padded(values: tuple[str, ...], count: int) -> tuple[str, ...]:
    """The last `count` values, with "" in front for those that an older llmc did not write."""
    return (("",) * count + values)[len(values) :]


def due_fields(due: Iterable[Due]) -> dict[str, Any]:
    """The fields of AutoState that store these tasks: the reverse of `AutoState.due`."""
    rows = tuple(due)
    return {
        "post_accept_due": tuple(row.task.id for row in rows),
        "post_accept_lists": tuple(row.task.list for row in rows),
        "post_accept_workers": tuple(row.worker for row in rows),
    }


#: the retries for uncommitted changes, cleared after work landed
NOT_DIRTY: dict[str, Any] = {
    "source_repo_dirty_retry_after_unix": 0.0,
    "source_repo_dirty_backoff_secs": 0.0,
    "source_repo_dirty_retry_count": 0,
}


VERSION = 1


class Raised(msgspec.Struct, frozen=True, kw_only=True):
    """An attention item that is not derived from the state (records/items.py), stored under its key."""

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
    """The progress of an undo (landing/undo.py); written before each step, so that it can resume after a crash."""

    identity: ClassVar[str] = "started_unix"
    step: str
    started_unix: float
    #: the accept to revert
    worker: str
    commit: str
    prompt: str = ""
    #: origin/<default branch> under the revert
    base: str = ""
    #: the commit that lands; stored before it lands
    revert: str = ""
    #: of a pending landing: all that is needed to poll it, and what it waits for, for the user
    receipt: str = ""
    waits_for: str = ""
    attempt: int = 1
    #: what can be run again, as text, and the task
    returned: str = ""
    task_id: str = ""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Everything llmc remembers between commands."""

    version: int = VERSION
    workers: dict[WorkerName, WorkerRecord] = {}
    last_reviewed_worker: WorkerName | None = None
    patrol_last_run_unix: float = 0.0
    #: the task of each auto worker; a copy from the workers' records, written with them
    active_task_ids: dict[WorkerName, TaskId] = {}
    auto: AutoState = AutoState()
    #: auto mode should be running: it started and was not ended, by plan or by the user. A daemon that died
    #: leaves this set
    auto_mode: bool = False
    #: the auto workers; a copy from the workers' records, written with them
    auto_workers: tuple[WorkerName, ...] = ()
    #: attention items that are not derived from the rest of the state, by key
    attention: dict[str, Raised] = {}
    #: an undo in progress or interrupted, or one that ended and was not reported to the user yet
    undo: UndoJournal | None = None
    #: the default branch fails its own validation: nothing can land, and auto mode starts no tasks
    failing_base: FailingBase | None = None
    #: a supervisor watches the daemon; a killed supervisor leaves this set (see its lock)
    overseer_active: bool = False
    #: number of the latest event, and the events of the latest write (see records/store.py)
    event_seq: int = 0
    recent_events: list[dict[str, Any]] = []


def keep_unknown(kind: Any, old: Any, new: Any) -> Any:
    """`new` (plain data of struct type `kind`) plus fields of `old` that are unknown to the type.

    If a struct names an `identity` field, `old` counts only while that field is equal.
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
    """All fields of a struct, and those that hold structs or dicts."""
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
