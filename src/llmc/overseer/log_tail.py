"""Where to go on reading in a log that others rotate and truncate, and what of it counts. Pure."""

import json
from dataclasses import dataclass

from llmc.overseer.model import Record


@dataclass(frozen=True)
class Place:
    """How far a file was read: the file, by its inode, the offset, and the beginning of a line that has no end yet."""

    inode: int
    offset: int
    rest: bytes = b""


@dataclass(frozen=True)
class Plan:
    """What to read now: first the end of the old file, where there is another one by now."""

    old: Place | None
    now: Place


def plan(known: Place, inode: int, size: int) -> Plan:
    """The file that has the log's name now, and how long it is, against what was read."""
    if inode != known.inode:
        return Plan(known, Place(inode, 0))
    if size < known.offset:
        return Plan(None, Place(inode, 0))
    return Plan(None, known)


def advance(place: Place, data: bytes) -> tuple[Place, list[Record]]:
    """The place after this was read, and the failures in the lines that are complete now."""
    *lines, rest = (place.rest + data).split(b"\n")
    return Place(place.inode, place.offset + len(data), rest), failures(lines)


def failures(lines: list[bytes]) -> list[Record]:
    """The records of lines at WARN and above; a line that is no JSON object was torn, and says nothing."""
    found = []
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        record = Record.read(row) if isinstance(row, dict) else None
        if record is not None:
            found.append(record)
    return found
