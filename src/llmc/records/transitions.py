"""The worker state machine: one table, one function. Nothing else assigns a status. Pure."""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from llmc.records.worker import SelfReview, Status, WorkerRecord

S = Status

#: every allowed step and what causes it; the diagram in the docs is generated from this
ALLOWED: dict[tuple[Status, Status], str] = {
    (S.OFFLINE, S.IDLE): "agent started",
    (S.OFFLINE, S.NEEDS_INPUT): "relaunched with its conversation",
    (S.OFFLINE, S.NEEDS_REVIEW): "agent started, commits are there",
    (S.OFFLINE, S.REBASING): "agent started, a rebase is open",
    (S.OFFLINE, S.ERROR): "agent did not start",
    (S.IDLE, S.WORKING): "start",
    (S.IDLE, S.NEEDS_REVIEW): "commits of a person's own turn, or from the trash",
    (S.IDLE, S.NEEDS_INPUT): "work that was restored from the trash is not committed",
    (S.IDLE, S.OFFLINE): "agent ended",
    (S.IDLE, S.ERROR): "failure",
    (S.WORKING, S.NEEDS_REVIEW): "stopped with commits, or rests with them",
    (S.WORKING, S.REVIEWING): "self-review sent",
    (S.WORKING, S.NEEDS_INPUT): "stopped without commits, asks, or was interrupted",
    (S.WORKING, S.NO_CHANGES): "reported that nothing needs to change",
    (S.WORKING, S.IDLE): "reset, or a person's own turn ended",
    (S.WORKING, S.OFFLINE): "agent ended",
    (S.WORKING, S.ERROR): "failure",
    (S.NEEDS_INPUT, S.WORKING): "message, the question was answered, or a self-review is due",
    (S.NEEDS_INPUT, S.NEEDS_REVIEW): "commits appeared",
    (S.NEEDS_INPUT, S.NO_CHANGES): "reported that nothing needs to change",
    (S.NEEDS_INPUT, S.IDLE): "reset",
    (S.NEEDS_INPUT, S.OFFLINE): "agent ended",
    (S.NEEDS_INPUT, S.ERROR): "failure",
    (S.NEEDS_REVIEW, S.IDLE): "accept, or reset",
    (S.NEEDS_REVIEW, S.REJECTED): "reject",
    (S.NEEDS_REVIEW, S.REVIEWING): "self-review sent",
    (S.NEEDS_REVIEW, S.REBASING): "rebase has conflicts, or is validated",
    (S.NEEDS_REVIEW, S.WORKING): "message",
    (S.NEEDS_REVIEW, S.OFFLINE): "agent ended",
    (S.NEEDS_REVIEW, S.ERROR): "failure",
    (S.REVIEWING, S.NEEDS_REVIEW): "self-review done",
    (S.REVIEWING, S.NEEDS_INPUT): "asks, or was interrupted",
    (S.REVIEWING, S.IDLE): "reset",
    (S.REVIEWING, S.OFFLINE): "agent ended",
    (S.REVIEWING, S.ERROR): "failure",
    (S.REJECTED, S.NEEDS_REVIEW): "stopped with commits",
    (S.REJECTED, S.NEEDS_INPUT): "asks, or was interrupted",
    (S.REJECTED, S.NO_CHANGES): "reported that nothing needs to change",
    (S.REJECTED, S.IDLE): "reset",
    (S.REJECTED, S.OFFLINE): "agent ended",
    (S.REJECTED, S.ERROR): "failure",
    (S.REBASING, S.NEEDS_REVIEW): "resolved and validated, or aborted by the worker",
    (S.REBASING, S.IDLE): "reset",
    (S.REBASING, S.OFFLINE): "agent ended",
    (S.REBASING, S.ERROR): "no progress, or the third round",
    (S.NO_CHANGES, S.WORKING): "start",
    (S.NO_CHANGES, S.IDLE): "reset, or seen",
    (S.NO_CHANGES, S.NEEDS_REVIEW): "commits appeared",
    (S.NO_CHANGES, S.NEEDS_INPUT): "work that was restored from the trash is not committed",
    (S.NO_CHANGES, S.OFFLINE): "agent ended",
    (S.NO_CHANGES, S.ERROR): "failure",
    (S.ERROR, S.IDLE): "reset",
    (S.ERROR, S.WORKING): "message, or a person's own prompt",
    (S.ERROR, S.REBASING): "the same, while its rebase is open",
    (S.ERROR, S.NEEDS_REVIEW): "a person resolved its conflicts by hand",
}

#: fields that belong to the status that is left: cleared, unless the step brings new ones
_LEFT: dict[str, Any] = {
    "commit_sha": None,
    "error_reason": "",
    "cause": "",
    "failed_sha": "",
    "commits_seen_unix": 0.0,
    "background_since_unix": 0.0,
    "rebase_due": False,
    "uncommitted": False,
}

#: what belongs to one task, and must not be taken for the next one's
_NOT_REVIEWED: dict[str, Any] = {"reviewed_patch": None, "reviewed_sha": None, "reviewed_unix": 0.0}

#: the record of a worker without an open rebase
NO_REBASE: dict[str, Any] = {
    "rebase_started_at_unix": 0.0,
    "pre_rebase_sha": "",
    "rebase_base": "",
    "conflicted_files": (),
    "resolution_attempts": 0,
    "conflict_prompt_due": False,
    "validate_rebase": False,
    "validation_due": False,
    "validation_output": "",
    "rebase_due": False,
}

#: what else is cleared when a status is entered; `offline` and `error` keep an open rebase as it is
_FRESH: dict[Status, dict[str, Any]] = {
    S.IDLE: {
        "current_prompt": "",
        "current_subject": "",
        "accept": None,
        "assignment": None,
        "report": None,
        "self_review": SelfReview.NO,
        "taken_back": (),
        **_NOT_REVIEWED,
        **NO_REBASE,
    },
    S.NO_CHANGES: _NOT_REVIEWED,
    S.REVIEWING: {"self_review": SelfReview.DONE},
    # A person's review takes the place of the agent's own.
    S.REJECTED: {"report": None, "self_review": SelfReview.DONE},
    S.OFFLINE: {"instance": ""},
    S.WORKING: {"report": None, **NO_REBASE},
    S.NEEDS_INPUT: NO_REBASE,
    S.NEEDS_REVIEW: NO_REBASE,
}


class IllegalTransition(AssertionError):
    """A bug: the table does not allow this step."""


class Step(Struct, frozen=True):
    """A decided status change: where to, why, and the fields that come with it."""

    to: Status
    reason: str
    fields: dict[str, Any]


def step(to: Status, reason: str = "", **fields: Any) -> Step:
    return Step(to, reason, fields)


def is_allowed(record: WorkerRecord, to: Status) -> bool:
    return (record.status, to) in ALLOWED


def apply(record: WorkerRecord, change: Step, now: float) -> WorkerRecord:
    """The record after the step: status, reason and times set, the fields of the new status cleared and set."""
    if not is_allowed(record, change.to):
        raise IllegalTransition(f"{record.name}: {record.status} -> {change.to} ({change.reason})")
    values: dict[str, Any] = {
        "status": change.to,
        "reason": change.reason,
        "since_unix": now,
        "last_activity_unix": now,
        **_LEFT,
        **_FRESH.get(change.to, {}),
        **(_answered(record, now) if change.to is S.WORKING else {}),
        **change.fields,
    }
    return replace(record, **values)


def _answered(record: WorkerRecord, now: float) -> dict[str, Any]:
    """A task that waited for an answer, and goes on with it: the wait is not charged to it."""
    task = record.assignment
    if task is None or (record.status, record.reason) != (S.NEEDS_INPUT, "blocked"):
        return {}
    return {"assignment": replace(task, waited_s=task.waited_s + max(0.0, now - record.since_unix))}


def problems(record: WorkerRecord) -> list[str]:
    """What contradicts itself in a record; checked before every write of state.json."""
    found = []
    if (record.status is S.NEEDS_REVIEW) != (record.commit_sha is not None):
        found.append(
            f"{record.name}: commit_sha must be set exactly while awaiting review, status is {record.status}"
        )
    if record.status is S.ERROR and not record.error_reason:
        found.append(f"{record.name}: error without a reason")
    if record.status is S.IDLE and record.accept is not None:
        found.append(f"{record.name}: idle with an accept under way")
    if not record.worktree_path.startswith("/"):
        found.append(f"{record.name}: worktree_path is not absolute")
    return found
