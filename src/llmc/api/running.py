"""Start and stop the fleet: `up`, `down`, and the supervisor."""

import contextlib
import os
import shlex
import shutil
from collections.abc import Mapping
from typing import Protocol

import psutil
from msgspec import Struct

from llmc.api.goal_orders import undriven
from llmc.attention import raising
from llmc.attention.rules import DISK_FLOOR_BYTES
from llmc.base.errors import LlmcError, NotFound, Refused, StateError
from llmc.base.files import DiskFull
from llmc.base.locks import holder
from llmc.base.panes import Pane
from llmc.base.text import printable, shortened
from llmc.config import trust
from llmc.config.paths import Root
from llmc.daemon import control
from llmc.daemon.auto_options import AutoOptions as AutoOptions
from llmc.daemon.host import Host
from llmc.daemon.main import Daemon, Options
from llmc.doctor.canary import require
from llmc.goals.goals import open_store
from llmc.goals.model import GoalStatus
from llmc.records.items import Registration
from llmc.records.statuses import AT_WORK
from llmc.records.worker import Status, WorkerRecord
from llmc.repo import sources
from llmc.repo.project import Project, agent_for, bare_project
from llmc.repo.setup import find_check
from llmc.sessions import leftovers
from llmc.supervisor import supervisor_record
from llmc.supervisor.supervisor import Supervisor
from llmc.tasks import queue
from llmc.workers.up_and_down import bring_up, close_server, end_every_session, take_down, told_of

CLIENT_BYTES = 250 * 1024 * 1024
DISK_NEEDED_BYTES = 4 * 1024 * 1024


class Tell(Protocol):
    """Prints a line for the user, in a color ("" for none)."""

    def __call__(self, text: str, style: str = "") -> None: ...


class Wanted(Struct, frozen=True):
    """The options of `up`."""

    detach: bool
    patrol: bool = True
    #: None: no auto mode
    auto: AutoOptions | None = None
    #: the options given on the command line
    said: Mapping[str, int | float | str | None] = {}
    #: whether to run the canary; None: after an update of the client or tmux
    canary: bool | None = None


class Up(Struct, frozen=True):
    """What is running now."""

    workers: list[WorkerRecord]
    pid: int | None = None
    instance_id: str | None = None
    #: a daemon was already running: its lock holder, and the agents started now, with their errors
    ran_already: str = ""
    is_auto: bool = False
    started: dict[str, str] = {}
    #: the daemon ran in the foreground and exited with this code
    ended: int | None = None

    @property
    def has_agents(self) -> bool:
        """A fleet without any agent counts as failed, even if the daemon is running."""
        return not self.workers or any(worker.status is not Status.OFFLINE for worker in self.workers)


class Down(Struct, frozen=True):
    """What was stopped, and what was not."""

    had_daemon: bool
    #: a daemon or an agent was running
    had_any: bool
    #: interrupted workers, and whether each is an auto worker
    interrupted: dict[str, bool]
    problems: list[str]
    #: the command that starts auto mode again
    up_auto: str
    #: panes that the user opened, and the note about them
    left: list[Pane]
    told_of_left: str


def up(project: Project, wanted: Wanted, tell: Tell) -> Up:
    """Start the agents and the daemon. Without `detach`, returns when the daemon exits."""
    project.store.refuse_elsewhere()
    trust.register(str(project.root.path))  # so that it is found from inside
    project.tmux.panes()  # fail now if tmux is missing, not once per worker
    _tell_of_source(project, tell)
    auto = wanted.auto is not None
    changing = auto and project.daemon_runs() and _is_to_change(project, wanted.said)
    if project.daemon_runs() and not changing:
        _tell_of_no_auto(project, tell)
        return _start_the_missing(project)
    _tell_of_others(project, tell)
    _check_room(project, tell)
    _tell_of_containment(project, tell)
    (_tell_of_auto if auto else _tell_of_no_auto)(project, tell)
    if auto and wanted.canary is not False:
        _try_client(project, tell, asked=wanted.canary is True)
    if changing:
        _change_over(project, tell)
    if not wanted.detach:
        daemon = Daemon(project, Options(patrol=wanted.patrol, auto=wanted.auto))
        return Up([], ended=Host([daemon]).run())
    return _start_detached(project, wanted, changing)


def _tell_of_source(project: Project, tell: Tell) -> None:
    if missing := sources.look(project):
        tell(f"warning: {missing.message}. {missing.hint}", "yellow")


def _tell_of_containment(project: Project, tell: Tell) -> None:
    """Warn of uncontained agents or checks if this machine cannot contain them; with "on", agents do not start."""
    config = project.config
    of_agents = "auto" in (config.defaults.sandbox, *map(config.sandbox_of, config.workers))
    if not of_agents and config.checks != "auto":
        return
    from llmc.sandbox import probe  # most agents are not contained

    if problem := probe.problem():
        what = "agents" if of_agents else "checks"
        tell(f"warning: {what} are not contained: {problem.text}. To fix this, {problem.fix}", "yellow")


def _start_detached(project: Project, wanted: Wanted, changing: bool) -> Up:
    auto = wanted.auto is not None
    arguments = [] if wanted.patrol else ["--no-patrol"]
    arguments += ["--auto", "--no-canary"] if auto else []  # the canary ran here, where the user sees it
    arguments += [
        text for name, value in wanted.said.items() if value is not None for text in (name, str(value))
    ]
    try:
        record = control.start_detached(project, arguments)
    except LlmcError:
        if changing:
            control.start_detached(project, [])  # so that the agents have a daemon, as before
        raise
    workers = [w for w in project.store.read().workers.values() if auto or not w.auto]
    return Up(workers, record.pid, record.instance_id)


def _is_to_change(project: Project, said: Mapping[str, object]) -> bool:
    """Whether the running daemon must be replaced by one in auto mode; refuses options without effect."""
    pid = holder(project.root.lock("daemon"))
    is_auto = control.is_auto(project)
    if is_auto is None and project.daemon_runs():
        raise Refused(
            f"cannot tell whether the daemon ({pid}) is in auto mode", hint="Run the command again."
        )
    if is_auto and (named := [name for name, value in said.items() if value is not None]):
        again = "Run `llmc down`, then run this command again."
        raise Refused(f"auto mode is already running ({pid}), so {named[0]} would have no effect", hint=again)
    return is_auto is False


def _tell_of_drain(project: Project, tell: Tell) -> None:
    from llmc.fleet import nodes  # most roots work alone

    own = nodes.membership(project)
    with contextlib.closing(own.database), contextlib.suppress(LlmcError):  # the start says why
        if nodes.is_draining(own):
            undo = f"llmc fleet drain {own.node} --undo"
            tell(
                f"warning: node {own.node} is draining: it starts no tasks, and stops. To undo this: {undo}",
                "yellow",
            )


def _change_over(project: Project, tell: Tell) -> None:
    """Stop the plain daemon but not its agents; the one in auto mode takes them over, as after a crash."""
    if not project.config.auto.task_list_id:
        raise queue.no_task_list()  # before stopping a daemon for one that cannot start
    pid = holder(project.root.lock("daemon"))
    tell(f"stopping the daemon ({pid}), which is running without auto mode; its agents keep running")
    control.hand_over(project)


def _tell_of_no_auto(project: Project, tell: Tell) -> None:
    """A plain daemon does not bring back auto mode that stopped by itself; say why it stopped."""
    for item in raising.current(project):
        if item.kind == "auto":
            tell(f"{item.text}. A daemon without auto mode does not assign tasks. Next: {item.next}")


def _tell_of_auto(project: Project, tell: Tell) -> None:
    """Warnings before an unattended run."""
    if not project.config.repo.validate:
        found = find_check(project)
        command, because = (found.command, f" ({found.because})") if found else ("make test", "")
        tell(
            "warning: repo.validate is not set, so auto mode lands untested work. "
            f"For example: llmc config set repo.validate {shlex.quote(command)}{because}"
        )
    if not project.config.overseer.goals.enabled:
        _tell_of_goals(project, tell)
    if project.config.fleet.database:
        _tell_of_drain(project, tell)


def _tell_of_goals(project: Project, tell: Tell) -> None:
    """Warn if active goals will make no progress."""
    store = open_store(project)
    if not store.exists():
        return
    try:
        with store.reading() as found:
            goals = [view.goal for view in found.views()]
    except LlmcError:
        return  # a damaged goal store does not prevent the start; doctor reports it
    if any(goal.status is GoalStatus.ACTIVE for goal in goals) and (why := undriven(project)):
        tell(why, "yellow")


def _try_client(project: Project, tell: Tell, *, asked: bool) -> None:
    """Run the canary; if it fails, show the evidence and refuse auto mode."""
    if not project.config.auto.task_list_id:
        return  # auto mode will refuse to start anyway
    try:
        tried = require(project, tell, asked=asked)
    except Refused as error:
        failed = error.details.get("canary")
        if failed:
            tell(f"  hooks received: {', '.join(failed['hooks']) or 'none'}")
            tell("  last lines of the screen:")
            for line in failed["screen"]:
                tell(f"  | {shortened(printable(line), 120)}")
        raise
    for text in tried.cannot_see if tried else ():
        tell(f"warning: the canary could not observe {text}")


def _start_the_missing(project: Project) -> Up:
    """A daemon is already running: start only the missing agents."""
    offline = [w.name for w in _by_daemon(project) if w.status is Status.OFFLINE]
    problems = {str(name): bring_up(project, name) or "" for name in offline}
    return Up(
        _by_daemon(project),
        ran_already=holder(project.root.lock("daemon")),
        is_auto=control.is_auto(project) is True,
        started=problems,
    )


def _by_daemon(project: Project) -> list[WorkerRecord]:
    """The workers of the running daemon."""
    is_auto = control.is_auto(project)
    daemon = control.live_registration(project) or Registration()
    workers = project.store.read().workers.values()
    return [record for record in workers if not record.auto or (is_auto and daemon.drives(record.name))]


def _tell_of_others(project: Project, tell: Tell) -> None:
    """Warn if other users can change config.toml, which names the programs that llmc runs."""
    root = project.root
    if (os.stat(root.path).st_mode | os.stat(root.config).st_mode) & 0o022:
        tell(f"warning: {root.path} is writable by other users; fix it with `llmc doctor --repair`")


def _check_room(project: Project, tell: Tell) -> None:
    """Check memory and disk; a client needs about 250 MB. Low memory is only a warning."""
    count = len(project.store.read().workers)
    available = psutil.virtual_memory().available
    if not agent_for(project).ships_with_llmc and count * CLIENT_BYTES > available:
        free = available // 2**20
        need = "agent needs" if count == 1 else "agents need"
        tell(f"warning: {count} {need} about {count * 250} MB of memory, but only {free} MB is available")
    free = shutil.disk_usage(project.root.path).free
    if free < DISK_NEEDED_BYTES:
        raise DiskFull(
            f"cannot start in {project.root.path}: the disk is full ({free // 1024} KB free)",
            hint="Free some space, then run the command again.",
        )
    if free < DISK_FLOOR_BYTES:
        tell(f"warning: only {free // 2**20} MB of disk space left for {project.root.path}")


def down(root: Root, tell: Tell, *, force: bool) -> Down:
    """Stop the agents and the daemon; works without a valid configuration or state. Panes of the user stay."""
    project = bare_project(root)
    if supervisor_record.runs(root):
        _tell_of_supervisor(root, tell, force)
    at_work = _at_work(project)
    had_daemon = control.stop(project, force=force)
    try:
        ended, problems, left = _take_down(project)
    except (StateError, NotFound) as error:
        tell(f"{error.message}; stopping every session in this root")
        ended, problems, left = True, [], end_every_session(project)
    return Down(
        had_daemon,
        had_daemon or ended,
        at_work,
        problems,
        project.up_auto(),
        left,
        told_of(project, left) if left else "",
    )


def _at_work(project: Project) -> dict[str, bool]:
    """Busy workers, and whether each is an auto worker; none if the state cannot be read."""
    try:
        workers = project.store.read().workers
    except (StateError, NotFound):
        return {}
    return {name: record.auto for name, record in workers.items() if record.status in AT_WORK}


def _tell_of_supervisor(root: Root, tell: Tell, force: bool) -> None:
    """Refuse, or warn, because a supervisor would restart the daemon."""
    by = supervisor_record.name_of(root)
    advice = f"To stop both, press Ctrl-C in the supervisor's terminal, or run: kill -TERM {by.split()[1]}."
    text = f"a supervisor is running ({by}) and would restart the daemon"
    if not force:
        raise Refused(text, hint=f"{advice} To stop the daemon anyway, run `llmc down --force`.")
    tell(f"{text}. {advice}")


def _take_down(project: Project) -> tuple[bool, list[str], list[Pane]]:
    """Whether there was an agent, what could not be stopped, and the panes of the user that were left alone."""
    with project.store.transaction() as tx:
        tx.remember_auto(False)
    ended, problems = False, []
    for name, record in project.store.read().workers.items():
        pane = project.pane(record)
        runs = pane is not None or record.status.is_live
        if not runs and not leftovers.of(record.instance):
            continue
        ended = True
        problem = take_down(project, name)
        if problem:
            problems.append(problem)
    return ended, problems, [] if problems else close_server(project)


def supervise(project: Project, tell: Tell) -> int:
    """Keep `up --auto` running until the user stops it or is needed; returns the exit code."""
    return Supervisor(project, tell).run()
