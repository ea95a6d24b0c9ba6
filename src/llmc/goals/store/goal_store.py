"""The goal database: one SQLite file with a rollback journal, changed in transactions only.

A transaction serves as the lock: it is exclusive, names its holder to waiting processes, and ends with its process.
A damaged file is set aside by the next writer; readers leave it alone.
"""

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, LockTimeout, NotFound, StateError
from llmc.base.faults import step as fault_step
from llmc.base.files import DiskFull, explain, private_dir, second_name, unique
from llmc.base.locks import Rank, lock, writer_of
from llmc.base.text import did_you_mean
from llmc.goals.model import Change, Event, GoalView
from llmc.goals.store.rows import VERSION, Reader, SafeMode, Writer, migrate, version_of

SET_ASIDE = "Otherwise, the next command that changes a goal moves the file aside and continues in safe mode with an empty database."

#: SQLite error codes: busy, locked; corrupt, not a database; full; permission, read-only, cannot open, I/O
_BUSY, _DAMAGED, _FULL, _PLACE = (5, 6), (11, 26), 13, (3, 8, 14, 10)


class GoalStoreError(StateError):
    """The goal database cannot be used; nothing else is affected."""


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
        return Damaged(f"{path} is damaged: {error}", hint=f"Restore a good copy of the file. {SET_ASIDE}")
    if code == _FULL:
        return DiskFull(
            f"cannot write {path}: the disk is full", hint="Free some space, then run the command again."
        )
    if code in _PLACE:
        hint = "Check the owner and permissions of that path, then run the command again."
        return GoalStoreError(f"cannot use {path}: {error}", hint=hint)
    return GoalStoreError(f"{path}: {error}")


def is_damage(error: BaseException) -> bool:
    return isinstance(error, Damaged) or _code(error) in _DAMAGED


def busy(path: Path, busy_s: float) -> LockTimeout:
    return LockTimeout(
        f"the goal database is locked: {writer_of(path)} has been writing for over {busy_s:g} s",
        hint="Wait for that process to finish, or stop it, then run the command again.",
    )


def unknown_goal(goal_id: str, known: list[str]) -> NotFound:
    hint = did_you_mean(goal_id, known, "Run `llmc goal list` to see the goals.", 0.3)
    return NotFound(f"no goal {goal_id!r}", hint=hint)


def _code(error: BaseException) -> int:
    """SQLite's primary error code; 0 for other errors."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else 0


if TYPE_CHECKING:
    from sqlite3 import Connection


CORRUPT = "overseer.store.corrupt"

Identity = tuple[int, int]


def identity(path: Path) -> Identity | None:
    """Device and inode, which differ after the file was set aside."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def set_aside(path: Path, found: Identity | None, why: str) -> None:
    """Set the file aside. A kill at any point leaves the damaged store, or the new one in safe mode."""
    with lock(path.with_name("store.lock"), Rank.GOALS):
        if identity(path) != found:
            return  # another process was faster
        now = now_unix()
        kept = _kept_name(path, now)
        fresh = path.with_name(f".store{unique()}.db")
        _make(fresh, SafeMode(now, why, kept.name))
        with fault_step("goals.set_aside"):
            second_name(path, kept)
            with suppress(FileNotFoundError):  # otherwise it would be applied to the new file
                os.replace(f"{path}-journal", f"{kept}-journal")
            os.replace(fresh, path)


def _make(path: Path, mode: SafeMode | None = None) -> None:
    """Make an empty store; with a mode, in safe mode."""
    import sqlite3

    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute("BEGIN IMMEDIATE")
        migrate(db)
        if mode is not None:
            writer = Writer(db)
            writer.set_safe_mode(mode)
            data = {"reason": mode.reason, "file": mode.file}
            writer.apply(Change(events=(Event(ts=mode.since, type=CORRUPT, data=data),)))
        db.execute("COMMIT")
    finally:
        db.close()


def _kept_name(path: Path, now: float) -> Path:
    """A free name: `store.corrupt-<time>.db`."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now))
    names = (f"store.corrupt-{stamp}{more}.db" for more in ("", *(f"-{n}" for n in range(2, 1000))))
    return next(other for name in names if not (other := path.with_name(name)).exists())


FILE = "store.db"

#: writers within a process wait here, because SQLite's locks poll
_writers: dict[str, threading.Lock] = {}
_writing = threading.local()


class AnyGoalStore(ABC):
    """The goals of a root, changed in transactions only."""

    #: why the last read found nothing; "" if the store is not damaged
    damage = ""
    #: called before each transaction; raises if this root may not write
    before_writing: Callable[[], None] = staticmethod(lambda: None)

    @property
    @abstractmethod
    def name(self) -> str:
        """The store's unique name, also shown to the user."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether the store can contain goals."""

    @abstractmethod
    def is_in(self, root: Path) -> bool:
        """Whether the store is removed with that directory."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[Reader]:
        """A consistent read."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[Writer]:
        """A transaction: all of it is written, or nothing. One writer at a time."""

    def apply(self, change: Change, *, typed: bool = False) -> None:
        with self.writing() as tx:
            tx.apply(change, typed=typed)

    def update(
        self, goal_id: str, decide: Callable[[GoalView], Change], *, typed: bool = False
    ) -> tuple[GoalView, Change]:
        """Load a goal, decide, write; returns the goal before, and the change."""
        with self.writing() as tx:
            view = tx.view(goal_id)
            if view is None:
                raise unknown_goal(goal_id, tx.goal_ids())
            change = decide(view)
            tx.apply(change, typed=typed)
            return view, change

    def view(self, goal_id: str) -> GoalView:
        with self.reading() as found:
            if self.damage:
                raise self.damaged()
            view = found.view(goal_id)
            if view is None:
                raise unknown_goal(goal_id, found.goal_ids())
            return view

    def damaged(self) -> Damaged:
        """For callers that cannot continue with an empty store."""
        return Damaged(self.damage, hint=f"Restore a good copy of the file. {SET_ASIDE}")

    def clear_safe_mode(self) -> SafeMode | None:
        """End safe mode; returns the mode that was cleared, or None."""
        with self.writing() as tx:
            mode = tx.safe_mode()
            if mode is not None:
                tx.set_safe_mode(None)
                tx.apply(Change(events=(Event(ts=now_unix(), type="overseer.safe_mode.cleared"),)))
            return mode


class GoalStore(AnyGoalStore):
    def __init__(self, directory: Path, *, busy_s: float = 30.0) -> None:
        self.directory = directory
        self.path = directory / FILE
        self.busy_s = busy_s
        self._examined: Identity | None = None

    @property
    def name(self) -> str:
        return str(self.path)

    def exists(self) -> bool:
        return self.path.exists()

    def is_in(self, root: Path) -> bool:
        return self.path.is_relative_to(root)

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """A consistent read; empty if there is no store or it is damaged (see `damage`)."""
        with self._explained():
            self.damage = ""
            file = identity(self.path)  # before opening, so that a newer file never passes as known
            try:
                db = self._open_to_read()
            except Damaged as error:
                self.damage = error.message
                db = _in_memory()
            try:
                db.execute("BEGIN")
                yield Reader(db, file)
            finally:
                db.close()

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        """A transaction: all of it is written, or nothing."""
        self.before_writing()
        with self._alone(), self._explained():
            db = self._open_to_write()
            try:
                yield Writer(db)
                with fault_step("goals.write"):
                    db.execute("COMMIT")
            finally:
                db.close()  # rolls back what was not committed

    # --- opening

    def _open_to_read(self) -> "Connection":
        if not self.path.exists():
            return _in_memory()
        db = self._connect("rw" if os.access(self.path, os.W_OK) else "ro")
        try:
            version = self._examine(db)
            if 0 < version < VERSION:
                db = self._migrated(db)
            db.execute("PRAGMA query_only = ON")
        except BaseException:
            db.close()
            raise
        return db

    def _migrated(self, db: "Connection") -> "Connection":
        """Migrate an older store: in its file if writable, otherwise in memory."""
        import sqlite3

        try:
            db.execute("BEGIN IMMEDIATE")
            migrate(db)
            db.execute("COMMIT")
            return db
        except sqlite3.OperationalError:
            if db.in_transaction:
                db.execute("ROLLBACK")
            memory = sqlite3.connect(":memory:", isolation_level=None)
            db.backup(memory)
            db.close()
            migrate(memory)
            return memory

    def _open_to_write(self) -> "Connection":
        """A connection with an exclusive transaction."""
        private_dir(self.directory)
        for _ in range(3):
            found = identity(self.path)
            if found is None:
                self._create()
                found = identity(self.path)
            db = self._connect("rw")
            try:
                db.execute("PRAGMA journal_mode = DELETE")
                db.execute("PRAGMA synchronous = FULL")
                db.execute("BEGIN IMMEDIATE")
                if identity(self.path) != found:  # set aside by another process meanwhile
                    db.close()
                    continue
                if self._examine(db) < VERSION:
                    migrate(db)
                return db
            except BaseException as error:
                db.close()
                if not is_damage(error):
                    raise
                set_aside(self.path, found, str(error))
                self.damage = str(error)
        raise Damaged(
            f"{self.path} is damaged and could not be moved aside",
            hint="Move the file elsewhere, then run the command again.",
        )

    def _connect(self, mode: str) -> "Connection":
        import sqlite3  # 10 ms that `llmc status` does not need

        uri = f"{self.path.absolute().as_uri()}?mode={mode}"
        return sqlite3.connect(uri, uri=True, timeout=self.busy_s, isolation_level=None)

    def _create(self) -> None:
        """Create the file complete: an empty file counts as damaged, never as new."""
        fresh = self.path.with_name(f".store{unique()}.db")
        try:
            _make(fresh)
            with suppress(FileExistsError):  # another process was faster
                second_name(fresh, self.path)
            fresh.unlink()
        except OSError as error:
            raise explain(error, f"cannot create {self.path}") from error

    def _examine(self, db: "Connection") -> int:
        """The format version; raises Damaged or, for writers, NewerStore. Checks the whole file once per object."""
        import sqlite3

        try:
            version = version_of(db)
            tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if version > VERSION:
                if db.in_transaction:
                    raise self._newer(version)
                return version
            if not tables and not version:
                raise Damaged(f"{self.path} is empty")
            if not tables or not version:
                raise Damaged(f"{self.path} is not a goal database")
            if version and self._examined != identity(self.path):
                verdict = db.execute("PRAGMA quick_check(1)").fetchone()[0]
                if verdict != "ok":
                    raise Damaged(f"{self.path} is damaged: {verdict}")
                self._examined = identity(self.path)
        except sqlite3.DatabaseError as error:
            if is_damage(error):
                raise Damaged(f"{self.path} is damaged: {error}") from error
            raise
        return version

    def _newer(self, version: int) -> NewerStore:
        return NewerStore(
            f"{self.path} has format version {version}, but this llmc supports versions up to {VERSION}; nothing was changed",
            hint="Upgrade llmc to the version that wrote the file.",
        )

    # --- locking and errors

    @contextmanager
    def _alone(self) -> Iterator[None]:
        key = str(self.path)
        if key in getattr(_writing, "paths", ()):
            raise AssertionError(f"nested transaction on {key}")
        mine = _writers.setdefault(key, threading.Lock())
        if not mine.acquire(timeout=self.busy_s):
            raise busy(self.path, self.busy_s)
        _writing.paths = (*getattr(_writing, "paths", ()), key)
        try:
            yield
        finally:
            _writing.paths = tuple(path for path in _writing.paths if path != key)
            mine.release()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn SQLite errors into our own."""
        import sqlite3

        try:
            yield
        except sqlite3.Error as error:
            if is_damage(error):
                self._examined = None
            raise in_words(error, self.path, self.busy_s) from error


def _in_memory() -> "Connection":
    import sqlite3

    db = sqlite3.connect(":memory:", isolation_level=None)
    migrate(db)
    return db
