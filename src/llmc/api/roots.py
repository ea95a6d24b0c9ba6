"""Finding and opening a root, for front ends."""

from collections.abc import Callable
from pathlib import Path

from llmc.agents.kinds import agent_named
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, NotFound, UsageError
from llmc.base.files import read_json
from llmc.config import trust
from llmc.config.paths import Root as Root
from llmc.records.items import Facts
from llmc.repo.project import Project as Project
from llmc.repo.project import agent_for
from llmc.repo.project import locate_root as locate_root
from llmc.repo.project import open_project as open_project
from llmc.sessions.caller import Kind as Kind
from llmc.sessions.caller import caller as caller


def has_fleet() -> bool:
    """Whether a command here would find a root."""
    try:
        return locate_root(None).state.exists()
    except LlmcError:
        return False


def roots_of_user() -> list[str]:
    """Every registered root of this user."""
    return sorted(trust.registered())


def worker_names(project: Project) -> list[str]:
    return list(project.store.read().workers)


def auto_runs(project: Project) -> bool:
    return _of_daemon(project).auto_runs


def workers_in_use(project: Project) -> list[str]:
    """All workers, without auto workers that the daemon does not drive: those are left over from an earlier run."""
    facts = _of_daemon(project)
    return [
        one.name for one in project.store.read().workers.values() if not one.auto or facts.drives(one.name)
    ]


def _of_daemon(project: Project) -> Facts:
    """The facts about the daemon, as in `status`."""
    from llmc.records.sight import registration  # few commands ask

    return Facts(now_unix(), running=project.daemon_runs(), daemon=registration(project.root.path))


def require_worker(project: Project, name: str) -> str:
    """The name of a worker; an error with the known names if it does not exist."""
    return project.store.worker(name).name


def require_state(project: Project) -> None:
    """Raise an error if the state cannot be read."""
    project.store.read()


def chosen_workers(project: Project, worker: str | None, every: bool) -> list[str]:
    """The given worker, or all of them."""
    if bool(worker) == every:
        problem = "a worker and --all cannot be used together" if every else "no worker specified"
        raise UsageError(problem, hint="Specify a worker, or pass --all.")
    return [require_worker(project, worker)] if worker else worker_names(project)


def statuses(given: str | None) -> dict[str, str]:
    """Workers with their statuses, for completion; empty if they cannot be read."""
    try:
        workers = read_json(locate_root(given).state)["workers"]
        return {str(name): str(record.get("status", "")) for name, record in workers.items()}
    except (LlmcError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def client(given: str | None, tell: Callable[[str], None] | None) -> tuple[list[str], dict[str, str]]:
    """The command line and variables of Claude Code for this root; without a root, the defaults."""
    try:
        project = open_project(given, tell)
    except NotFound:
        if given:
            raise
        return agent_named("claude", "", Path()).program(), {}
    agent, env = agent_for(project), project.config.defaults.env
    if agent.name != "claude":
        agent = agent_named("claude", project.config.defaults.agent_command, project.root.agents)
    return agent.program(), env
