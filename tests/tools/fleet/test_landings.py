"""The ledger of landings in PostgreSQL: what its token admits, and how turns are passed on.

What it has in common with other ledgers is in tests/tools/landing/test_remote_landing.py.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from llmc.base import clock
from llmc.base.errors import ClaimLost, LockTimeout, Unreachable
from llmc.base.names import TaskId, TaskKey
from llmc.base.proc import ShuttingDown
from llmc.fleet import landings
from llmc.records.landing_ledger import Entry
from tests.support.ledgers import PostgresLedger
from tests.support.waiting import wait_until

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

TASK = TaskKey("plan", TaskId("1"))


@pytest.fixture
def ledger(database: str) -> Iterator[PostgresLedger]:
    made = PostgresLedger(database)
    yield made
    made.close()


def entry(commit: str, ledger: PostgresLedger, claim: str, reverts: str = "") -> Entry:
    return Entry(commit, "w1", TASK, ledger.token_of(claim), "Write it", reverts)


def test_only_the_current_claim_enters(ledger: PostgresLedger) -> None:
    """Break: leave the token out of HOLDS_TASK; or write the entry first, in its own transaction."""
    stale = ledger.claim(TASK)
    ledger.enter(entry("c1", ledger, stale))
    current = ledger.claim(TASK)
    with pytest.raises(ClaimLost, match="no longer has task 1"):
        ledger.enter(entry("c2", ledger, stale))
    for claim in ("", "claim-of-a-file"):
        with pytest.raises(ClaimLost):
            ledger.enter(entry("c3", ledger, claim))
    ledger.enter(entry("c4", ledger, current))
    ledger.enter(entry("c4", ledger, current))
    assert [found.commit for found in ledger.entered(TASK)] == ["c1", "c4"]
    assert ledger.entered(TASK)[1].token == int(current)


def test_an_entry_renews_the_lease(ledger: PostgresLedger) -> None:
    claim = ledger.claim(TASK)
    with psycopg.connect(ledger.url, autocommit=True) as db:
        db.execute("update llmc.task set lease_until = now() + interval '1 second'")
        ledger.enter(entry("c1", ledger, claim))
        row = db.execute("select lease_until > now() + interval '50 seconds' from llmc.task").fetchone()
    assert row == (True,)


def test_reverts_belong_to_the_task_and_commits_are_found(ledger: PostgresLedger) -> None:
    """Break: leave out the reverts; an undone task would count as landed."""
    ledger.enter(entry("c1", ledger, ledger.claim(TASK)))
    ledger.enter(Entry("r1", "w2", reverts="c1"))
    ledger.enter(Entry("other", "w2"))
    assert [(found.commit, found.reverts, found.task) for found in ledger.entered(TASK)] == [
        ("c1", "", TASK),
        ("r1", "c1", None),
    ]
    assert [found.commit for found in ledger.among(["other", "c1", "none"])] == ["c1", "other"]
    assert abs(ledger.among(["c1"])[0].at_unix - time.time()) < 60


def test_fence_and_branch_are_agreed_while_there_are_nodes(ledger: PostgresLedger) -> None:
    """A daemon is refused, or a node leaves, and the user chooses another fence: nothing uses the old one.

    Break: end the agreement only when a node leaves; the row that a refused daemon wrote would bind for good.
    """
    one, other = ("refs/llmc/one", "main"), ("refs/llmc/other", "trunk")
    with psycopg.connect(ledger.url, autocommit=True) as db:
        db.execute("delete from llmc.node")
        assert ledger.agree(*one) == one
        assert ledger.agree(*other) == other
        db.execute("insert into llmc.node (name, instance, place) values ('n1', 'id', 'host:/n1')")
        assert ledger.agree(*one) == other
        db.execute("delete from llmc.node")
        assert ledger.agree(*one) == one


def test_every_call_says_that_the_database_is_gone(ledger: PostgresLedger) -> None:
    with ledger.gone():
        calls = (
            lambda: ledger.enter(Entry("c1", "w1")),
            lambda: ledger.entered(TASK),
            lambda: ledger.among(["c1"]),
            lambda: ledger.turn(1).__enter__(),
        )
        for call in calls:
            with pytest.raises(Unreachable):
                call()


def test_one_at_a_time_has_the_turn_first_come_first_served(ledger: PostgresLedger) -> None:
    """Break: order by anything but the ticket."""
    order: list[int] = []

    def land(number: int) -> None:
        with ledger.other() as own, own.turn(30):
            order.append(number)

    with ledger.turn(1):
        with ledger.other() as own, pytest.raises(LockTimeout), own.turn(0.1):
            pass
        waiting = []
        for number in range(4):
            waiting.append(threading.Thread(target=land, args=(number,)))
            waiting[-1].start()
            wait_until(lambda number=number: tickets(ledger) == number + 2)
        assert order == []
    for thread in waiting:
        thread.join()
    assert order == [0, 1, 2, 3]
    assert tickets(ledger) == 0


def test_a_lane_that_waits_for_its_turn_is_not_stuck(ledger: PostgresLedger) -> None:
    """Break: wait without saying so; the daemon would be restarted while another node lands."""
    found: list[str | None] = []

    def land() -> None:
        with clock.watched("lane w1", "root"), ledger.other() as own, own.turn(60):
            found.append(None)

    with ledger.turn(1):
        lane = threading.Thread(target=land)
        lane.start()
        wait_until(lambda: tickets(ledger) == 2)
        found.append(clock.stuck(0.0, "root"))
    lane.join()
    assert found == [None, None]


def tickets(ledger: PostgresLedger) -> int:
    with psycopg.connect(ledger.url) as db:
        row = db.execute("select count(*) from llmc.turn").fetchone()
    assert row is not None
    return int(row[0])


def holder(ledger: PostgresLedger) -> int:
    """A process that has the turn, and shows signs of life."""
    pid = os.fork()
    if pid == 0:
        try:
            ledger.in_child()
            with ledger.turn(5):
                signal.pause()
        finally:
            os._exit(0)
    wait_until(lambda: tickets(ledger) == 1)
    return pid


def test_who_was_passed_over_takes_a_new_ticket(ledger: PostgresLedger) -> None:
    """Break: sleep before the new ticket, for as long as -1 tickets take."""
    landed: list[bool] = []

    def land() -> None:
        with ledger.other() as own, own.turn(30):
            landed.append(True)

    with ledger.turn(1):
        waiting = threading.Thread(target=land)
        waiting.start()
        wait_until(lambda: tickets(ledger) == 2)
        with psycopg.connect(ledger.url, autocommit=True) as db:
            db.execute("delete from llmc.turn where ticket = (select max(ticket) from llmc.turn)")
        wait_until(lambda: tickets(ledger) == 2 or not waiting.is_alive())
    waiting.join()
    assert landed == [True]


def test_the_turn_of_a_killed_process_passes_on_at_once(ledger: PostgresLedger) -> None:
    """Break: wait for its lease to end, although its connection is gone."""
    pid = holder(ledger)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    began = time.monotonic()
    with ledger.turn(landings.TURN_S):
        assert time.monotonic() - began < landings.TURN_S / 2


def test_the_turn_lasts_while_its_holder_lives_and_passes_on_when_it_sleeps(database: str) -> None:
    """Break: let a turn expire although its holder is alive; or wait for a holder that is not."""
    ledger = PostgresLedger(database, lease_s=0.6)
    pid = holder(ledger)
    try:
        with pytest.raises(LockTimeout), ledger.turn(1.5):
            pass
        os.kill(pid, signal.SIGSTOP)
        with ledger.turn(5):
            os.kill(pid, signal.SIGCONT)
            with ledger.other() as own, pytest.raises(LockTimeout), own.turn(1.5):
                pass
    finally:
        ledger.close()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_post_accept_command_of_another_node_comes_first(ledger: PostgresLedger) -> None:
    """Break: leave the commands out of KEEP_TICKET; or wait for one while the daemon stops."""
    with psycopg.connect(ledger.url, autocommit=True) as db:
        db.execute("insert into llmc.post_accept values ('plan', '1', 'w', 'test', now(), true)")
        with ledger.turn(5):  # its own, which it runs itself
            db.execute("update llmc.post_accept set node = 'other'")
        with (
            pytest.raises(LockTimeout, match="post-accept command of task 1 on node other"),
            ledger.turn(0.1),
        ):
            pass
        with pytest.raises(ShuttingDown), ledger.turn(60, lambda: True):
            pass
        db.execute("delete from llmc.post_accept")
        with ledger.turn(5):
            assert db.execute("select count(*) from llmc.turn").fetchone() == (1,), "the queue is empty"
