"""The attention list: everything that waits for a person, or soon will. One function, facts in, items out. Pure.

`status`, `status --json`, `digest` and the notifications render this list and no other.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from llmc.attention.rules.workers import FIRST, next_command, worker_items, worker_view
from llmc.base.given import number, text
from llmc.records.items import SEVERITIES, UP, UP_AUTO, Facts, Item, Raw

#: less than this, and a worktree, a validation or a state file may not fit
DISK_FLOOR_BYTES = 500 * 1024 * 1024


def attention(state: Mapping[str, Any], facts: Facts) -> list[Item]:
    """The list, most urgent first, from `state.json` as plain data and what was seen beside it."""
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
    """What was raised about a worker says more than what follows from its status: the same thing is listed once."""
    told = {(item.kind, item.who) for item in items}
    in_the_way = {item.who for item in items if item.kind == "person"}

    def is_said(item: Item) -> bool:
        if item.kind == "review" and ("accept_failed", item.who) in told:
            return True
        if item.kind in ("offline", "crash") and ("trust", item.who) in told:
            return True
        return item.kind in ("held", "dialog") and item.who in in_the_way

    return [item for item in items if not is_said(item)]


def _raised(state: Mapping[str, Any], rows: dict[str, tuple[Raw, Raw]], facts: Facts) -> Iterator[Item]:
    for key, row in (state.get("attention") or {}).items():
        if not isinstance(row, Mapping):
            continue
        item = _from_state(key, row)
        if item.kind == "source" and facts.source_is_free:
            continue
        if not item.next and item.who in rows:  # whatever can be done about its worker now
            item = item._replace(next=next_command(rows[item.who][1], facts.seen(item.who), facts))
        yield item


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
    """What concerns everybody."""
    auto = state.get("auto") or {}
    yield from _daemon(state, auto, facts)
    yield from _other_daemon(facts)
    yield from _supervisor(facts)
    yield from _parked(auto, facts)
    yield from _canary(facts)
    if facts.disk_free_bytes is not None and facts.disk_free_bytes < DISK_FLOOR_BYTES:
        said = f"only {facts.disk_free_bytes // 2**20} MB are free on the disk of the root"
        yield Item("disk", "disk", "blocked", "disk", facts.now, said, "llmc trash prune")


def _daemon(state: Mapping[str, Any], auto: Mapping[str, Any], facts: Facts) -> Iterator[Item]:
    """Whoever should look after the workers and does not. A supervisor starts its daemon again by itself."""
    if facts.supervised or facts.auto_runs:
        return
    run, since = text(auto.get("run")), number(auto.get("run_unix")) or 0.0
    if run == "failed":  # whatever runs now: why it ended is not over before auto mode runs again
        cause, why = text(auto.get("run_cause")), text(auto.get("run_reason"))
        said = f"auto mode failed ({cause}): {why}" if cause else f"auto mode failed: {why}"
        first = FIRST.get(cause, "llmc logs daemon")
        yield Item("auto", "auto", "blocked", "auto mode", since, said, f"{first}, then {UP_AUTO}")
    elif run == "running":
        said = (
            "auto mode is not running: a daemon without it took the place of its daemon"
            if facts.running
            else "auto mode is not running: its daemon is gone, and no person ended it"
        )
        yield Item("auto", "auto", "blocked", "auto mode", since, said, UP_AUTO)
    elif not facts.running:
        yield from _nobody(state, facts)


def _nobody(state: Mapping[str, Any], facts: Facts) -> Iterator[Item]:
    workers = (state.get("workers") or {}).values()
    alive = [record for record in workers if record.get("status", "offline") not in ("offline", "error")]
    if alive:
        # When it ended nobody knows; it ran at the last thing that happened to one of them.
        signs = [(facts.daemon or {}).get("start_time_unix"), *(record.get("since_unix") for record in alive)]
        since = max(number(sign) or 0.0 for sign in signs)
        gone = "was killed" if facts.daemon is not None else "does not run"
        said = f"the daemon {gone}: agents run, and nothing looks after them"
        yield Item("daemon", "daemon", "blocked", "daemon", since, said, UP)


def _other_daemon(facts: Facts) -> Iterator[Item]:
    named = (facts.daemon or {}).get("pid")
    if facts.running and facts.holder is not None and named is not None and named != facts.holder:
        said = f"process {facts.holder} holds this root, but daemon.json names {named}"
        since = number((facts.daemon or {}).get("start_time_unix")) or 0.0
        yield Item("other_daemon", "other_daemon", "blocked", "daemon", since, said, "llmc doctor")


def _supervisor(facts: Facts) -> Iterator[Item]:
    """One that was told to end, or whose work was done, needs nobody."""
    record = facts.overseer
    if record is None or facts.supervised or facts.auto_runs or record.get("code") == 0:
        return
    ended = record.get("state") == "terminated"
    if ended and "code" not in record:
        return  # of an older llmc, which did not say how it ended
    why = text(record.get("why")) or "it ended" if ended else "it was killed"
    said = f"the supervisor ended: {why.partition(chr(10))[0]}"
    since = number(record.get("ended_unix")) or number(record.get("start_time_unix")) or 0.0
    yield Item("supervisor", "supervisor", "blocked", "supervisor", since, said, "llmc overseer")


def _parked(auto: Mapping[str, Any], facts: Facts) -> Iterator[Item]:
    until = number(auto.get("parked_until_unix")) or 0.0
    if until <= 0 or not facts.auto_runs:
        return
    cause, why = text(auto.get("parked_cause")), text(auto.get("parked_reason"))
    since = number(auto.get("parked_since_unix")) or facts.now
    when = f"until {facts.clock(until)}" if until > facts.now else "until one of them gets through"
    said = f"the fleet waits {when} ({cause}): {why}"
    if cause == "budget":
        yield Item("budget:day", "budget", "waiting", "budget", since, said, "llmc usage --by day")
    else:
        yield Item("parked", "parked", "notice", "fleet", since, said, "llmc digest")


def _canary(facts: Facts) -> Iterator[Item]:
    """Auto mode drives a client that nobody has tried in this version."""
    daemon = facts.daemon or {}
    if not facts.auto_runs or daemon.get("agent") == "scripted":
        return
    tried, version = facts.canary or {}, text(daemon.get("version"))
    if tried.get("client") == version and tried.get("passed") is True:
        return
    failed = tried.get("client") == version and tried.get("passed") is False
    what = f"failed its try: {text(tried.get('reason'))}" if failed else "was not tried with llmc here"
    since = number(daemon.get("start_time_unix")) or 0.0
    again = f"llmc down && {UP_AUTO} --canary"
    yield Item("canary", "canary", "notice", version, since, f"the client {version} {what}", again)
