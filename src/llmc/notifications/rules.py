"""Decide what to notify the user about: attention items, failed runs of auto mode, and goal questions. Pure.

An incident has a kind and a subject (`key`). It starts with a notice and ends when it is over; in between, the user is
not notified again.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from llmc.base.given import number
from llmc.base.text import printable, visible
from llmc.records.items import SEVERITIES, UP_AUTO, Item

Row = Mapping[str, Any]

#: every kind with its description; [notify].on selects among them
KINDS: dict[str, str] = {
    "auto_failed": "auto mode stopped because of a failure",
    "fleet_parked": "auto mode is parked because of a usage limit or an API outage",
    "budget_reached": "the budget for a task, the day or the run is used up",
    "task_quarantined": "a task is quarantined because it failed three times or cannot be done as written",
    "worker_error": "one of your workers has an error, or its agent crashed",
    "blocked": "any other `blocked` item in `llmc status`, such as a question, a dialog, uncommitted changes in the source repository or a full disk",
    "waiting": "any other `waiting` item in `llmc status`, such as a proposed task, a change that did not land or a long hold",
    "notice": "any other `notice` item in `llmc status`, such as a nearly used-up budget or a goal without progress",
    "needs_input": "one of your workers needs an answer or a message",
    "needs_review": "one of your workers has work to review",
    "digest": "auto mode ended; the message contains the digest",
    "goal_asked": "a goal needs you: it has a question or has used up its budget",
    "overseer_failure": "the daemon failed; the supervisor restarts it or starts an agent to fix the cause",
    "overseer_ended": "the supervisor stopped because auto mode ended or a failure requires a manual fix",
}

#: the notice kind for each kind of attention item; others use their severity
_OF_ITEMS = {
    **dict.fromkeys(("crash", "start_failed", "error", "conflict", "login", "trust"), "worker_error"),
    **dict.fromkeys(("question", "dialog", "input"), "needs_input"),
    "review": "needs_review",
    "quarantined": "task_quarantined",
    "parked": "fleet_parked",
    "parked_task": "budget_reached",
    "budget": "budget_reached",
}
#: key prefixes of items that goals announce themselves, once per dispatch
_TOLD_ELSEWHERE = ("goal-question ", "goal-budget ")
#: kinds that last as long as their item is on the list
LASTING = frozenset({*_OF_ITEMS.values(), *SEVERITIES})
#: kinds that some event or change of the list ends; the others are about a moment
ENDING = LASTING | {"auto_failed"}
#: items whose `who` is a task id
_OF_TASKS = ("quarantined", "parked_task", "proposed")
#: items dated by the event itself, so a new time means a new incident. (A dialog is dated by the worker's status,
#: and an item of the fleet by its daemon.)
_HAPPENS = ("question", "input", "review", "crash", "offline", "error", "login", "conflict")
BODY_CHARS = 4000
_TITLE_CHARS = 300


class Notice(Struct, frozen=True):
    """A notification."""

    kind: str
    #: the subject; kind and key identify the incident
    key: str
    title: str
    body: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


class Over(Struct, frozen=True):
    """The end of an incident; `key` None: of all incidents of this kind."""

    kind: str
    key: str | None = None

    def ends(self, kind: str, key: str) -> bool:
        return kind == self.kind and self.key in (None, key)


def failing_after(rows: Iterable[Row], before: bool) -> bool:
    """Whether the run failed; tasks that it completes while it stops do not change that."""
    ends = {"auto_failed": True, "auto_started": False}
    said = [ends[row["action"]] for row in rows if row.get("action") in ends]
    return said[-1] if said else before


def of_items(items: Iterable[Item], on: Collection[str], workers: Collection[str]) -> list[Notice]:
    """Notices for the attention list, with these kinds selected."""
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
    """Whether an item ended and came back between two checks: another question, or another aborted rebase.

    `told`: the facts of the earlier notice.
    """
    before, now = number(told.get("since_unix")), number(notice.facts.get("since_unix"))
    return before is not None and now is not None and before != now


def _kind_of(item: Item, on: Collection[str]) -> str:
    """The notice kind of an item; "" for none. An item without a selected kind uses its severity as the kind."""
    if item.key.startswith(_TOLD_ELSEWHERE):
        return ""
    kind = _OF_ITEMS.get(item.kind, "")
    if kind in on and (item.severity != "notice" or item.kind == "parked"):
        return kind
    return item.severity if item.severity in on else ""


def judge(rows: Iterable[Row], failing: bool = False, again: str = UP_AUTO) -> list[Notice | Over]:
    """Notices about auto mode for these events, in order, without incidents that ended again.

    `again`: the command that starts auto mode.
    """
    found: list[Notice | Over] = []
    for row in rows:
        failing = failing_after([row], failing)
        for word in of_event(row, again):
            if isinstance(word, Over):
                if failing and word.kind == "auto_failed":
                    continue
                found = [one for one in found if isinstance(one, Over) or not word.ends(one.kind, one.key)]
            found.append(word)
    return found


def of_event(row: Row, again: str = UP_AUTO) -> list[Notice | Over]:
    """The incidents that one event starts and ends."""
    task, worker = str(row.get("task_id") or ""), str(row.get("worker") or "")
    match row.get("action"):
        case "auto_failed":
            return [auto_failed(str(row.get("cause")), str(row.get("reason")), worker, task, again)]
        case "goal_asked":
            title = f"A goal needs you: {row.get('work_node_id') or row.get('goal_id')}"
            facts = {key: row.get(key) for key in ("goal_id", "work_node_id", "assignment_id")}
            where = row.get("deliver")
            facts |= where if isinstance(where, dict) else {}
            return [Notice("goal_asked", str(row.get("dispatch_id")), title, str(row.get("reason")), facts)]
        case "auto_stopped" | "task_completed":
            return [Over("auto_failed")]
    return []


def auto_failed(cause: str, reason: str, worker: str, task: str, again: str) -> Notice:
    """The cause is the key: a fleet that is restarted into the same failure notifies once."""
    facts = {"cause": cause, "worker": worker, "task_id": task}
    where = ", ".join(filter(None, (worker, f"task {task}" if task else "")))
    title = f"Auto mode stopped: {cause}" + (f" ({where})" if where else "")
    body = f"{reason}\nTo diagnose: llmc doctor\nTo see what happened: llmc digest\nTo restart: {again}"
    return Notice("auto_failed", cause, title, body[:BODY_CHARS], facts)


def fit_to_tell(notice: Notice) -> Notice:
    """Make it safe for any channel: a one-line title, no terminal escapes, valid UTF-8."""
    return Notice(
        notice.kind, _whole(notice.key), printable(notice.title), visible(notice.body), _whole(notice.facts)
    )


def _whole(value: Any) -> Any:
    """Half an emoji is valid in JSON, but not in UTF-8."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {_whole(key): _whole(one) for key, one in value.items()}
        case list() | tuple():
            return [_whole(one) for one in value]
    return value


def payload(notice: Notice, *, root: str, host: str, now: float) -> dict[str, Any]:
    """The JSON for commands and webhooks; chat services show `text`."""
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
    """A message without URLs and without these secrets; a notification URL often contains a token."""
    for secret in filter(None, secrets):
        text = text.replace(secret, "...")
    return re.sub(r"[a-zA-Z][a-zA-Z0-9+.-]*://\S+", "...", text)
