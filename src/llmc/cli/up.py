"""llmc up"""

import shlex
import shutil
from collections.abc import Collection, Mapping

import click
import psutil

from llmc.attention import raising
from llmc.base.clock import now_unix
from llmc.base.errors import Exit, LlmcError, Refused, UsageError
from llmc.base.files import DiskFull
from llmc.base.locks import holder
from llmc.base.text import printable, shortened
from llmc.cli.arguments import parse_end, project_of
from llmc.cli.goal_views import note_undriven
from llmc.cli.output import json_option, note, paint, print_json, say
from llmc.config import trust
from llmc.daemon import control
from llmc.daemon.auto import AutoOptions
from llmc.daemon.main import Daemon, Options
from llmc.doctor.canary import require
from llmc.goals.goals import open_store
from llmc.records.worker import Status, WorkerRecord
from llmc.repo.project import Project
from llmc.repo.setup import find_check
from llmc.tasks import queue
from llmc.workers.fleet import bring_up

CLIENT_BYTES = 250 * 1024 * 1024
DISK_FLOOR_BYTES = 500 * 1024 * 1024
DISK_NEEDED_BYTES = 4 * 1024 * 1024


@click.command("up")
@click.option(
    "--detach", "-d", is_flag=True, help="Run the daemon in the background; return when all is ready."
)
@click.option("--no-patrol", is_flag=True, help="No regular look at everything; hooks alone drive it.")
@click.option(
    "--auto",
    is_flag=True,
    help="Give the tasks of the list to auto workers and land what they make, without a review by a person. "
    "Agents run with the permissions of defaults.skip_permissions: set repo.validate first.",
)
@click.option(
    "--concurrency", type=click.IntRange(1, 99), help="How many auto workers, over auto.concurrency."
)
@click.option("--post-accept-command", help="Run after each task that landed, over auto.post_accept_command.")
@click.option("--until", help="Take no new tasks after this time: 07:30, 2026-11-16T07:30, or 8h from now.")
@click.option("--max-tasks", type=click.IntRange(1), help="Stop after N tasks.")
@click.option(
    "--max-cost",
    type=click.FloatRange(0, min_open=True),
    help="Stop taking tasks after spending this much (USD, by `llmc prices list`); then end.",
)
@click.option(
    "--canary/--no-canary",
    default=None,
    help="With --auto: try the client in a scratch session first. By default when its version or tmux's is new here; "
    "it costs a prompt of a few words.",
)
@json_option
@click.pass_context
def up(
    ctx: click.Context,
    detach: bool,
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
    """Start the agents and the daemon that looks after them. Agents that run already are left alone.

    \b
    Examples:
      llmc up --detach
      llmc up --auto --concurrency 3 --until 07:30
    """
    given: dict[str, int | float | str | None] = {
        "--concurrency": concurrency,
        "--post-accept-command": post_accept_command,
    }
    given |= {"--until": until, "--max-tasks": max_tasks, "--max-cost": max_cost}
    said = {**given, "--canary": canary or None, "--no-canary": canary is False or None}
    if not auto and any(value is not None for value in said.values()):
        named = next(name for name, value in said.items() if value is not None)
        raise UsageError(f"{named} needs --auto", hint="llmc up --auto --detach ...")
    options = None
    if auto:
        ends = None if until is None else parse_end(until, now_unix())
        options = AutoOptions(concurrency, post_accept_command, ends, max_tasks, max_cost)
    project = project_of(ctx)
    trust.register(str(project.root.path))  # from now on it is found from inside, too
    project.tmux.panes()  # that tmux is missing is said now, not once for each worker
    changing = auto and project.daemon_runs() and _is_to_change(project, given)
    if project.daemon_runs() and not changing:
        _note_of_no_auto(project)
        return _start_the_missing(project, as_json)
    _warn_of_others(project)
    _check_room(project)
    if auto:
        _note_of_auto(project)
    else:
        _note_of_no_auto(project)
    if auto and canary is not False:
        _try_client(project, asked=canary is True)
    if changing:
        _change_over(project)
    if not detach:
        return Daemon(project, Options(patrol=not no_patrol, auto=options)).run()
    arguments = ["--no-patrol"] if no_patrol else []
    arguments += ["--auto", "--no-canary"] if auto else []  # it was tried here, where a person reads along
    arguments += [text for name, value in given.items() if value is not None for text in (name, str(value))]
    try:
        record = control.start_detached(project, arguments)
    except LlmcError:
        if changing:
            control.start_detached(project, [])  # the agents have somebody to look after them, as before
        raise
    workers = [w for w in project.store.read().workers.values() if auto or not w.auto]
    if as_json:
        rows = [{"name": w.name, "status": w.status, "error_reason": w.error_reason} for w in workers]
        print_json({"pid": record.pid, "instance_id": record.instance_id, "workers": rows})
        return _code(workers)
    say(f"daemon {record.pid} runs" + (" in auto mode" if auto else ""))
    for worker in workers:
        if worker.status is Status.OFFLINE and worker.auto and not worker.error_reason:
            say(f"  {worker.name}: not needed now")
        elif worker.status is Status.OFFLINE:
            say(paint(f"  {worker.name}: not started: {worker.error_reason}", "red"))
        else:
            say(f"  {worker.name}: {worker.status}")
    if not workers:
        say("no workers yet; next: llmc add adam")
    return _code(workers)


def _code(workers: Collection[WorkerRecord]) -> int:
    """A fleet without a single agent is a failure, though its daemon runs."""
    if not workers or any(worker.status is not Status.OFFLINE for worker in workers):
        return Exit.DONE
    note("no agent started; `llmc status` says why, and what to do")
    return Exit.FAILED


def _is_to_change(project: Project, given: Mapping[str, object]) -> bool:
    """Whether the daemon that runs has to become one in auto mode; refuses what could only be ignored."""
    pid = holder(project.root.lock("daemon"))
    is_auto = control.is_auto(project)
    if is_auto is None and project.daemon_runs():
        raise Refused(
            f"{pid} holds this root, and does not say whether it is in auto mode", hint="Try again."
        )
    if is_auto and (named := [name for name, value in given.items() if value is not None]):
        again = "`llmc down`, then the same command again."
        raise Refused(f"auto mode runs already ({pid}): {named[0]} would have no effect", hint=again)
    return is_auto is False


def _change_over(project: Project) -> None:
    """The plain daemon ends and leaves its agents running; the one in auto mode takes them over, as after a crash."""
    if not project.config.auto.task_list_id:
        raise queue.no_task_list()  # before a daemon that works is ended for one that cannot start
    note(f"the daemon without auto mode ends ({holder(project.root.lock('daemon'))}); its agents run on")
    control.hand_over(project)


def _note_of_no_auto(project: Project) -> None:
    """Auto mode that ended by itself is not back with a plain daemon; why it ended stays to be said."""
    for item in raising.current(project):
        if item.kind == "auto":
            note(f"{item.text}. A daemon without auto mode gives out no tasks; next: {item.next}")


def _note_of_auto(project: Project) -> None:
    """What a person wants to know before they leave it alone for a night."""
    if not project.config.repo.validate:
        found = find_check(project)
        command, because = (found.command, f" ({found.because})") if found else ("make test", "")
        note(
            "warning: repo.validate is not set: what auto mode lands is not tested; "
            f"for example: llmc config set repo.validate {shlex.quote(command)}{because}"
        )
    if not project.config.overseer.goals.enabled:
        _note_goals(project)


def _note_goals(project: Project) -> None:
    """Who made a goal and starts auto mode for the night wants to know that nothing will be done for it."""
    store = open_store(project)
    if not store.path.exists():
        return
    try:
        with store.reading() as found:
            goals = [view.goal for view in found.views()]
    except LlmcError:
        return  # goals keep nobody from starting; `llmc doctor` and their own commands say what is wrong
    note_undriven(project, goals)


def _try_client(project: Project, *, asked: bool) -> None:
    """Refuses auto mode where llmc could not drive the client; the evidence is for whoever has to mend it."""
    if not project.config.auto.task_list_id:
        return  # there is nothing to try it for, as will be said
    try:
        tried = require(project, note, asked=asked)
    except Refused as error:
        failed = error.details.get("canary")
        if failed:
            note(f"  hooks that came: {', '.join(failed['hooks']) or 'none'}")
            note("  the end of its screen:")
            for line in failed["screen"]:
                note(f"  | {shortened(printable(line), 120)}")
        raise
    for text in tried.cannot_see if tried else ():
        note(f"canary: llmc cannot see {text}")


def _start_the_missing(project: Project, as_json: bool) -> int:
    """A daemon runs already: only the agents that do not run are started."""
    offline = [w.name for w in _by_daemon(project) if w.status is Status.OFFLINE]
    problems = {name: bring_up(project, name) for name in offline}
    if as_json:
        rows = [{"name": name, "error_reason": problem or ""} for name, problem in problems.items()]
        print_json({"already_running": True, "workers": rows})
        return _code(_by_daemon(project))
    say(f"a daemon runs already: {holder(project.root.lock('daemon'))}")
    for name, problem in problems.items():
        state = project.store.worker(name).status
        say(paint(f"  {name}: not started: {problem}", "red") if problem else f"  {name}: {state}")
    return _code(_by_daemon(project))


def _by_daemon(project: Project) -> list[WorkerRecord]:
    """The workers that the daemon that runs looks after."""
    is_auto = control.is_auto(project)
    return [record for record in project.store.read().workers.values() if is_auto or not record.auto]


def _warn_of_others(project: Project) -> None:
    """config.toml names the programs that llmc runs."""
    if project.root.path.stat().st_mode & 0o022 or project.root.config.stat().st_mode & 0o022:
        note(
            f"warning: {project.root.path} may be changed by other people; `llmc doctor --repair` makes it yours alone"
        )


def _check_room(project: Project) -> None:
    """About 250 MB a client; a warning, because only the person knows what else will run."""
    count = len(project.store.read().workers)
    available = psutil.virtual_memory().available
    if project.config.defaults.agent == "claude" and count * CLIENT_BYTES > available:
        note(f"warning: {count} clients need about {count * 250} MB, {available // 2**20} MB are free")
    free = shutil.disk_usage(project.root.path).free
    if free < DISK_NEEDED_BYTES:
        raise DiskFull(
            f"cannot start on {project.root.path}: the disk is full ({free // 1024} KB are left)",
            hint="Free some space, then run it again.",
        )
    if free < DISK_FLOOR_BYTES:
        note(f"warning: only {free // 2**20} MB are free on the disk of {project.root.path}")
