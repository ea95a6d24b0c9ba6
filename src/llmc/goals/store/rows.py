"""Tables of the goal database, their migrations, and the reader and writer of goal records."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from llmc.base.errors import NotFound, StateError
from llmc.goals.drive.clean import clean
from llmc.goals.model import (
    Assignment,
    AssignmentStatus,
    Change,
    Crystallization,
    Dispatch,
    Event,
    Goal,
    GoalView,
    Node,
    Row,
)

if TYPE_CHECKING:
    from sqlite3 import Connection

VERSION = 3

#: version 1: dispatches inside the assignment's row
_FIRST = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    "INSERT INTO counters VALUES ('revision', 0), ('events', 0)",
    "CREATE TABLE goals (goal_id TEXT PRIMARY KEY, status TEXT NOT NULL, revision INTEGER NOT NULL, payload TEXT NOT NULL)",
    "CREATE INDEX goals_by_revision ON goals (revision)",
    (
        "CREATE TABLE nodes (goal_id TEXT NOT NULL, node_id TEXT NOT NULL, status TEXT NOT NULL, "
        "removed INTEGER NOT NULL DEFAULT 0, payload TEXT NOT NULL, PRIMARY KEY (goal_id, node_id)) WITHOUT ROWID"
    ),
    "CREATE INDEX nodes_by_id ON nodes (node_id)",
    (
        "CREATE TABLE assignments (assignment_id TEXT PRIMARY KEY, goal_id TEXT NOT NULL, work_node_id TEXT NOT NULL, "
        "status TEXT NOT NULL, payload TEXT NOT NULL)"
    ),
    "CREATE INDEX assignments_by_goal ON assignments (goal_id)",
    "CREATE INDEX assignments_by_status ON assignments (status)",
    (
        "CREATE TABLE crystallizations (crystallization_id TEXT PRIMARY KEY, goal_id TEXT NOT NULL, "
        "work_node_id TEXT NOT NULL, created_at REAL NOT NULL, payload TEXT NOT NULL)"
    ),
    "CREATE INDEX crystallizations_by_goal ON crystallizations (goal_id, work_node_id)",
    (
        "CREATE TABLE events (seq INTEGER PRIMARY KEY AUTOINCREMENT, ts REAL NOT NULL, type TEXT NOT NULL, "
        "goal_id TEXT NOT NULL, payload TEXT NOT NULL)"
    ),
    "CREATE INDEX events_by_goal ON events (goal_id, seq)",
)

#: version 2: dispatches as rows, append-only; triggers enforce it
_SECOND = (
    (
        "CREATE TABLE dispatches (assignment_id TEXT NOT NULL, position INTEGER NOT NULL, dispatch_id TEXT NOT NULL UNIQUE, "
        "result TEXT NOT NULL, payload TEXT NOT NULL, PRIMARY KEY (assignment_id, position)) WITHOUT ROWID"
    ),
    "CREATE INDEX dispatches_by_result ON dispatches (result)",
    "CREATE TRIGGER dispatches_stay BEFORE DELETE ON dispatches BEGIN SELECT RAISE(ABORT, 'a dispatch stays'); END",
    (
        "CREATE TRIGGER dispatches_keep BEFORE UPDATE ON dispatches "
        "WHEN new.dispatch_id <> old.dispatch_id OR new.position <> old.position "
        "OR json_extract(new.payload, '$.ts') <> json_extract(old.payload, '$.ts') "
        "OR json_extract(new.payload, '$.instructionHash') <> json_extract(old.payload, '$.instructionHash') "
        "BEGIN SELECT RAISE(ABORT, 'a dispatch stays what it was'); END"
    ),
    "CREATE TRIGGER events_keep BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'an event stays what it was'); END",
    (
        "CREATE TRIGGER events_stay BEFORE DELETE ON events "
        "WHEN NOT EXISTS (SELECT 1 FROM meta WHERE key = 'compacting') BEGIN SELECT RAISE(ABORT, 'an event stays'); END"
    ),
)

#: version 3: each row has the revision of its last write, so that readers fetch only new rows
_STAMPED = ("nodes", "assignments", "crystallizations")


def _make(db: "Connection") -> None:
    for statement in _FIRST:
        db.execute(statement)


def _dispatches_apart(db: "Connection") -> None:
    for statement in _SECOND:
        db.execute(statement)
    for assignment_id, payload in db.execute("SELECT assignment_id, payload FROM assignments").fetchall():
        row = json.loads(payload)
        for position, dispatch in enumerate(row.pop("dispatchHistory", ())):
            values = (assignment_id, position, dispatch["dispatchId"], dispatch.get("result", "pending"))
            db.execute("INSERT INTO dispatches VALUES (?, ?, ?, ?, ?)", (*values, json.dumps(dispatch)))
        db.execute(
            "UPDATE assignments SET payload = ? WHERE assignment_id = ?", (json.dumps(row), assignment_id)
        )


def _rows_stamped(db: "Connection") -> None:
    for table in _STAMPED:
        db.execute(f"ALTER TABLE {table} ADD COLUMN revision INTEGER NOT NULL DEFAULT 0")
        # unknown, but not later than the last change of the goal
        db.execute(
            f"UPDATE {table} SET revision = "
            f"coalesce((SELECT revision FROM goals WHERE goals.goal_id = {table}.goal_id), 0)"
        )
        db.execute(f"CREATE INDEX {table}_by_revision ON {table} (goal_id, revision)")


#: migrations; a new store runs all of them
_STEPS: tuple[Callable[["Connection"], None], ...] = (_make, _dispatches_apart, _rows_stamped)
assert len(_STEPS) == VERSION


def version_of(db: "Connection") -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def migrate(db: "Connection") -> None:
    """Migrate a store, or an empty file, inside the caller's transaction."""
    for step in _STEPS[version_of(db) :]:
        step(db)
    db.execute(f"PRAGMA user_version = {VERSION}")


if TYPE_CHECKING:
    from sqlite3 import Connection

R = TypeVar("R", bound=Row)

#: above MOST_EVENTS the oldest are compacted and KEPT_EVENTS stay
MOST_EVENTS, KEPT_EVENTS = 20_000, 10_000

#: a condition that every row meets
_ALL = "1 = 1"
_NO_LIMIT = 1 << 62

_OPEN = ", ".join(f"'{status}'" for status in AssignmentStatus if status.is_open)

#: has a pending, unconfirmed or failed dispatch: even if closed, a withdrawal may have to be repeated
_OWED = (
    "assignment_id IN (SELECT assignment_id FROM dispatches WHERE result IN ('pending', 'timeout', 'error'))"
)


class SafeMode(Struct, frozen=True):
    """Nothing is sent until the user clears it."""

    since: float
    reason: str
    file: str


class Crystals(Mapping[str, Crystallization]):
    """The newest summary of each plan item, decoded on access."""

    def __init__(self, rows: dict[str, tuple[float, str]]) -> None:
        """`rows`: by plan item, creation time and JSON."""
        self.rows = rows

    def __getitem__(self, node_id: str) -> Crystallization:
        return decoded(Crystallization, self.rows[node_id][1])

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


class Rows(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class Statements(Protocol):
    """A transaction of SQLite, or of a database adapter that understands SQLite's `?`."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows: ...

    def executemany(self, statement: str, values: Iterable[Sequence[Any]], /) -> Any: ...


class Reader:
    """Reads from one consistent snapshot."""

    def __init__(self, db: Statements, file: tuple[int, int] | None = None) -> None:
        self.db = db
        #: device and inode, which differ after a damaged store was set aside
        self.file = file
        #: unreadable goals, and why
        self.unreadable: dict[str, str] = {}

    def revision(self) -> int:
        return self._counter("revision")

    def changed_since(self, revision: int) -> list[str]:
        """Goals written after a revision."""
        return self._ids("SELECT goal_id FROM goals WHERE revision > ? ORDER BY revision", (revision,))

    def goal(self, goal_id: str) -> Goal | None:
        return self._one(Goal, "SELECT payload FROM goals WHERE goal_id = ?", (goal_id,))

    def goal_ids(self) -> list[str]:
        return self._ids("SELECT goal_id FROM goals ORDER BY rowid")

    def goals_with(self, node_id: str) -> list[str]:
        return self._ids("SELECT goal_id FROM nodes WHERE node_id = ? AND removed = 0", (node_id,))

    def view(self, goal_id: str) -> GoalView | None:
        return self._view(self.goal(goal_id), _ALL)

    def live_view(self, goal_id: str) -> GoalView | None:
        """The view without settled assignments: all that a tick needs."""
        goal = self.goal(goal_id)
        needs_all = goal is not None and goal.budget_usd  # for its cost
        return self._view(goal, _ALL if needs_all else f"(status IN ({_OPEN}) OR {_OWED})")

    def _view(self, goal: Goal | None, which: str) -> GoalView | None:
        if goal is None:
            return None
        of_goal = (goal.goal_id,)
        query = "SELECT payload FROM nodes WHERE goal_id = ? AND removed = 0 ORDER BY node_id"
        nodes = self._all(Node, query, of_goal)
        assignments = self._assignments(f"goal_id = ? AND {which}", of_goal)
        return GoalView(goal, {n.node_id: n for n in nodes}, {one.assignment_id: one for one in assignments})

    def view_since(self, known: GoalView, revision: int) -> GoalView | None:
        """A known view, updated with the rows written after a revision."""
        goal_id = known.goal.goal_id
        goal, values = self.goal(goal_id), (goal_id, revision)
        if goal is None:
            return None
        query = "SELECT removed, payload FROM nodes WHERE goal_id = ? AND revision > ?"
        rows = self.db.execute(query, values).fetchall()
        nodes = {node.node_id: node for node in (decoded(Node, payload) for _, payload in rows)}
        if any(removed for removed, _ in rows) or not nodes.keys() <= known.nodes.keys():
            return self.view(goal_id)  # the plan changed: read it in its order
        given = {one.assignment_id: one for one in self._assignments("goal_id = ? AND revision > ?", values)}
        return GoalView(goal, {**known.nodes, **nodes}, {**known.assignments, **given})

    def views(self, besides: Collection[str] = ()) -> list[GoalView]:
        """All goals except those with these statuses; problems go to `unreadable`."""
        rows = self.db.execute("SELECT goal_id, status FROM goals ORDER BY rowid").fetchall()
        wanted = [goal_id for goal_id, status in rows if status not in besides]
        return [view for goal_id in wanted if (view := self.readable(goal_id))]

    def readable(self, goal_id: str) -> GoalView | None:
        try:
            return self.view(goal_id)
        except StateError as error:
            self.unreadable[goal_id] = error.message
            return None

    def raw(self, goal_id: str) -> dict[str, list[Any]]:
        """A goal's records, unchecked."""
        tables = ("goals", "nodes", "assignments", "crystallizations")
        return {
            table: [
                msgspec.json.decode(payload)
                for (payload,) in self.db.execute(
                    f"SELECT payload FROM {table} WHERE goal_id = ?", (goal_id,)
                )
            ]
            for table in tables
        }

    def assignment(self, assignment_id: str) -> Assignment | None:
        return next(iter(self._assignments("assignment_id = ?", (assignment_id,))), None)

    def open_assignments(self) -> list[Assignment]:
        """The open assignments of all goals, including orphans."""
        return self._assignments(f"status IN ({_OPEN})", ())

    def crystallizations(self, goal_id: str, since: int = -1) -> list[Crystallization]:
        """The summaries of a goal, oldest first; `since`: only those written after that revision."""
        query = "SELECT payload FROM crystallizations WHERE goal_id = ? AND revision > ? ORDER BY created_at, rowid"
        return self._all(Crystallization, query, (goal_id, since))

    def latest_crystals(self, goal_id: str, before: "Crystals | None" = None, since: int = -1) -> "Crystals":
        """The newest summary of each plan item; `before`: the result as of `since`."""
        query = (
            "SELECT work_node_id, created_at, payload FROM crystallizations WHERE goal_id = ? AND revision > ? "
            "ORDER BY created_at, rowid"
        )
        kept = dict(before.rows) if before else {}
        for node_id, created_at, payload in self.db.execute(query, (goal_id, since)):
            if node_id not in kept or kept[node_id][0] <= created_at:
                kept[node_id] = created_at, payload
        return Crystals(kept)

    def events(
        self, goal_id: str = "", *, since: float = 0.0, last: int | None = None
    ) -> list[tuple[int, Event]]:
        """Events with their numbers, oldest first; `last`: only this many of the newest."""
        query = "SELECT seq, payload FROM events WHERE ts >= ?"
        values: list[Any] = [since]
        if goal_id:
            query += " AND goal_id = ?"
            values.append(goal_id)
        rows = self.db.execute(
            f"{query} ORDER BY seq DESC LIMIT ?", (*values, _NO_LIMIT if last is None else last)
        )
        return [(seq, decoded(Event, payload)) for seq, payload in reversed(rows.fetchall())]

    def last_event(self, kind: str, assignment_id: str) -> Event | None:
        query = (
            "SELECT payload FROM events WHERE type = ? AND json_extract(payload, '$.assignmentId') = ? "
            "ORDER BY seq DESC LIMIT 1"
        )
        return self._one(Event, query, (kind, assignment_id))

    def safe_mode(self) -> SafeMode | None:
        row = self.db.execute("SELECT value FROM meta WHERE key = 'safe_mode'").fetchone()
        return msgspec.json.decode(row[0], type=SafeMode) if row else None

    def _assignments(self, where: str, values: Sequence[Any]) -> list[Assignment]:
        found = self._all(
            Assignment, f"SELECT payload FROM assignments WHERE {where} ORDER BY rowid", tuple(values)
        )
        histories: dict[str, list[Dispatch]] = {}
        rows = self.db.execute(
            "SELECT assignment_id, payload FROM dispatches WHERE assignment_id IN "
            f"(SELECT assignment_id FROM assignments WHERE {where}) ORDER BY assignment_id, position",
            tuple(values),
        )
        for assignment_id, payload in rows:
            histories.setdefault(assignment_id, []).append(decoded(Dispatch, payload))
        for one in found:  # safe: not shared yet
            force_setattr(one, "dispatch_history", tuple(histories.get(one.assignment_id, ())))
        return found

    def _counter(self, name: str) -> int:
        return int(self.db.execute("SELECT value FROM counters WHERE name = ?", (name,)).fetchone()[0])

    def _ids(self, query: str, values: Sequence[Any] = ()) -> list[str]:
        return [row[0] for row in self.db.execute(query, tuple(values))]

    def _all(self, kind: type[R], query: str, values: Sequence[Any] = ()) -> list[R]:
        return [decoded(kind, payload) for (payload,) in self.db.execute(query, tuple(values))]

    def _one(self, kind: type[R], query: str, values: Sequence[Any]) -> R | None:
        return next(iter(self._all(kind, query, values)), None)


class Writer(Reader):
    """Writes inside a transaction."""

    def apply(self, change: Change, *, typed: bool = False) -> None:
        """The only way to write records. `typed`: by the user, so a secret is refused instead of removed."""
        if change.is_empty():
            return
        change = clean(change, typed=typed)
        revision = self._put_goals(change)
        for node in change.nodes:
            self._put(
                "INSERT INTO nodes (goal_id, node_id, status, revision, payload) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT (goal_id, node_id) DO UPDATE SET status = excluded.status, revision = excluded.revision, "
                "payload = excluded.payload, removed = 0",
                (node.goal_id, node.node_id, node.status.value, revision),
                node,
            )
        for assignment in change.assignments:
            self._put_assignment(assignment, revision)
        for one in change.crystallizations:
            self._put(
                "INSERT INTO crystallizations (crystallization_id, goal_id, work_node_id, created_at, revision, payload) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (one.crystallization_id, one.goal_id, one.work_node_id, one.created_at, revision),
                one,
            )
        self._append(change.events)

    def set_safe_mode(self, mode: SafeMode | None) -> None:
        self.db.execute("DELETE FROM meta WHERE key = 'safe_mode'")
        if mode is not None:
            self._set_meta("safe_mode", msgspec.json.encode(mode).decode())

    def _put_goals(self, change: Change) -> int:
        """Write the goal's row, and stamp every affected goal with a new revision, which is returned."""
        self.db.execute("UPDATE counters SET value = value + 1 WHERE name = 'revision'")
        revision = self._counter("revision")
        if change.goal is not None:
            self._put(
                "INSERT INTO goals VALUES (?, ?, ?, ?) ON CONFLICT (goal_id) DO UPDATE "
                "SET status = excluded.status, revision = excluded.revision, payload = excluded.payload",
                (change.goal.goal_id, change.goal.status.value, revision),
                change.goal,
            )
            marks = [(revision, change.goal.goal_id, node_id) for node_id in change.removed_nodes]
            # Removed from the plan; nothing is deleted.
            self.db.executemany(
                "UPDATE nodes SET removed = 1, revision = ? WHERE goal_id = ? AND node_id = ?", marks
            )
        elif change.removed_nodes:
            raise AssertionError("a change that removes nodes must include their goal")
        rows: Iterable[Node | Assignment | Crystallization | Event] = (
            *change.nodes, *change.assignments, *change.crystallizations, *change.events
        )  # fmt: skip
        for goal_id in dict.fromkeys(row.goal_id for row in rows if row.goal_id):
            found = self.db.execute(
                "UPDATE goals SET revision = ? WHERE goal_id = ?", (revision, goal_id)
            ).rowcount
            if not found:
                raise NotFound(f"no goal {goal_id!r}", hint="Run `llmc goal list` to see the goals.")
        return revision

    def _put_assignment(self, assignment: Assignment, revision: int) -> None:
        """Write the assignment, and its append-only history: existing entries only get their outcome."""
        self._put(
            "INSERT INTO assignments (assignment_id, goal_id, work_node_id, status, revision, payload) "
            "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (assignment_id) DO UPDATE "
            "SET status = excluded.status, revision = excluded.revision, payload = excluded.payload",
            (
                assignment.assignment_id,
                assignment.goal_id,
                assignment.work_node_id,
                assignment.status.value,
                revision,
            ),
            replace(assignment, dispatch_history=()),
        )
        rows = self.db.execute(
            "SELECT payload FROM dispatches WHERE assignment_id = ? ORDER BY position",
            (assignment.assignment_id,),
        )
        before = [decoded(Dispatch, payload) for (payload,) in rows]
        now = assignment.dispatch_history
        if [one.dispatch_id for one in before] != [one.dispatch_id for one in now[: len(before)]]:
            raise StateError(
                f"cannot save assignment {assignment.assignment_id}: its earlier dispatches must not change"
            )
        for position, dispatch in enumerate(now):
            key = (assignment.assignment_id, position)
            if position >= len(before):
                self._put(
                    "INSERT INTO dispatches VALUES (?, ?, ?, ?, ?)",
                    (*key, dispatch.dispatch_id, dispatch.result.value),
                    dispatch,
                )
            elif dispatch != before[position]:
                self.db.execute(
                    "UPDATE dispatches SET result = ?, payload = ? WHERE assignment_id = ? AND position = ?",
                    (dispatch.result.value, encoded(dispatch), *key),
                )

    def _append(self, events: Sequence[Event]) -> None:
        for event in events:
            self._put(
                "INSERT INTO events (ts, type, goal_id, payload) VALUES (?, ?, ?, ?)",
                (event.ts, event.type, event.goal_id),
                event,
            )
        self._count_events(len(events))
        if self._counter("events") > MOST_EVENTS:
            self.compact(KEPT_EVENTS)

    def compact(self, keep: int) -> None:
        """Replace the oldest events with one summary per goal."""
        rows = self.db.execute(
            "SELECT seq, payload FROM events ORDER BY seq LIMIT ?", (max(0, self._counter("events") - keep),)
        )
        old = [(seq, decoded(Event, payload)) for seq, payload in rows]
        if not old:
            return
        sums = milestones(old)
        self._set_meta("compacting", "")
        self.db.execute("DELETE FROM events WHERE seq <= ?", (old[-1][0],))
        self.db.execute("DELETE FROM meta WHERE key = 'compacting'")
        for seq, event in sums.items():
            self._put("INSERT INTO events VALUES (?, ?, ?, ?, ?)", (seq, event.ts, event.type, event.goal_id), event)  # fmt: skip
        self._count_events(len(sums) - len(old))

    def _count_events(self, more: int) -> None:
        self.db.execute("UPDATE counters SET value = value + ? WHERE name = 'events'", (more,))

    def _set_meta(self, key: str, value: str) -> None:
        self.db.execute("INSERT INTO meta VALUES (?, ?)", (key, value))

    def _put(self, statement: str, values: Sequence[Any], record: Row) -> None:
        self.db.execute(statement, (*values, encoded(record)))


def encoded(record: Row) -> str:
    """A record as JSON, without default values, so that large plans are fast to read."""
    said = {
        name: value
        for field, name, usual in _fields(type(record))
        if (value := getattr(record, field)) is not usual and value != usual
    }
    return msgspec.json.encode(said).decode()


@cache
def _fields(kind: type[Row]) -> tuple[tuple[str, str, Any], ...]:
    """Name, JSON name and default of each field."""
    return tuple(
        (
            one.name,
            one.encode_name,
            one.default if one.default_factory is msgspec.NODEFAULT else one.default_factory(),
        )
        for one in msgspec.structs.fields(kind)
    )


def decoded(kind: type[R], payload: str) -> R:
    try:
        return msgspec.json.decode(payload, type=kind)
    except msgspec.MsgspecError as error:
        raise StateError(
            f"cannot read a record of type {kind.__name__.lower()} in the goal database: {error}",
            hint="A newer llmc may have written it: upgrade llmc, or run `llmc goal export` to see its contents.",
        ) from error


MILESTONE = "overseer.milestone"


def milestones(rows: Iterable[tuple[int, Event]]) -> dict[int, Event]:
    """Replace these events with one per goal, under the number of its last event; the counts are kept."""
    groups: dict[str, list[tuple[int, Event]]] = {}
    for number, event in rows:
        groups.setdefault(event.goal_id, []).append((number, event))
    return {
        group[-1][0]: _summed(goal_id, [event for _, event in group]) for goal_id, group in groups.items()
    }


def _summed(goal_id: str, events: list[Event]) -> Event:
    counts: Counter[str] = Counter()
    done: list[str] = []
    first = events[0].ts
    for event in events:
        if event.type == MILESTONE:
            counts.update(event.data["types"])
            done += event.data["done"]
            first = min(first, event.data["from"])
        else:
            counts[event.type] += 1
            done += [event.work_node_id] if event.type == "work.done" else []
    data = {
        "from": first,
        "to": events[-1].ts,
        "count": counts.total(),
        "types": dict(counts),
        "done": list(dict.fromkeys(done)),
    }
    return Event(ts=events[-1].ts, type=MILESTONE, goal_id=goal_id, data=data)
