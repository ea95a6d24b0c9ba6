"""Periodic work of the daemon for the whole root, in a thread. A failure here must not stop the daemon."""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from llmc.attention import raising
from llmc.auto import handover
from llmc.base.clock import monotonic
from llmc.base.errors import LlmcError
from llmc.base.files import json_row
from llmc.base.proc import ShuttingDown
from llmc.daemon.control import OUTPUT
from llmc.goals import work
from llmc.landing import rebase, undo
from llmc.notifications import notify
from llmc.notifications.notify import Incidents
from llmc.notifications.rules import LASTING, Over, failing_after, is_another, judge, of_items
from llmc.records.event_log import EventLog
from llmc.records.events import last_seq
from llmc.records.worker import Status
from llmc.repo import git, sources
from llmc.repo.project import Project, open_project
from llmc.repo.provision import refresh_base
from llmc.repo.user_commands import follow_own_output, rotate_logs
from llmc.reports import bad_rows
from llmc.sessions.status_line import StatusLine
from llmc.workers.restore import prune_by_itself


def list_again(root: str) -> None:
    """Update the attention list with tasks and goals. Touches the mark first, so that later changes are not missed."""
    from llmc.reports import digest  # 40 ms that most commands do not need

    project = open_project(root)
    with suppress(OSError):
        project.root.listed.touch()
    with suppress(LlmcError, OSError):
        digest.tell_lists(project)


#: how often to check for notifications to resend
RETRY_LOOK_S = 5.0


class Notices:
    """Sends notifications for new events and attention items, from the position in incidents.json on."""

    def __init__(self, project: Project) -> None:
        path = str(project.root.events)
        seq = Incidents(project.root).read().seq
        if seq is None:  # what happened before the first watch is not news
            seq = last_seq(project.root.events)
            Incidents(project.root).judged(seq)
        self._seq = seq
        self._failing = False
        self._turn = threading.Lock()
        self._retried = self._looked = -RETRY_LOOK_S
        self._state_changed = 0
        self._line = StatusLine()
        self._log = EventLog(path).reader_after(seq)

    def tell(self, project: Project) -> None:
        """Send new notifications, and from time to time retry failed ones. Never raises."""
        with self._turn:
            for part in (self._tell_events, self._tell_items):
                with suppress(LlmcError, OSError):  # the next check, or the next daemon, sends it
                    part(project)
            if monotonic() - self._retried >= RETRY_LOOK_S:
                self._retried = monotonic()
                notify.retry(project)

    def _tell_items(self, project: Project) -> None:
        """Check the attention list if the state changed, and regularly for what only the clock or a client's file shows."""
        changed = os.stat(project.root.state).st_mtime_ns
        if changed == self._state_changed and monotonic() - self._looked < RETRY_LOOK_S:
            return
        self._state_changed, self._looked = changed, monotonic()
        on, workers = notify.settings_of(project).on, project.store.read().workers
        items = raising.current(project)
        self._line.show(project, workers.values(), items)
        wanted = {(one.kind, one.key): one for one in of_items(items, on, workers)}
        open_ = {(one.kind, one.key): one for one in Incidents(project.root).read().incidents if one.is_open}
        for name, one in open_.items():
            if one.kind in LASTING and (name not in wanted or is_another(wanted[name], one.facts)):
                notify.over(project, *name)
        for name, notice in wanted.items():
            if name not in open_ or is_another(notice, open_[name].facts):
                notify.post(project, notice)

    def _tell_events(self, project: Project) -> None:
        rows = [row for line in self._log.lines() if (row := json_row(line)) is not None]
        new = [row for row in rows if _seq(row) > self._seq]
        is_failure = any(row.get("action") == "auto_failed" for row in new)
        found = judge(new, self._failing, project.up_auto(sent=True) if is_failure else "")
        self._failing = failing_after(new, self._failing)
        for notice in found:
            if isinstance(notice, Over):
                notify.over(project, notice.kind, notice.key)
            else:
                notify.post(project, notice)
        if new:
            self._seq = _seq(new[-1])
        if found:
            Incidents(project.root).judged(self._seq)


def _seq(row: dict[str, Any]) -> int:
    found = row.get("seq")
    return found if isinstance(found, int) else 0


@contextmanager
def _not_fatal(log: logging.Logger, action: str) -> Iterator[None]:
    """Only log a failure: the next run, daemon or command does the chore."""
    try:
        yield
    except ShuttingDown:
        pass
    except (LlmcError, OSError) as error:
        log.info(str(error), extra={"action": action})


def begin_patrol(project: Project, log: logging.Logger, jump: str) -> None:
    """Record the patrol, check the source, and fetch the base if a worker waits for review or the base is unknown."""
    with _not_fatal(log, "patrol_problem"):
        with project.store.transaction() as tx:
            tx.remember_patrol()
            if jump:
                tx.emit("clock_jump", why=jump)
            waiting = any(r.status is Status.NEEDS_REVIEW for r in tx.state.workers.values())
        is_unknown = sources.is_listed(project) or git.resolve(project.root.path, project.base) is None
        if sources.look(project) is None and (waiting or is_unknown):
            refresh_base(project)


def look_at_rows(project: Project, log: logging.Logger) -> None:
    """Put unreadable rows on the attention list."""
    with _not_fatal(log, "rows_not_looked_at"):
        bad_rows.tell(project)


def prune_trash(project: Project, log: logging.Logger, ran_s: float | None) -> None:
    """Prune old trash; `ran_s`: run time of this daemon since the last check, None at the first check."""
    with _not_fatal(log, "prune_failed"):
        prune_by_itself(project, ran_s)


def withdraw_work(project: Project, log: logging.Logger) -> None:
    """Take back unfinished work that was offered to other machines, once its task is completed."""
    with _not_fatal(log, "withdraw_failed"):
        handover.withdraw(project)


def finish_undo(project: Project, log: logging.Logger) -> None:
    """Finish an undo whose process was killed."""
    with _not_fatal(log, "undo_failed"):
        done = undo.resume(project, work.open_again)
        if done is not None:
            returned = f"; {done.returned}" if done.returned else ""
            said = f"finished the interrupted undo of {done.commit[:12]}{returned}"
            log.info(said, extra={"action": "undo_finished"})
            rebase.wake_queued(project)


def rotate(project: Project, log: logging.Logger) -> None:
    """Rotate large logs; our own output continues in the new file."""
    with _not_fatal(log, "rotation_failed"):
        rotate_logs(project)
        follow_own_output(project.root.logs / OUTPUT)
