"""Locks: one order, named holders, released with their process."""

import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import pytest

from llmc.base import locks
from llmc.base.errors import Exit, LlmcError, LockTimeout
from llmc.base.locks import Rank, lock

#: Python 3.12 warns of threads (the test runner has some); the children only use files
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

FORK = multiprocessing.get_context("fork")


@contextmanager
def held_elsewhere(path: Path, argv: list[str]) -> Iterator[int]:
    """Another process that holds the lock; yields its pid."""
    reader, writer = FORK.Pipe(duplex=False)

    def hold() -> None:
        sys.argv = argv
        with lock(path, Rank.WORKER):
            writer.send_bytes(b"held")
            signal.pause()

    child = FORK.Process(target=hold, daemon=True)
    child.start()
    try:
        assert reader.poll(20)
        assert child.pid is not None
        yield child.pid
    finally:
        child.kill()
        child.join(20)
        reader.close()
        writer.close()


@pytest.mark.parametrize(("first", "second"), list(product(Rank, Rank)))
def test_only_the_order_is_allowed(tmp_path: Path, first: Rank, second: Rank) -> None:
    """Break: `>` instead of `>=` in lock(): two worker locks at once."""
    with lock(tmp_path / "a.lock", first):
        if second > first:
            with lock(tmp_path / "b.lock", second):
                pass
        else:
            with (
                pytest.raises(AssertionError, match=f"holding {first.name.lower()}"),
                lock(tmp_path / "b.lock", second),
            ):
                pass


def test_all_ranks_in_order_and_again_after_an_error(tmp_path: Path) -> None:
    """Break: do not restore `_held.ranks` in the finally of lock()."""
    for _ in range(2):
        outer, inner = lock(tmp_path / "w.lock", Rank.WORKER), lock(tmp_path / "s.lock", Rank.STATE)
        with pytest.raises(ZeroDivisionError), outer, inner:
            _ = 1 / 0


def test_the_order_counts_per_thread(tmp_path: Path) -> None:
    """The daemon works on many workers at once, one thread each. Break: use a global list of ranks."""
    problems: list[BaseException] = []

    def other() -> None:
        try:
            with lock(tmp_path / "b.lock", Rank.WORKER):
                pass
        except BaseException as error:
            problems.append(error)

    with lock(tmp_path / "a.lock", Rank.STATE):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(20)
    assert problems == []


def test_a_timeout_names_the_holder(tmp_path: Path) -> None:
    """Break: no _sign in _acquire."""
    path = tmp_path / "worker-adam.lock"
    argv = ["/x/site-packages/llmc/__main__.py", "accept", "adam"]
    with held_elsewhere(path, argv) as pid:
        with pytest.raises(LockTimeout) as caught, lock(path, Rank.WORKER, timeout_s=0.05):
            pass
        assert locks.is_locked(path)
    assert f"pid {pid} (llmc accept adam)" in caught.value.message
    assert "worker-adam" in caught.value.message
    assert caught.value.exit_code == Exit.LOCK_TIMEOUT
    assert caught.value.hint


def test_a_prompt_on_the_holders_command_line_stays_one_short_line(tmp_path: Path) -> None:
    """Break: sign with the arguments as they are."""
    path = tmp_path / "worker-adam.lock"
    with held_elsewhere(path, ["/usr/bin/llmc", "start", "--prompt", "one\ntwo\x1b[2J" + "x" * 500]):
        text = locks.holder(path)
    assert "\n" not in text
    assert "\x1b" not in text
    assert "llmc start --prompt one two" in text
    assert len(text) < 160


def test_a_lock_vanishes_with_its_process(tmp_path: Path) -> None:
    """Break: use a lock file that counts by its existence."""
    path = tmp_path / "worker-adam.lock"
    with held_elsewhere(path, ["llmc"]) as pid:
        os.kill(pid, signal.SIGKILL)
        with lock(path, Rank.WORKER, timeout_s=20):
            assert locks.holder(path).startswith(f"pid {os.getpid()} ")
    assert not locks.is_locked(path)


def test_a_failed_wait_leaks_no_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with held_elsewhere(path, ["llmc"]):
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            with pytest.raises(LockTimeout), lock(path, Rank.STATE, timeout_s=0):
                pass
        assert len(os.listdir("/proc/self/fd")) == before


def test_hold_forever_is_for_one(tmp_path: Path) -> None:
    path = tmp_path / "daemon.lock"
    fd = locks.hold_forever(path)
    assert fd is not None
    assert locks.hold_forever(path) is None
    assert locks.is_locked(path)
    os.close(fd)
    assert not locks.is_locked(path)
    assert not locks.is_locked(tmp_path / "none.lock")


def test_looking_at_a_lock_does_not_take_it_from_anybody(tmp_path: Path) -> None:
    """`llmc status` in a loop must not make `llmc up` believe that a daemon is running.

    Break: try only once in hold_forever.
    """
    path = tmp_path / "daemon.lock"
    path.touch()

    def look() -> None:
        while True:
            locks.is_locked(path)

    lookers = [FORK.Process(target=look, daemon=True) for _ in range(2)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(300):
            fd = locks.hold_forever(path)
            assert fd is not None
            os.close(fd)
    finally:
        for looker in lookers:
            looker.kill()
            looker.join(20)


def test_a_lock_that_cannot_be_opened_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "locks").write_text("a file")
    with (
        pytest.raises(LlmcError, match=r"cannot create .*/locks: File exists"),
        lock(tmp_path / "locks/a.lock", Rank.STATE),
    ):
        pass


def test_a_lock_that_outlives_its_holder_for_a_moment_is_not_held(tmp_path: Path) -> None:
    """A killed daemon's child may hold the lock until it runs exec. Break: check only is_locked."""
    path = tmp_path / "daemon.lock"
    script = (
        "import os, sys, time; from pathlib import Path; from llmc.base.locks import hold_forever\n"
        "hold_forever(Path(sys.argv[1]))\n"
        "if os.fork():\n    print('x', flush=True); os._exit(0)\n"
        "os.close(1); time.sleep(0.3)"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True, stdout=subprocess.DEVNULL)
    assert locks.is_locked(path)
    assert not locks.is_held(path)
    with held_elsewhere(path, ["llmc", "up"]):
        assert locks.is_held(path)


def test_who_holds_a_lock_is_the_kernels_word(tmp_path: Path) -> None:
    """Break: trust the signature in the file, or that it is open; or take a reader's lock as the holder's."""
    path = tmp_path / "daemon.lock"
    fd = locks.hold_forever(path)
    assert fd is not None
    assert locks.holds(os.getpid(), path)
    with path.open("rb") as file, subprocess.Popen(["sleep", "60"], stdin=file) as looker:
        assert not locks.holds(looker.pid, path)
        path.write_text(f"pid {looker.pid} (llmc up)")
        assert locks.signer(path) == looker.pid
        assert not locks.holds(looker.pid, path)
        looker.kill()
    os.close(fd)
    assert not locks.holds(os.getpid(), path)
    shared = os.open(path, os.O_RDONLY)
    fcntl.flock(shared, fcntl.LOCK_SH)
    assert not locks.holds(os.getpid(), path)
    os.close(shared)
