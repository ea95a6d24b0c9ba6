"""What a person is told of: items of the attention list, runs of auto mode that failed, and what goals ask. Pure.

An incident is a kind and what it is about (`key`). It begins with a notice and ends when it is over; between the two nobody
is told again.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from llmc.base.given import number
from llmc.base.text import printable, visible
from llmc.records.items import SEVERITIES, Item

Row = Mapping[str, Any]

#: every kind, with what it is about; [notify].on selects among them
KINDS: dict[str, str] = {
    "auto_failed": "auto mode stopped because of a failure",
    "fleet_parked": "the fleet waits: for a usage limit, or an API that is away",
    "budget_reached": "a budget is used up: of a task, the day or the run",
    "task_quarantined": "a task failed three times, or cannot be done as it is, and waits for a person",
    "worker_error": "a worker of yours is in error, or its agent crashed",
    "blocked": "anything else that is `blocked` in `llmc status`: a question, a dialog, a dirty source, a full disk",
    "waiting": "anything else that is `waiting` in `llmc status`: a proposed task, a failed accept, a long hold",
    "notice": "anything else that is a `notice` in `llmc status`: a budget that is near, a goal in which nothing moves",
    "needs_input": "a worker of yours waits for an answer or a message",
    "needs_review": "a worker of yours has work to review",
    "digest": "auto mode has ended; the report on it",
    "goal_asked": "a part of a goal cannot go on without a person",
    "overseer_failure": "the supervisor found a failure and has it mended",
    "overseer_ended": "the supervisor gave up; the fleet stands still until a person comes",
}

#: the kind of notice for an item of the attention list; any other is told when it is `blocked`
_OF_ITEMS = {
    **dict.fromkeys(("crash", "error", "conflict", "login", "trust"), "worker_error"),
    **dict.fromkeys(("question", "dialog", "input"), "needs_input"),
    "review": "needs_review",
    "quarantined": "task_quarantined",
    "parked": "fleet_parked",
    "parked_task": "budget_reached",
    "budget": "budget_reached",
}
#: told by the goals themselves, once for each dispatch: how the keys of such items begin
_TOLD_ELSEWHERE = ("goal-question ", "goal-budget ")
#: the kinds that last as long as their item is on the list
LASTING = frozenset({*_OF_ITEMS.values(), *SEVERITIES})
#: items whose `who` is the name of a worker, or of a task
_OF_TASKS = ("quarantined", "parked_task", "proposed")
#: items whose time is that of what happened: with another time it is another one. The time of others says less: of a dialog
#: it is that of the status below it, of the fleet that of its daemon
_HAPPENS = ("question", "input", "review", "crash", "offline", "error", "login", "conflict")
BODY_CHARS = 4000
_TITLE_CHARS = 300


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


def of_items(items: Iterable[Item], on: Collection[str], workers: Collection[str]) -> list[Notice]:
    """What is told of the attention list where these kinds are selected."""
    found = []
    for item in items:
        kind = _kind_of(item, on)
        if kind:
            about: dict[str, Any] = {"severity": item.severity, "next": item.next}
            if item.who in workers:
                about["worker"] = item.who
            if item.kind in _HAPPENS:
                about["since_unix"] = item.since_unix
            if item.kind in _OF_TASKS:
                about["task_id"] = item.who
            title = f"{item.who}: {item.text}" if item.who in workers else item.text
            body = f"{item.text}\nNext: {item.next}" if item.next else item.text
            found.append(Notice(kind, item.key, title[:_TITLE_CHARS], body[:BODY_CHARS], about))
    return found


def is_another(notice: Notice, told: Mapping[str, Any]) -> bool:
    """Whether an item was over and came back between two looks: another question, or the next rebase that a worker aborted.

    `told`: the facts of what was told.
    """
    before, now = number(told.get("since_unix")), number(notice.facts.get("since_unix"))
    return before is not None and now is not None and before != now


def _kind_of(item: Item, on: Collection[str]) -> str:
    """The kind under which an item is told; "" when it is not. A severity is a kind, too, for what has none of its own."""
    if item.key.startswith(_TOLD_ELSEWHERE):
        return ""
    kind = _OF_ITEMS.get(item.kind, "")
    if kind in on and (item.severity != "notice" or item.kind == "parked"):
        return kind
    return item.severity if item.severity in on else ""


def judge(rows: Iterable[Row], failing: bool = False) -> list[Notice | Over]:
    """What to tell of auto mode after these events, in their order; what is over again by the end of them is not told."""
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
        case "goal_asked":
            title = f"A goal needs you: {row.get('work_node_id') or row.get('goal_id')}"
            facts = {key: row.get(key) for key in ("goal_id", "work_node_id", "assignment_id")}
            where = row.get("deliver")
            facts |= where if isinstance(where, dict) else {}
            return [Notice("goal_asked", str(row.get("dispatch_id")), title, str(row.get("reason")), facts)]
        case "auto_stopped" | "task_completed":
            return [Over("auto_failed")]
    return []


def auto_failed(cause: str, reason: str, worker: str, task: str) -> Notice:
    """The cause is the key: a fleet that is restarted into the same trouble tells of it once."""
    facts = {"cause": cause, "worker": worker, "task_id": task}
    where = ", ".join(filter(None, (worker, f"task {task}" if task else "")))
    title = f"Auto mode stopped: {cause}" + (f" ({where})" if where else "")
    body = f"{reason}\nWhat is wrong: llmc doctor. What happened: llmc digest. Go on: llmc up --auto --detach"
    return Notice("auto_failed", cause, title, body[:BODY_CHARS], facts)


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
