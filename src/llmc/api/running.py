"""The fleet as a whole: up, down, and the supervisor that keeps it up."""

import os
import shlex
import shutil
from collections.abc import Callable, Mapping

import psutil
from msgspec import Struct

from llmc.api.goal_ticks import undriven
from llmc.attention import raising
from llmc.base.errors import LlmcError, NotFound, Refused, StateError
from llmc.base.files import DiskFull
from llmc.base.locks import holder
from llmc.base.panes import Pane
from llmc.base.text import printable, shortened
from llmc.config import trust
from llmc.config.paths import Root
from llmc.daemon import control
from llmc.daemon.auto import AutoOptions as AutoOptions
from llmc.daemon.host import Host
from llmc.daemon.main import Daemon, Options
from llmc.doctor.canary import require
from llmc.goals.goals import open_store
from llmc.goals.model import GoalStatus
from llmc.notifications.notify import notify
from llmc.records.items import Registration
from llmc.records.worker import BUSY, Status, WorkerRecord
from llmc.repo.project import Project, agent_for, bare_project
from llmc.repo.setup import find_check
from llmc.sessions import leftovers
from llmc.supervisor import remediation, supervisor_record
from llmc.supervisor.roles import Show as Show
from llmc.supervisor.supervisor import Supervisor
from llmc.tasks import queue
from llmc.workers.fleet import bring_up, close_server, end_every_session, take_down, told_of

CLIENT_BYTES = 250 * 1024 * 1024
DISK_FLOOR_BYTES = 500 * 1024 * 1024
DISK_NEEDED_BYTES = 4 * 1024 * 1024

#: a line for a person, and its colour, "" for none: what they should know before it starts
Tell = Callable[[str, str], None]


class Wanted(Struct, frozen=True):
    """What a person asked of `up`."""

    detach: bool
    patrol: bool = True
    #: None: no auto mode
    auto: AutoOptions | None = None
    #: of that, what was said on the command line, by option
    said: Mapping[str, int | float | str | None] = {}
    #: whether the client is tried first; None: when its version or that of tmux is new here
    canary: bool | None = None


class Up(Struct, frozen=True):
    """What runs now."""

    workers: list[WorkerRecord]
    pid: int | None = None
    instance_id: str | None = None
    #: a daemon ran before: who has it, and the agents that were started now, with what kept them from it
    ran_already: str = ""
    started: dict[str, str] = {}
    #: it ran in the foreground, and has ended with this code
    ended: int | None = None

    @property
    def has_agents(self) -> bool:
        """A fleet without a single agent is a failure, though its daemon runs."""
        return not self.workers or any(worker.status is not Status.OFFLINE for worker in self.workers)


class Down(Struct, frozen=True):
    """What was stopped, and what was not."""

    had_daemon: bool
    #: workers whose turn was cut, and whether each is an auto worker
    interrupted: dict[str, bool]
    problems: list[str]
    #: panes of a person's own, and how they are told of them
    left: list[Pane]
    told_of_left: str


def up(project: Project, wanted: Wanted, tell: Tell) -> Up:
    """Start the agents and the daemon that looks after them. Without `detach` it returns when the daemon has ended."""
    trust.register(str(project.root.path))  # from now on it is found from inside, too
    project.tmux.panes()  # that tmux is missing is said now, not once for each worker
    auto = wanted.auto is not None
    changing = auto and project.daemon_runs() and _is_to_change(project, wanted.said)
    if project.daemon_runs() and not changing:
        _tell_of_no_auto(project, tell)
        return _start_the_missing(project)
    _tell_of_others(project, tell)
    _check_room(project, tell)
    (_tell_of_auto if auto else _tell_of_no_auto)(project, tell)
    if auto and wanted.canary is not False:
        _try_client(project, tell, asked=wanted.canary is True)
    if changing:
        _change_over(project, tell)
    if not wanted.detach:
        daemon = Daemon(project, Options(patrol=wanted.patrol, auto=wanted.auto))
        return Up([], ended=Host([daemon]).run())
    return _start_detached(project, wanted, changing)


def _start_detached(project: Project, wanted: Wanted, changing: bool) -> Up:
    auto = wanted.auto is not None
    arguments = [] if wanted.patrol else ["--no-patrol"]
    arguments += ["--auto", "--no-canary"] if auto else []  # it was tried here, where a person reads along
    arguments += [
        text for name, value in wanted.said.items() if value is not None for text in (name, str(value))
    ]
    try:
        record = control.start_detached(project, arguments)
    except LlmcError:
        if changing:
            control.start_detached(project, [])  # the agents have somebody to look after them, as before
        raise
    workers = [w for w in project.store.read().workers.values() if auto or not w.auto]
    return Up(workers, record.pid, record.instance_id)


def _is_to_change(project: Project, said: Mapping[str, object]) -> bool:
    """Whether the daemon that runs has to become one in auto mode; refuses what could only be ignored."""
    pid = holder(project.root.lock("daemon"))
    is_auto = control.is_auto(project)
    if is_auto is None and project.daemon_runs():
        raise Refused(
            f"{pid} holds this root, and does not say whether it is in auto mode", hint="Try again."
        )
    if is_auto and (named := [name for name, value in said.items() if value is not None]):
        again = "`llmc down`, then the same command again."
        raise Refused(f"auto mode runs already ({pid}): {named[0]} would have no effect", hint=again)
    return is_auto is False


def _change_over(project: Project, tell: Tell) -> None:
    """The plain daemon ends and leaves its agents running; the one in auto mode takes them over, as after a crash."""
    if not project.config.auto.task_list_id:
        raise queue.no_task_list()  # before a daemon that works is ended for one that cannot start
    tell(f"the daemon without auto mode ends ({holder(project.root.lock('daemon'))}); its agents run on", "")
    control.hand_over(project)


def _tell_of_no_auto(project: Project, tell: Tell) -> None:
    """Auto mode that ended by itself is not back with a plain daemon; why it ended stays to be said."""
    for item in raising.current(project):
        if item.kind == "auto":
            tell(f"{item.text}. A daemon without auto mode gives out no tasks; next: {item.next}", "")


def _tell_of_auto(project: Project, tell: Tell) -> None:
    """What a person wants to know before they leave it alone for a night."""
    if not project.config.repo.validate:
        found = find_check(project)
        command, because = (found.command, f" ({found.because})") if found else ("make test", "")
        tell(
            "warning: repo.validate is not set: what auto mode lands is not tested; "
            f"for example: llmc config set repo.validate {shlex.quote(command)}{because}",
            "",
        )
    if not project.config.overseer.goals.enabled:
        _tell_of_goals(project, tell)


def _tell_of_goals(project: Project, tell: Tell) -> None:
    """Who made a goal and starts auto mode for the night wants to know that nothing will be done for it."""
    store = open_store(project)
    if not store.path.exists():
        return
    try:
        with store.reading() as found:
            goals = [view.goal for view in found.views()]
    except LlmcError:
        return  # goals keep nobody from starting; `llmc doctor` and their own commands say what is wrong
    if any(goal.status is GoalStatus.ACTIVE for goal in goals) and (why := undriven(project)):
        tell(why, "yellow")


def _try_client(project: Project, tell: Tell, *, asked: bool) -> None:
    """Refuses auto mode where llmc could not drive the client; the evidence is for whoever has to fix it."""
    if not project.config.auto.task_list_id:
        return  # there is nothing to try it for, as will be said
    try:
        tried = require(project, lambda text: tell(text, ""), asked=asked)
    except Refused as error:
        failed = error.details.get("canary")
        if failed:
            tell(f"  hooks that came: {', '.join(failed['hooks']) or 'none'}", "")
            tell("  the end of its screen:", "")
            for line in failed["screen"]:
                tell(f"  | {shortened(printable(line), 120)}", "")
        raise
    for text in tried.cannot_see if tried else ():
        tell(f"canary: llmc cannot see {text}", "")


def _start_the_missing(project: Project) -> Up:
    """A daemon runs already: only the agents that do not run are started."""
    offline = [w.name for w in _by_daemon(project) if w.status is Status.OFFLINE]
    problems = {str(name): bring_up(project, name) or "" for name in offline}
    return Up(_by_daemon(project), ran_already=holder(project.root.lock("daemon")), started=problems)


def _by_daemon(project: Project) -> list[WorkerRecord]:
    """The workers that the daemon that runs looks after."""
    is_auto = control.is_auto(project)
    daemon = control.live_registration(project) or Registration()
    workers = project.store.read().workers.values()
    return [record for record in workers if not record.auto or (is_auto and daemon.drives(record.name))]


def _tell_of_others(project: Project, tell: Tell) -> None:
    """config.toml names the programs that llmc runs."""
    root = project.root
    if (os.stat(root.path).st_mode | os.stat(root.config).st_mode) & 0o022:
        tell(
            f"warning: {root.path} may be changed by other people; `llmc doctor --repair` makes it yours alone",
            "",
        )


def _check_room(project: Project, tell: Tell) -> None:
    """About 250 MB a client; a warning, because only the person knows what else will run."""
    count = len(project.store.read().workers)
    available = psutil.virtual_memory().available
    if not agent_for(project).ships_with_llmc and count * CLIENT_BYTES > available:
        tell(f"warning: {count} clients need about {count * 250} MB, {available // 2**20} MB are free", "")
    free = shutil.disk_usage(project.root.path).free
    if free < DISK_NEEDED_BYTES:
        raise DiskFull(
            f"cannot start on {project.root.path}: the disk is full ({free // 1024} KB are left)",
            hint="Free some space, then run it again.",
        )
    if free < DISK_FLOOR_BYTES:
        tell(f"warning: only {free // 2**20} MB are free on the disk of {project.root.path}", "")


def down(root: Root, tell: Tell, *, force: bool) -> Down:
    """Stop the agents and the daemon; needs no configuration or state that can be read. Panes of a person's stay."""
    project = bare_project(root)
    if supervisor_record.runs(root):
        _tell_of_supervisor(root, tell, force)
    at_work = _at_work(project)
    had_daemon = control.stop(project, force=force)
    try:
        problems, left = _take_down(project)
    except (StateError, NotFound) as error:
        tell(f"{error.message}; ending every session of this root", "")
        problems, left = [], end_every_session(project)
    return Down(had_daemon, at_work, problems, left, told_of(project, left) if left else "")


def _at_work(project: Project) -> dict[str, bool]:
    """Workers whose turn is cut, and whether each is an auto worker; none where the state cannot be read."""
    try:
        workers = project.store.read().workers
    except (StateError, NotFound):
        return {}
    return {
        name: record.auto for name, record in workers.items() if record.status in (*BUSY, Status.REBASING)
    }


def _tell_of_supervisor(root: Root, tell: Tell, force: bool) -> None:
    """It would take this for a failure, and start the daemon again."""
    by = supervisor_record.name_of(root)
    advice = f"Stop it first, and the daemon with it: Ctrl-C in its terminal, or kill -TERM {by.split()[1]}."
    text = f"a supervisor runs ({by}): it takes a daemon that ends for a failure, and starts it again"
    if not force:
        raise Refused(text, hint=f"{advice} `llmc down --force` ends the daemon all the same.")
    tell(f"{text}. {advice}", "")


def _take_down(project: Project) -> tuple[list[str], list[Pane]]:
    """What could not be ended, and the panes of a person that were left alone."""
    with project.store.transaction() as tx:
        tx.remember_auto(False)
    problems = []
    for name, record in project.store.read().workers.items():
        pane = project.pane(record)
        runs = pane is not None or record.status.is_live
        if not runs and not leftovers.of(record.instance):
            continue
        problem = take_down(project, name)
        if problem:
            problems.append(problem)
    return problems, [] if problems else close_server(project)


class _Agent:
    """Who fixes what ended the daemon: the supervisor's own agent, in a session of its own."""

    remediate = staticmethod(remediation.remediate)
    open_session = staticmethod(remediation.open_session)
    close_session = staticmethod(remediation.close_session)


def supervise(project: Project, show: Show) -> int:
    """Keep `up --auto` alive until a person ends it, or is needed; the exit code."""
    return Supervisor(project, _Agent(), notify, show).run()
