"""Tries a file lock, and says who holds one; for base/locks.py and the hot commands. Light; never waits."""

import fcntl
import os


def try_lock(fd: int) -> bool:
    """Take the lock of an open file, for as long as it is open; False if it is taken."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(path: str | os.PathLike[str]) -> bool:
    """Whether some process holds the lock right now."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def signature(path: str | os.PathLike[str]) -> str:
    """Who signed the lock file last: `pid 123 (llmc accept adam)`; "" without a signature."""
    try:
        with open(path, "rb") as file:
            return file.read(4096).decode(errors="replace").strip()
    except OSError:
        return ""


def signer(path: str | os.PathLike[str]) -> int | None:
    """The pid that signed the lock file last."""
    words = signature(path).split()
    return int(words[1]) if len(words) > 1 and words[1].isdecimal() else None
