"""Bringing workers up and down: what `up`, `start --new`, `down` and the daemon share."""

import contextlib

from llmc.errors import LlmcError, NotFound
from llmc.services import sessions
from llmc.services.project import Project
from llmc.services.provision import provision
from llmc.tools import processes
from llmc.tools.tmux import Unknown


def bring_up(project: Project, name: str) -> str | None:
    """Worktree and agent of one worker; one that runs is left alone. The problem if it does not come up."""
    try:
        with project.worker_lock(name):
            provision(project, project.store.worker(name))
            sessions.start(project, name)
            return sessions.wait_ready(project, name, project.config.defaults.ready_timeout_s)
    except LlmcError as error:
        problem = f"{error.message}. {error.hint}".rstrip(". ") + "."
        with contextlib.suppress(NotFound), project.store.transaction() as tx:
            tx.update(name, error_reason=problem)
        return problem


def take_down(project: Project, name: str) -> str | None:
    """End one worker's agent; the problem if that failed."""
    try:
        with project.worker_lock(name, timeout_s=20):
            sessions.end(project, name, "down")
    except LlmcError as error:
        return f"{name}: {error.message}"
    return None


def end_every_session(project: Project) -> None:
    """Without a state that can be read, everything of the fleet on the root's own tmux server is ended: it is all llmc's."""
    panes = project.tmux.panes()
    if isinstance(panes, Unknown):
        raise LlmcError(f"tmux gave no answer: {panes.reason}", hint="Try again.")
    for session, pane in panes.items():
        if not pane.dead and not project.is_overseer(session):
            processes.terminate(pane.pid, grace_s=5)
    close_server(project)


def close_server(project: Project) -> None:
    """End the root's tmux server; while the supervisor's own session is on it, only the sessions beside that one."""
    panes = project.tmux.panes()
    if isinstance(panes, Unknown):
        return  # it may be there
    if not any(map(project.is_overseer, panes)):
        project.tmux.kill_server()
        return
    for session in panes:
        if not project.is_overseer(session):
            project.tmux.kill_session(session)
