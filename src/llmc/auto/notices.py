"""What a person is told of, from the event log alone. Pure.

An incident is a kind and what it is about (`key`). It begins with a notice and ends when it is over; between the two nobody
is told again.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from llmc.auto.digest import Digest
from llmc.config.options import is_auto_name
from llmc.fit import printable, visible
from llmc.workers.causes import Cause

Row = Mapping[str, Any]

#: every kind, with what it is about; [notify].on selects among them
KINDS: dict[str, str] = {
    "auto_failed": "auto mode stopped because of a failure",
    "fleet_parked": "the fleet waits: for a usage limit, or an API that is away",
    "budget_reached": "a budget is used up: of a task, the day or the run",
    "task_quarantined": "a task failed too often and waits for a person",
    "worker_error": "a worker of yours is in error, or its agent crashed",
    "needs_input": "a worker of yours waits for an answer",
    "needs_review": "a worker of yours has work to review",
    "digest": "auto mode has ended; the report on it",
    "goal_asked": "a part of a goal cannot go on without a person",
    "overseer_failure": "the supervisor found a failure and has it mended",
    "overseer_ended": "the supervisor gave up; the fleet stands still until a person comes",
}

#: the kinds that follow a worker's status
_OF_STATUS = {
    "error": "worker_error",
    "offline": "worker_error",
    "needs_input": "needs_input",
    "needs_review": "needs_review",
}
_BODY_CHARS = 4000


class Notice(Struct, frozen=True):
    """Something a person should know."""

    kind: str
    #: what it is about; with the kind the name of the incident
    key: str
    title: str
    body: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


class Over(Struct, frozen=True):
    """An incident has ended; `key` None: every one of its kind."""

    kind: str
    key: str | None = None

    def ends(self, kind: str, key: str) -> bool:
        return kind == self.kind and self.key in (None, key)


def failing_after(rows: Iterable[Row], before: bool) -> bool:
    """Whether the run is over by a failure: what it still completes while it ends does not make it well."""
    ends = {"auto_failed": True, "auto_started": False}
    said = [ends[row["action"]] for row in rows if row.get("action") in ends]
    return said[-1] if said else before


def judge(rows: Iterable[Row], failing: bool = False) -> list[Notice | Over]:
    """What to tell after these events, in their order; what is over again by the end of them is not told."""
    found: list[Notice | Over] = []
    for row in rows:
        failing = failing_after([row], failing)
        for word in of_event(row):
            if isinstance(word, Over):
                if failing and word.kind == "auto_failed":
                    continue
                found = [one for one in found if isinstance(one, Over) or not word.ends(one.kind, one.key)]
            found.append(word)
    return found


def of_event(row: Row) -> list[Notice | Over]:
    """What one event begins and ends."""
    task, worker = str(row.get("task_id") or ""), str(row.get("worker") or "")
    match row.get("action"):
        case "auto_failed":
            return [auto_failed(str(row.get("cause")), str(row.get("reason")), worker, task)]
        case "auto_stopped":
            return [Over("auto_failed")]
        case "fleet_parked":
            return [_parked(row)]
        case "fleet_resumed":
            return [Over("fleet_parked")]
        case "budget_reached":
            title = "The budget of this run is used up; no more tasks are taken"
            return [Notice("budget_reached", f"run {row.get('seq')}", title, str(row.get("reason")))]
        case "task_parked" if row.get("cause") == Cause.BUDGET:
            body = f"{row.get('reason')}\nHave it done again: llmc tasks requeue {task}"
            return [
                Notice("budget_reached", f"task {task}", f"Task {task} used up its budget", body, _about(row))
            ]
        case "task_quarantined":
            return [_quarantined(row, task)]
        case "goal_asked":
            title = f"A goal needs you: {row.get('work_node_id') or row.get('goal_id')}"
            facts = {key: row.get(key) for key in ("goal_id", "work_node_id", "assignment_id")}
            return [Notice("goal_asked", str(row.get("dispatch_id")), title, str(row.get("reason")), facts)]
        case "task_completed":
            return [Over("auto_failed"), *_task_over(task)]
        case "task_requeued":
            return _task_over(task)
        case "worker_removed":
            return [Over(kind, worker) for kind in sorted(set(_OF_STATUS.values()))]
        case "status_changed" if not is_auto_name(worker):
            return _status(row, worker)
    return []


def auto_failed(cause: str, reason: str, worker: str, task: str) -> Notice:
    """The cause is the key: a fleet that is restarted into the same trouble tells of it once."""
    facts = {"cause": cause, "worker": worker, "task_id": task}
    where = ", ".join(filter(None, (worker, f"task {task}" if task else "")))
    title = f"Auto mode stopped: {cause}" + (f" ({where})" if where else "")
    body = f"{reason}\nWhat is wrong: llmc doctor. What happened: llmc digest. Go on: llmc up --auto"
    return Notice("auto_failed", cause, title, body[:_BODY_CHARS], facts)


def digest_ready(found: Digest, text: str) -> Notice:
    counted = [
        (len(found.accepted), "landed"),
        (len(found.failed) + len(found.held), "failed"),
        (len(found.waiting), "wait for you"),
    ]
    words = ", ".join(f"{count} {what}" for count, what in counted if count) or "nothing happened"
    facts = {"accepted": len(found.accepted), "failed": len(found.failed), "waiting": len(found.waiting)}
    return Notice(
        "digest", f"{found.since_unix:.3f}", f"Auto mode has ended: {words}", text[:_BODY_CHARS], facts
    )


def fit_to_tell(notice: Notice) -> Notice:
    """Fit for any channel: a title of one line, nothing that a terminal acts on, and every text can be written."""
    return Notice(
        notice.kind, _whole(notice.key), printable(notice.title), visible(notice.body), _whole(notice.facts)
    )


def _whole(value: Any) -> Any:
    """Half an emoji is valid in JSON, and cannot be written as UTF-8."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {_whole(key): _whole(one) for key, one in value.items()}
        case list() | tuple():
            return [_whole(one) for one in value]
    return value


def payload(notice: Notice, *, root: str, host: str, now: float) -> dict[str, Any]:
    """The JSON that commands and webhooks get; `text` is what chat services show."""
    return {
        **notice.facts,
        "kind": notice.kind,
        "key": notice.key,
        "title": notice.title,
        "body": notice.body,
        "text": f"{notice.title}\n{notice.body}".strip(),
        "root": root,
        "host": host,
        "ts": now,
    }


def scrubbed(text: str, *secrets: str) -> str:
    """A message without URLs and without these texts: such addresses are as good as passwords."""
    for secret in filter(None, secrets):
        text = text.replace(secret, "...")
    return re.sub(r"[a-zA-Z][a-zA-Z0-9+.-]*://\S+", "...", text)


def _parked(row: Row) -> Notice:
    cause, reason = str(row.get("cause")), str(row.get("reason"))
    facts = {**_about(row), "until_unix": row.get("until_unix")}
    if cause == Cause.BUDGET:
        title = "The budget of the day is used up; the fleet waits until midnight"
        return Notice("budget_reached", f"day {row.get('until_unix')}", title, reason, facts)
    return Notice("fleet_parked", cause, f"The fleet waits: {cause}", reason, facts)


def _quarantined(row: Row, task: str) -> Notice:
    times = row.get("attempt")
    title = f"Task {task} failed {times} times and waits for you"
    body = f"{row.get('cause')}: {row.get('reason')}\nLook: llmc tasks show {task}. Again: llmc tasks requeue {task}"
    return Notice("task_quarantined", task, title, body, _about(row))


def _task_over(task: str) -> list[Notice | Over]:
    return [Over("task_quarantined", task), Over("budget_reached", f"task {task}")]


def _status(row: Row, worker: str) -> list[Notice | Over]:
    before, after, reason = str(row.get("from")), str(row.get("to")), str(row.get("reason") or "")
    if before == after:
        return []
    found: list[Notice | Over] = []
    if before in _OF_STATUS:
        found.append(Over(_OF_STATUS[before], worker))
    if after in _WORDS and reason != "rebased" and (after != "offline" or reason == "crashed"):
        words, command = _WORDS[after]
        body = f"{reason}\nllmc {command.format(worker)}".strip()
        facts = {"worker": worker, "reason": reason}
        found.append(Notice(_OF_STATUS[after], worker, f"{worker} {words}", body, facts))
    return found


#: what a status means for a person, and the command that helps
_WORDS = {
    "error": ("is in error", "doctor"),
    "offline": ("has crashed", "logs {}"),
    "needs_input": ("waits for you", "attach {}"),
    "needs_review": ("has work to review", "review {}"),
}


def _about(row: Row) -> dict[str, Any]:
    return {key: row[key] for key in ("worker", "task_id", "cause", "reason") if row.get(key)}
