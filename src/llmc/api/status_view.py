"""The data of `llmc status`, from plain dicts because the hot path imports no models. Pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from llmc.attention.rules import WORDS as WORDS
from llmc.attention.rules import attention, finished_reason, worker_rows
from llmc.base.given import number, text
from llmc.records.items import UP as UP
from llmc.records.items import UP_AUTO as UP_AUTO
from llmc.records.items import Facts as Facts
from llmc.records.items import Raw as Raw
from llmc.records.items import Registration
from llmc.records.items import counts as counts
from llmc.records.statuses import AT_WORK as AT_WORK


class Page(NamedTuple):
    """The status for people: each worker also has the `subject` of its commit and the `next` command."""

    view: Raw
    now: float
    daemon_runs: bool
    goals_enabled: bool
    #: the last tick: its result, and the goals in numbers
    goals: Raw | None


def status_view(root: str, state: Raw, facts: Facts) -> Raw:
    """The object behind `llmc status --json`."""
    daemon = daemon_view(facts.daemon, facts.running)
    return {
        "root": root,
        "daemon": daemon,
        "workers": [row for _, row in worker_rows(state, facts).values()],
        "auto": auto_view(state, daemon, facts),
        "overseer": overseer_view(facts.overseer, facts.supervised, facts.now),
        "attention": [item._asdict() for item in attention(state, facts)],
    }


def auto_view(state: Raw, daemon: Raw, facts: Facts) -> Raw | None:
    """Auto mode and its counters; None if it never ran. `wanted` without `running`: its daemon died or was replaced.

    While it runs, `workers` are those in use: auto-1 up to that number.
    """
    workers = [name for name, record in state.get("workers", {}).items() if record.get("auto")]
    auto = state.get("auto", {})
    finished = finished_reason(auto)
    if not workers and not auto.get("tasks_completed"):
        return None
    return {
        "wanted": bool(state.get("auto_mode")),
        "running": bool(daemon["running"] and daemon["auto"]),
        "workers": sum(facts.drives(name) for name in workers) if facts.auto_runs else len(workers),
        "tasks_completed": auto.get("tasks_completed", 0),
        "errors": auto.get("errors", 0),
        "parked_until_unix": auto.get("parked_until_unix") or None,
        "parked_cause": auto.get("parked_cause") or None,
        "start": facts.up_auto,
        "finished_unix": number(auto.get("run_unix")) if finished else None,
        "finished_reason": finished or None,
    }


def overseer_view(record: Mapping[str, Any] | None, running: bool, now: float) -> Raw | None:
    """The supervisor as in overseer.json, or None. Without its lock it has ended, whatever the file says."""
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
        "why": text(record.get("why")) or ("" if running else "the supervisor was killed"),
        "code": None if running else record.get("code"),
        "ended_unix": None if running else number(record.get("ended_unix")),
    }


def _is_told(row: Any) -> bool:
    return isinstance(row, dict) and number(row.get("ts")) is not None and isinstance(row.get("text"), str)


def daemon_view(found: Registration | None, running: bool) -> Raw:
    """The registration counts only while the daemon's lock is held."""
    daemon = found if running and found is not None else Registration()
    return {
        "running": running,
        "pid": daemon.pid,
        "auto": daemon.auto is True,
        "instance_id": daemon.instance_id,
    }
