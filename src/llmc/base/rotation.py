"""Log rotation: a file that is big enough is renamed, and the next line starts a new one.

Writers hold a shared lock on the file and check that it still has its name (base/files.py); a rotation is one rename
under the exclusive lock. So no line is lost, torn, or written to a renamed file, and a kill cannot leave it half done.
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
    """`max_bytes` 0: never rotate. `keep`: how many archives to keep, at least one; None: all."""

    max_bytes: int
    keep: int | None = None


def rotate(path: Path, limit: Limit) -> bool:
    """Rotate a log that is big enough, unless it is being written; whether it was rotated."""
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
        # Another process may have rotated it while we opened the file.
        if not os.path.samestat(os.fstat(fd), path.stat()) or not _is_due(path, limit):
            return False
        newest = max((number for number, _ in archives(str(path))), default=0)
        with fault_step("logs.rotate"):
            os.rename(path, archive_name(str(path), newest + 1))
    except OSError:  # in use, gone, or in a read-only directory: the next check tries again
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
    """Open a log for a command's output; it is not rotated while it is open."""
    # A separate lock, not on the sink: a program that the command leaves running would hold that one forever.
    lock = lock_to_append(path)
    try:
        with open(path, "ab", opener=private_opener) as sink:
            yield sink
    finally:
        os.close(lock)


def private_opener(path: str, flags: int) -> int:
    """For `open`: a new file is accessible by its owner only."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)
