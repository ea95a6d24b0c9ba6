"""Worker records for tests of the rules."""

from typing import Any

from msgspec.structs import replace

from llmc.base.names import SessionName, WorkerName
from llmc.records.worker import Status, WorkerRecord

#: fields that a step must set to enter a status
BROUGHT: dict[Status, dict[str, Any]] = {
    Status.NEEDS_REVIEW: {"commit_sha": "c0ffee"},
    Status.ERROR: {"error_reason": "it broke", "cause": "config"},
}


def worker(status: Status = Status.OFFLINE, **fields: Any) -> WorkerRecord:
    record = WorkerRecord(
        name=WorkerName("w1"),
        worktree_path="/worktrees/w1",
        branch="llmc/w1",
        session_id=SessionName("llmc-w1"),
        created_at_unix=1.0,
        instance="i1",
    )
    return replace(record, status=status, **{**BROUGHT.get(status, {}), **fields})
