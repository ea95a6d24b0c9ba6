"""Monitoring: `llmc status`, `wait`, `events`, `logs` and `digest`."""

import codecs
import shutil
import time

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from llmc.api import roots, seeing, tasks
from llmc.api.logs import DAEMON, OTHERS, Log
from llmc.api.roots import Project
from llmc.base import given
from llmc.base.clock import monotonic, now_unix
from llmc.base.errors import Exit, NotFound, UsageError
from llmc.base.text import counted, uncoloured
from llmc.cli import fast
from llmc.cli.arguments import (
    WORKER,
    Number,
    complete_list,
    parse_since,
    pass_project,
    project_of,
    root_of,
    since_option,
)
from llmc.cli.fast import in_a_line, other_fields, time_of_day
from llmc.cli.output import (
    clear_screen,
    completion,
    is_terminal,
    json_option,
    print_error,
    print_json,
    say,
    say_lines,
    show_frame,
)
from llmc.config.durations import parse_duration


@click.command("status")
@click.option(
    "--fleet", is_flag=True, help="Show all nodes in the fleet and what needs your attention on each"
)
@click.option("--watch", "-w", is_flag=True, help="Refresh until you press Ctrl-C")
@click.option(
    "--interval",
    metavar="SECONDS",
    type=Number(0.1, 86400),
    default=1.0,
    show_default=True,
    help="Seconds between updates with --watch",
)
@json_option
@pass_project
def status(project: Project, fleet: bool, watch: bool, interval: float, as_json: bool) -> int:
    """Show the status of all workers

    Workers that need you come first. For each worker, shows the status, the time since it last changed, the task and a
    suggested command. On a terminal, the output fits the width and is in color unless NO_COLOR is set. In a pipe or a
    file, the output is plain and 80 columns wide.

    \b
    Example:
      llmc status --watch
    """
    if fleet:
        from llmc.cli.fleet import show  # few roots are in a fleet

        return show(project, as_json)
    if as_json:
        roots.require_state(project)
        return fast.status(str(project.root.path))
    if not watch:
        say_lines(fast.status_text(project))
        return 0
    clear_screen()
    while True:
        _draw(fast.status_text(project), f"refreshing every {interval:g} s; press Ctrl-C to quit")
        time.sleep(interval)


def _draw(text: str, foot: str) -> None:
    """Draw as many lines as fit on the screen."""
    if not is_terminal():
        say_lines(f"{text}\n")
        return
    lines, rows = text.splitlines(), shutil.get_terminal_size().lines - 3
    if len(lines) > rows:
        lines = [*lines[: rows - 1], f"... and {len(lines) - rows + 1} more lines"]
    show_frame([*lines, "", foot])


TASKS_POLL_S = 0.2
#: how often to check whether something runs that could finish the tasks
LOOK_S = 1.0
#: how long to keep waiting while nothing runs: a daemon may be starting or restarting
RESTART_S = 5.0


@click.command("wait")
@click.argument("workers", metavar="[WORKER]...", nargs=-1, type=WORKER)
@click.option(
    "--status",
    "statuses",
    metavar="S[,S]",
    shell_complete=complete_list(seeing.STATUSES),
    help="Statuses to wait for",
)
@click.option("--all-idle", is_flag=True, help="Wait until every worker in use is idle")
@click.option("--tasks-done", is_flag=True, help="Wait until all tasks are completed")
@click.option(
    "--timeout", metavar="SECONDS", help="Maximum time to wait, in seconds or as a duration such as 15m"
)
@json_option
@pass_project
def wait(
    project: Project,
    workers: tuple[str, ...],
    statuses: str | None,
    all_idle: bool,
    tasks_done: bool,
    timeout: str | None,
    as_json: bool,
) -> int:
    """Wait for workers or tasks to reach a status

    Exits with 0 when every worker has reached one of the statuses. Exits with 1 on timeout, when a worker unexpectedly
    changes to error or offline, when the remaining tasks need you, or when auto mode has not been running for 5 seconds and
    tasks remain.

    \b
    Examples:
      llmc wait adam --status needs_review,needs_input --timeout 30m
      llmc wait adam baker --status idle
      llmc wait --tasks-done --timeout 8h
    """
    if tasks_done:
        if workers or statuses or all_idle:
            raise UsageError("--tasks-done cannot be used with a worker, --status or --all-idle")
        return _wait_for_tasks(project, _seconds(timeout), as_json)
    wanted = {"idle"} if all_idle else set((statuses or "").split(",")) - {""}
    if not wanted or bool(workers) == all_idle:
        raise UsageError(
            "specify what to wait for",
            hint="Run: llmc wait WORKER --status needs_review, or llmc wait --all-idle",
        )
    unknown = wanted - seeing.STATUSES
    if unknown:
        raise UsageError(
            f"unknown status {', '.join(sorted(unknown))}",
            hint="Valid statuses: " + " ".join(sorted(seeing.STATUSES)),
        )
    timeout_s = _seconds(timeout)
    known = [roots.require_worker(project, name) for name in dict.fromkeys(workers)]
    names = known or roots.workers_in_use(project)
    return fast.wait(str(project.root.path), names, wanted, timeout_s, as_json)


def _seconds(timeout: str | None) -> float | None:
    try:
        return parse_duration(timeout) if timeout else None
    except ValueError as error:
        raise UsageError(f"--timeout: {error}") from error


def _wait_for_tasks(project: Project, timeout_s: float | None, as_json: bool) -> int:
    began = monotonic()
    deadline = began + timeout_s if timeout_s is not None else None
    ran, looked, stopped = began, -LOOK_S, None
    while True:
        left, now = tasks.left_to_do(project), monotonic()
        over = deadline is not None and now >= deadline
        if left.open and (over or now - looked >= LOOK_S):
            looked, stopped = now, tasks.stopped(project)
            ran = now if stopped is None else ran
        if not left.open or left.stuck or over or now - ran >= RESTART_S:
            break
        time.sleep(TASKS_POLL_S)
    many = counted(len(left.open), "task")
    problem, hint = "", ""
    if left.stuck:
        problem, hint = f"{many} left, but none can start", "Run `llmc tasks list` to see why."
    elif left.open and stopped is not None:
        problem, hint = f"{many} left, but {stopped.text}", f"Next: {stopped.next}"
    elif left.open:
        problem = f"timed out: {many} left after {timeout_s:g} s"
    if as_json:
        print_json(
            {"reached": not left.open, "open": left.open, "needs_a_person": left.held, "problem": problem}
        )
    elif problem:
        print_error(problem, hint, Exit.FAILED, False)
    else:
        say("all tasks are completed")
    return Exit.FAILED if problem else Exit.DONE


@click.command("events")
@click.option("--follow", "-F", is_flag=True, help="Keep printing new events")
@click.option(
    "--lines",
    "-n",
    metavar="N",
    type=click.IntRange(0),
    help=f"Number of events to show from the end of the log [default: all; {fast.FOLLOWED} with --follow unless --json]",
)
@since_option
@click.option("--worker", "-w", type=WORKER, help="Show only this worker's events")
@click.option("--fleet", is_flag=True, help="Show the main events of all nodes in the fleet")
@json_option
@click.pass_context
def events(
    ctx: click.Context,
    follow: bool,
    lines: int | None,
    since: str,
    worker: str | None,
    fleet: bool,
    as_json: bool,
) -> int:
    """Show the event log

    Oldest events come first. With --json, prints one object per line. With --fleet, shows the events that the digest uses,
    from all nodes, with workers as NODE/NAME and times from the database's clock. Each node sends its events every 10
    seconds.

    \b
    Examples:
      llmc events --lines 20
      llmc events --follow --worker adam
      llmc events --follow --since 1h
    """
    is_since = ctx.get_parameter_source("since") is not ParameterSource.DEFAULT
    if is_since and lines is not None:
        raise UsageError("--since and --lines cannot be used together")
    if not is_since and lines is None:
        lines = fast.lines_at_first(follow, as_json)
    since_unix = parse_since(since, time.time())
    if fleet:
        from llmc.api.fleet_nodes import events as of_nodes  # most roots work alone

        rows = of_nodes(project_of(ctx), since_unix, worker, lines, follow=follow)
        try:
            return fast.print_events(rows, as_json, follow=follow)
        except KeyboardInterrupt:
            return 130  # same as without --fleet; click would print an empty line
    root = root_of(ctx)
    return fast.events(str(root.path), since_unix, follow, as_json, worker, lines)


LOG_POLL_S = 0.2

#: fields that are shown without their names
_IN_THE_LINE = ("ts", "level", "logger", "message", "traceback")


def complete_log(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    others = [completion(name) for name in OTHERS if name.startswith(incomplete)]
    return WORKER.shell_complete(ctx, param, incomplete) + others


@click.command("logs")
@click.argument("name", default=DAEMON, type=WORKER, shell_complete=complete_log)
@click.option(
    "--follow", "-F", is_flag=True, help="Keep printing new lines; wait for the file if it does not exist"
)
@click.option(
    "--lines",
    "-n",
    metavar="N",
    type=click.IntRange(0),
    default=50,
    show_default=True,
    help="Number of lines to show from the end of the log",
)
@click.option("--json", "as_json", is_flag=True, help="Print the daemon log as JSON lines")
@click.pass_context
def logs(ctx: click.Context, name: str, follow: bool, lines: int, as_json: bool) -> None:
    """Show the log of a worker or the daemon

    A worker's log contains prompts, status changes, setup, validation and crashes. The other logs are daemon, overseer,
    auto, task_pool, post_accept and goals. Rotated files are included.

    \b
    Examples:
      llmc logs adam
      llmc logs daemon --follow
      llmc logs auto --lines 200
    """
    if as_json and name != DAEMON:
        raise UsageError(f"--json is supported only for the {DAEMON} log", hint=f"Run: llmc logs {name}")
    log = Log(root_of(ctx), name, lines)
    if not follow and not log.exists():
        raise NotFound(
            f"{log.path} does not exist yet",
            hint=f"Run `llmc logs {name} --follow` to wait for the file.",
        )
    # A read may end in the middle of a character.
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    rows = _Rows() if name == DAEMON and not as_json else None
    text = decoder.decode(log.last_lines(), final=not follow)
    _print(rows.of(text, last=not follow) if rows else text)
    while follow:
        time.sleep(LOG_POLL_S)
        text = decoder.decode(log.more())
        _print(rows.of(text) if rows else text)


class _Rows:
    """Makes a log of JSON lines readable; holds back an incomplete line."""

    def __init__(self) -> None:
        self._rest = ""

    def of(self, text: str, *, last: bool = False) -> str:
        *whole, self._rest = (self._rest + text).split("\n")
        if last and self._rest:
            whole, self._rest = [*whole, self._rest], ""
        return "".join(f"{readable(line)}\n" for line in whole)


def readable(line: str) -> str:
    """A line of the daemon log: time, level, message, other fields, and a traceback below; others are unchanged."""
    row = given.row(line.encode(errors="surrogateescape"))
    if row is None:
        return line
    when, level = time_of_day(row.get("ts"), "%Y-%m-%d %H:%M:%S"), str(row.get("level", ""))
    message, rest = in_a_line(str(row.get("message", ""))), other_fields(row, _IN_THE_LINE)
    below = str(row.get("traceback") or "").splitlines()
    return "\n".join([f"{when} {level:<7} {message} {rest}".rstrip(), *(f"    {one}" for one in below)])


def _print(text: str) -> None:
    if text:
        say_lines(uncoloured(text), nl=False)


@click.command("digest")
@click.option(
    "--since",
    metavar="T",
    help="Start time: Unix seconds, ISO 8601, or an age such as 12h [default: your last digest that is more than an hour old, or 24h ago]",
)
@click.option("--fleet", is_flag=True, help="Include all nodes in the fleet")
@json_option
@pass_project
def digest(project: Project, since: str | None, fleet: bool, as_json: bool) -> None:
    """Summarize what landed, what failed and what needs you

    Items that unblock the most tasks come first, each with the command to run. Also shows the cost. Does not call a
    model.

    \b
    Examples:
      llmc digest
      llmc digest --since 12h
      llmc digest --fleet
      llmc digest --json | jq '.waiting[].command'
    """
    from llmc.api import reports  # slow to import

    since_unix = None if since is None else parse_since(since, now_unix())
    if as_json:
        print_json(reports.digest_json(project, since_unix, fleet=fleet))
    else:
        say_lines(reports.digest_text(project, since_unix, *fast.sheet(), fleet=fleet))
