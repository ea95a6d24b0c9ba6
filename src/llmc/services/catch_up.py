"""Without a daemon, any command brings the state up to date: hook events first, then sessions that are gone."""

from llmc.errors import LockTimeout
from llmc.services import sessions
from llmc.services.project import open_project


def catch_up(root: str) -> None:
    """Apply what waits for every worker; one whose lock is busy is being brought up to date by its holder."""
    project = open_project(root)
    for name in project.store.read().workers:
        try:
            with project.worker_lock(name, timeout_s=0.05):
                sessions.reconcile(project, name)
        except LockTimeout:
            continue
