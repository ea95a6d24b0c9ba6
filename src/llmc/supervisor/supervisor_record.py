"""What the supervisor writes: .llmc/overseer.json, its log, and its events."""

import contextlib
import json
import os
import time
import uuid
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from llmc.base import locks
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError
from llmc.base.files import append_line, json_record, private_dir, write_atomic
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
    """That supervisor, as `pid 123 (llmc overseer)`."""
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
    """Writes all of them; a failed write (full disk, broken state) does not stop the supervisor."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._instance_id = str(uuid.uuid4())
        self._state = RUNNING
        self._started_unix = now_unix()
        self._daemon: Identity | None = None
        self._attempt: int | None = None
        self._remediations: tuple[float, ...] = ()
        self._events: list[dict[str, Any]] = []
        self._why = ""
        self._code: int | None = None
        self._ended_unix: float | None = None

    def begin(self, adopted: Identity | None, remediations: tuple[float, ...]) -> None:
        self._remediations = remediations
        self._daemon = adopted
        self._active(True)
        self.note("overseer_started", "supervisor started", pid=os.getpid(), adopted=adopted and adopted.pid)

    def daemon(self, identity: Identity | None) -> None:
        self._daemon = identity
        self.save()

    def remediating(self, attempt: int, remediations: tuple[float, ...]) -> None:
        """Record a remediation before its prompt is sent, so that it counts even if the supervisor is killed."""
        self._state, self._attempt, self._remediations = REMEDIATING, attempt, remediations
        self.save()

    def running(self) -> None:
        self._state, self._attempt = RUNNING, None
        self.save()

    def end(self, code: int, why: str) -> None:
        self._state, self._attempt, self._daemon, self._why = TERMINATED, None, None, why
        self._code, self._ended_unix = int(code), now_unix()
        self.note(
            "overseer_stopped",
            f"supervisor stopped: {why.partition(chr(10))[0]}",
            reason=why[:1000],
            code=int(code),
        )
        self._active(False)

    def note(self, action: str, text: str, *, reason: str = "", **fields: Any) -> None:
        """Record an event in the log, in overseer.json and in the event log."""
        self._events = [*self._events, {"ts": now_unix(), "action": action, "text": text[:500]}][-EVENTS:]
        self.save()
        self.log(reason or text)
        with contextlib.suppress(LlmcError), self._project.store.transaction() as tx:
            tx.emit(action, reason=reason[:1000], **fields)

    def log(self, text: str) -> None:
        with contextlib.suppress(LlmcError, OSError):
            private_dir(self._project.root.logs)
            line = f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {text}"
            append_line(self._project.root.log("overseer"), line.encode(errors="replace"))

    def save(self) -> None:
        body = {
            "state": self._state,
            "pid": os.getpid(),
            "start_ticks": start_of(os.getpid()),
            "start_time_unix": self._started_unix,
            "instance_id": self._instance_id,
            "log_file": str(self._project.root.log("overseer")),
            "daemon": asdict(self._daemon) if self._daemon else None,
            "attempt": self._attempt,
            "remediations": list(self._remediations),
            "events": self._events,
            "why": self._why,
            "code": self._code,
            "ended_unix": self._ended_unix,
        }
        with contextlib.suppress(LlmcError):
            private_dir(self._project.root.private)
            write_atomic(self._project.root.overseer_file, json.dumps(body, indent=1).encode())

    def auto_not_wanted(self) -> None:
        """Stopped by the user, so that auto mode not running is not an attention item."""
        with contextlib.suppress(LlmcError), self._project.store.transaction() as tx:
            tx.remember_auto(False)

    def _active(self, active: bool) -> None:
        with contextlib.suppress(LlmcError), self._project.store.transaction() as tx:
            tx.remember_overseer(active)
