"""The conflicts of a rebase: kind, markers and regions of each. Pure.

In a rebase, stage 2 (and HEAD) is the default branch, stage 3 (and REBASE_HEAD) is the worker's own commit.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from llmc.base.text import counted, pattern

CONTEXT_LINES = 5
#: maximum lines of one region, and of all regions in a prompt
MAX_REGION_LINES = 60
MAX_LINES = 300
MAX_LINE_CHARS = 300

BASE, MAIN, WORKER = 1, 2, 3

_BEGIN = pattern(r"<{7}(?: |$)")
_END = pattern(r">{7}(?: |$)")
#: control characters, which a prompt must not contain
_UNPRINTABLE = pattern(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class Kind(StrEnum):
    """The kind of a conflict."""

    #: both changed the same lines
    CONTENT = "Content"
    #: one changed the file, the other deleted it
    MODIFY_DELETE = "ModifyDelete"
    #: both added a file with this name
    ADD_ADD = "AddAdd"
    #: both renamed the file, differently
    RENAME_RENAME = "RenameRename"


class Conflict(Struct, frozen=True):
    """A conflicted file; `in_main` and `in_worker` are its names on each side, None if deleted."""

    path: str
    kind: Kind
    in_main: str | None
    in_worker: str | None

    @property
    def files(self) -> tuple[str, ...]:
        """The paths in the worktree where the file's text may be."""
        return tuple(dict.fromkeys(name for name in (self.in_main, self.in_worker) if name))


def parse_stages(listing: str) -> dict[str, frozenset[int]]:
    """The stages of each unmerged path, from `git ls-files -u -z`."""
    found: dict[str, frozenset[int]] = {}
    for entry in listing.split("\0"):
        if entry:
            meta, _, path = entry.partition("\t")
            found[path] = found.get(path, frozenset()) | {int(meta.split()[2])}
    return found


def parse_renames(listing: str) -> dict[str, str]:
    """Old name to new name, from `git diff --name-status -M -z --diff-filter=R`."""
    parts = [part for part in listing.split("\0") if part]
    return {old: new for _, old, new in zip(parts[::3], parts[1::3], parts[2::3], strict=True)}


def classify(
    stages: Mapping[str, frozenset[int]],
    main_renames: Mapping[str, str],
    worker_renames: Mapping[str, str],
) -> tuple[Conflict, ...]:
    """Each conflict once. A file renamed on both sides is three paths in git, but one conflict here."""
    renamed = [
        Conflict(old, Kind.RENAME_RENAME, main_renames[old], worker_renames[old])
        for old, found in stages.items()
        if found == {BASE} and old in main_renames and old in worker_renames
    ]
    told = {name for conflict in renamed for name in (conflict.path, *conflict.files)}
    others = [
        Conflict(path, _kind(found), path if MAIN in found else None, path if WORKER in found else None)
        for path, found in stages.items()
        if path not in told
    ]
    return tuple(sorted([*renamed, *others], key=lambda conflict: conflict.path))


def _kind(stages: frozenset[int]) -> Kind:
    if stages == {BASE, MAIN, WORKER}:
        return Kind.CONTENT
    return Kind.MODIFY_DELETE if BASE in stages else Kind.ADD_ADD


def marker_count(text: str) -> int:
    """The number of conflict regions in a text: its `<<<<<<<` lines."""
    return sum(bool(_BEGIN.match(line)) for line in text.splitlines())


def regions(text: str, context: int = CONTEXT_LINES) -> list[str]:
    """The conflicting regions with context lines; adjacent regions are joined."""
    lines = text.splitlines()
    windows: list[tuple[int, int]] = []
    for start, end in _spans(lines):
        first, last = max(0, start - context), min(len(lines), end + context + 1)
        if windows and first <= windows[-1][1]:
            windows[-1] = (windows[-1][0], last)
        else:
            windows.append((first, last))
    return ["\n".join(lines[first:last]) for first, last in windows]


def _spans(lines: Sequence[str]) -> list[tuple[int, int]]:
    spans = []
    start: int | None = None
    for number, line in enumerate(lines):
        if start is None and _BEGIN.match(line):
            start = number
        elif start is not None and _END.match(line):
            spans.append((start, number))
            start = None
    if start is not None:
        spans.append((start, len(lines) - 1))
    return spans


def bounded(excerpts: Sequence[str], room: int = MAX_LINES) -> tuple[list[str], int]:
    """As many excerpts as fit, long ones cut in the middle; and how many more lines fit."""
    shown = []
    for excerpt in excerpts:
        lines = [line[:MAX_LINE_CHARS] for line in printable(excerpt).split("\n")]
        if len(lines) > MAX_REGION_LINES:
            half = MAX_REGION_LINES // 2
            lines = [*lines[:half], f"... ({len(lines) - 2 * half} more lines) ...", *lines[-half:]]
        if len(lines) > room:
            break
        room -= len(lines)
        shown.append("\n".join(lines))
    return shown, room


def printable(text: str) -> str:
    """A file's text or name, made safe for a prompt."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def summary(markers: Sequence[int]) -> str:
    """A summary of the conflicts; `markers`: one count per file."""
    return f"{counted(len(markers), 'file')} with {counted(sum(markers), 'conflict region')}"


def describe(conflict: Conflict, markers: int, branch: str) -> str:
    """One line about a file, by its kind."""
    match conflict.kind:
        case Kind.CONTENT:
            return counted(markers, "conflict region")
        case Kind.MODIFY_DELETE if conflict.in_main is None:
            return f"modified by you, deleted in {branch}"
        case Kind.MODIFY_DELETE:
            return f"deleted by you, modified in {branch}"
        case Kind.ADD_ADD:
            return f"added by both you and {branch}"
        case Kind.RENAME_RENAME:
            return f"renamed differently by you and {branch}"
