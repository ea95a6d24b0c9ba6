"""Errors meant for people: what failed, why, and the command that helps."""

from enum import IntEnum
from typing import Any

from llmc.base.urls import scrub


class Exit(IntEnum):
    """Exit codes of every llmc command."""

    DONE = 0
    #: it was tried and failed
    FAILED = 1
    #: the command line was wrong
    USAGE = 2
    #: not possible in this state; nothing was changed
    REFUSED = 3
    #: no such worker, root or file
    NOT_FOUND = 4
    #: somebody else held the lock for too long
    LOCK_TIMEOUT = 5
    #: `llmc overseer`: the daemon failed again, too soon after a remediation
    SPIRAL = 10
    #: `llmc overseer`: a remediation asks for a person, in a file
    MANUAL = 11
    #: `llmc overseer`: a cause that only a person can mend
    HUMAN = 12


class LlmcError(Exception):
    """A failure a person can understand; `hint` is the next thing to do."""

    exit_code = Exit.FAILED

    def __init__(self, message: str, *, hint: str = "") -> None:
        # Errors are printed, logged, kept in the state and sent to people: no password gets that far.
        message, hint = scrub(message), scrub(hint)
        super().__init__(message)
        self.message = message
        self.hint = hint
        #: what `--json` says besides
        self.details: dict[str, Any] = {}


class UsageError(LlmcError):
    exit_code = Exit.USAGE


class Refused(LlmcError):
    exit_code = Exit.REFUSED


class NotFound(LlmcError):
    exit_code = Exit.NOT_FOUND


class LockTimeout(LlmcError):
    exit_code = Exit.LOCK_TIMEOUT


class ConfigError(LlmcError):
    """config.toml cannot be used; the message lists every problem."""


class StateError(LlmcError):
    """state.json cannot be read or may not be written."""


class ToolFailed(LlmcError):
    """A program we ran failed: its command line, return code and the tail of what it said."""

    def __init__(
        self, argv: list[str], returncode: int | None, stderr: str, *, message: str = "", hint: str = ""
    ) -> None:
        argv, stderr = [scrub(word) for word in argv], scrub(stderr)  # before anything is cut off
        tail = stderr.strip()[-2000:]
        what = message or f"`{' '.join(argv)[:300]}` failed with code {returncode}"
        # What it said in several lines begins on one of its own, as it was printed.
        between = ":\n" if "\n" in tail else ": "
        super().__init__(f"{what}{between}{tail}" if tail else what, hint=hint)
        self.argv = argv
        self.returncode = returncode
        self.stderr = stderr
