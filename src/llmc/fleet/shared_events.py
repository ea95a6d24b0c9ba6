"""The events of all nodes: with its heartbeat, each node sends those that a digest needs, and any node reads them."""

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from llmc.base.clock import monotonic, now_unix
from llmc.base.log_reader import LogReader
from llmc.fleet import statements
from llmc.fleet.nodes import Membership
from llmc.fleet.rules import Reading, full_name, storable_json
from llmc.records.event_log import EventLog, rows_of, seq_of, ts_of

#: rows in one statement
BATCH = 500
#: age of the oldest events that a node sends when it is new in the fleet
PAST_S = 24 * 3600.0
#: how long rows are kept, and how many at most
KEEP_DAYS, MOST_ROWS = 30, 1_000_000
#: how often a follower checks without a notification
LOOK_S = 30.0


class Outbox:
    """The events of this node that the database does not have yet. A node without new ones sends no query."""

    def __init__(self, own: Membership, log: Path, actions: Collection[str]) -> None:
        self._own = own
        self._log = EventLog(str(log))
        self._actions = actions
        self._reader: LogReader | None = None
        self._unsent: list[dict[str, Any]] = []

    def send(self) -> None:
        """Send events logged since the last call. Events that were not confirmed are sent again, but stored once."""
        if self._reader is None:
            self._reader = self._read_on()
        now = now_unix()
        new = [row for row in rows_of(self._reader.lines()) if row.get("action") in self._actions]
        self._unsent += [{**row, "ts": min(ts_of(row), now)} for row in new if _is_storable(row)]
        while self._unsent:
            batch = self._unsent[:BATCH]
            values = {
                **self._own.values,
                "events": storable_json(batch),
                "now": now,
                "last": seq_of(batch[-1]),
                "keep": KEEP_DAYS,
                "most": MOST_ROWS,
            }
            self._own.database.rows(statements.ADD_EVENTS, values)
            del self._unsent[:BATCH]

    def _read_on(self) -> LogReader:
        sent = self._own.database.rows(statements.EVENT_SEQ, self._own.values)
        after = sent[0]["event_seq"] if sent else 0
        return self._log.reader_after(after) if after else self._log.reader(now_unix() - PAST_S)


def _is_storable(row: dict[str, Any]) -> bool:
    """Whether PostgreSQL accepts a row; a row that was edited by hand must not stop the others."""
    try:
        json.dumps(row, allow_nan=False)
    except ValueError:
        return False
    return 0 < seq_of(row) < 1 << 63 and ts_of(row) > 0


def since(
    own: Membership, at: float, worker: str | None = None, most: int | None = None
) -> list[dict[str, Any]]:
    """The events of all nodes from this time on, in the order of the database's clock, with full worker names.

    `worker`: only events of this worker. `most`: only the last N.
    """
    return _chosen(own.database.rows(statements.EVENTS, {"since": at}), worker, most)


def follow(
    own: Membership, at: float, worker: str | None = None, most: int | None = None
) -> Iterator[dict[str, Any]]:
    """The same, then each event as its node sends it, for as long as the database answers."""
    with own.database.hearing(statements.FOLLOW_EVENTS) as wait:
        last = own.database.rows(statements.LAST_EVENT)[0]
        read = Reading(last["last"], dict.fromkeys(last["missing"], monotonic()))
        found = own.database.rows(statements.EVENTS, {"since": at})
        while True:
            read.took(sorted(row["id"] for row in found), monotonic())
            yield from _chosen(found, worker, most)
            most = None
            wait(LOOK_S)
            values = {"after": read.after, "missing": list(read.missing)}
            found = own.database.rows(statements.NEW_EVENTS, values)


def clock(own: Membership) -> float:
    """The current time by the database's clock."""
    return float(own.database.rows(statements.CLOCK)[0]["now_unix"])


def _chosen(found: list[dict[str, Any]], worker: str | None, most: int | None) -> list[dict[str, Any]]:
    rows = [row for row in map(_row, found) if worker in (None, row["worker"])]
    return rows if most is None else rows[max(0, len(rows) - most) :]


def _row(found: dict[str, Any]) -> dict[str, Any]:
    row = found["payload"]
    worker = row.get("worker")
    who = full_name(found["node"], worker) if isinstance(worker, str) else worker
    return {**row, "seq": found["id"], "ts": found["ts"], "node": found["node"], "worker": who}
