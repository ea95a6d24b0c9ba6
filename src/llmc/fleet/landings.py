"""Landings in the fleet's database: their ledger, the turns to land, and the post-accept commands that come first."""

import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from time import sleep
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from llmc.base import clock
from llmc.base.clock import monotonic
from llmc.base.errors import ClaimLost, LlmcError, LockTimeout
from llmc.base.names import TaskId, TaskKey
from llmc.base.proc import ShuttingDown
from llmc.fleet import statements
from llmc.fleet.database import Database, fetched
from llmc.fleet.rules import own_name
from llmc.records.landing_ledger import Entry

if TYPE_CHECKING:
    from llmc.fleet.database import Rows

#: after this time without a sign of its holder, a turn passes on; never longer than a claim's lease
TURN_S = 10.0
#: how often a holder renews its turn within that time
SHOWS = 4
#: time between two checks of the queue, for each ticket before ours; and its maximum
LOOK_S = 0.05
MOST_LOOK_S = 1.0


class Landings:
    """The `LandingLedger` of all nodes (records/landing_ledger.py)."""

    def __init__(self, database: Database, node: str, remote: str, lease_s: float) -> None:
        """`remote`: the branch where this node lands; only nodes that land there wait for each other."""
        self._db = database
        self._node = node
        self._remote = remote
        self._lease = timedelta(seconds=lease_s)
        self._turn_s = min(TURN_S, lease_s)

    def agree(self, fence: str, branch: str) -> tuple[str, str]:
        """Also nodes that never joined write an agreement, so one that is left from them does not bind."""
        values = {"fence": fence, "branch": branch}

        def work(rows: "Rows") -> tuple[str, str]:
            rows.execute(statements.END_AGREEMENT)
            found = fetched(rows.execute(statements.AGREEMENT)) or fetched(
                rows.execute(statements.AGREE, values)
            )
            return found[0]["fence"], found[0]["branch"]

        return self._db.do(work)

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
                    f"nothing landed: {entry.worker} no longer has task {task} (another node may have claimed it)",
                    hint=f"To see which node has it: llmc tasks show {shlex.quote(task)}",
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
        """A claim in the database is its own token; a claim from before the root joined gets 0, which cannot land."""
        return int(claim) if claim.isdigit() else 0

    def take_post_accept(self, task: TaskKey) -> str | None:
        """The heartbeat keeps the lease."""
        rows = self._db.rows(statements.TAKE_POST_ACCEPT, {**self._of(task), "lease": self._lease})
        return own_name(self._node, rows[0]["worker"]) if rows else None

    def end_post_accept(self, task: TaskKey) -> None:
        self._db.rows(statements.END_POST_ACCEPT, self._of(task))

    def _of(self, task: TaskKey) -> dict[str, Any]:
        return {"node": self._node, "list": task.list, "task": task.id}

    @contextmanager
    def turn(self, timeout_s: float, stopping: Callable[[], bool] | None = None) -> Iterator[None]:
        with clock.waiting(timeout_s):
            ticket = self._wait(timeout_s, stopping or (lambda: False))
        over = threading.Event()
        shows = threading.Thread(target=self._show, args=(ticket, over), daemon=True, name="turn")
        shows.start()
        try:
            yield
        finally:
            over.set()
            shows.join()
            self._end(ticket)

    def _wait(self, timeout_s: float, stopping: Callable[[], bool]) -> int:
        """Wait until our ticket is the first; returns the ticket."""
        end = monotonic() + timeout_s
        ticket = self._ticket()
        try:
            while not (place := self._place(ticket)).is_first:
                if stopping():
                    raise ShuttingDown
                if monotonic() >= end:
                    is_running = f"cannot land yet: {place.command} has not finished" if place.command else ""
                    raise LockTimeout(
                        is_running or "timed out waiting for another node to finish landing",
                        hint="Run the command again later. To check that the other nodes are running: llmc fleet nodes",
                    )
                if not place.kept:  # this process slept, and was passed over
                    ticket = self._ticket()
                    continue
                look_s = MOST_LOOK_S if place.command else LOOK_S * place.before
                sleep(min(look_s, MOST_LOOK_S, max(0.0, end - monotonic())))
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

    def _place(self, ticket: int) -> "_Place":
        return _Place(**self._db.rows(statements.KEEP_TICKET, self._values(ticket))[0])

    def _show(self, ticket: int, over: threading.Event) -> None:
        """Renew the turn until it is over. If it is lost, the fence and the tokens decide, as they do without turns."""
        while not over.wait(self._turn_s / SHOWS):
            with suppress(LlmcError):
                self._place(ticket)

    def _end(self, ticket: int) -> None:
        with suppress(LlmcError):  # the ticket expires by itself
            self._db.rows(statements.END_TURN, self._values(ticket))

    def _values(self, ticket: int = 0) -> dict[str, Any]:
        lease = timedelta(seconds=self._turn_s)
        return {"remote": self._remote, "ticket": ticket, "lease": lease, "node": self._node}


class _Place(Struct, frozen=True):
    """A ticket in the queue."""

    #: whether the ticket is still valid
    kept: bool
    #: how many tickets are before it
    before: int
    #: the post-accept command that comes first, with its task and node; the node may have died
    command: str | None

    @property
    def is_first(self) -> bool:
        return self.kept and not self.before and self.command is None


def _entry(row: dict[str, Any]) -> Entry:
    given = {name: row[name] for name in ("commit", "worker", "token", "prompt", "reverts", "at_unix")}
    return Entry(**given, task=TaskKey(row["list"], TaskId(row["task"])) if row["task"] else None)
