"""What can be wrong with the goals' store, in words: SQLite's own errors do not get any further."""

from pathlib import Path

from llmc.base.errors import LlmcError, LockTimeout, NotFound, StateError
from llmc.base.files import DiskFull
from llmc.base.locks import writer_of
from llmc.base.text import did_you_mean

SET_ASIDE = "The next command that writes sets it aside as it is, and goes on with an empty one in safe mode."

#: SQLite's own numbers: busy, locked; corrupt, not a database; full; not allowed, read-only, cannot open, input/output
_BUSY, _DAMAGED, _FULL, _PLACE = (5, 6), (11, 26), 13, (3, 8, 14, 10)


class GoalStoreError(StateError):
    """The goals' store cannot be used; nothing else is affected."""


class NewerStore(GoalStoreError):
    """A newer llmc wrote it; it is only looked at."""


class Damaged(GoalStoreError):
    """The file is not what was written into it."""


def in_words(error: BaseException, path: Path, busy_s: float) -> LlmcError:
    """An error of SQLite as one of our own, with the fix."""
    code = _code(error)
    if code in _BUSY:
        return busy(path, busy_s)
    if code in _DAMAGED:
        return Damaged(f"{path} is damaged: {error}", hint=SET_ASIDE)
    if code == _FULL:
        return DiskFull(f"cannot write {path}: the disk is full", hint="Free some space, then run it again.")
    if code in _PLACE:
        hint = "Check the owner and permissions of that path."
        return GoalStoreError(f"cannot use {path}: {error}", hint=hint)
    return GoalStoreError(f"{path}: {error}")


def is_damage(error: BaseException) -> bool:
    return isinstance(error, Damaged) or _code(error) in _DAMAGED


def busy(path: Path, busy_s: float) -> LockTimeout:
    return LockTimeout(
        f"the goals are busy: {writer_of(path)} has been writing for over {busy_s:g} s",
        hint="Wait for that command to end, or end it by its pid, then run this again.",
    )


def unknown_goal(goal_id: str, known: list[str]) -> NotFound:
    hint = did_you_mean(goal_id, known, "`llmc goal list` names the goals there are.", 0.3)
    return NotFound(f"there is no goal {goal_id!r}", hint=hint)


def _code(error: BaseException) -> int:
    """SQLite's primary number of an error; 0 for one of Python's own."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else 0
