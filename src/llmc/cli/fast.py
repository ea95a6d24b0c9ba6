"""The hot commands, which scripts call all the time: `status`, `wait` and `events`.

They run without click and read JSON with the standard library. Any other command line (`--help`, a wrong option) goes
to click, whose commands call the same functions.
"""

import time
from typing import TYPE_CHECKING, Any

from llmc.api import seeing
from llmc.base import given
from llmc.cli.output import columns, is_terminal, note, paint, print_json, say, say_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from llmc.api.roots import Project
    from llmc.cli.overview import Paint

#: how many past events `events --follow` shows first, without --json
FOLLOWED = 10
#: longest text of an event on its line
MOST_EVENT_TEXT = 200


class Give(Exception):
    """Let click handle this command line."""


def dispatch(argv: list[str]) -> int | None:
    """Run a hot command line; None for any other."""
    try:
        return _dispatch(argv)
    except (Give, seeing.Unreadable, AttributeError, KeyError, TypeError, FileNotFoundError):
        return None  # a damaged state or a missing directory: click's commands report it
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
        return status(seeing.find_root(root_given))
    if argv == ["status"]:
        return status_for_people(root_given)
    if not argv or argv[0] not in ("wait", "events") or seeing.is_agent():
        return None  # click refuses these commands to agents
    if argv[0] == "wait":
        return _wait_args(argv[1:], root_given)
    return _events_args(argv[1:], root_given)


def status(root: str) -> int:
    print_json(seeing.status(root))
    return 0


def status_for_people(root_given: str | None) -> int:
    from llmc.api.roots import open_project

    say_lines(status_text(open_project(root_given, note)))
    return 0


def status_text(project: "Project") -> str:
    """The text of `llmc status`, from the same data as `status --json`."""
    from llmc.cli.overview import goals_lines, render

    page = seeing.status_for_people(project)
    width, colors = sheet()
    goals = goals_lines(page, width)
    return "\n".join([render(page.view, page.now, width, colors), *(["", *goals] if goals else [])])


def sheet() -> "tuple[int, Paint]":
    """The width of the output, and its colors."""
    from llmc.cli.overview import PLAIN_WIDTH

    return (columns() if is_terminal() else PLAIN_WIDTH), paint


def wait(root: str, workers: list[str], statuses: set[str], timeout_s: float | None, as_json: bool) -> int:
    """Wait; return 0 if every worker reached one of the statuses, else 1."""
    views, problem = seeing.wait(root, workers, statuses, timeout_s)
    if as_json:
        body: Any = views[0] if len(views) == 1 else views
        print_json({"reached": not problem, "problem": problem, "worker": body})
    elif not problem:
        for view in views:
            say(f"{view['name']} is {view['status']}")
    if problem:
        say(f"llmc: {problem}", err=True)
    return 1 if problem else 0


def events(
    root: str,
    since: float,
    follow: bool,
    as_json: bool,
    worker: str | None = None,
    lines: int | None = None,
) -> int:
    return print_events(seeing.events(root, since, follow, worker, lines), as_json, follow=follow)


def lines_at_first(follow: bool, as_json: bool) -> int | None:
    """How many events to show without --since and --lines; None: all. A script that follows must not miss one."""
    return FOLLOWED if follow and not as_json else None


def print_events(rows: "Iterable[dict[str, Any]]", as_json: bool, *, follow: bool = False) -> int:
    for event in rows:
        if as_json:
            print_json(event, flush=follow)
        else:
            say(_event_line(event), flush=follow)
    return 0


def _event_line(event: dict[str, Any]) -> str:
    when = time_of_day(event.get("ts"))
    rest = other_fields(event, ("ts", "action", "worker", "seq", "event", "reason", "node"))
    reason = f" ({in_a_line(event['reason'])})" if event.get("reason") else ""
    who, what = (str(event.get(key) or empty) for key, empty in (("worker", "-"), ("action", "")))
    return f"{when}  {who:<12} {what:<18} {rest}{reason}".rstrip()


def other_fields(row: dict[str, Any], shown: tuple[str, ...]) -> str:
    """The fields of a row that are not in `shown`, except empty ones."""
    rest = {key: value for key, value in row.items() if key not in shown and value not in (None, "")}
    return " ".join(f"{key}={in_a_line(value)}" for key, value in rest.items())


def time_of_day(ts: Any, form: str = "%H:%M:%S") -> str:
    try:
        return time.strftime(form, time.localtime(given.number(ts) or 0.0))
    except (OverflowError, ValueError, OSError):
        return "--:--:--"


def in_a_line(value: Any) -> str:
    """A value on one line, shortened; --json prints all of it."""
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
                raise Give  # 15m, or invalid
            timeout_s = float(value)
        elif argv[0].startswith("-"):
            raise Give
        else:
            workers, argv = [*workers, argv[0]], argv[1:]
    workers = list(dict.fromkeys(workers))
    if not workers or any("/" in name for name in workers) or not statuses or not statuses <= seeing.STATUSES:
        raise Give
    return wait(seeing.find_root(root_given), workers, statuses, timeout_s, as_json)


def _events_args(argv: list[str], root_given: str | None) -> int:
    if not set(argv) <= {"--json", "--follow"}:
        raise Give
    follow, as_json = "--follow" in argv, "--json" in argv
    lines = lines_at_first(follow, as_json)
    return events(seeing.find_root(root_given), 0.0, follow, as_json, lines=lines)


def _take(argv: list[str], option: str) -> tuple[str, list[str]]:
    if argv[0].startswith(option + "="):
        return argv[0].partition("=")[2], argv[1:]
    if argv[0] != option or len(argv) < 2:
        raise Give
    return argv[1], argv[2:]
