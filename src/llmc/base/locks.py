"""File locks that end with their process, always taken in the order accept, worker, ticket, merge, slot, repo, state."""

import contextlib
import fcntl
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path

from llmc.base import clock
from llmc.base.errors import LockTimeout
from llmc.base.files import explain, private_dir
from llmc.base.flocks import is_locked as is_locked
from llmc.base.flocks import signature, try_lock
from llmc.base.flocks import signer as signer
from llmc.base.processes import command_of, is_alive, wait_until
from llmc.base.urls import scrub
from llmc.hook_client import PORTABLE


class Rank(IntEnum):
    """The lock order: a lock may only be taken while all locks held have a lower rank."""

    #: held by the server of the web page while it runs
    WEB_SERVER = -2
    #: one goal tick at a time
    TICK = -1
    #: one planner run at a time
    PLANNER = 0
    #: a worker's work is being accepted; held throughout, even while validation leaves the worker free
    ACCEPT = 1
    WORKER = 2
    TICKET = 3
    MERGE = 4
    #: one of the checkouts used for validation
    SLOT = 5
    REPO = 6
    #: protects config.toml; held only for a moment
    CONFIG = 7
    STATE = 8
    #: protects the incidents; held only for a moment
    NOTIFY = 9
    #: protects the goal database, only while a damaged one is set aside
    GOALS = 10
    #: protects Serena's project list, which all roots of a user share
    SERENA = 11
    #: protects the comments on a worker's changes; held only for a moment
    REVIEW = 12
    #: protects the list of browsers signed in to the web page; held only for a moment
    WEB = 13
    #: held for a moment while the lock file of a killed git is removed
    GIT_LOCKS = 14


#: how long a lock may outlive its process
ORPHAN_S = 1.0
#: how long to retry: a check of a lock takes it for a moment, so one refusal proves nothing
LOOK_S = 0.05

_held = threading.local()


@contextmanager
def lock(path: Path, rank: Rank, *, timeout_s: float = 30.0) -> Iterator[None]:
    """Hold the lock file; a timeout names the holder."""
    with any_lock([path], rank, timeout_s=timeout_s):
        yield


@contextmanager
def any_lock(paths: Sequence[Path], rank: Rank, *, timeout_s: float = 30.0) -> Iterator[Path]:
    """Hold the first free one of several lock files; yields its path."""
    ranks: list[Rank] = getattr(_held, "ranks", [])
    if ranks and ranks[-1] >= rank:
        raise AssertionError(
            f"lock order violated: {paths[0].name} requested while holding {ranks[-1].name.lower()}"
        )
    with clock.waiting(timeout_s):
        path, fd = _acquire(paths, timeout_s)
    with _holding(path, rank, fd):
        yield path


@contextmanager
def attempt(path: Path, rank: Rank) -> Iterator[bool]:
    """Hold the lock if it is free; yields whether this thread has it, which it may have had before.

    It waits at most LOOK_S, so the lock order does not matter.
    """
    if path in _ours():
        yield True
        return
    fd = _open(path)
    if not wait_until(lambda: try_lock(fd), LOOK_S, interval_s=0.005):
        os.close(fd)
        yield False
        return
    _sign(fd)
    with _holding(path, rank, fd):
        yield True


@contextmanager
def released(path: Path, *, timeout_s: float) -> Iterator[None]:
    """Release a lock of this thread temporarily; take it again at the end, or raise LockTimeout."""
    fd, rank = _ours()[path]
    ranks = _held.ranks
    fcntl.flock(fd, fcntl.LOCK_UN)
    _held.ranks = [held for held in ranks if held is not rank]
    try:
        yield
    finally:
        _held.ranks = ranks
        with clock.waiting(timeout_s):
            _take(path, [fd], timeout_s)


@contextmanager
def _holding(path: Path, rank: Rank, fd: int) -> Iterator[None]:
    ranks: list[Rank] = getattr(_held, "ranks", [])
    _held.ranks = sorted([*ranks, rank])
    _ours()[path] = (fd, rank)
    try:
        yield
    finally:
        _held.ranks = ranks
        del _ours()[path]
        os.close(fd)


def _ours() -> dict[Path, tuple[int, Rank]]:
    """The locks of this thread."""
    if not hasattr(_held, "locks"):
        _held.locks = {}
    locks: dict[Path, tuple[int, Rank]] = _held.locks
    return locks


def may_take(rank: Rank) -> bool:
    """Whether the lock order lets this thread take a lock of this rank now."""
    ranks: list[Rank] = getattr(_held, "ranks", [])
    return not ranks or ranks[-1] < rank


def is_locked_by_others(path: Path) -> bool:
    return path not in _ours() and is_held(path)


def is_held(path: Path) -> bool:
    """Whether a live process holds the lock; a child that a killed process was just starting may keep it for a moment."""
    deadline = time.monotonic() + ORPHAN_S
    while is_locked(path):
        if _signer_lives(path) or time.monotonic() > deadline:
            return True
        time.sleep(0.01)
    return False


def _signer_lives(path: Path) -> bool:
    pid = signer(path)
    return pid is not None and is_alive(pid)


def hold_forever(path: Path, *, patience_s: float = 0.5) -> int | None:
    """Take a lock until this process ends; None if another process has it.

    Checks (`is_locked`, each `llmc status`) take it for a moment too, so one refusal proves nothing.
    """
    fd = _open(path)
    if _poll([fd], patience_s) is None:
        os.close(fd)
        return None
    _sign(fd)
    return fd


@contextmanager
def claim(path: Path) -> Iterator[bool]:
    """`hold_forever` for a block; yields whether this process has the lock."""
    fd = hold_forever(path)
    try:
        yield fd is not None
    finally:
        if fd is not None:
            os.close(fd)


def holder(path: Path) -> str:
    """Who signed the lock file last, as text."""
    return signature(path) or "an unknown process"


def holds(pid: int, path: Path) -> bool:
    """Whether the process with this pid holds the lock, according to the kernel.

    Without /proc, the signature decides, if the file is locked.
    """
    if PORTABLE:
        return signer(path) == pid and is_locked(path)
    try:
        wanted = os.stat(path)
        fds = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    return any(_holds(pid, fd, wanted) for fd in fds)


def _holds(pid: int, fd: str, wanted: os.stat_result) -> bool:
    try:
        if not os.path.samestat(os.stat(f"/proc/{pid}/fd/{fd}"), wanted):
            return False
        with open(f"/proc/{pid}/fdinfo/{fd}", encoding="ascii", errors="replace") as file:
            return any("FLOCK" in line and "WRITE" in line for line in file if line.startswith("lock:"))
    except OSError:
        return False


def _acquire(paths: Sequence[Path], timeout_s: float) -> tuple[Path, int]:
    opened = [(path, _open(path)) for path in paths]
    ours: int | None = None
    try:
        ours = _take(paths[0], [fd for _, fd in opened], timeout_s)
    finally:
        for _, fd in opened:
            if fd != ours:
                os.close(fd)
    return next((path, fd) for path, fd in opened if fd == ours)


def _take(path: Path, fds: Sequence[int], timeout_s: float) -> int:
    """Take one of the locks; a timeout names the holder of the first."""
    ours = _poll(fds, timeout_s)
    if ours is None:
        raise LockTimeout(
            f"cannot lock {path.stem}: {holder(path)} has held the lock for over {timeout_s:g} s",
            hint="Wait for that process to finish, or stop it, then run this command again.",
        )
    _sign(ours)
    return ours


def _poll(fds: Sequence[int], timeout_s: float) -> int | None:
    """Try until one of the locks is ours or the time is up; returns its descriptor."""
    deadline = time.monotonic() + timeout_s
    pause_s = 0.001
    while (ours := next(filter(try_lock, fds), None)) is None:
        if time.monotonic() >= deadline:
            return None
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.02)
    return ours


def _open(path: Path) -> int:
    try:
        private_dir(path.parent)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise explain(error, f"cannot open the lock file {path}") from error


def _sign(fd: int) -> None:
    program = os.path.basename(sys.argv[0]).replace("__main__.py", "llmc")
    words = scrub(" ".join([program, *sys.argv[1:4]]))[:120]
    command = " ".join("".join(c if c.isprintable() else " " for c in words).split())
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"pid {os.getpid()} ({command})".encode(errors="replace"), 0)
    except OSError:
        pass  # a full disk must not prevent locking; only the name is lost


def writer_of(path: Path) -> str:
    """The holder of a POSIX write lock, from the kernel. (Opening and closing the file would drop our own.)"""
    with contextlib.suppress(OSError, ValueError):
        inode = str(os.stat(path).st_ino)
        for line in Path("/proc/locks").read_text().splitlines() if not PORTABLE else ():
            words = line.split()
            if len(words) >= 6 and words[3] == "WRITE" and words[5].rpartition(":")[2] == inode:
                return f"pid {words[4]} ({command_of(int(words[4]))[:120]})"
    return "another process"
