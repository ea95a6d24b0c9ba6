"""What the daemon does once for everybody, in a thread: nothing of it may end the daemon."""

import logging

from llmc.base.errors import LlmcError
from llmc.base.proc import ShuttingDown
from llmc.goals import goal_work
from llmc.landing import rebase, undo
from llmc.records.worker import Status
from llmc.repo.log_rotation import follow_own_output, rotate_logs
from llmc.repo.project import Project
from llmc.repo.provision import refresh_base
from llmc.reports import bad_rows
from llmc.workers.trash_pruning import prune_by_itself


def begin_patrol(project: Project, log: logging.Logger, jump: str) -> None:
    """The time is written down, and the base fetched if somebody waits for review."""
    try:
        with project.store.transaction() as tx:
            tx.remember_patrol()
            if jump:
                tx.emit("clock_jump", why=jump)
            waiting = any(r.status is Status.NEEDS_REVIEW for r in tx.state.workers.values())
        if waiting:
            refresh_base(project)
    except (LlmcError, OSError) as error:
        log.info(str(error), extra={"action": "patrol_problem"})


def look_at_rows(project: Project, log: logging.Logger) -> None:
    """Rows that cannot be used are on the attention list."""
    try:
        bad_rows.tell(project)
    except (LlmcError, OSError) as error:
        log.info(str(error), extra={"action": "rows_not_looked_at"})


def prune_trash(project: Project, log: logging.Logger, ran_s: float | None) -> None:
    """Old trash goes; `ran_s`: how long this daemon has run since it last looked, None for its first look."""
    try:
        prune_by_itself(project, ran_s)
    except (LlmcError, OSError) as error:
        log.info(str(error), extra={"action": "prune_failed"})


def finish_undo(project: Project, log: logging.Logger) -> None:
    """An undo whose process was killed goes on."""
    try:
        done = undo.resume(project, goal_work.open_again)
        if done is not None:
            said = f"an interrupted undo of {done.commit[:12]} was finished; {done.returned}"
            log.info(said, extra={"action": "undo_finished"})
            rebase.wake_queued(project)
    except ShuttingDown:
        pass  # the next daemon, or command, goes on with it
    except (LlmcError, OSError) as error:
        log.info(str(error), extra={"action": "undo_failed"})


def rotate(project: Project, log: logging.Logger) -> None:
    """Logs that have grown are rotated; what we print goes on in the new file."""
    try:
        rotate_logs(project)
        follow_own_output(project.root.logs / "daemon.out")
    except OSError as error:
        log.info(str(error), extra={"action": "rotation_failed"})
