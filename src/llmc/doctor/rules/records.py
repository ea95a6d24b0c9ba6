"""Problems in one worker's record, and their fixes. Pure."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from llmc.base.names import header_id
from llmc.doctor.rules.facts import WorkerFacts
from llmc.records.transitions import Step, step
from llmc.records.worker import Cause, Status, WorkerRecord
from llmc.sessions.rules import decide

#: tolerated difference between two clocks, or before and after a clock correction
CLOCK_SKEW_S = 60.0
#: stands for a task whose text is lost
LOST_PROMPT = "(task text lost; see the conversation)"

_TIMES = (
    "created_at_unix",
    "since_unix",
    "last_activity_unix",
    "reviewed_unix",
    "rebase_started_at_unix",
    "last_crash_unix",
)


class RecordFix(Struct, frozen=True):
    """A problem, and the fields or the step that fix it."""

    text: str
    fields: dict[str, Any] = field(default_factory=dict)
    change: Step | None = None


def record_fixes(worker: WorkerFacts) -> list[RecordFix]:
    """Everything in a record that contradicts itself, git or the clock."""
    return [*_commit(worker), *_contradictions(worker), *_prompt(worker), *_times(worker)]


def _commit(worker: WorkerFacts) -> list[RecordFix]:
    record, tree = worker.record, worker.tree
    if record.status is not Status.NEEDS_REVIEW:
        if record.commit_sha is None:
            return []
        return [
            RecordFix(f"has a commit for review, but its status is {record.status}", {"commit_sha": None})
        ]
    if record.commit_sha is not None:
        return []
    text = "is waiting for review, but its commit is missing from state.json"
    if record.accept is not None:
        return [RecordFix(text, {"commit_sha": record.accept.tip})]
    commit = (tree.head or tree.tip) if tree else ""
    if not commit:
        reason = "the worker was waiting for review, but its commit is unknown"
        lost = step(Status.ERROR, "commit lost", error_reason=reason, cause=Cause.GIT)
        return [RecordFix(text, change=lost)]
    nothing = tree is not None and tree.head and tree.ahead == 0 and not tree.dirty and not tree.rebasing
    if nothing and not record.held:
        return [RecordFix(text, change=step(Status.IDLE, "nothing to review"))]
    return [RecordFix(text, {"commit_sha": commit})]


def _contradictions(worker: WorkerFacts) -> Iterator[RecordFix]:
    record = worker.record
    if not record.worktree_path.startswith("/"):
        yield RecordFix("has a relative worktree path in state.json", {"worktree_path": worker.place})
    if record.status is Status.ERROR and not record.error_reason:
        yield RecordFix(
            "stopped with an error, but the reason is missing from state.json",
            {"error_reason": "not recorded"},
        )
    if record.status is Status.IDLE and record.accept is not None:
        yield RecordFix("is idle, but has an unfinished `llmc accept` in state.json", {"accept": None})


def _prompt(worker: WorkerFacts) -> Iterator[RecordFix]:
    record = worker.record
    if record.status is Status.WORKING and not record.current_prompt and not _is_persons_turn(record):
        found = worker.found_prompt or LOST_PROMPT
        yield RecordFix("is working, but its task is missing from state.json", {"current_prompt": found})


def _is_persons_turn(record: WorkerRecord) -> bool:
    """Whether the user gave the agent work, in its terminal or with `llmc message`."""
    said = record.delivery is not None and record.delivery.prompt_id.startswith("message-")
    return said or record.reason in (decide.PERSONS_PROMPT, decide.TURN_GOES_ON)


def _times(worker: WorkerFacts) -> Iterator[RecordFix]:
    record, now = worker.record, worker.now
    latest = now + CLOCK_SKEW_S
    ahead = [name for name in _TIMES if getattr(record, name) > latest]
    fields: dict[str, Any] = dict.fromkeys(ahead, now)
    if record.delivery is not None and record.delivery.at_unix > latest:
        fields["delivery"] = replace(record.delivery, at_unix=now)
    if record.accept is not None and record.accept.started_unix > latest:
        fields["accept"] = replace(record.accept, started_unix=now)
    if record.report is not None and record.report.at_unix > latest:
        fields["report"] = replace(record.report, at_unix=now)
    if fields:
        yield RecordFix(f"has timestamps in state.json that are in the future: {', '.join(fields)}", fields)


def task_in(prompts: list[str]) -> tuple[str, str]:
    """Id and text of the latest task among the prompts of a conversation; both "" if there is none."""
    for text in reversed(prompts):
        found = header_id(text)
        if found is not None and found.startswith("task-"):
            return found, text
    return "", ""
