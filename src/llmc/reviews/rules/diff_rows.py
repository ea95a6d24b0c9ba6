"""A diff as files and rows, with the changed words of each line, for every screen. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from enum import StrEnum

from msgspec import Struct

from llmc.landing.rules import digest, patch_id

#: larger files start folded
FOLD_ROWS = 400
#: words are compared only in shorter lines and smaller blocks: the comparison is quadratic
WORD_CHARS = 400
WORD_LINES = 60
#: lines less alike than this are marked as a whole
ALIKE = 0.4


class Kind(StrEnum):
    """The kind of a row of a diff."""

    CONTEXT = "context"
    ADDED = "added"
    REMOVED = "removed"
    #: the start of a hunk; `text` says where it is
    HUNK = "hunk"
    #: a remark by git, such as a missing newline or a binary file
    NOTE = "note"


class DiffRow(Struct, frozen=True):
    """One row of a diff."""

    kind: Kind
    text: str
    #: line numbers in the old and the new file
    old: int | None = None
    new: int | None = None
    #: what changed inside the line, as pairs of start and end; empty: the whole line, or nothing
    words: tuple[tuple[int, int], ...] = ()


class DiffFile(Struct, frozen=True):
    """A changed file."""

    path: str
    #: its old name, if it was renamed or copied
    was: str | None
    #: None for a binary file
    added: int | None
    deleted: int | None
    #: equal for the same change on another base, and for the same lines at another place in the file
    patch_id: str
    rows: tuple[DiffRow, ...]
    #: equal only if the file is the same before and after the change
    exact: str = ""
    #: why it starts folded; empty if it does not
    folded: str = ""


def files_of(diff: str) -> tuple[DiffFile, ...]:
    """The files of a diff as git prints it."""
    return tuple(_file(lines) for lines in _chunks(diff))


def _chunks(diff: str) -> Iterator[list[str]]:
    chunk: list[str] = []
    for line in diff.split("\n"):
        if line.startswith("diff --git "):
            if chunk:
                yield chunk
            chunk = [line]
        elif chunk:
            chunk.append(line)
    if chunk:
        if chunk[-1] == "":
            chunk.pop()
        yield chunk


def _file(lines: Sequence[str]) -> DiffFile:
    start = next((n for n, line in enumerate(lines) if line.startswith("@@ ")), len(lines))
    head, body = lines[1:start], lines[start:]
    fields = dict(_header(head))
    old, new = _name(fields.get("---")), _name(fields.get("+++"))
    was = fields.get("rename from") or fields.get("copy from")
    path = fields.get("rename to") or fields.get("copy to") or new or old or _from_first(lines[0])
    binary = next((line for line in head if line.startswith(("Binary files", "GIT binary"))), "")
    rows = [DiffRow(Kind.NOTE, _said(line)) for line in head if _is_remark(line)]
    rows += _rows(body)
    added, deleted = (sum(row.kind is kind for row in rows) for kind in (Kind.ADDED, Kind.REMOVED))
    return DiffFile(
        path,
        _unquoted(was) if was else None,
        None if binary else added,
        None if binary else deleted,
        patch_id("\n".join(lines)),
        tuple(rows),
        digest("\n".join(lines)),
        _why_folded(path, len(rows)),
    )


_FIELDS = ("---", "+++", "rename from", "rename to", "copy from", "copy to")


def _header(head: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in head:
        for field in _FIELDS:
            if line.startswith(f"{field} "):
                value = line[len(field) + 1 :]
                yield field, value if field in ("---", "+++") else _unquoted(value)


def _is_remark(line: str) -> bool:
    remarks = (
        "Binary files",
        "GIT binary",
        "new file",
        "deleted file",
        "old mode",
        "new mode",
        "rename from",
    )
    return line.startswith(remarks)


def _said(line: str) -> str:
    if line.startswith(("Binary files", "GIT binary")):
        return "binary file"
    return _unquoted(line) if not line.startswith("rename from ") else f"renamed from {_unquoted(line[12:])}"


def _name(value: str | None) -> str:
    """The path in `a/path` or `"a/quoted"`; empty for /dev/null."""
    if value is None:
        return ""
    plain = _unquoted(value.rstrip("\t"))
    return "" if plain == "/dev/null" else plain.partition("/")[2]


def _from_first(line: str) -> str:
    """The path in `diff --git a/x b/x`, if no other line has it; then both names are the same."""
    rest = line.removeprefix("diff --git ")
    if rest.startswith('"'):
        return _unquoted(rest[: rest.index('" ') + 1]).partition("/")[2] if '" ' in rest else _unquoted(rest)
    return rest[: (len(rest) - 1) // 2].partition("/")[2]


_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}
_ESCAPE = re.compile(r"\\([0-7]{3}|.)")


def _unquoted(name: str) -> str:
    """Undo git's quoting of a name such as `"caf\\303\\251"`."""
    if not (name.startswith('"') and name.endswith('"') and len(name) > 1):
        return name
    data = bytearray()
    text, at = name[1:-1], 0
    for found in _ESCAPE.finditer(text):
        data += text[at : found.start()].encode("utf-8", "surrogateescape")
        code = found[1]
        data.append(int(code, 8) & 0xFF if code.isdecimal() else _ESCAPES.get(code, ord(code) & 0xFF))
        at = found.end()
    data += text[at:].encode("utf-8", "surrogateescape")
    return data.decode("utf-8", "surrogateescape")


_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@ ?(.*)")


def _rows(body: Iterable[str]) -> list[DiffRow]:
    rows: list[DiffRow] = []
    old = new = 0
    for line in body:
        if found := _HUNK.match(line):
            old, new = int(found[1]), int(found[2])
            rows.append(DiffRow(Kind.HUNK, found[3], old, new))
        elif line.startswith("+"):
            rows.append(DiffRow(Kind.ADDED, line[1:], None, new))
            new += 1
        elif line.startswith("-"):
            rows.append(DiffRow(Kind.REMOVED, line[1:], old, None))
            old += 1
        elif line.startswith("\\"):
            rows.append(DiffRow(Kind.NOTE, line[2:]))
        else:
            rows.append(DiffRow(Kind.CONTEXT, line[1:], old, new))
            old, new = old + 1, new + 1
    return _with_words(rows)


def _with_words(rows: list[DiffRow]) -> list[DiffRow]:
    """Mark the changed words where removed lines are followed by added ones."""
    at = 0
    while at < len(rows):
        removed = _run(rows, at, Kind.REMOVED)
        added = _run(rows, at + removed, Kind.ADDED)
        if removed and added and max(removed, added) <= WORD_LINES:
            for here, there in zip(
                range(at, at + removed), range(at + removed, at + removed + added), strict=False
            ):
                rows[here], rows[there] = _marked(rows[here], rows[there])
        at += max(1, removed + added)
    return rows


def _run(rows: Sequence[DiffRow], at: int, kind: Kind) -> int:
    end = at
    while end < len(rows) and rows[end].kind is kind:
        end += 1
    return end - at


_WORD = re.compile(r"\w+|\s+|[^\w\s]")


def _marked(old: DiffRow, new: DiffRow) -> tuple[DiffRow, DiffRow]:
    if max(len(old.text), len(new.text)) > WORD_CHARS:
        return old, new
    olds, news = _WORD.findall(old.text), _WORD.findall(new.text)
    matcher = SequenceMatcher(None, olds, news, autojunk=False)
    if matcher.ratio() < ALIKE:
        return old, new
    gone, come = [], []
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            gone.append(_span(olds, a, b))
            come.append(_span(news, c, d))
    return _with_spans(old, gone), _with_spans(new, come)


def _span(words: Sequence[str], start: int, end: int) -> tuple[int, int]:
    before = sum(map(len, words[:start]))
    return before, before + sum(map(len, words[start:end]))


def _with_spans(row: DiffRow, spans: Iterable[tuple[int, int]]) -> DiffRow:
    return DiffRow(row.kind, row.text, row.old, row.new, tuple(span for span in spans if span[0] < span[1]))


_LOCKS = re.compile(
    r"(^|/)(package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.yaml|bun\.lockb?|Cargo\.lock|poetry\.lock|"
    r"uv\.lock|Pipfile\.lock|composer\.lock|Gemfile\.lock|go\.sum|flake\.lock|Podfile\.lock|[^/]*\.lock)$"
)
_GENERATED = re.compile(r"(\.min\.(js|css)|\.map|\.pb\.go|_pb2\.pyi?|\.snap|\.svg)$")


def _why_folded(path: str, rows: int) -> str:
    if _LOCKS.search(path):
        return "lock file"
    if _GENERATED.search(path):
        return "generated"
    return f"{rows} rows" if rows > FOLD_ROWS else ""


# The unchanged lines before a hunk of a diff, which git leaves out.


class Gap(Struct, frozen=True):
    """Lines that are left out, by their numbers in the new file."""

    first: int
    last: int
    #: what to add to get the numbers in the old file
    to_old: int

    @property
    def size(self) -> int:
        return max(0, self.last - self.first + 1)

    def rows(self, lines: Sequence[str], numbers: range) -> list[DiffRow]:
        """Some of these lines as rows; `lines`: the whole new file."""
        return [
            DiffRow(Kind.CONTEXT, lines[number - 1], number + self.to_old, number)
            for number in numbers
            if number <= len(lines)
        ]


def gap_before(file: DiffFile, at: int) -> Gap:
    """The lines that are left out before the hunk in this row."""
    hunk = file.rows[at]
    before = (row.new for row in reversed(file.rows[:at]) if row.kind is not Kind.HUNK and row.new)
    end, start = next(before, 0), hunk.new or 0
    return Gap(end + 1, start - 1, (hunk.old or 0) - start)
