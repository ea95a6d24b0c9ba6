"""Errors for users: what failed, why, and the command that helps."""

from enum import IntEnum
from typing import Any

from llmc.base.urls import scrub


class Exit(IntEnum):
    """Exit codes of every llmc command."""

    DONE = 0
    #: the command failed
    FAILED = 1
    #: invalid command line
    USAGE = 2
    #: refused in this state; nothing was changed
    REFUSED = 3
    #: no such worker, root or file
    NOT_FOUND = 4
    #: another process held the lock for too long
    LOCK_TIMEOUT = 5
    #: `llmc overseer`: the daemon failed again, too soon after a remediation
    SPIRAL = 10
    #: `llmc overseer`: a remediation requested manual intervention, in a file
    MANUAL = 11
    #: `llmc overseer`: a cause that needs a manual fix
    HUMAN = 12
    #: a bug in llmc
    BUG = 70
    #: `up --auto`: a cause that passes by itself; run the command again later
    PASSING = 75


class LlmcError(Exception):
    """A failure for users; `hint` is the next step."""

    exit_code = Exit.FAILED

    def __init__(self, message: str, *, hint: str = "") -> None:
        # Errors are printed, logged, stored and sent: remove passwords here.
        message, hint = scrub(message), scrub(hint)
        super().__init__(message)
        self.message = message
        self.hint = hint
        #: extra fields for `--json`
        self.details: dict[str, Any] = {}


#: can occur at any time, and must not end a process that runs for days (for OSError, see base/files.explain)
TROUBLE = (LlmcError, OSError)


class UsageError(LlmcError):
    exit_code = Exit.USAGE


class Refused(LlmcError):
    exit_code = Exit.REFUSED


class NotFound(LlmcError):
    exit_code = Exit.NOT_FOUND


class UnknownWorker(NotFound):
    """This root has no worker of that name; another node of its fleet may have one."""

    def __init__(self, worker: str, *, hint: str) -> None:
        super().__init__(f"no worker {worker!r}", hint=hint)
        self.worker = worker


class LockTimeout(LlmcError):
    exit_code = Exit.LOCK_TIMEOUT


class Unreachable(LlmcError):
    """The fleet's shared database or remote does not answer: nothing starts and nothing lands until it does."""


class ClaimLost(Refused):
    """Another machine holds the task now; nothing landed."""


class ConfigError(LlmcError):
    """config.toml cannot be used; the message lists every problem."""


class StateError(LlmcError):
    """state.json cannot be read or may not be written."""


class ToolFailed(LlmcError):
    """A program failed: its command line, exit code and the end of its output."""

    def __init__(
        self, argv: list[str], returncode: int | None, stderr: str, *, message: str = "", hint: str = ""
    ) -> None:
        argv, stderr = [scrub(word) for word in argv], scrub(stderr)  # before truncation
        tail = stderr.strip()[-2000:]
        what = message or f"`{' '.join(argv)[:300]}` failed with exit code {returncode}"
        # Output of several lines starts on its own line.
        between = ":\n" if "\n" in tail else ": "
        super().__init__(f"{what}{between}{tail}" if tail else what, hint=hint)
        self.argv = argv
        self.returncode = returncode
        self.stderr = stderr
