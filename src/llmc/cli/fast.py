"""The hot commands: `status`, `wait` and `events`, called thousands of times by scripts.

They are dispatched before click is imported and read JSON with the standard library. What they do not know
(`--help`, a wrong option) goes to click, whose commands call the same functions.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from llmc.base import given
from llmc.base.flocks import is_locked
from llmc.base.panes import FORMAT, Panes, parse
from llmc.cli.output import print_json, say, say_lines
from llmc.config import layout, trust
from llmc.records.items import Facts, Raw
from llmc.records.sight import agent_pane, look

POLL_S = 0.02
#: so much of a text of an event is in its line
MOST_EVENT_TEXT = 200


class Give(Exception):
    """Let click handle this command line."""


def dispatch(argv: list[str]) -> int | None:
    """Run a hot command line; None when it is not one."""
    try:
        return _dispatch(argv)
    except (Give, AttributeError, KeyError, TypeError, FileNotFoundError):
        return None  # a state of the wrong shape, a directory that is gone: click's path says what is wrong
    except BrokenPipeError:
        raise
    except Exception as error:
        from llmc.cli.app import report

        return report(error, argv)


def _dispatch(argv: list[str]) -> int | None:
    root_given: str | None = None
    while argv and argv[0].startswith("--root"):
        root_given, argv = _take(argv, "--root")
    if argv == ["status", "--json"]:
        return status(find_root(root_given))
    if argv == ["status"]:
        return status_for_people(root_given)
    if not argv or argv[0] not in ("wait", "events") or _is_agent():
        return None  # agents may ask for the status; click refuses them the rest
    if argv[0] == "wait":
        return _wait_args(argv[1:], root_given)
    return _events_args(argv[1:], root_given)


def _is_agent() -> bool:
    from llmc.base import callers  # the status needs no answer to this

    return callers.mark(callers.processes()) is not None


def find_root(given: str | None) -> str:
    """By the rule that every command has; what is refused, or is no root, is left to click."""
    try:
        cwd = os.path.realpath(".")
        path = trust.choose(
            *(given, os.environ, cwd), lambda: trust.root_of_repository(cwd, os.environ, _of_source)
        ).path
    except trust.Untrusted:
        raise Give from None
    if not os.path.isfile(f"{path}/{layout.STATE}"):
        raise Give
    return path


def _of_source() -> str | None:
    """The root that `init` wrote into the git config of the repository we are in."""
    argv = ["git", "config", "--get", "llmc.root"]
    # A git hook around us has GIT_DIR set, to a repository that need not be the one we are in.
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, env=env)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def status(root: str) -> int:
    from llmc.cli.views import status_view

    print_json(status_view(root, *current(root)))
    return 0


def status_for_people(root_given: str | None) -> int:
    from llmc.cli.status_text import status_text
    from llmc.repo.project import open_project

    say_lines(status_text(open_project(root_given)))
    return 0


def current(root: str) -> tuple[Raw, Facts]:
    """The state, after whatever the agents said meanwhile has been applied, and what is to be seen beside it."""
    state = read_state(root)
    panes = tmux_panes(root) if state.get("workers") else {}
    if not daemon_runs(root) and _is_stale(root, state, panes):
        catch_up(root)
        state = read_state(root)
        panes = tmux_panes(root) if state.get("workers") else {}
    elif any(map(_may_be_resolved, state.get("workers", {}).values())):
        from llmc.workers.catch_up import see_what_was_resolved

        see_what_was_resolved(root)
        state = read_state(root)
    if _lists_changed(root) and not daemon_runs(root):
        list_again(root)
        state = read_state(root)
    return state, look(root, state, panes, time.time())


def read_state(root: str) -> Raw:
    state = _json(f"{root}/{layout.STATE}")
    version = None if state is None else state.get("version", 1)
    if state is None or not isinstance(version, int) or version > 1 or not _has_workers(state):
        raise Give  # click's path says what is wrong with it
    return state


def _has_workers(state: Raw) -> bool:
    """Whether its workers are records, under names that can be a part of a path."""
    workers = state.get("workers", {})
    return isinstance(workers, dict) and all(
        isinstance(record, dict) and record.get("name") == name and name.isprintable() and "/" not in name
        for name, record in workers.items()
    )


def daemon_runs(root: str) -> bool:
    return is_locked(f"{root}/{layout.DAEMON_LOCK}")


def tmux_panes(root: str) -> Panes | None:
    """Every pane; None when tmux gave no answer. Same question as base/tmux.py asks."""
    argv = ["tmux", "-L", layout.tmux_server(root), "list-panes", "-a", "-F"]
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
        return any(
            name[0].isdigit() and name.endswith(".json")
            for name in os.listdir(f"{root}/{layout.INBOX}/{worker}")
        )
    except OSError:
        return False


def catch_up(root: str) -> None:
    """No daemon runs, so this command applies what waits."""
    from llmc.workers.catch_up import catch_up as apply

    apply(root)


def _lists_changed(root: str) -> bool:
    """Whether tasks or goals changed since somebody last told the attention list; a daemon tells it by itself."""
    return max(_changed(f"{root}/{layout.TASKS_LEDGER}"), _changed(f"{root}/{layout.GOALS}")) > _changed(
        f"{root}/{layout.LISTED}"
    )


def _changed(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


def list_again(root: str) -> None:
    from llmc.daemon.chores import list_again as apply

    apply(root)


def wait(root: str, workers: list[str], statuses: set[str], timeout_s: float | None, as_json: bool) -> int:
    """Block until every named worker has one of the statuses."""
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
            raise Give
        missing = [view for view in views if view["status"] not in statuses]
        if not missing:
            return _report(views, as_json, 0, "")
        stuck = next((v for v in missing if v["status"] in ("error", "offline")), None)
        if stuck:
            why = stuck["error_reason"] or stuck["reason"]
            return _report(views, as_json, 1, f"{stuck['name']} is {stuck['status']}: {why}")
        if deadline is not None and time.monotonic() >= deadline:
            names = ", ".join(f"{v['name']} is {v['status']}" for v in missing)
            return _report(views, as_json, 1, f"timed out: {names}")
        time.sleep(POLL_S)


def events(root: str, since: float, follow: bool, as_json: bool, worker: str | None = None) -> int:
    for event in _event_rows(f"{root}/{layout.EVENTS}", since, follow):
        if worker in (None, event.get("worker")):
            if as_json:
                print_json(event, flush=follow)
            else:
                say(_event_line(event), flush=follow)
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
        if record.get("status") not in ("offline", "error") and not alive:
            return True
        if _may_be_resolved(record):
            return True
    return False


def _may_be_resolved(record: Raw) -> bool:
    """No hook tells that a person resolved its conflicts; a person who looks now wants to see it."""
    return record.get("status") == "error" and bool(record.get("pre_rebase_sha"))


def _report(views: list[Raw], as_json: bool, code: int, problem: str) -> int:
    if as_json:
        body: Any = views[0] if len(views) == 1 else views
        print_json({"reached": code == 0, "problem": problem, "worker": body})
    elif code == 0:
        for view in views:
            say(f"{view['name']} is {view['status']}")
    if problem:
        say(f"llmc: {problem}", err=True)
    return code


def _event_rows(path: str, since: float, follow: bool) -> Iterator[Raw]:
    from llmc.records.event_log import EventLog, rows_of, ts_of

    log = EventLog(path).reader(since)
    while True:
        yield from (row for row in rows_of(log.lines()) if ts_of(row) >= since)
        if not follow:
            return
        time.sleep(0.1)


def _event_line(event: Raw) -> str:
    when = time_of_day(event.get("ts"))
    skip = ("ts", "action", "worker", "seq", "event", "reason")
    rest = " ".join(
        f"{key}={in_a_line(value)}"
        for key, value in event.items()
        if key not in skip and value not in (None, "")
    )
    reason = f" ({in_a_line(event['reason'])})" if event.get("reason") else ""
    who, what = (str(event.get(key) or empty) for key, empty in (("worker", "-"), ("action", "")))
    return f"{when}  {who:<12} {what:<18} {rest}{reason}".rstrip()


def time_of_day(ts: Any, form: str = "%H:%M:%S") -> str:
    try:
        return time.strftime(form, time.localtime(given.number(ts) or 0.0))
    except (OverflowError, ValueError, OSError):
        return "--:--:--"


def in_a_line(value: Any) -> str:
    """An event is a line, also where it has a whole prompt in it; --json has all of it."""
    text = " ".join(str(value).split()) if isinstance(value, str) else str(value)
    return text if len(text) <= MOST_EVENT_TEXT else f"{text[: MOST_EVENT_TEXT - 1]}…"


def _wait_args(argv: list[str], root_given: str | None) -> int:
    workers: list[str] = []
    statuses: set[str] = set()
    timeout_s: float | None = None
    as_json = False
    while argv:
        if argv[0] == "--json":
            as_json, argv = True, argv[1:]
        elif argv[0].startswith("--status"):
            value, argv = _take(argv, "--status")
            statuses |= set(value.split(","))
        elif argv[0].startswith("--timeout"):
            value, argv = _take(argv, "--timeout")
            if not value.replace(".", "", 1).isdecimal():
                raise Give  # 15m, or nonsense
            timeout_s = float(value)
        elif argv[0].startswith("-"):
            raise Give
        else:
            workers, argv = [*workers, argv[0]], argv[1:]
    if len(workers) != 1 or not statuses or not statuses <= STATUSES:
        raise Give
    return wait(find_root(root_given), workers, statuses, timeout_s, as_json)


#: as records/worker.py says; a test compares
STATUSES = frozenset(
    [
        "offline",
        "idle",
        "working",
        "needs_input",
        "needs_review",
        "reviewing",
        "rejected",
        "rebasing",
        "no_changes",
        "error",
    ]
)


def _events_args(argv: list[str], root_given: str | None) -> int:
    if not set(argv) <= {"--json", "--follow"}:
        raise Give
    return events(find_root(root_given), 0.0, "--follow" in argv, "--json" in argv)


def _take(argv: list[str], option: str) -> tuple[str, list[str]]:
    if argv[0].startswith(option + "="):
        return argv[0].partition("=")[2], argv[1:]
    if argv[0] != option or len(argv) < 2:
        raise Give
    return argv[1], argv[2:]


def _json(path: str) -> Raw | None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            value = given.parse(file.read())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError):
        raise Give from None
    return value if isinstance(value, dict) else None
