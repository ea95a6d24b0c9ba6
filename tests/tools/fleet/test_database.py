"""The fleet's database: a lost server, an unknown schema, and a password that is never shown."""

import os
import signal
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from llmc.base.errors import LlmcError, LockTimeout, Refused
from llmc.base.urls import database_address, database_secrets
from llmc.fleet import answers, statements
from llmc.fleet import database as module
from llmc.fleet.database import VERSION, Database, DatabaseGone, Listening, WrongSchema
from llmc.fleet.landings import Landings
from llmc.fleet.nodes import Beating, Life, Membership
from tests.support.postgres import Postgres
from tests.support.waiting import wait_until

SECRET = "s3cr/t%40x"


@pytest.fixture
def own_server() -> Iterator[Postgres]:
    """A server that this test may stop."""
    server = Postgres()
    yield server
    server.close()


def test_migrations_are_applied_once_and_in_order(database: str) -> None:
    db = Database(database)
    with pytest.raises(WrongSchema, match="is not set up") as refused:
        db.rows("select 1")
    assert refused.value.hint == "To create or upgrade the tables: llmc fleet init"
    assert db.migrate() == VERSION
    assert db.migrate() == 0
    assert db.rows("select array_agg(number order by number) as all from llmc.migration") == [
        {"all": list(range(1, VERSION + 1))}
    ]
    db.close()


def test_a_server_that_goes_away_at_any_statement_is_gone(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: leave a statement out of `in_words`: a daemon that hits a restart there ends with a bug."""
    Database(database).migrate()
    ends = "select pg_terminate_backend(pg_backend_pid())"
    with pytest.raises(DatabaseGone), Database(database).hearing(ends):
        pass
    with pytest.raises(DatabaseGone), Database(database).session("llmc") as sql:
        sql.execute(ends)
    monkeypatch.setattr(statements, "CHANNEL", f"x; {ends}")
    listening = Listening(Database(database), "one", [].append)
    assert listening.is_deaf
    listening.close()
    monkeypatch.setattr(statements, "MIGRATED", ends)

    def in_a_session() -> None:
        with Database(database).session("llmc"):
            pass

    for ask in (lambda: Database(database).rows("select 1"), in_a_session, Database(database).migrate):
        with pytest.raises(DatabaseGone, match="is not responding"):
            ask()


def test_a_node_refuses_a_schema_that_it_does_not_know(database: str) -> None:
    """Break: compare only with `<`, and an old llmc writes into tables that it does not know."""
    first = Database(database)
    first.migrate()
    first.rows("insert into llmc.migration (number) values (%(n)s)", {"n": VERSION + 1})
    first.close()
    later = Database(database)
    with pytest.raises(
        WrongSchema, match=f"has schema version {VERSION + 1}, but this llmc supports"
    ) as refused:
        later.rows("select 1")
    assert refused.value.hint == "Upgrade llmc on this node."
    with pytest.raises(WrongSchema):
        later.migrate()
    with psycopg.connect(database) as db:
        db.execute("delete from llmc.migration where number > 0")
    with pytest.raises(WrongSchema, match="is not set up"):
        later.rows("select 1")


def test_a_fleet_of_an_older_version_goes_on(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: a column that has no value for the nodes and the answers of before."""
    monkeypatch.setattr(module, "VERSION", 5)
    Database(database).migrate()
    with psycopg.connect(database) as old:
        old.execute("insert into llmc.node (name, instance, place) values ('one', 'id', 'host:/one')")
        old.execute(
            "insert into llmc.answer (node, worker, question, text, sender) values ('one', 'adam', 'Q', 'A', 'two')"
        )
    monkeypatch.undo()
    db = Database(database)
    assert db.migrate() == VERSION - 5
    own = Membership(db, "one", "id", "host:/one", 60.0)
    beating = Beating(own, "plan")
    beating.start()
    pulse = beating.beat(Life())
    assert (pulse.state, pulse.answers) == ("joined", True)
    assert [(one.worker, one.text) for one in answers.waiting(own)] == [("adam", "A")]
    ledger = Landings(db, "one", "the remote", 60.0)
    assert ledger.agree("refs/llmc/mine", "main") == ("refs/llmc/mine", "main")
    assert ledger.agree("refs/llmc/other", "main") == ("refs/llmc/mine", "main"), "as the first node gave it"
    db.close()


def test_two_that_set_up_at_once_wait_for_each_other(database: str) -> None:
    """Break: check the version before taking the lock."""
    databases = [Database(database) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        ran = list(threads.map(Database.migrate, databases))
    assert sorted(ran) == [0, 0, 0, VERSION]


def test_a_server_that_is_gone_is_said_and_comes_back(
    own_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: keep the broken connection; or wait for the server at each call."""
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    db = Database(own_server.new())
    db.migrate()
    assert db.rows("select 1 as one") == [{"one": 1}]
    called: list[str] = []
    listening = Listening(db, "one", called.append)
    db.rows(statements.CALL_NODE, {"node": "one"})
    wait_until(lambda: listening.heard() and called == ["answer"])
    own_server.stop(signal.SIGQUIT)
    with pytest.raises(DatabaseGone, match="is not responding") as gone:
        db.rows("select 1")
    assert "llmc fleet status" in gone.value.hint
    wait_until(lambda: not listening.heard())  # it may have missed something
    os.fstat(listening.fileno())  # still open, for the thread that waits for it
    deaf = Listening(db, "one", called.append)
    assert deaf.is_deaf
    assert not listening.is_deaf
    assert deaf.heard()
    own_server.start()
    assert db.rows("select 1 as one") == [{"one": 1}]
    for one in (listening, deaf):
        one.close()
    db.close()


FAIL = "do $$ begin raise exception 'it failed' using errcode = '{}'; end $$"


@pytest.mark.parametrize(
    ("state", "error", "said", "stays"),
    [
        ("22003", Refused, r"does not accept this: it failed \(SQLSTATE 22003\)", True),
        ("23514", Refused, "does not accept this", True),
        ("54000", Refused, "does not accept this", True),
        ("40001", LockTimeout, "because of conflicts", True),
        ("42501", LlmcError, "denied access", True),
        ("42P01", LlmcError, "SQLSTATE 42P01", True),
        ("XX000", LlmcError, "SQLSTATE XX000", True),
        ("57P03", DatabaseGone, "is not responding", False),
        ("53200", DatabaseGone, "is not responding", False),
        ("25006", DatabaseGone, "is read-only", False),
    ],
)
def test_an_error_of_the_server_is_named_by_its_sqlstate(
    database: str, monkeypatch: pytest.MonkeyPatch, state: str, error: type[LlmcError], said: str, stays: bool
) -> None:
    """Break: go by the driver's classes: a value that is too long is an outage there, a read-only server is a bug."""
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    db = Database(database)
    db.migrate()
    server = "select pg_backend_pid() as server"
    before = db.rows(server)
    with pytest.raises(error, match=said) as failed:
        db.rows(FAIL.format(state))
    assert isinstance(failed.value, DatabaseGone) is not stays
    assert (db.rows(server) == before) is stays
    db.close()


def test_a_value_that_cannot_be_sent_is_refused(database: str) -> None:
    """Break: count an error without SQLSTATE as an outage, whatever it is."""
    db = Database(database)
    db.migrate()
    with pytest.raises(Refused, match="NUL"):
        db.rows("select %(text)s::text", {"text": "a\0b"})
    db.close()


def test_a_failed_connection_leaves_the_open_one_alone(postgres: Postgres, database: str) -> None:
    """Break: close the open one; its waiting thread would wait forever for the next file of that number."""
    db = Database(database)
    db.migrate()
    server = "select pg_backend_pid() as server"
    before = db.rows(server)
    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    with psycopg.connect(postgres.address("postgres"), autocommit=True) as own:
        own.execute(f"alter database {name} allow_connections false")
    Listening(db, "one", [].append).close()
    assert db.rows(server) == before
    db.close()


def test_a_gone_server_is_not_asked_again_at_once(own_server: Postgres) -> None:
    """Break: let every worker of a node wait for the connection in turn."""
    db = Database(own_server.new())
    db.migrate()
    own_server.stop()
    with pytest.raises(DatabaseGone):
        db.rows("select 1")
    own_server.start()
    with pytest.raises(DatabaseGone):
        db.rows("select 1")


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://llmc:{SECRET}@127.0.0.1:1/llmc",
        f"postgresql://llmc:{SECRET}@127.0.0.1:1/llmc?password={SECRET}",
        f"postgresql://llmc@127.0.0.1:1/llmc?password={SECRET}",
        f"postgresql://llmc:{SECRET}@127.0.0.1:1/llmc?nonsense={SECRET}",
        f"postgresql://llmc:{SECRET}%zz@127.0.0.1:1/llmc",
        f"postgres://llmc:{SECRET}@[::1]:1/llmc",
    ],
)
def test_the_password_is_in_no_error(url: str) -> None:
    """Break: quote the driver, which repeats a URL that it cannot parse."""
    with pytest.raises(LlmcError) as failed:
        Database(url).rows("select 1")
    said = "".join(traceback.format_exception(failed.value)) + failed.value.hint
    for secret in ("s3cr", "t@x", "t%40x"):
        assert secret not in said


def test_what_the_server_repeats_is_hidden(postgres: Postgres) -> None:
    """Break: pass on the server's message; a password in the wrong place comes back as a name."""
    url = postgres.address("typed-twice").replace("llmc@", "llmc:typed-twice@")
    with pytest.raises(DatabaseGone, match=r'database "\*\*\*" does not exist'):
        Database(url).rows("select 1")


def test_an_address_has_no_password() -> None:
    assert database_address("postgresql://a:b@h:5/d?sslmode=require&password=b") == "postgresql://a@h:5/d"
    assert database_address("postgresql://a@/d?host=/run/x&password=b") == "postgresql://a@/d?host=/run/x"
    assert database_address("postgresql:///d") == "postgresql:///d"
    assert database_address("") == ""
    assert "b%40c" in database_secrets("postgresql://a:b%40c@h/d")
    assert "b@c" in database_secrets("postgresql://a:b%40c@h/d")


def test_what_the_role_may_not_do_is_said(database: str) -> None:
    owner = Database(database)
    owner.migrate()
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("drop role if exists reader")
        db.execute("create role reader login")
        db.execute("grant usage on schema llmc to reader")
        db.execute("grant select on llmc.migration to reader")
    reader = Database(database.replace("llmc@", "reader@"))
    with pytest.raises(LlmcError, match="permission denied for table node") as refused:
        reader.rows("select * from llmc.node")
    assert "Grant that user" in refused.value.hint
    for one in (owner, reader):
        one.close()


def test_who_may_not_create_tables_is_told(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as db:
        db.execute("drop role if exists guest")
        db.execute("create role guest login")
    with pytest.raises(Refused, match="cannot create tables") as refused:
        Database(database.replace("llmc@", "guest@")).migrate()
    assert "as the database owner" in refused.value.hint
