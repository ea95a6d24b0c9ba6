"""What `status` shows, computed from plain data: the hot path has no models. Pure."""

from typing import Any

from llmc.attention.items import attention
from llmc.given import number, text

Raw = dict[str, Any]


def status_view(
    root: str, state: Raw, daemon: Raw, attached: set[str] | None, overseer: Raw | None = None
) -> Raw:
    """The object behind `llmc status --json`; `attached`: the workers whose agent a person looks at, None if tmux did not say."""
    return {
        "root": root,
        "daemon": daemon,
        "workers": [worker_view(record, attached) for _, record in sorted(state.get("workers", {}).items())],
        "auto": auto_view(state, daemon),
        "overseer": overseer,
        "attention": [item._asdict() for item in attention(state)],
    }


def worker_view(record: Raw, attached: set[str] | None) -> Raw:
    delivery = record.get("delivery") or {}
    return {
        "name": record["name"],
        "status": record.get("status", "offline"),
        "reason": record.get("reason", ""),
        "since_unix": record.get("since_unix", 0),
        "auto": record.get("auto", False),
        "held": record.get("held", False),
        "attached": None if attached is None else record["name"] in attached,
        "task_id": (record.get("assignment") or {}).get("task_id"),
        "task_subject": (record.get("assignment") or {}).get("subject"),
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
    }


def auto_view(state: Raw, daemon: Raw) -> Raw | None:
    """Auto mode, and its counters; None where it never ran. `wanted` without `running`: its daemon died, or another runs."""
    workers = [record for record in state.get("workers", {}).values() if record.get("auto")]
    auto = state.get("auto", {})
    if not workers and not auto.get("tasks_completed"):
        return None
    return {
        "wanted": bool(state.get("auto_mode")),
        "running": bool(daemon["running"] and daemon["auto"]),
        "workers": len(workers),
        "tasks_completed": auto.get("tasks_completed", 0),
        "errors": auto.get("errors", 0),
        "parked_until_unix": auto.get("parked_until_unix") or None,
        "parked_cause": auto.get("parked_cause") or None,
    }


def overseer_view(record: Raw | None, running: bool, now: float) -> Raw | None:
    """`record` is overseer.json; a supervisor whose lock is free has ended, whatever it wrote. None: there was none."""
    if record is None:
        return None
    daemon = record.get("daemon") if running else None
    daemon = daemon if isinstance(daemon, dict) else {}
    began, events = number(daemon.get("start_time_unix")), record.get("events")
    return {
        "state": (text(record.get("state")) or "running") if running else "terminated",
        "pid": record.get("pid") if running else None,
        "daemon_pid": daemon.get("pid"),
        "uptime_s": None if began is None else max(0.0, round(now - began, 1)),
        "attempt": record.get("attempt") if running else None,
        "events": [row for row in events if _is_told(row)] if isinstance(events, list) else [],
        "why": text(record.get("why")) or ("" if running else "it was killed"),
    }


def _is_told(row: Any) -> bool:
    return isinstance(row, dict) and number(row.get("ts")) is not None and isinstance(row.get("text"), str)


def self_review_waits(record: Raw) -> bool:
    """Whether a self-review has to be sent, as workers/self_review.py says; not while a person holds the worker."""
    return (
        record.get("self_review") in ("due", "sent")
        and record.get("status") in ("working", "needs_review")
        and record.get("accept") is None
        and not record.get("held")
    )


def daemon_view(record: Raw | None, running: bool) -> Raw:
    """`record` is daemon.json; it counts only while the daemon's lock is held."""
    if not running or record is None:
        return {"running": running, "pid": None, "auto": False, "instance_id": None}
    return {
        "running": True,
        "pid": record.get("pid"),
        "auto": record.get("auto", False),
        "instance_id": record.get("instance_id"),
    }
