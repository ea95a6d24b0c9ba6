"""The supervisor's dependencies: remediation, notification, output. Tests replace them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from llmc.repo.project import Project
from llmc.supervisor import daemon_process


class Ended(Protocol):
    """How a remediation ended."""

    @property
    def outcome(self) -> str:
        """completed, interrupted, timeout or failed."""

    @property
    def duration_s(self) -> float: ...

    @property
    def problem(self) -> str: ...

    @property
    def cause(self) -> str: ...

    @property
    def log(self) -> Path | None: ...


class Broke(Struct, frozen=True):
    """A remediation that ended with an exception."""

    problem: str
    duration_s: float
    outcome: str = "failed"
    cause: str = ""
    log: Path | None = None


class Remedy(Protocol):
    """supervisor/remediation.py: an agent in its own session finds the cause and fixes it."""

    def remediate(
        self,
        project: Project,
        prompt: str,
        *,
        limit_s: float,
        stopping: Callable[[], bool],
        say: Callable[[str], None],
    ) -> Ended: ...

    def open_session(self, project: Project, say: Callable[[str], None]) -> str: ...

    def close_session(self, project: Project) -> None: ...


class Tell(Protocol):
    """notifications/notify.py: notifies the user."""

    def __call__(
        self, project: Project, kind: str, title: str, body: str, *, key: str, **facts: Any
    ) -> None: ...


#: prints a line, with or without color
Show = Callable[[str, str], None]


class Timing(Struct, frozen=True):
    """How long the daemon may take to register, and to stop."""

    register_s: float = daemon_process.REGISTER_S
    grace_s: float = daemon_process.GRACE_S
