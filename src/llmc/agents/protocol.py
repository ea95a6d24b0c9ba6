"""What llmc needs of an agent: a small protocol behind which the real client and the scripted one stand."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from llmc.base.names import ClaudeSessionId


class ClientStatus(StrEnum):
    """What the client says of itself in its status file."""

    IDLE = "idle"
    BUSY = "busy"
    #: a dialog is open: whatever is typed now would answer it
    WAITING = "waiting"
    #: at the prompt, with a shell running in the background
    SHELL = "shell"
    #: no status file, or not of this process
    UNKNOWN = "unknown"


class Launch(Struct, frozen=True):
    """How to start an agent for a worker."""

    settings: Path
    model: str
    skip_permissions: bool
    allowed_tools: tuple[str, ...]
    disallowed_tools: tuple[str, ...] = ()
    resume: ClaudeSessionId | None = None


class Agent(Protocol):
    """An agent program: how it is started, and how to read what it says of itself."""

    @property
    def name(self) -> str: ...

    def program(self) -> list[str]:
        """The resolved program; an error that names the fix when there is none."""
        ...

    def version(self) -> str: ...

    def argv(self, launch: Launch) -> list[str]: ...

    def environment(self, base: Mapping[str, str], *, task_tools: bool = True) -> dict[str, str]:
        """What it runs with; `task_tools`: whether it may make tasks with tools of its own."""
        ...

    def config_dir(self, environment: Mapping[str, str]) -> Path: ...

    def settings(self, hook_command: str) -> dict[str, Any]: ...

    def setup_problem(self, root: Path, environment: Mapping[str, str]) -> str | None:
        """Why a start would stop in a dialog, with the fix; None when it would not."""
        ...
