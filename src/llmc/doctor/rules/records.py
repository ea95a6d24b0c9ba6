"""Problems in one worker's record, and their fixes. Pure."""

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


class Mend(Struct, frozen=True):
    """A problem, and the fields or the step that fix it."""

    text: str
    fields: dict[str, Any] = field(default_factory=dict)
    change: Step | None = None


def mends(worker: WorkerFacts, now: float) -> list[Mend]:
    """Everything in a record that contradicts itself, git or the clock."""
    found = [*_commit(worker), *_contradictions(worker), *_prompt(worker)]
    return [*found, *_times(worker.record, now)]


def _commit(worker: WorkerFacts) -> list[Mend]:
    record, tree = worker.record, worker.tree
    if record.status is not Status.NEEDS_REVIEW:
        if record.commit_sha is None:
            return []
        return [Mend(f"has a commit for review, but is {record.status}", {"commit_sha": None})]
    if record.commit_sha is not None:
        return []
    text = "is waiting for review, but its record has no commit"
    if record.accept is not None:
        return [Mend(text, {"commit_sha": record.accept.tip})]
    commit = (tree.head or tree.tip) if tree else ""
    if not commit:
        reason = "it was waiting for review, but its commit is unknown"
        lost = step(Status.ERROR, "commit lost", error_reason=reason, cause=Cause.GIT)
        return [Mend(text, change=lost)]
    nothing = tree is not None and tree.head and tree.ahead == 0 and not tree.dirty and not tree.rebasing
    if nothing and not record.held:
        return [Mend(text, change=step(Status.IDLE, "nothing to review"))]
    return [Mend(text, {"commit_sha": commit})]


def _contradictions(worker: WorkerFacts) -> list[Mend]:
    record = worker.record
    found = []
    if not record.worktree_path.startswith("/"):
        found.append(Mend("has a relative worktree path", {"worktree_path": worker.place}))
    if record.status is Status.ERROR and not record.error_reason:
        found.append(Mend("is in error, but its record has no reason", {"error_reason": "not recorded"}))
    if record.status is Status.IDLE and record.accept is not None:
        found.append(Mend("is idle, but its record has an accept in progress", {"accept": None}))
    return found


def _prompt(worker: WorkerFacts) -> list[Mend]:
    record = worker.record
    if record.status is not Status.WORKING or record.current_prompt or _is_persons_turn(record):
        return []
    return [
        Mend("is working, but its record has no task", {"current_prompt": worker.found_prompt or LOST_PROMPT})
    ]


def _is_persons_turn(record: WorkerRecord) -> bool:
    """The user may give an idle agent work in its terminal or with `llmc message`."""
    said = record.delivery is not None and record.delivery.prompt_id.startswith("message-")
    return said or record.reason in (decide.PERSONS_PROMPT, decide.TURN_GOES_ON)


def _times(record: WorkerRecord, now: float) -> list[Mend]:
    latest = now + CLOCK_SKEW_S
    ahead = [name for name in _TIMES if getattr(record, name) > latest]
    fields: dict[str, Any] = dict.fromkeys(ahead, now)
    if record.delivery is not None and record.delivery.at_unix > latest:
        fields["delivery"] = replace(record.delivery, at_unix=now)
    if record.accept is not None and record.accept.started_unix > latest:
        fields["accept"] = replace(record.accept, started_unix=now)
    if record.report is not None and record.report.at_unix > latest:
        fields["report"] = replace(record.report, at_unix=now)
    return [Mend(f"has timestamps in the future: {', '.join(fields)}", fields)] if fields else []


def task_in(prompts: list[str]) -> tuple[str, str]:
    """Id and text of the latest task among the prompts of a conversation; both "" if there is none."""
    for text in reversed(prompts):
        found = header_id(text)
        if found is not None and found.startswith("task-"):
            return found, text
    return "", ""
