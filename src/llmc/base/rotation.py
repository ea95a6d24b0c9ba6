"""Logs that do not grow for ever: a file that is big enough is renamed, and the next line begins a new one.

Writers hold a shared lock on the file while they write and look whether it still has its name (base/files.py); a
rotation is one rename under the exclusive lock. So no line is lost, torn, or written to a file that was renamed before,
and a kill leaves the log rotated or not, never half.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from llmc.base.faults import step as fault_step
from llmc.base.files import lock_to_append
from llmc.base.log_reader import archive_name, archives


class Limit(Struct, frozen=True):
    """`max_bytes` 0: never rotated. `keep`: how many archives stay, at least one; None: all."""

    max_bytes: int
    keep: int | None = None


def rotate(path: Path, limit: Limit) -> bool:
    """Rename a log that is big enough, unless somebody writes to it now; whether it was."""
    rotated = _is_due(path, limit) and _rename(path, limit)
    if rotated and limit.keep is not None:
        _remove_old(path, limit.keep)
    return rotated


def _is_due(path: Path, limit: Limit) -> bool:
    try:
        return 0 < limit.max_bytes <= path.stat().st_size
    except OSError:
        return False


def _rename(path: Path, limit: Limit) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another process may have done it while we opened the file.
        if not os.path.samestat(os.fstat(fd), path.stat()) or not _is_due(path, limit):
            return False
        newest = max((number for number, _ in archives(str(path))), default=0)
        with fault_step("logs.rotate"):
            os.rename(path, archive_name(str(path), newest + 1))
    except OSError:  # in use, or gone, or a directory that may not be written: the next look tries again
        return False
    finally:
        os.close(fd)
    return True


def _remove_old(path: Path, keep: int) -> None:
    for _, archive in archives(str(path))[:-keep]:
        with contextlib.suppress(OSError):
            os.unlink(archive)


@contextlib.contextmanager
def open_log(path: Path) -> Iterator[BinaryIO]:
    """A log to append to for a while, as the output of a command; it is not rotated meanwhile."""
    # A lock of our own, not on the sink: a program that the command leaves running has that for ever.
    lock = lock_to_append(path)
    try:
        with open(path, "ab", opener=_private) as sink:
            yield sink
    finally:
        os.close(lock)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
