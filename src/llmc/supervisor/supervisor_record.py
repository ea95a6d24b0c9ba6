"""What the supervisor writes: .llmc/overseer.json, its log, and its events."""

import contextlib
import json
import os
import uuid
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from llmc.base import locks
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError
from llmc.base.files import json_record, private_dir, write_atomic
from llmc.base.given import number
from llmc.base.processes import start_of
from llmc.config.paths import Root
from llmc.repo.project import Project
from llmc.supervisor.model import Identity

RUNNING, REMEDIATING, TERMINATED = "running", "remediating", "terminated"
#: number of events in overseer.json
EVENTS = 10


class Former(Struct, frozen=True):
    """The record of the previous supervisor; it was killed if its end is not recorded."""

    daemon: Identity | None = None
    remediations: tuple[float, ...] = ()


def runs(root: Root) -> bool:
    """Whether a supervisor is running for this root."""
    return locks.is_held(root.lock("overseer"))


def name_of(root: Root) -> str:
    """The running supervisor, as `pid 123 (llmc overseer)`."""
    return locks.holder(root.lock("overseer"))


def former(root: Root) -> Former:
    """The state of a killed supervisor; nothing if it exited normally."""
    row = json_record(root.overseer_file)
    if not row or row.get("state") == TERMINATED:
        return Former()
    times = row.get("remediations")
    kept = tuple(at for one in times if (at := number(one)) is not None) if isinstance(times, list) else ()
    return Former(Identity.read(row.get("daemon")), kept)


class Journal:
    """Writes all three; a failed write (full disk, broken state) does not stop the supervisor."""

    def __init__(self, project: Project) -> None:
        self._project = project
        #: overseer.json
        self._body: dict[str, Any] = {
            "state": RUNNING,
            "pid": os.getpid(),
            "start_ticks": start_of(os.getpid()),
            "start_time_unix": now_unix(),
            "instance_id": str(uuid.uuid4()),
            "log_file": str(project.root.log("overseer")),
            "daemon": None,
            "attempt": None,
            "remediations": (),
            "events": [],
            "why": "",
            "code": None,
            "ended_unix": None,
        }

    def begin(self, adopted: Identity | None, remediations: tuple[float, ...]) -> None:
        self._body |= {"daemon": asdict(adopted) if adopted else None, "remediations": remediations}
        self._active(True)
        self.note("overseer_started", "supervisor started", pid=os.getpid(), adopted=adopted and adopted.pid)

    def daemon(self, identity: Identity | None) -> None:
        self._save(daemon=asdict(identity) if identity else None)

    def remediating(self, attempt: int, remediations: tuple[float, ...]) -> None:
        """Record a remediation before its prompt is sent, so that it counts even if the supervisor is killed."""
        self._save(state=REMEDIATING, attempt=attempt, remediations=remediations)

    def running(self) -> None:
        self._save(state=RUNNING, attempt=None)

    def end(self, code: int, why: str) -> None:
        ended = {"why": why, "code": int(code), "ended_unix": now_unix()}
        self._body |= {"state": TERMINATED, "attempt": None, "daemon": None, **ended}
        text = f"supervisor stopped: {why.partition(chr(10))[0]}"
        self.note("overseer_stopped", text, reason=why[:1000], code=int(code))
        self._active(False)

    def note(self, action: str, text: str, *, reason: str = "", **fields: Any) -> None:
        """Record an event in the log, in overseer.json and in the event log."""
        event = {"ts": now_unix(), "action": action, "text": text[:500]}
        self._save(events=[*self._body["events"], event][-EVENTS:])
        self.log(reason or text)
        with contextlib.suppress(LlmcError), self._project.store.transaction() as tx:
            tx.emit(action, reason=reason[:1000], **fields)

    def log(self, text: str) -> None:
        self._project.store.note("overseer", text)

    def _save(self, **changes: Any) -> None:
        self._body |= changes
        with contextlib.suppress(LlmcError):
            private_dir(self._project.root.private)
            write_atomic(self._project.root.overseer_file, json.dumps(self._body, indent=1).encode())

    def auto_not_wanted(self) -> None:
        """Record that the user stopped auto mode, so that llmc does not list it as a problem."""
        with contextlib.suppress(LlmcError), self._project.store.transaction() as tx:
            tx.remember_auto(False)

    def _active(self, active: bool) -> None:
        with contextlib.suppress(LlmcError), self._project.store.transaction() as tx:
            tx.remember_overseer(active)
