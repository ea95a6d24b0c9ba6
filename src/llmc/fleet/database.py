"""The fleet's database: this process's connection, its errors as llmc's own, and the schema.

The URL may have a password, so it stays in here: no error, log or result shows it, nor a driver's message about it.
"""

import atexit
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from llmc.base import urls
from llmc.base.clock import monotonic
from llmc.base.errors import Exit, LlmcError, LockTimeout, Refused, StateError, Unreachable
from llmc.fleet import statements

if TYPE_CHECKING:
    import psycopg
    from psycopg import Connection, Cursor

    Rows = Cursor[dict[str, Any]]

T = TypeVar("T")

MIGRATIONS = Path(__file__).parent / "migrations"
#: the schema version that this llmc needs
VERSION = len(list(MIGRATIONS.glob("*.sql")))
#: the oldest server version that was tested
LEAST_SERVER = 14
#: a server that does not answer in this time counts as gone
CONNECT_S = 5
STATEMENT_S = 20
#: how long after a failure to wait before connecting again
RETRY_S = 2.0
# What an SQLSTATE means, by how it begins
#: the server went away, stops, has no room, or takes no changes: work waits, and the next statement connects again
_READ_ONLY = "25006"
_GONE = ("08", "53", "55", "57", "58", "25P03", _READ_ONLY)
#: the transaction must start over
_CONFLICT = "40"
#: this statement only: its values do not fit
_NOT_STORED = ("22", "23", "54")
_EXISTS = "23505"
_NO_RIGHTS = "42501"
#: most attempts at a transaction that conflicts with others
TIMES = 5


class DatabaseGone(Unreachable, LockTimeout):
    """The database does not answer. As with a lock that is held, work that waits for it continues by itself."""

    exit_code = Exit.FAILED


class WrongSchema(Refused):
    """The database has the tables of another llmc version, or none."""


class Database:
    """Safe to use from several threads; they take turns."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._turn = threading.RLock()
        self._open: Connection[dict[str, Any]] | None = None
        self._session: Sql | None = None
        self._not_before = 0.0
        self._problem = ""

    @property
    def address(self) -> str:
        """The address to show, without the password."""
        return urls.database_address(self._url)

    def rows(self, statement: str, values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Run one statement; returns its rows."""
        return self.do(lambda rows: fetched(rows.execute(statement, values)), alone=True)

    def do(self, work: Callable[["Rows"], T], *, alone: bool = False) -> T:
        """Run `work` in a transaction, and again after a conflict. `alone`: one statement, so no transaction."""
        with self._turn:
            for _ in range(TIMES - 1):
                try:
                    return self._once(work, alone)
                except _Met:
                    continue
            return self._once(work, alone)

    def _once(self, work: Callable[["Rows"], T], alone: bool) -> T:
        with self.in_words(self._gone):
            db = self._connection()
            with db.cursor() as cursor:
                if alone:
                    return work(cursor)
                with db.transaction():
                    return work(cursor)

    @contextmanager
    def in_words(self, gone: "Callable[[psycopg.Error], DatabaseGone] | None" = None) -> "Iterator[None]":
        """Raise errors of the driver as llmc's own: a server may go away between any two statements.

        `gone`: makes the error of a broken connection, for the shared connection only.
        """
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            raise self._as_own(error, gone or self._no_answer) from None

    def _as_own(self, error: "psycopg.Error", gone: "Callable[[psycopg.Error], DatabaseGone]") -> LlmcError:
        """The SQLSTATE decides: the driver's classes put a server that stops and a value that is too long in one."""
        import psycopg

        state = error.sqlstate or ""
        is_lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        if state.startswith(_GONE) or (not state and is_lost):
            return gone(error)
        if state.startswith(_CONFLICT):
            return _Met(
                f"the fleet's database kept aborting a transaction because of conflicts (SQLSTATE {state})"
            )
        if state == _NO_RIGHTS:
            return LlmcError(
                f"the fleet's database denied access to the user in {self.address}: {error.diag.message_primary}",
                hint="Grant that user select, insert, update and delete on all tables in schema llmc, then run the command again.",
            )
        if state == _EXISTS:
            return Refused(f"the entry already exists in the fleet's database: {error.diag.message_detail}")
        words = f"{error.diag.message_primary or error} (SQLSTATE {state})" if state else str(error)
        if state.startswith(_NOT_STORED) or isinstance(error, psycopg.DataError):
            return Refused(f"the fleet's database does not accept this: {words}")
        return LlmcError(f"the fleet's database failed ({self.address}): {words}")

    @contextmanager
    def session(self, schema: str, *, read_only: bool = False) -> "Iterator[Sql]":
        """A transaction on the tables of a schema; uncommitted changes are rolled back.

        A read-only session inside another session shares its transaction.
        """
        with self._turn:
            if self._session is not None:
                assert read_only, f"nested transaction on {self.address}"
                yield self._session
                return
            with self.in_words(self._gone):
                sql = Sql(self._connection(), partial(self.in_words, self._gone))
            sql.execute("begin" + (" isolation level repeatable read, read only" if read_only else ""))
            try:
                sql.execute(f"set local search_path to {schema}")
                self._session = sql
                yield sql
            finally:
                self._session = None
                sql.rollback()

    @contextmanager
    def hearing(self, statement: str) -> "Iterator[Callable[[float], None]]":
        """Run a `listen` statement on its own connection; yields a function that waits for a notification."""
        db = self.connect()

        def wait(most_s: float) -> None:
            for _ in db.notifies(timeout=most_s, stop_after=1):
                return

        try:
            with self.in_words():
                db.execute(statement)
                yield wait
        finally:
            db.close()

    def _connection(self) -> "Connection[dict[str, Any]]":
        if self._open is None or self._open.closed:
            self._open = self.connect()
            try:
                self._check_schema(self._open)
            except BaseException:
                self.close()
                raise
        return self._open

    def connect(self) -> "Connection[dict[str, Any]]":
        """Open a new connection; DatabaseGone if that fails, and for a moment afterwards without trying."""
        driver()
        import psycopg
        from psycopg.rows import dict_row

        if monotonic() < self._not_before:
            raise self._said()
        try:
            db = psycopg.connect(
                self._url,
                autocommit=True,
                row_factory=dict_row,
                connect_timeout=CONNECT_S,
                application_name="llmc",
                options=f"-c statement_timeout={STATEMENT_S}s -c idle_in_transaction_session_timeout={STATEMENT_S}s",
                keepalives_idle=10,
                keepalives_interval=5,
                keepalives_count=3,
                tcp_user_timeout=STATEMENT_S * 1000,
            )
        except psycopg.ProgrammingError:  # its text quotes the URL
            raise LlmcError(
                "fleet.database is not a valid PostgreSQL URL",
                hint="Set it: llmc config set fleet.database postgresql://USER@HOST/DATABASE",
            ) from None
        except psycopg.OperationalError as error:
            raise self._no_answer(error) from None
        if db.info.server_version // 10000 < LEAST_SERVER:
            version = db.info.server_version // 10000
            db.close()
            raise Refused(
                f"{self.address} runs PostgreSQL {version}, but llmc needs PostgreSQL {LEAST_SERVER} or later",
                hint="Upgrade the server, or use another one: llmc config set fleet.database postgresql://USER@HOST/DATABASE",
            )
        return db

    def _gone(self, error: Exception) -> DatabaseGone:
        """Close the broken connection; returns the error. The caller has the turn."""
        self.close()
        return self._no_answer(error)

    def _no_answer(self, error: Exception) -> DatabaseGone:
        import psycopg

        self._not_before = monotonic() + RETRY_S
        words = " ".join(str(error).split())
        for secret in urls.database_secrets(self._url):
            words = words.replace(secret, "***")
        is_read_only = isinstance(error, psycopg.Error) and error.sqlstate == _READ_ONLY
        what = "is read-only" if is_read_only else "is not responding"
        self._problem = f"the fleet's database {what} ({self.address}){f': {words}' if words else ''}"
        return self._said()

    def _said(self) -> DatabaseGone:
        return DatabaseGone(
            self._problem,
            hint="No task starts or lands on this node until it responds. To check: llmc fleet status",
        )

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    # Schema

    def _check_schema(self, db: "Connection[dict[str, Any]]") -> None:
        found = self._version(db)
        if found > VERSION:
            raise WrongSchema(
                f"the fleet's database has schema version {found}, but this llmc supports versions up to {VERSION}",
                hint="Upgrade llmc on this node.",
            )
        if found < VERSION:
            is_new = (
                "is not set up" if not found else f"has schema version {found}, but this llmc needs {VERSION}"
            )
            raise WrongSchema(
                f"the fleet's database {is_new}", hint="To create or upgrade the tables: llmc fleet init"
            )

    def _version(self, db: "Connection[dict[str, Any]]") -> int:
        import psycopg

        try:
            return int(next(iter(fetched(db.execute(statements.MIGRATED))[0].values())))
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            return 0

    def migrate(self) -> int:
        """Bring the schema up to date; returns how many migrations ran. Concurrent calls wait for each other."""
        import psycopg

        with self._turn, self.in_words():
            db = self.connect()
            try:
                if self._version(db) > VERSION:
                    self._check_schema(db)
                with db.transaction():
                    db.execute(statements.PREPARE)
                    found = self._version(db)
                    for number in range(found + 1, VERSION + 1):
                        db.execute((MIGRATIONS / f"{number:04}.sql").read_bytes())
                        db.execute(statements.APPLIED, (number,))
            except psycopg.errors.InsufficientPrivilege as error:
                raise Refused(
                    f"the user in {self.address} cannot create tables: {error.diag.message_primary}",
                    hint="Run `llmc fleet init` once as the database owner.",
                ) from None
            finally:
                db.close()
            return VERSION - found


class Sql:
    """A transaction that takes statements with `?` for parameters, as SQLite does."""

    def __init__(
        self, db: "Connection[dict[str, Any]]", in_words: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._db = db
        self._in_words = in_words

    def execute(self, statement: str, values: Sequence[Any] = ()) -> "Cursor[tuple[Any, ...]]":
        import psycopg
        from psycopg.rows import tuple_row

        with self._in_words():
            try:
                cursor = self._db.cursor(row_factory=tuple_row)
                return cursor.execute(statement.replace("?", "%s"), values or None)
            except psycopg.IntegrityError as error:
                text = f"the fleet's database refused a change: {error.diag.message_primary}"
                raise StateError(text) from None

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        for values in rows:
            self.execute(statement, values)

    def commit(self) -> None:
        self.execute("commit")

    def rollback(self) -> None:
        """End a transaction that was not committed."""
        from psycopg.pq import TransactionStatus

        if self._db.info.transaction_status not in (TransactionStatus.IDLE, TransactionStatus.UNKNOWN):
            self.execute("rollback")


class Listening:
    """Listens for changes by all nodes. Without the database it hears nothing, and the heartbeat checks instead."""

    def __init__(self, database: Database, node: str, on_call: Callable[[str], None]) -> None:
        """`on_call` gets the reason when another node calls this one."""
        self._on_call = on_call
        self._db: Connection[dict[str, Any]] | None = None
        self._fds: tuple[int, ...]
        self._own = statements.channel_of(node)
        try:
            with database.in_words():
                self._db = database.connect()
                self._db.execute(f'listen {statements.CHANNEL}; listen "{self._own}"')
                # A copy: the driver closes its socket when the server is gone, while a thread still waits on it.
                self._fds = (os.dup(self._db.fileno()),)
        except DatabaseGone:
            if self._db is not None:
                self._db.close()
                self._db = None
            self._fds = os.pipe()  # nothing is ever written to it

    @property
    def is_deaf(self) -> bool:
        """Whether the database was gone at the start: another Listening is needed once it answers."""
        return self._db is None

    def fileno(self) -> int:
        return self._fds[0]

    def heard(self) -> bool:
        import psycopg

        try:
            if self._db is not None:
                self._db.pgconn.consume_input()
                while (note := self._db.pgconn.notifies()) is not None:
                    if note.relname.decode() == self._own:
                        self._on_call(note.extra.decode())
        except (psycopg.OperationalError, psycopg.InterfaceError):
            return False
        return True

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)
        if self._db is not None:
            self._db.close()


class _Met(LockTimeout):
    """Two transactions conflicted; one of them must start over."""

    exit_code = Exit.FAILED


def fetched(rows: "Cursor[dict[str, Any]]") -> list[dict[str, Any]]:
    return rows.fetchall() if rows.description is not None else []


def driver() -> None:
    """Raise if the driver is not installed."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise LlmcError(
            "the PostgreSQL driver, which the fleet needs, is not installed",
            hint="Install it: pip install 'llmc[fleet]'",
        ) from error


#: by URL and use: a long transaction of one use does not delay the others
_databases: dict[tuple[str, str], Database] = {}
_opening = threading.Lock()


def open_database(url: str, use: str = "tasks") -> Database:
    """This process's connection to a database for one use; closed when the process ends."""
    with _opening:
        if (url, use) not in _databases:
            _databases[url, use] = Database(url)
            atexit.register(_databases[url, use].close)
        return _databases[url, use]
