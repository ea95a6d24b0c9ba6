"""What a person should know is told, while the daemon runs and once more when it ends: the attention list, and failed runs."""

import contextlib
import os
import threading
from typing import Any

from llmc.attention import raising
from llmc.base.clock import monotonic
from llmc.base.errors import LlmcError
from llmc.base.files import json_row
from llmc.notifications import notify
from llmc.notifications.incidents import Incidents
from llmc.notifications.rules.notices import LASTING, Over, failing_after, is_another, judge, of_items
from llmc.records.event_log import EventLog
from llmc.records.events import last_seq
from llmc.repo.project import Project

#: how often somebody looks whether there is something to tell again
RETRY_LOOK_S = 5.0


class Notices:
    """Reads the event log on. Where it was when the daemon before ended is in incidents.json."""

    def __init__(self, project: Project) -> None:
        path = str(project.root.events)
        seq = Incidents(project.root).read().seq
        if seq is None:  # what happened before anybody watched is no news
            seq = last_seq(project.root.events)
            Incidents(project.root).judged(seq)
        self._seq = seq
        self._failing = False
        self._turn = threading.Lock()
        self._retried = self._looked = -RETRY_LOOK_S
        self._state_changed = 0
        self._log = EventLog(path).reader_after(seq)

    def tell(self, project: Project) -> None:
        """Tell what is new, and now and then what could not be told before. Never raises."""
        with self._turn:
            for part in (self._tell_events, self._tell_items):
                with contextlib.suppress(LlmcError, OSError):  # the next look, or the next daemon, tells it
                    part(project)
            if monotonic() - self._retried >= RETRY_LOOK_S:
                self._retried = monotonic()
                notify.retry(project)

    def _tell_items(self, project: Project) -> None:
        """At once when the state changed; now and then for what only the clock or a client's file shows."""
        changed = os.stat(project.root.state).st_mtime_ns
        if changed == self._state_changed and monotonic() - self._looked < RETRY_LOOK_S:
            return
        self._state_changed, self._looked = changed, monotonic()
        on, workers = notify.settings_of(project).on, project.store.read().workers
        wanted = {(one.kind, one.key): one for one in of_items(raising.current(project), on, workers)}
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
        found = judge(new, self._failing)
        self._failing = failing_after(new, self._failing)
        for word in found:
            if isinstance(word, Over):
                notify.over(project, word.kind, word.key)
            else:
                notify.post(project, word)
        if new:
            self._seq = _seq(new[-1])
        if found:
            Incidents(project.root).judged(self._seq)


def _seq(row: dict[str, Any]) -> int:
    found = row.get("seq")
    return found if isinstance(found, int) else 0
