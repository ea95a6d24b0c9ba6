"""The ledger of landings in the fleet's database, and whose turn it is to land."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from time import sleep
from typing import TYPE_CHECKING, Any

from llmc.base import clock
from llmc.base.clock import monotonic
from llmc.base.errors import ClaimLost, LlmcError, LockTimeout
from llmc.base.names import TaskId, TaskKey
from llmc.fleet import statements
from llmc.fleet.database import Database, fetched
from llmc.records.landing_entry import Entry

if TYPE_CHECKING:
    from llmc.fleet.database import Rows

#: a holder of the turn that is not heard for this long is passed over; at most as long as a claim lasts
TURN_S = 10.0
#: a holder shows itself this often while its turn lasts
SHOWS = 4
#: between two looks at the queue, for each one that is before us
LOOK_S = 0.05
MOST_LOOK_S = 1.0


class Landings:
    """The `Ledger` of all nodes (repo/shared.py)."""

    def __init__(self, database: Database, remote: str, lease_s: float) -> None:
        """`remote`: the branch of all nodes; only those that land there wait for each other."""
        self._db = database
        self._remote = remote
        self._lease = timedelta(seconds=lease_s)
        self._turn_s = min(TURN_S, lease_s)

    def enter(self, entry: Entry) -> None:
        list_name, task = (entry.task.list, entry.task.id) if entry.task else ("", "")
        values = {
            "commit": entry.commit,
            "worker": entry.worker,
            "list": list_name,
            "task": task,
            "token": entry.token,
            "prompt": entry.prompt.replace("\0", ""),
            "reverts": entry.reverts,
            "lease": self._lease,
        }

        def work(rows: "Rows") -> None:
            if entry.task is not None and not fetched(rows.execute(statements.HOLDS_TASK, values)):
                raise ClaimLost(
                    f"{entry.worker} no longer has task {task}: another node may have it; nothing landed",
                    hint=f"To see who has it: llmc tasks show {task}",
                )
            rows.execute(statements.ENTER_LANDING, values)

        self._db.do(work)

    def entered(self, task: TaskKey) -> list[Entry]:
        return self._entries(statements.LANDINGS_OF_TASK, {"list": task.list, "task": task.id})

    def among(self, commits: Sequence[str]) -> list[Entry]:
        return self._entries(statements.LANDINGS_AMONG, {"commits": list(commits)})

    def _entries(self, statement: str, values: dict[str, Any]) -> list[Entry]:
        return [_entry(row) for row in self._db.rows(statement, values)]

    def token_of(self, claim: str) -> int:
        """A claim of the database is its token; one from before the root joined has none that lands."""
        return int(claim) if claim.isdigit() else 0

    @contextmanager
    def turn(self, timeout_s: float) -> Iterator[None]:
        with clock.waiting(timeout_s):
            ticket = self._wait(timeout_s)
        over = threading.Event()
        shows = threading.Thread(target=self._show, args=(ticket, over), daemon=True, name="turn")
        shows.start()
        try:
            yield
        finally:
            over.set()
            shows.join()
            self._end(ticket)

    def _wait(self, timeout_s: float) -> int:
        """A ticket that is the first."""
        end = monotonic() + timeout_s
        ticket = self._ticket()
        try:
            while before := self._before(ticket):
                if monotonic() >= end:
                    raise LockTimeout(
                        "another node has been landing for too long",
                        hint="To see the nodes: llmc fleet nodes",
                    )
                if before < 0:  # this process slept, and was passed over
                    ticket = self._ticket()
                else:
                    sleep(min(LOOK_S * before, MOST_LOOK_S, max(0.0, end - monotonic())))
        except BaseException:
            self._end(ticket)
            raise
        return ticket

    def _ticket(self) -> int:
        def work(rows: "Rows") -> int:
            for statement in (statements.ORDER_TICKETS, statements.DROP_TICKETS):
                rows.execute(statement, self._values())
            return int(fetched(rows.execute(statements.TAKE_TICKET, self._values()))[0]["ticket"])

        return self._db.do(work)

    def _before(self, ticket: int) -> int:
        """How many land before it; -1 if it has run out."""
        row = self._db.rows(statements.KEEP_TICKET, self._values(ticket))[0]
        return int(row["before"]) if row["kept"] else -1

    def _show(self, ticket: int, over: threading.Event) -> None:
        """Keep the turn while its holder lives. If it is lost, the fence and the tokens decide, as without it."""
        while not over.wait(self._turn_s / SHOWS):
            with suppress(LlmcError):
                self._before(ticket)

    def _end(self, ticket: int) -> None:
        with suppress(LlmcError):  # it runs out by itself
            self._db.rows(statements.END_TURN, self._values(ticket))

    def _values(self, ticket: int = 0) -> dict[str, Any]:
        return {"remote": self._remote, "ticket": ticket, "lease": timedelta(seconds=self._turn_s)}


def _entry(row: dict[str, Any]) -> Entry:
    given = {name: row[name] for name in ("commit", "worker", "token", "prompt", "reverts", "at_unix")}
    return Entry(**given, task=TaskKey(row["list"], TaskId(row["task"])) if row["task"] else None)
