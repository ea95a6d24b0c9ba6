"""Tables of the goal store, and its migrations."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
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

#: version 3: rows with the revision of their last write, so that readers fetch only new rows
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
        # unknown; at the latest with the last change of the goal
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


def make_empty(path: "Path") -> None:
    """Create an empty store in an existing file."""
    import sqlite3

    db = sqlite3.connect(path, isolation_level=None)
    try:
        db.execute("BEGIN IMMEDIATE")
        migrate(db)
        db.execute("COMMIT")
    finally:
        db.close()


def migrate(db: "Connection") -> None:
    """Migrate a store, or an empty file, inside the caller's transaction."""
    for step in _STEPS[version_of(db) :]:
        step(db)
    db.execute(f"PRAGMA user_version = {VERSION}")
