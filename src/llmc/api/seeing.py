"""The status of a root, waiting for a status, and events: the hot commands, which scripts run all the time.

Reads plain data with the standard library. Raises `Unreadable` on any problem; api/roots.py reports what is wrong.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from llmc.base import given
from llmc.base.flocks import is_locked
from llmc.base.panes import FORMAT, Panes, parse
from llmc.config import root_layout, trust
from llmc.records.items import Facts, Glance, Raw
from llmc.records.sight import agent_pane, look
from llmc.records.statuses import LIVE, Status

if TYPE_CHECKING:
    from llmc.api.status_view import Page
    from llmc.repo.project import Project

POLL_S = 0.02
FOLLOW_S = 0.1
STATUSES = frozenset(Status)


class Unreadable(Exception):
    """A root that is refused, or a state that is damaged, missing, or of a newer version."""


def find_root(given: str | None) -> str:
    """The root, as every command finds it. Raises `Unreadable`; the click command then reports what is wrong."""
    try:
        cwd = os.path.realpath(".")
        chosen = trust.choose(
            *(given, os.environ, cwd), lambda: trust.root_of_repository(cwd, os.environ, _of_source)
        )
    except trust.Untrusted:
        raise Unreadable from None
    if chosen.unrelated is not None or not os.path.isfile(f"{chosen.path}/{root_layout.STATE}"):
        raise Unreadable
    return chosen.path


def _of_source() -> str | None:
    """The root that `init` wrote into the git config of the current repository."""
    argv = ["git", "config", "--get", "llmc.root"]
    # Inside a git hook, GIT_DIR may name another repository.
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, env=env)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def is_agent() -> bool:
    """Whether the caller is an agent, by its ancestor processes."""
    from llmc.base import callers  # the status does not need it

    return callers.mark(callers.processes()) is not None


def status(root: str) -> Raw:
    """The object behind `llmc status --json`."""
    from llmc.api.status_view import status_view

    return status_view(root, *current(root))


def status_for_people(project: "Project", known: dict[str, str] | None = None) -> "Page":
    """The same, with commit subjects and next commands. Raises an error if the state cannot be read.

    `known`: a cache of subjects by commit, for repeated calls; new ones are added.
    """
    from msgspec.structs import asdict

    from llmc.api.status_view import Page, status_view
    from llmc.attention.rules import next_command
    from llmc.goals.ticks import last_tick
    from llmc.repo.project import subjects

    project.store.read()
    root = str(project.root.path)
    state, facts = current(root)
    view = status_view(root, state, facts)
    known = {} if known is None else known
    commits = {worker["commit_sha"] for worker in view["workers"] if worker["commit_sha"]}
    known |= subjects(project, sorted(commits - known.keys()))
    for worker in view["workers"]:
        worker["subject"] = known.get(worker["commit_sha"] or "", "")
        record = state["workers"][worker["name"]]
        worker["next"] = next_command(worker, facts.seen(worker["name"]), facts, record)
    enabled = project.config.overseer.goals.enabled
    tick = last_tick(project) if enabled else None
    goals = None if tick is None else {**asdict(tick), **asdict(tick.goals), "percent": tick.goals.percent}
    return Page(view, facts.now, project.daemon_runs(), enabled, goals)


def current(root: str) -> tuple[Raw, Facts]:
    """The state, with pending hook events applied, and what was observed."""
    state = read_state(root)
    panes = tmux_panes(root) if state.get("workers") else {}
    if not daemon_runs(root) and _is_stale(root, state, panes):
        catch_up(root)
        state = read_state(root)
        panes = tmux_panes(root) if state.get("workers") else {}
    elif any(map(_may_be_resolved, state.get("workers", {}).values())):
        from llmc.repo.project import open_project
        from llmc.workers.patrol import see_what_was_resolved

        see_what_was_resolved(open_project(root))
        state = read_state(root)
    if _lists_changed(root) and not daemon_runs(root):
        from llmc.daemon.chores import list_again

        list_again(root)
        state = read_state(root)
    return state, look(root, state, panes, time.time(), _glance)


def _glance(agent: object, config_dir: object, pid: int) -> Glance:
    from llmc.agents.glance import glance  # only where an agent runs

    return glance(agent, config_dir, pid)


def read_state(root: str) -> Raw:
    state = _json(f"{root}/{root_layout.STATE}")
    version = None if state is None else state.get("version", 1)
    if state is None or not isinstance(version, int) or version > 1 or not _has_workers(state):
        raise Unreadable
    return state


def _has_workers(state: Raw) -> bool:
    """Whether the workers are records with names that are safe in a path."""
    workers = state.get("workers", {})
    return isinstance(workers, dict) and all(
        isinstance(record, dict) and record.get("name") == name and name.isprintable() and "/" not in name
        for name, record in workers.items()
    )


def daemon_runs(root: str) -> bool:
    return is_locked(f"{root}/{root_layout.DAEMON_LOCK}")


def tmux_panes(root: str) -> Panes | None:
    """Every pane; None if tmux did not answer. The same query as in base/tmux.py."""
    argv = ["tmux", "-L", root_layout.tmux_server(root), "list-panes", "-a", "-F"]
    argv.append(FORMAT)
    env = {**os.environ, "LC_ALL": "C.UTF-8"}
    env.pop("TMUX_TMPDIR", None)  # see base/tmux.py
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, env=env)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        missing = "error connecting to" in done.stderr and "(No such file or directory)" in done.stderr
        gone = missing or "no server running on" in done.stderr
        return {} if gone else None
    return parse(done.stdout.splitlines())


def pending(root: str, worker: str) -> bool:
    try:
        with os.scandir(f"{root}/{root_layout.INBOX}/{worker}") as entries:
            return any(entry.name[0].isdigit() and entry.name.endswith(".json") for entry in entries)
    except OSError:
        return False


def catch_up(root: str) -> None:
    """Apply pending hook events, because no daemon is running."""
    from llmc.repo.project import open_project
    from llmc.workers.patrol import catch_up as apply

    apply(open_project(root))


def _lists_changed(root: str) -> bool:
    """Whether tasks or goals changed since the attention list was updated; the daemon updates it itself."""
    return max(
        _changed(f"{root}/{root_layout.TASKS_LEDGER}"), _changed(f"{root}/{root_layout.GOALS}")
    ) > _changed(f"{root}/{root_layout.LISTED}")


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def _is_stale(root: str, state: Raw, panes: Panes | None) -> bool:
    from llmc.attention.rules import self_review_waits

    for name, record in state.get("workers", {}).items():
        if pending(root, name):
            return True
        pane = None if panes is None else agent_pane(record, panes)
        alive = panes is None or (pane is not None and not pane.dead)
        if alive and not (pane and pane.attached) and self_review_waits(record):
            return True
        if record.get("status") in LIVE and not alive:
            return True
        if _may_be_resolved(record):
            return True
    return False


def _may_be_resolved(record: Raw) -> bool:
    """Whether the user may have resolved its conflicts, which no hook reports."""
    return record.get("status") == "error" and bool(record.get("pre_rebase_sha"))


def wait(root: str, workers: list[str], statuses: set[str], timeout_s: float | None) -> tuple[list[Raw], str]:
    """Block until every worker has one of the statuses, or one goes to error or offline unexpectedly.

    Returns the workers, and why it failed.
    """
    from llmc.attention.rules import self_review_waits, worker_view

    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    running_checked = 0.0
    running = False
    records: Raw = {}
    while True:
        if time.monotonic() - running_checked > 1:
            running, running_checked = daemon_runs(root), time.monotonic()
            if not running and any(self_review_waits(records.get(name, {})) for name in workers):
                catch_up(root)
        if not running and any(pending(root, name) for name in workers):
            catch_up(root)
        records = read_state(root).get("workers", {})
        views = [worker_view(records[name], None) for name in workers if name in records]
        if len(views) < len(workers):
            raise Unreadable
        missing = [view for view in views if view["status"] not in statuses]
        if not missing:
            return views, ""
        stuck = next((v for v in missing if v["status"] not in LIVE), None)
        if stuck:
            why = stuck["error_reason"] or stuck["reason"]
            return views, f"{stuck['name']} is {stuck['status']}: {why}"
        if deadline is not None and time.monotonic() >= deadline:
            names = ", ".join(f"{v['name']} is {v['status']}" for v in missing)
            return views, f"timed out: {names}"
        time.sleep(POLL_S)


def events(
    root: str, since: float, follow: bool, worker: str | None = None, lines: int | None = None
) -> Iterator[Raw]:
    """The events since a time, or the last `lines` of them, oldest first; with `follow`, forever."""
    from llmc.records.event_log import EventLog, rows_of, ts_of

    found = EventLog(f"{root}/{root_layout.EVENTS}")
    log = found.reader(since) if lines is None else found.reader_of_last(lines, worker)
    while True:
        for row in rows_of(log.lines()):
            if ts_of(row) >= since and worker in (None, row.get("worker")):
                yield row
        if not follow:
            return
        time.sleep(FOLLOW_S)


def _json(path: str) -> Raw | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            value = given.parse(file.read())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError):
        raise Unreadable from None
    return value if isinstance(value, dict) else None
