"""Start and stop workers, for `up`, `start --new`, `down` and the daemon."""

import contextlib

from llmc.base import processes
from llmc.base.errors import TROUBLE, LlmcError
from llmc.base.files import explain
from llmc.base.names import OVERSEER
from llmc.base.panes import Pane, Panes
from llmc.base.tmux import Unknown, answered
from llmc.repo.project import Project
from llmc.repo.provision import provision
from llmc.sessions import sessions


def bring_up(project: Project, name: str) -> str | None:
    """Set up a worker's worktree and start its agent, unless it is running; returns the problem, if any."""
    try:
        with project.worker_lock(name):
            provision(project, project.store.worker(name))
            sessions.start(project, name)
            return sessions.wait_ready(project, name, project.config.defaults.ready_timeout_s)
    except TROUBLE as error:
        said = explain(error, "cannot start") if isinstance(error, OSError) else error
        # The caller prints the worker's name before each of these.
        problem = f"{said.message.removeprefix(f'{name}: ')}. {said.hint}".rstrip(". ") + "."
        with contextlib.suppress(*TROUBLE):  # the disk may be full
            sessions.record_failure(project, name, problem)
        return problem


def take_down(project: Project, name: str) -> str | None:
    """Stop a worker's agent; returns the problem if that failed."""
    try:
        with project.worker_lock(name, timeout_s=20):
            sessions.end(project, name, "down")
    except LlmcError as error:
        return f"{name}: {error.message}"
    return None


def end_every_session(project: Project) -> list[Pane]:
    """Stop every agent of the fleet on the root's tmux server, even if the state cannot be read."""
    panes = answered(project.tmux.panes())
    for pane in _agents(project, panes):
        sessions.end_program(pane)
    return close_server(project)


def close_server(project: Project) -> list[Pane]:
    """Close the fleet's panes and the root's tmux server; returns the user's panes that keep the server running.

    The supervisor's own session keeps it running, too.
    """
    panes = project.tmux.panes()
    if isinstance(panes, Unknown):
        return []  # it may exist
    for pane in _agents(project, panes):
        project.tmux.kill_pane(pane)
    panes = project.tmux.panes()
    if isinstance(panes, Unknown):
        return []
    if all(pane.dead and not project.is_overseer(pane.session) for pane in panes.values()):
        project.tmux.kill_server()
        return []
    return of_people(panes)


def of_people(panes: Panes) -> list[Pane]:
    """Panes that the user opened on the root's server."""
    return [pane for pane in panes.values() if not pane.dead and not any(sessions.launched(pane))]


def _agents(project: Project, panes: Panes) -> list[Pane]:
    """The panes that llmc launched for workers, without the supervisor's."""
    found = [(pane, *sessions.launched(pane)) for pane in panes.values()]
    return [
        pane
        for pane, worker, instance in found
        if instance and worker != OVERSEER and not project.is_overseer(pane.session)
    ]


def told_of(project: Project, panes: list[Pane]) -> str:
    """A line about the user's panes that keep the tmux server running."""
    what = ", ".join(f"{processes.name_of(pane.pid)} ({pane.session})" for pane in panes)
    return f"panes that you opened are still running: {what}. To see them: {project.tmux.by_hand} attach"
