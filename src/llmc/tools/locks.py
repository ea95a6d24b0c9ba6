"""File locks that vanish with their process, always taken in the order worker, ticket, merge, repo, state."""

import fcntl
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

from llmc.errors import LockTimeout
from llmc.tools import progress
from llmc.tools.files import explain, private_dir
from llmc.tools.processes import is_alive
from llmc.urls import scrub


class Rank(IntEnum):
    """The lock order: a lock may only be taken while all locks held have a lower rank."""

    #: one tick of the goals at a time
    TICK = -1
    #: one planner for the goals at a time, whoever asked for it
    PLANNER = 0
    WORKER = 1
    TICKET = 2
    MERGE = 3
    REPO = 4
    STATE = 5
    #: of the incidents; held for a moment, and nothing is done meanwhile
    NOTIFY = 6
    #: of the goals' store, only while a damaged one is set aside
    GOALS = 7


#: how long a lock may outlive the process that took it
ORPHAN_S = 1.0

_held = threading.local()


@contextmanager
def lock(path: Path, rank: Rank, *, timeout_s: float = 30.0) -> Iterator[None]:
    """Hold the lock file; a timeout names who holds it."""
    ranks: list[Rank] = getattr(_held, "ranks", [])
    if ranks and ranks[-1] >= rank:
        raise AssertionError(f"lock order: {path.name} wanted while holding {ranks[-1].name.lower()}")
    with progress.waiting(timeout_s):
        fd = _acquire(path, timeout_s)
    _held.ranks = [*ranks, rank]
    try:
        yield
    finally:
        _held.ranks = ranks
        os.close(fd)


def may_take(rank: Rank) -> bool:
    """Whether the order of locks lets this thread take one of this rank now."""
    ranks: list[Rank] = getattr(_held, "ranks", [])
    return not ranks or ranks[-1] < rank


def is_locked(path: Path) -> bool:
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


def is_held(path: Path) -> bool:
    """Whether a living process holds the lock; a program that a killed one was just starting has it for a moment longer."""
    deadline = time.monotonic() + ORPHAN_S
    while is_locked(path):
        if _signer_lives(path) or time.monotonic() > deadline:
            return True
        time.sleep(0.01)
    return False


def _signer_lives(path: Path) -> bool:
    words = holder(path).split()
    return len(words) > 1 and words[1].isdecimal() and is_alive(int(words[1]))


def hold_forever(path: Path, *, patience_s: float = 0.5) -> int | None:
    """Take a lock for the rest of this process's life; None when somebody else has it.

    Whoever only looks (`is_locked`, each `llmc status`) has it for a moment too, so one refusal proves nothing.
    """
    fd = _open(path)
    if not _poll(fd, patience_s):
        os.close(fd)
        return None
    _sign(fd)
    return fd


def holder(path: Path) -> str:
    """Who signed the lock file last: `pid 123 (llmc accept adam)`."""
    try:
        text = path.read_text(errors="replace").strip()
    except OSError:
        text = ""
    return text or "an unknown process"


def _acquire(path: Path, timeout_s: float) -> int:
    fd = _open(path)
    if not _poll(fd, timeout_s):
        os.close(fd)
        raise LockTimeout(
            f"{path.stem} is busy: {holder(path)} has held its lock for over {timeout_s:g} s",
            hint="Wait for that command to end, or end it by its pid, then run this again.",
        )
    _sign(fd)
    return fd


def _poll(fd: int, timeout_s: float) -> bool:
    """Try until the lock is ours or the time is over."""
    deadline = time.monotonic() + timeout_s
    pause_s = 0.001
    while not _try(fd):
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.02)
    return True


def _open(path: Path) -> int:
    try:
        private_dir(path.parent)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise explain(error, f"cannot open the lock {path}") from error


def _try(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(fd: int) -> None:
    program = os.path.basename(sys.argv[0]).replace("__main__.py", "llmc")
    words = scrub(" ".join([program, *sys.argv[1:4]]))[:120]
    command = " ".join("".join(c if c.isprintable() else " " for c in words).split())
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"pid {os.getpid()} ({command})".encode(errors="replace"), 0)
    except OSError:
        pass  # a full disk must not stop anybody from taking a lock; only the name is lost
