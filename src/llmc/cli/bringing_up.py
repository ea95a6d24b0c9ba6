"""The fleet: `llmc up` and `llmc down`."""

import contextlib

import click

from llmc.api import running
from llmc.api.roots import Project
from llmc.api.running import AutoOptions, Down, Up, Wanted
from llmc.base.clock import now_unix
from llmc.base.errors import Exit, Unreachable, UsageError
from llmc.cli.arguments import Number, parse_end, project_of, root_of
from llmc.cli.elapsed import Elapsed
from llmc.cli.output import json_option, note, paint, plain, print_json, say
from llmc.cli.web import start_beside


@click.command("up")
@click.option(
    "--detach",
    "-d",
    is_flag=True,
    help="Run the daemon in the background and return when all workers are ready",
)
@click.option("--web", is_flag=True, help="With --detach, also start the web server and print a sign-in link")
@click.option("--no-patrol", is_flag=True, help="Disable the patrol, the periodic check of every worker")
@click.option(
    "--auto",
    is_flag=True,
    help="Assign tasks from the task list to auto workers and land the results without your review. "
    "Set repo.validate first. Agents run without permission prompts unless defaults.skip_permissions is false.",
)
@click.option(
    "--concurrency",
    metavar="N",
    type=click.IntRange(1, 99),
    help="Number of auto workers (overrides auto.concurrency)",
)
@click.option(
    "--post-accept-command", help="Command to run after each task lands (overrides auto.post_accept_command)"
)
@click.option(
    "--until", help="Start no new tasks after this time: 07:30, 2026-11-16T07:30, or a duration such as 8h"
)
@click.option(
    "--max-tasks",
    metavar="N",
    type=click.IntRange(1),
    help="Start at most N tasks, then exit when they are finished",
)
@click.option(
    "--max-cost",
    metavar="DOLLARS",
    type=Number(0, min_open=True),
    help="Start no new tasks once this many dollars are spent, then exit (see `llmc prices list`)",
)
@click.option(
    "--canary/--no-canary",
    default=None,
    help="With --auto, first test the client in a scratch session (uses one short prompt) "
    "[default: after a client or tmux update]",
)
@json_option
@click.pass_context
def up(
    ctx: click.Context,
    detach: bool,
    web: bool,
    no_patrol: bool,
    auto: bool,
    concurrency: int | None,
    post_accept_command: str | None,
    until: str | None,
    max_tasks: int | None,
    max_cost: float | None,
    canary: bool | None,
    as_json: bool,
) -> int:
    """Start the workers and the daemon

    Agents that are already running are left alone.

    \b
    Examples:
      llmc up --detach
      llmc up --auto --concurrency 3 --until 07:30
    """
    given: dict[str, int | float | str | None] = {
        "--concurrency": concurrency,
        "--post-accept-command": post_accept_command,
        "--until": until,
        "--max-tasks": max_tasks,
        "--max-cost": max_cost,
    }
    said = {**given, "--canary": canary or None, "--no-canary": canary is False or None}
    named = [name for name, value in said.items() if value is not None]
    if named and not auto:
        raise UsageError(f"{named[0]} requires --auto", hint="Run: llmc up --auto --detach ...")
    if web and (not detach or as_json):
        raise UsageError(
            "--web requires --detach and cannot be used with --json", hint="Run: llmc up --detach --web"
        )
    options = None
    if auto:
        ends = None if until is None else parse_end(until, now_unix())
        options = AutoOptions(concurrency, post_accept_command, ends, max_tasks, max_cost)
    wanted = Wanted(detach, not no_patrol, options, given, canary)
    with Elapsed("starting the daemon and the agents") if detach else contextlib.nullcontext():
        done = _brought_up(project_of(ctx), wanted)
    if done.ended is not None:
        return done.ended
    if done.ran_already:
        code = _show_started(done, as_json)
        if web:
            start_beside(project_of(ctx))
        return code
    workers = done.workers
    if as_json:
        rows = [plain(worker, "name", "status", "error_reason") for worker in workers]
        print_json({"pid": done.pid, "instance_id": done.instance_id, "workers": rows})
        return _code(done)
    say(f"daemon {done.pid} running" + (" in auto mode" if auto else ""))
    for worker in workers:
        if worker.status == "offline" and worker.auto and not worker.error_reason:
            say(f"  {worker.name}: not needed yet")
        elif worker.status == "offline":
            say(paint(f"  {worker.name}: not started: {worker.error_reason}", "red"))
        else:
            say(f"  {worker.name}: {worker.status}")
    if not workers:
        say("no workers yet; next: llmc add adam")
    if web:
        start_beside(project_of(ctx))
    return _code(done)


def _brought_up(project: Project, wanted: Wanted) -> Up:
    try:
        return running.up(project, wanted, tell)
    except Unreachable as error:
        if not wanted.detach:
            error.exit_code = Exit.PASSING  # systemd tries again
        raise


def _show_started(done: Up, as_json: bool) -> int:
    """A daemon was already running; only missing agents were started."""
    if as_json:
        rows = [{"name": name, "error_reason": problem} for name, problem in done.started.items()]
        print_json({"already_running": True, "workers": rows})
        return _code(done)
    say(f"daemon already running{' in auto mode' if done.is_auto else ''}: {done.ran_already}")
    status = {str(worker.name): worker.status for worker in done.workers}
    for name, problem in done.started.items():
        say(paint(f"  {name}: not started: {problem}", "red") if problem else f"  {name}: {status.get(name)}")
    return _code(done)


def _code(done: Up) -> int:
    if done.has_agents:
        return Exit.DONE
    note("no agent is running; run `llmc status` to see why")
    return Exit.FAILED


def tell(text: str, style: str = "") -> None:
    note(paint(text, style, err=True))


@click.command("down")
@click.option(
    "--force",
    is_flag=True,
    help="Stop the daemon even if a supervisor would restart it; kill the daemon if it does not stop",
)
@json_option
@click.pass_context
def down(ctx: click.Context, force: bool, as_json: bool) -> int:
    """Stop the workers and the daemon

    Keeps all worktrees, and does not close tmux panes that you opened. Works even if the configuration or state is
    invalid.

    \b
    Example:
      llmc down
    """
    with Elapsed("stopping the agents and the daemon"):
        done = running.down(root_of(ctx), tell, force=force)
    if as_json:
        panes = [{"pane": pane.id, "session": pane.session, "pid": pane.pid} for pane in done.left]
        body = {"daemon_stopped": done.had_daemon, "interrupted": list(done.interrupted)}
        print_json({**body, "problems": done.problems, "left": panes})
    else:
        for text in [*done.problems, *([done.told_of_left] if done.left else [])]:
            note(text)
        outcome = "stopped" if done.had_any else "nothing is running"
        say("some agents could not be stopped" if done.problems else outcome)
        for name, is_auto in done.interrupted.items():
            say(f"  {name} was working; {_what_next(done, is_auto)}")
    return Exit.FAILED if done.problems else Exit.DONE


def _what_next(done: Down, is_auto: bool) -> str:
    """How the interrupted work continues; the task of an auto worker is back on the list."""
    if is_auto:
        return f"`{done.up_auto}` starts its task again"
    return "`llmc up --detach` resumes its conversation"
