"""Unreadable rows of the ledger and the event log: readers skip them, the user is told, `doctor --repair` moves them away.

Only the end of each file is checked. A row that a full disk or a kill truncated does not count: its writer wrote it again,
or did not go ahead.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from llmc.attention import raising
from llmc.base import given
from llmc.base.files import append_line
from llmc.config.paths import Root
from llmc.records.books import is_entry
from llmc.repo.project import Project

TAIL_BYTES = 1 << 18
SHOWN_CHARS = 60
_PREFIX = "rows "


class BadRow(NamedTuple):
    offset: int
    line: bytes


def _in(root: Root, path: Path) -> Iterator[BadRow]:
    try:
        with path.open("rb") as file:
            start = max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES)
            file.seek(start)
            data = file.read(TAIL_BYTES)
    except FileNotFoundError:
        return
    whole = data[: data.rfind(b"\n") + 1]  # the last row may be half written
    if start:
        begin = whole.find(b"\n") + 1
        start, whole = start + begin, whole[begin:]
    can_be_used = is_entry if path == root.tasks_ledger else _is_event
    for line in whole.split(b"\n"):
        if line.strip() and not _is_torn(line) and not can_be_used(given.row(line) or {}):
            yield BadRow(start, line)
        start += len(line) + 1


def _is_torn(line: bytes) -> bool:
    return line.startswith(b"{") and not line.rstrip().endswith(b"}")


def _is_event(row: dict[str, Any]) -> bool:
    return isinstance(row.get("action"), str) and given.number(row.get("ts")) is not None


def words(path: Path, rows: list[BadRow]) -> str:
    many = f"{len(rows)} rows" if len(rows) > 1 else "1 row"
    which = "the first" if len(rows) > 1 else "it"
    beginning = given.written_out(rows[0].line[:SHOWN_CHARS].decode(errors="replace"))
    return f"{many} in {path} cannot be read and will be skipped; {which} starts with: {beginning}"


def by_file(root: Root) -> dict[Path, list[BadRow]]:
    """The unreadable rows of each file that has any."""
    return {path: rows for path in (root.tasks_ledger, root.events) if (rows := list(_in(root, path)))}


def tell(project: Project) -> None:
    """Update the attention list with the unreadable rows."""
    wanted = {
        f"{_PREFIX}{path.name}": {
            "kind": "bad_input",
            # A task missing from the ledger may be done twice; a missing event only makes a report incomplete.
            "severity": "waiting" if path == project.root.tasks_ledger else "notice",
            "who": path.name,
            "text": words(path, rows),
            "next": "llmc doctor --repair",
        }
        for path, rows in by_file(project.root).items()
    }
    raising.sync(project, (_PREFIX,), wanted)


def put_aside(root: Root, path: Path) -> None:
    """Copy each row to a log file, then overwrite it with blanks, so that offsets and appends are not affected."""
    for row in _in(root, path):
        append_line(root.logs / "bad-rows.log", path.name.encode() + b": " + row.line, durable=True)
        with path.open("r+b", buffering=0) as file:
            if os.pread(file.fileno(), len(row.line), row.offset) == row.line:  # not rotated in the meantime
                os.pwrite(file.fileno(), b" " * len(row.line), row.offset)
