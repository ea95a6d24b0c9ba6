"""Apply pending events to workers from a command, when no daemon is running.

Also sends due self-reviews: without a daemon, a worker would wait for its forever.
"""

from contextlib import suppress

from llmc.base.errors import LlmcError, LockTimeout, NotFound
from llmc.landing import rebase
from llmc.repo.project import open_project
from llmc.sessions import sessions
from llmc.workers import self_review


def catch_up(root: str) -> None:
    """Apply pending events to every worker. A worker whose lock is busy is updated by the holder."""
    project = open_project(root)
    for name in project.store.read().workers:
        try:
            with project.worker_lock(name, timeout_s=0.05):
                rebase.resolved_by_hand(project, project.store.worker(name))
                sessions.reconcile(project, name)
                with suppress(LlmcError):  # still due: the next command tries again
                    self_review.attend(project, project.store.worker(name))
        except (LockTimeout, NotFound):  # another process has it, or has just removed it
            continue


def see_what_was_resolved(root: str) -> None:
    """Wake the daemon, which would otherwise see it only at its next patrol."""
    project = open_project(root)
    for name in project.store.read().workers:
        with suppress(LockTimeout, NotFound), project.worker_lock(name, timeout_s=0.05):
            rebase.resolved_by_hand(project, project.store.worker(name))
