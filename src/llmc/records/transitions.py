"""The worker state machine: one table, one function. Nothing else assigns a status. Pure."""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from llmc.records.worker import SelfReview, Status, WorkerRecord

S = Status

#: every allowed transition and its cause; the diagram in the docs is generated from this
ALLOWED: dict[tuple[Status, Status], str] = {
    (S.OFFLINE, S.IDLE): "agent started",
    (S.OFFLINE, S.NEEDS_INPUT): "agent restarted with its conversation",
    (S.OFFLINE, S.NEEDS_REVIEW): "agent started, commits found",
    (S.OFFLINE, S.REBASING): "agent started, rebase in progress",
    (S.OFFLINE, S.ERROR): "agent did not start",
    (S.IDLE, S.WORKING): "start",
    (S.IDLE, S.NEEDS_REVIEW): "commits from a prompt that the user typed, or restored from the trash",
    (S.IDLE, S.NEEDS_INPUT): "uncommitted work restored from the trash",
    (S.IDLE, S.OFFLINE): "agent exited",
    (S.IDLE, S.ERROR): "failure",
    (S.WORKING, S.NEEDS_REVIEW): "stopped or idle with commits",
    (S.WORKING, S.REVIEWING): "self-review sent",
    (S.WORKING, S.NEEDS_INPUT): "stopped without commits, asked a question, or was interrupted",
    (S.WORKING, S.NO_CHANGES): "reported that nothing needs to change",
    (S.WORKING, S.IDLE): "reset, or finished a prompt that was not a task",
    (S.WORKING, S.OFFLINE): "agent exited",
    (S.WORKING, S.ERROR): "failure",
    (S.NEEDS_INPUT, S.WORKING): "message sent, question answered, or self-review due",
    (S.NEEDS_INPUT, S.NEEDS_REVIEW): "commits appeared",
    (S.NEEDS_INPUT, S.NO_CHANGES): "reported that nothing needs to change",
    (S.NEEDS_INPUT, S.IDLE): "reset",
    (S.NEEDS_INPUT, S.OFFLINE): "agent exited",
    (S.NEEDS_INPUT, S.ERROR): "failure",
    (S.NEEDS_REVIEW, S.IDLE): "accept or reset",
    (S.NEEDS_REVIEW, S.REJECTED): "reject",
    (S.NEEDS_REVIEW, S.REVIEWING): "self-review sent",
    (S.NEEDS_REVIEW, S.REBASING): "rebase has conflicts or is being validated",
    (S.NEEDS_REVIEW, S.WORKING): "message",
    (S.NEEDS_REVIEW, S.OFFLINE): "agent exited",
    (S.NEEDS_REVIEW, S.ERROR): "failure",
    (S.REVIEWING, S.NEEDS_REVIEW): "self-review done",
    (S.REVIEWING, S.NEEDS_INPUT): "asked a question or was interrupted",
    (S.REVIEWING, S.IDLE): "reset",
    (S.REVIEWING, S.OFFLINE): "agent exited",
    (S.REVIEWING, S.ERROR): "failure",
    (S.REJECTED, S.NEEDS_REVIEW): "stopped with commits",
    (S.REJECTED, S.NEEDS_INPUT): "asked a question or was interrupted",
    (S.REJECTED, S.NO_CHANGES): "reported that nothing needs to change",
    (S.REJECTED, S.IDLE): "reset",
    (S.REJECTED, S.OFFLINE): "agent exited",
    (S.REJECTED, S.ERROR): "failure",
    (S.REBASING, S.NEEDS_REVIEW): "resolved and validated, or aborted by the worker",
    (S.REBASING, S.IDLE): "reset",
    (S.REBASING, S.OFFLINE): "agent exited",
    (S.REBASING, S.ERROR): "no progress, or not resolved in three rounds",
    (S.NO_CHANGES, S.WORKING): "start",
    (S.NO_CHANGES, S.IDLE): "reset or acknowledged",
    (S.NO_CHANGES, S.NEEDS_REVIEW): "commits appeared",
    (S.NO_CHANGES, S.NEEDS_INPUT): "uncommitted work restored from the trash",
    (S.NO_CHANGES, S.OFFLINE): "agent exited",
    (S.NO_CHANGES, S.ERROR): "failure",
    (S.ERROR, S.IDLE): "reset",
    (S.ERROR, S.WORKING): "message sent, or prompt typed by the user",
    (S.ERROR, S.REBASING): "message sent, or prompt typed by the user, during a rebase",
    (S.ERROR, S.NEEDS_REVIEW): "conflicts resolved by hand",
}

#: fields of the old status: cleared, unless the transition sets them
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

#: no review of the next task yet. Set by an accept, a reset or a new task, never by a status that an agent can cause
NOT_REVIEWED: dict[str, Any] = {
    "seen": None,
    "reviewed_patch": None,
    "reviewed_sha": None,
    "reviewed_unix": 0.0,
}

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

#: what else is cleared when a status is entered; `offline` and `error` keep an open rebase
_FRESH: dict[Status, dict[str, Any]] = {
    S.IDLE: {
        "current_prompt": "",
        "current_subject": "",
        "accept": None,
        "assignment": None,
        "report": None,
        "self_review": SelfReview.NO,
        "taken_back": (),
        **NO_REBASE,
    },
    S.REVIEWING: {"self_review": SelfReview.DONE},
    # The user's review replaces the self-review.
    S.REJECTED: {"report": None, "self_review": SelfReview.DONE},
    S.OFFLINE: {"instance": ""},
    S.WORKING: {"report": None, **NO_REBASE},
    S.NEEDS_INPUT: NO_REBASE,
    S.NEEDS_REVIEW: NO_REBASE,
}


class IllegalTransition(AssertionError):
    """A bug: the table does not allow this transition."""


class Step(Struct, frozen=True):
    """A status change: target, reason, and the fields to set."""

    to: Status
    reason: str
    fields: dict[str, Any]


def step(to: Status, reason: str = "", **fields: Any) -> Step:
    return Step(to, reason, fields)


def is_allowed(record: WorkerRecord, to: Status) -> bool:
    return (record.status, to) in ALLOWED


def apply(record: WorkerRecord, change: Step, now: float) -> WorkerRecord:
    """The record after the transition: status, reason, times and fields updated."""
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
    """Do not charge a task for the time it waited for an answer."""
    task = record.assignment
    if task is None or (record.status, record.reason) != (S.NEEDS_INPUT, "blocked"):
        return {}
    return {"assignment": replace(task, waited_s=task.waited_s + max(0.0, now - record.since_unix))}


def problems(record: WorkerRecord) -> list[str]:
    """Contradictions in a record; checked before every write of state.json."""
    found = []
    if (record.status is S.NEEDS_REVIEW) != (record.commit_sha is not None):
        found.append(
            f"{record.name}: commit_sha must be set if and only if the status is needs_review, but the status is {record.status}"
        )
    if record.status is S.ERROR and not record.error_reason:
        found.append(f"{record.name}: status is error without a reason")
    if record.status is S.IDLE and record.accept is not None:
        found.append(f"{record.name}: status is idle while `llmc accept` is in progress")
    if not record.worktree_path.startswith("/"):
        found.append(f"{record.name}: worktree_path is not absolute")
    return found
