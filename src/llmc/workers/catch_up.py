"""What a command does where no daemon does it: apply what waits for the workers.

A self-review that is due is sent here too: else a worker without a daemon would wait for it for ever.
"""

from contextlib import suppress

from llmc.base.errors import LlmcError, LockTimeout, NotFound
from llmc.landing import rebase
from llmc.repo.project import open_project
from llmc.sessions import sessions
from llmc.workers import self_review


def catch_up(root: str) -> None:
    """Apply what waits for every worker; one whose lock is busy is being brought up to date by its holder."""
    project = open_project(root)
    for name in project.store.read().workers:
        try:
            with project.worker_lock(name, timeout_s=0.05):
                rebase.resolved_by_hand(project, project.store.worker(name))
                sessions.reconcile(project, name)
                with suppress(LlmcError):  # it stays due, and the next command tries again
                    self_review.attend(project, project.store.worker(name))
        except (LockTimeout, NotFound):  # someone has it, or has just removed it
            continue


def see_what_was_resolved(root: str) -> None:
    """Beside a daemon, which would see it at its next patrol."""
    project = open_project(root)
    for name in project.store.read().workers:
        with suppress(LockTimeout, NotFound), project.worker_lock(name, timeout_s=0.05):
            rebase.resolved_by_hand(project, project.store.worker(name))
