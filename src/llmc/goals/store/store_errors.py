"""Errors of the goal store, with hints."""

from pathlib import Path

from llmc.base.errors import LlmcError, LockTimeout, NotFound, StateError
from llmc.base.files import DiskFull
from llmc.base.locks import writer_of
from llmc.base.text import did_you_mean

SET_ASIDE = "The next command that writes sets the file aside and continues with an empty store in safe mode."

#: SQLite error codes: busy, locked; corrupt, not a database; full; permission, read-only, cannot open, I/O
_BUSY, _DAMAGED, _FULL, _PLACE = (5, 6), (11, 26), 13, (3, 8, 14, 10)


class GoalStoreError(StateError):
    """The goal store cannot be used; nothing else is affected."""


class NewerStore(GoalStoreError):
    """Written by a newer llmc; read-only."""


class Damaged(GoalStoreError):
    """The file is corrupt."""


def in_words(error: BaseException, path: Path, busy_s: float) -> LlmcError:
    """A SQLite error as one of ours, with a hint."""
    code = _code(error)
    if code in _BUSY:
        return busy(path, busy_s)
    if code in _DAMAGED:
        return Damaged(f"{path} is damaged: {error}", hint=SET_ASIDE)
    if code == _FULL:
        return DiskFull(
            f"cannot write {path}: the disk is full", hint="Free some space, then run the command again."
        )
    if code in _PLACE:
        hint = "Check the owner and permissions of that path."
        return GoalStoreError(f"cannot use {path}: {error}", hint=hint)
    return GoalStoreError(f"{path}: {error}")


def is_damage(error: BaseException) -> bool:
    return isinstance(error, Damaged) or _code(error) in _DAMAGED


def busy(path: Path, busy_s: float) -> LockTimeout:
    return LockTimeout(
        f"the goal store is locked: {writer_of(path)} has been writing for over {busy_s:g} s",
        hint="Wait for that command to finish, or kill it by its pid, then run this again.",
    )


def unknown_goal(goal_id: str, known: list[str]) -> NotFound:
    hint = did_you_mean(goal_id, known, "Run `llmc goal list` to see the goals.", 0.3)
    return NotFound(f"no goal {goal_id!r}", hint=hint)


def _code(error: BaseException) -> int:
    """SQLite's primary error code; 0 for other errors."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else 0
