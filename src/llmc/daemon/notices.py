"""What the event log says that a person should know is told, while the daemon runs and once more when it ends."""

import threading
from typing import Any

from llmc.auto.notices import Over, failing_after, judge
from llmc.errors import LlmcError
from llmc.event_log import EventLog
from llmc.services import notify
from llmc.services.project import Project
from llmc.state.events import last_seq
from llmc.state.incidents import Incidents
from llmc.tools.clock import monotonic
from llmc.tools.files import json_row

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
        self._retried = -RETRY_LOOK_S
        self._log = EventLog(path).reader_after(seq)

    def tell(self, project: Project) -> None:
        """Tell what is new, and now and then what could not be told before. Never raises."""
        with self._turn:
            try:
                self._tell(project)
            except (LlmcError, OSError):
                pass  # the log is read again by the next daemon
            if monotonic() - self._retried >= RETRY_LOOK_S:
                self._retried = monotonic()
                notify.retry(project)

    def _tell(self, project: Project) -> None:
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
