"""A damaged store of goals is set aside, with its bytes as they are; an empty one in safe mode takes its place."""

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from llmc.base.clock import now_unix
from llmc.base.faults import step as fault_step
from llmc.base.locks import Rank, lock
from llmc.goals.model import Change, Event
from llmc.goals.store.rows import SafeMode, Writer
from llmc.goals.store.schema import migrate

CORRUPT = "overseer.store.corrupt"

Identity = tuple[int, int]


def identity(path: Path) -> Identity | None:
    """Which file it is: another one after it was set aside."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def set_aside(path: Path, found: Identity | None, why: str) -> None:
    """There is no moment without a store: a kill anywhere leaves the damaged one, or the new one in safe mode."""
    with lock(path.with_name("store.lock"), Rank.GOALS):
        if identity(path) != found:
            return  # somebody else did it
        now = now_unix()
        kept = _kept_name(path, now)
        fresh = path.with_name(f".store-{os.getpid()}.db")
        fresh.unlink(missing_ok=True)
        _make_safe(fresh, SafeMode(now, why, kept.name))
        with fault_step("goals.set_aside"):
            second_name(path, kept)
            with suppress(FileNotFoundError):  # else it would be played back into the new file
                os.replace(f"{path}-journal", f"{kept}-journal")
            os.replace(fresh, path)


def _make_safe(path: Path, mode: SafeMode) -> None:
    import sqlite3

    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute("BEGIN IMMEDIATE")
        migrate(db)
        writer = Writer(db)
        writer.set_safe_mode(mode)
        data = {"reason": mode.reason, "file": mode.file}
        writer.apply(Change(events=(Event(ts=mode.since, type=CORRUPT, data=data),)))
        db.execute("COMMIT")
    finally:
        db.close()


def _kept_name(path: Path, now: float) -> Path:
    """A name that nothing has: `store.corrupt-<time>.db`."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now))
    names = (f"store.corrupt-{stamp}{more}.db" for more in ("", *(f"-{n}" for n in range(2, 1000))))
    return next(other for name in names if not (other := path.with_name(name)).exists())


def second_name(path: Path, other: Path) -> None:
    """The same file under another name, which nothing may have."""
    try:
        os.link(path, other)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        shutil.copyfile(path, other)
        other.chmod(0o600)
