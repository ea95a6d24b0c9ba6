"""The attention list: what needs the user now or soon, and the next command for each worker. Pure, on plain data.

`status`, `status --json`, `digest` and the notifications all render this list.

`row` is a worker's row of `status --json`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from llmc.base.given import number, text
from llmc.base.text import moment
from llmc.records.items import (
    LOG_IN,
    SEVERITIES,
    UP,
    Facts,
    Item,
    Raw,
    Registration,
    Seen,
)
from llmc.records.statuses import AT_WORK, FREE, LIVE

#: a hold this old may have been forgotten
HELD_S = 3600.0
#: reasons of a worker whose client is asking; the client's status file, if any, says so too
ASKS = ("question", "permission")
#: reasons of a worker whose conflicts need the user (sessions/rules/decide.py)
CONFLICTS_LEFT, VALIDATION_FAILS = "conflicts not resolved", "validation fails after the rebase"
GAVE_UP = (CONFLICTS_LEFT, VALIDATION_FAILS)
#: reason of a worker that aborted the rebase it was told to finish; its commits are unchanged
ABORTED = "rebase aborted by the worker"
#: why a queued message was not delivered
NOT_TAKEN = "it was still in the client's queue when the client exited"
#: the text for each reason that scripts match
WORDS = {
    "stopped_clean": "stopped without a commit",
    "stopped_dirty": "stopped with uncommitted changes",
    "stopped_rebasing": "stopped in the middle of its own rebase",
    "restarted": "restarted with its conversation intact; waiting for your message",
    "question": "asks a question",
    "permission": "asks for permission",
    "limit": "usage limit",
    "api": "API error",
    "dialog": "stopped at a dialog that is now closed; waiting for your message",
}
#: what to do first, by the cause of a failure
FIRST = {
    "auth": LOG_IN,
    "config": "llmc config edit",
    "disk": "llmc trash prune",
}
DETACH = "detach from its terminal first (C-b d, or C-b C-b d inside another tmux)"


def worker_view(record: Raw, attached: bool | None) -> Raw:
    """One worker as `status --json` shows it."""
    delivery = record.get("delivery") or {}
    return {
        "name": record["name"],
        "status": record.get("status", "offline"),
        "reason": record.get("reason", ""),
        "since_unix": record.get("since_unix", 0),
        "auto": record.get("auto", False),
        "held": record.get("held", False),
        "attached": attached,
        "task_id": (record.get("assignment") or {}).get("task_id"),
        "task_subject": (record.get("assignment") or {}).get("subject")
        or record.get("current_subject")
        or None,
        "prompt": record.get("current_prompt", ""),
        "prompt_id": delivery.get("prompt_id"),
        "delivery": delivery.get("outcome"),
        "accept_step": (record.get("accept") or {}).get("step"),
        "conflicted_files": record.get("conflicted_files", []),
        "resolution_attempts": record.get("resolution_attempts", 0),
        "self_review": record.get("self_review", "no"),
        "commit_sha": record.get("commit_sha"),
        "reviewed": record.get("commit_sha") is not None
        and record.get("commit_sha") == record.get("reviewed_sha"),
        "session": record.get("session_id"),
        "last_activity_unix": record.get("last_activity_unix", 0),
        "error_reason": record.get("error_reason", ""),
        "cause": record.get("cause", ""),
        "refused_hosts": record.get("refused_hosts", []),
    }


def self_review_waits(record: Raw) -> bool:
    """Whether a self-review must be sent (see sessions/rules/decide.py); not while the worker is on hold."""
    return (
        record.get("self_review") in ("due", "sent")
        and record.get("status") in ("working", "needs_review")
        and record.get("accept") is None
        and not record.get("held")
    )


def has_dialog(row: Raw, seen: Seen) -> bool:
    """Whether a dialog is open, by the client's status file or by its hooks, which come first."""
    return bool(seen.dialog) or (_asks(row) and not seen.rests)


def next_command(row: Raw, seen: Seen, facts: Facts, record: Raw | None = None) -> str:
    """The command that the user most likely wants now. Never offers a command that would be refused.

    `record`: the worker's record, which says more than its row.
    """
    record = record or {}
    name, status = row["name"], row["status"]
    # A daemon without auto mode does nothing for auto workers.
    busy = seen.acting or (facts.auto_runs if row["auto"] else facts.running)
    if status == "offline":
        # Auto mode restarts its workers itself, and does not use those beyond its concurrency.
        return "" if row["auto"] and facts.auto_runs else _after_offline(row, facts)
    if has_dialog(row, seen):
        return f"llmc {'answer' if _can_be_answered(record, row, seen) else 'attach'} {name}"
    if row["held"]:
        return f"llmc release {name}"
    if row["accept_step"] and busy:
        return ""
    if row["auto"] and (seen.acting or facts.auto_runs) and status != "error":  # auto mode does the next step
        return DETACH if row["attached"] else f"llmc peek {name}" if row["task_id"] else ""
    if row["delivery"] in ("pending", "typed"):
        return "" if busy else facts.start_command(row["auto"])
    if status == "needs_review" and not row["reviewed"] and not row["accept_step"]:
        return f"llmc review {name}"
    if row["delivery"] == "unconfirmed" and status not in ("needs_review", "error"):
        return f"llmc peek {name}"
    if status in AT_WORK:
        return f"llmc peek {name}"
    if status == "needs_review" and record.get("uncommitted") and not row["accept_step"]:
        return DETACH if row["attached"] else after_dirty(name)
    return DETACH if row["attached"] else _acting_command(row, facts)


def after_dirty(name: str) -> str:
    """What to do about reviewed work with uncommitted changes: accept refuses it."""
    return f"llmc reject {name}, or llmc console {name} (commit or discard the changes there)"


def advice(record: Raw, row: Raw, seen: Seen, facts: Facts) -> str:
    """The next command after a refusal, with the reason; if the worker is busy, wait for it."""
    name = row["name"]
    if row["status"] in AT_WORK and not has_dialog(row, seen):
        return f"To wait for the worker: llmc wait {name} --status needs_review"
    found = _most_urgent(record, row, seen, facts)
    said = found[2] if found else "the worker has no task" if row["status"] == "idle" else ""
    command = (found[3] if found else "") or next_command(row, seen, facts, record)
    if not command:
        return f"The worker continues on its own. To wait for it: llmc wait {name} --status needs_review"
    return f"{said[:1].upper()}{said[1:]}. Next: {command}" if said else f"Next: {command}"


def _acting_command(row: Raw, facts: Facts) -> str:
    """The command that moves a waiting worker on; llmc refuses these while a terminal is attached."""
    name = row["name"]
    match row["status"]:
        case status if facts.source_fix and status not in ("needs_input", "error"):
            return facts.source_fix
        case "needs_review" if row["accept_step"]:
            return f"llmc accept {name}"
        case "needs_review":
            return f"llmc accept {name}, or llmc reject {name}"
        case "needs_input" if row["reason"] == "blocked":
            return f"llmc answer {name}"
        case "needs_input":
            return f"llmc message {name}"
        case "error":
            return _after_error(row)
        case _:
            return facts.up_auto if row["auto"] else f"llmc start --worker {name}"


def _after_offline(row: Raw, facts: Facts) -> str:
    """The command that starts the agent, after the fix (if any) that the reason of a failed start names."""
    up = facts.start_command(row["auto"])
    first = _fix_in(row["error_reason"])
    return f"{first}, then {up}" if first else up


def _fix_in(reason: str) -> str:
    """The command that a reason names, other than `llmc up`; "" for none."""
    _, found, rest = reason.partition("`llmc ")
    command = f"llmc {rest.partition('`')[0]}"
    return command if found and command.split()[1] != "up" else ""


def _after_error(row: Raw) -> str:
    """What to do about an error; some causes must be fixed first, or it fails again."""
    name = row["name"]
    reset = f"llmc reset {name}"
    if row["conflicted_files"]:
        return f"llmc console {name} (resolve the conflicts there), or llmc message {name}, or {reset}"
    first = FIRST.get(row["cause"])
    return f"{first}, then llmc message {name}, or {reset}" if first else f"llmc message {name}, or {reset}"


def goes_on_by_itself(row: Raw, seen: Seen, facts: Facts) -> bool:
    """Whether the user is not needed: an accept is running, or auto mode drives this worker."""
    if row["held"]:
        return False
    accepting = bool(row["accept_step"]) and (seen.acting or facts.running)
    return accepting or (bool(row["auto"]) and facts.drives(row["name"]) and not seen.dialog)


def worker_items(record: Raw, row: Raw, facts: Facts) -> Iterator[Item]:
    """What needs the user about one worker; often nothing."""
    seen = facts.seen(row["name"])
    found = _most_urgent(record, row, seen, facts)
    if found is not None:
        kind, severity, said, command = found
        since = number(row["since_unix"]) or 0.0
        if kind == "question" and row["reason"] != "blocked":  # the next question does not change the status
            since = number((record.get("asked") or {}).get("at_unix")) or since
        yield Item(f"{kind}:{row['name']}", kind, severity, row["name"], since, said, command)
    if (record.get("assignment") or {}).get("told_of_budget") and row["status"] in AT_WORK:
        said = f"task {row['task_id']} has nearly used up its budget"
        since = number(record["assignment"].get("since_unix")) or 0.0
        yield Item(
            f"budget:{row['name']}", "budget", "notice", row["name"], since, said, "llmc usage --by task"
        )
    if row["held"]:
        since = number(record.get("held_since_unix")) or number(row["since_unix"]) or 0.0
        severity = "waiting" if facts.now - since >= HELD_S else "notice"
        said = "on hold: llmc leaves this worker alone until you release it"
        release = f"llmc release {row['name']}"
        yield Item(f"held:{row['name']}", "held", severity, row["name"], since, said, release)


_Found = tuple[str, str, str, str]


def _most_urgent(record: Raw, row: Raw, seen: Seen, facts: Facts) -> _Found | None:
    """Kind, severity, text and command of what the user must do first."""
    command = next_command(row, seen, facts, record)
    if goes_on_by_itself(row, seen, facts):
        return None
    if row["status"] == "error":
        return _error(row, command)
    if row["status"] == "offline":
        return _offline(row, command)
    if has_dialog(row, seen):
        return _dialog(record, row, seen, command)
    if row["delivery"] == "unconfirmed" and row["status"] != "needs_review":
        if (record.get("delivery") or {}).get("reason") == NOT_TAKEN:
            said = (
                f"{row['prompt_id']} was not delivered: {NOT_TAKEN}; to see its text: llmc logs {row['name']}"
            )
            return "unconfirmed", "waiting", said, f"llmc message {row['name']}"
        said = f"delivery of {row['prompt_id']} is unconfirmed"
        return "unconfirmed", "waiting", said, command
    if row["auto"]:
        return None  # it continues with auto mode; if that is not running, there is an item about it
    if row["status"] == "needs_review" and row["reason"] == ABORTED and not row["accept_step"]:
        return _aborted(row)
    if row["status"] == "needs_review":
        return "review", "waiting", _review(row, bool(record.get("uncommitted"))), command
    if row["status"] == "needs_input":
        return _input(row, command)
    return None


def _error(row: Raw, command: str) -> _Found:
    kind = {"auth": "login", "disk": "disk"}.get(row["cause"], "error")
    kind = "conflict" if row["reason"] in GAVE_UP else kind
    return kind, "blocked", row["error_reason"] or row["reason"] or "stopped with an error", command


def _offline(row: Raw, command: str) -> _Found | None:
    if row["auto"] and not row["task_id"]:
        return None  # the next run of auto mode starts it
    at = f": {_task(row)}" if _task(row) else ""
    why = row["error_reason"]
    if why and row["cause"] == "config":
        return "start_failed", "blocked", why + at, command
    if row["reason"] == "crashed":
        said = f"agent crashed ({why})" if why else "agent crashed"
        return "crash", "blocked" if at else "waiting", said + at, command
    if not at:
        return None
    return "offline", "waiting", f"agent not running ({why or row['reason']}){at}", command


def _asks(row: Raw) -> bool:
    return row["status"] == "needs_input" and row["reason"] in ASKS


def _asked(record: Raw, row: Raw, seen: Seen) -> Raw:
    """The question of the open dialog; empty if there is none, or only an earlier one is known."""
    asked: Raw = record.get("asked") or {}
    if not has_dialog(row, seen) or seen.dialog == "dialog open":
        return {}
    # An error comes after the question that led to it.
    is_newer = (number(asked.get("at_unix")) or 0.0) >= (number(row["since_unix"]) or 0.0)
    return asked if _asks(row) or row["status"] == "error" or is_newer else {}


def _can_be_answered(record: Raw, row: Raw, seen: Seen) -> bool:
    asked = _asked(record, row, seen)
    free = not row["held"] and not row["attached"] and row["status"] != "offline"
    return bool(asked.get("answerable")) and free


def _dialog(record: Raw, row: Raw, seen: Seen, command: str) -> _Found:
    asked = _asked(record, row, seen)
    if seen.dialog != "dialog open" and (_asks(row) or asked):
        said = text(asked.get("text")) or WORDS.get(row["reason"], "asks a question")
        options = [text(one) for one in asked.get("options") or ()]
        listed = "".join(f" [{number}] {one}" for number, one in enumerate(options, 1))
        return "question", "blocked", f"{said}{listed}", command
    severity = "waiting" if row["status"] in FREE else "blocked"
    return "dialog", severity, "a dialog is open and needs an answer", command


def _aborted(row: Raw) -> _Found:
    """The worker did not rebase its work onto the latest default branch: the user decides."""
    name, at = row["name"], f": {_task(row)}" if _task(row) else ""
    said = f"rebase aborted by the worker; its work conflicts with the default branch{at}"
    again = f"llmc rebase {name}, or llmc console {name} (resolve the conflicts there), or llmc reject {name}"
    return "conflict", "blocked", said, DETACH if row["attached"] else again


def _review(row: Raw, uncommitted: bool) -> str:
    if row["accept_step"] == "wait":
        return "the change has not landed yet, and no daemon is running to finish `llmc accept`"
    if row["accept_step"]:
        return f"`llmc accept` was interrupted at step {row['accept_step']}"
    if row["reviewed"] and uncommitted:
        seen = "reviewed, but the worktree has uncommitted changes"
    else:
        seen = "reviewed, ready to accept" if row["reviewed"] else "ready for review"
    return seen + (f": {_task(row)}" if _task(row) else "")


def _input(row: Raw, command: str) -> _Found:
    why = WORDS.get(row["reason"], row["reason"])
    if row["reason"] == "blocked":
        return "question", "blocked", row["error_reason"] or "reported that it is blocked", command
    said = ": ".join(part for part in dict.fromkeys((why, row["error_reason"])) if part)
    return "input", "waiting", said or "waiting for your message", command


def _task(row: Raw) -> str:
    """Its task, as one line."""
    lines = [line.strip() for line in (row["task_subject"] or row["prompt"] or "").splitlines()]
    return next((line for line in lines if line), "")


#: below this, a worktree, a validation or a state file may not fit
DISK_FLOOR_BYTES = 500 * 1024 * 1024


def attention(state: Mapping[str, Any], facts: Facts) -> list[Item]:
    """The list, most urgent first, from `state.json` as plain data and the facts beside it."""
    rows = worker_rows(state, facts)
    found = [
        *_raised(state, rows, facts),
        *fleet_items(state, facts),
        *(item for record, row in rows.values() for item in worker_items(record, row, facts)),
    ]
    kept = _once(found)
    return sorted(kept, key=lambda item: (SEVERITIES.index(item.severity), item.since_unix, item.key))


def worker_rows(state: Mapping[str, Any], facts: Facts) -> dict[str, tuple[Raw, Raw]]:
    """Each worker's record, and its row of `status --json`."""
    records = state.get("workers") or {}
    return {
        name: (record, worker_view(record, facts.seen(name).attached))
        for name, record in sorted(records.items())
    }


def _once(items: list[Item]) -> list[Item]:
    """List each thing once: a raised item about a worker says more than the one derived from its status."""
    told = {(item.kind, item.who) for item in items}
    in_the_way = {item.who for item in items if item.kind == "person"}

    def is_said(item: Item) -> bool:
        if item.kind == "review" and ("accept_failed", item.who) in told:
            return True
        if item.kind in ("offline", "crash", "start_failed") and ("trust", item.who) in told:
            return True
        return item.kind in ("held", "dialog") and item.who in in_the_way

    return [item for item in items if not is_said(item)]


def _raised(state: Mapping[str, Any], rows: dict[str, tuple[Raw, Raw]], facts: Facts) -> Iterator[Item]:
    for key, row in (state.get("attention") or {}).items():
        if not isinstance(row, Mapping):
            continue
        item = _from_state(key, row)
        if item.kind == "source" and (facts.source_is_free or not _has_work_to_land(rows)):
            continue
        if item.kind == "budget" and item.severity == "notice" and not facts.auto_runs:
            continue  # about a run in progress
        if item.kind == "no_source" and not facts.source_fix:
            continue
        if not item.next and item.who in rows:  # what can be done about its worker now
            record, view = rows[item.who]
            item = item._replace(next=next_command(view, facts.seen(item.who), facts, record))
        yield item


def _has_work_to_land(rows: dict[str, tuple[Raw, Raw]]) -> bool:
    """Whether work may be left to land: in a fleet, another node may have landed what was refused here."""
    return any(
        record.get("accept") or record.get("status") not in ("idle", "working") for record, _ in rows.values()
    )


def _from_state(key: str, row: Mapping[str, Any]) -> Item:
    severity = row.get("severity")
    return Item(
        key=key,
        kind=str(row.get("kind", "")),
        severity=severity if severity in SEVERITIES else "waiting",
        who=str(row.get("who", "")),
        since_unix=number(row.get("since_unix")) or 0.0,
        text=str(row.get("text", "")),
        next=str(row.get("next", "")),
    )


def fleet_items(state: Mapping[str, Any], facts: Facts) -> Iterator[Item]:
    """Items about the fleet."""
    auto = state.get("auto") or {}
    yield from _daemon(state, auto, facts)
    yield from _other_daemon(facts)
    yield from _supervisor(facts)
    yield from _parked(auto, facts)
    yield from _canary(facts)
    if facts.disk_free_bytes is not None and facts.disk_free_bytes < DISK_FLOOR_BYTES:
        said = f"only {facts.disk_free_bytes // 2**20} MB free on the disk that holds the root"
        yield Item("disk", "disk", "blocked", "disk", facts.now, said, "llmc trash prune")


def without_auto(state: Mapping[str, Any], facts: Facts) -> Item | None:
    """Why auto mode will not continue with the tasks; None while it runs, starts, or a supervisor restarts it."""
    daemon = facts.daemon or Registration()
    # A starting daemon has the lock before it writes daemon.json.
    is_known = daemon.auto is not None and facts.holder in (None, daemon.pid)
    if facts.auto_runs or facts.supervised or (facts.running and not is_known):
        return None
    listed = (item for item in attention(state, facts) if item.kind in ("auto", "supervisor"))
    finished = finished_reason(state.get("auto") or {})
    said = f"auto mode finished: {finished}" if finished else "auto mode is not running"
    return next(listed, None) or Item("auto", "auto", "blocked", "auto mode", facts.now, said, facts.up_auto)


def finished_reason(auto: Mapping[str, Any]) -> str:
    """Why the last run ended by itself, as requested: by --max-tasks, --until or --max-cost; "" for any other end."""
    return text(auto.get("run_reason")) if auto.get("run") == "stopped" else ""


def _daemon(state: Mapping[str, Any], auto: Mapping[str, Any], facts: Facts) -> Iterator[Item]:
    """A daemon that should be running and is not. A supervisor restarts its daemon itself."""
    if facts.supervised or facts.auto_runs:
        return
    run, since = text(auto.get("run")), number(auto.get("run_unix")) or 0.0
    if run == "failed":  # even if a daemon runs now: the failure stays until auto mode runs again
        cause, why = text(auto.get("run_cause")), text(auto.get("run_reason"))
        said = f"auto mode failed ({cause}): {why}" if cause else f"auto mode failed: {why}"
        first = _fix_in(why) or FIRST.get(cause, "llmc logs daemon")
        yield Item("auto", "auto", "blocked", "auto mode", since, said, f"{first}, then {facts.up_auto}")
    elif run in ("running", "interrupted"):
        why = text(auto.get("run_reason")) if run == "interrupted" else "its daemon was killed"
        why = "its daemon was replaced by one without auto mode" if facts.running else why
        said = f"auto mode is not running: {why}"
        # It was alive at its last heartbeat, or until a plain daemon took its place.
        ended = (facts.daemon and facts.daemon.start_time_unix) if facts.running else facts.beat_unix
        since = max(since, min(ended or 0.0, facts.now))
        yield Item("auto", "auto", "blocked", "auto mode", since, said, facts.up_auto)
    elif not facts.running:
        yield from _unattended(state, facts)


def _unattended(state: Mapping[str, Any], facts: Facts) -> Iterator[Item]:
    workers = (state.get("workers") or {}).values()
    alive = [record for record in workers if record.get("status") in LIVE]
    if alive:
        # When it died is unknown; it was alive when a worker last changed.
        began = facts.daemon.start_time_unix if facts.daemon else None
        signs = [began, *(record.get("since_unix") for record in alive)]
        since = max(number(sign) or 0.0 for sign in signs)
        gone = "was killed" if facts.daemon is not None else "is not running"
        said = f"the daemon {gone}, so the running agents are unattended"
        yield Item("daemon", "daemon", "blocked", "daemon", since, said, UP)


def _other_daemon(facts: Facts) -> Iterator[Item]:
    daemon = facts.daemon or Registration()
    if facts.running and facts.holder is not None and daemon.pid not in (None, facts.holder):
        said = f"unknown daemon: process {facts.holder} holds this root's lock, but daemon.json names process {daemon.pid}"
        since = daemon.start_time_unix or 0.0
        yield Item("other_daemon", "other_daemon", "blocked", "daemon", since, said, "llmc doctor")


def _supervisor(facts: Facts) -> Iterator[Item]:
    """A supervisor that gave up or was killed; not one that was stopped or finished its work."""
    record = facts.overseer
    if record is None or facts.supervised or facts.auto_runs or record.get("code") == 0:
        return
    ended = record.get("state") == "terminated"
    if ended and "code" not in record:
        return  # from an older llmc, which did not record it
    why = text(record.get("why")).partition("\n")[0] or "unknown reason"
    said = f"the supervisor stopped: {why}" if ended else "the supervisor was killed"
    since = number(record.get("ended_unix")) or number(record.get("start_time_unix")) or 0.0
    yield Item("supervisor", "supervisor", "blocked", "supervisor", since, said, "llmc overseer")


def _parked(auto: Mapping[str, Any], facts: Facts) -> Iterator[Item]:
    until = number(auto.get("parked_until_unix")) or 0.0
    if until <= 0 or not facts.auto_runs:
        return
    cause, why = text(auto.get("parked_cause")), text(auto.get("parked_reason"))
    since = number(auto.get("parked_since_unix")) or facts.now
    when = f"until {moment(until, facts.now)}" if until > facts.now else "until a retry succeeds"
    said = f"auto mode is parked {when} ({cause}): {why}"
    if cause == "budget":
        yield Item("budget:day", "budget", "waiting", "budget", since, said, "llmc usage --by day")
    else:
        yield Item("parked", "parked", "notice", "fleet", since, said, "llmc digest")


def _canary(facts: Facts) -> Iterator[Item]:
    """Auto mode runs a client version that did not pass the canary."""
    daemon = facts.daemon or Registration()
    if not facts.auto_runs or daemon.agent == "scripted":
        return
    tried, version = facts.canary or {}, daemon.version
    if tried.get("client") == version and tried.get("passed") is True:
        return
    failed = tried.get("client") == version and tried.get("passed") is False
    why = f"canary failed for {version}: {text(tried.get('reason'))}"
    said = why if failed else f"client {version} has not been tested in this root"
    since = daemon.start_time_unix or 0.0
    again = f"llmc down && {facts.up_auto} --canary"
    yield Item("canary", "canary", "notice", version, since, said, again)
