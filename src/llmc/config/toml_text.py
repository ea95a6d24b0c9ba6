"""Find, add and remove keys and tables in a TOML text. Pure.

tomlkit replaces and removes values well, but treats the comment above a table as part of the table before: a new key
lands below that comment, and removing a table removes it.
"""

import copy
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from llmc.base.text import pattern

_TOKEN = pattern(
    r'"""(?:\\.|[^\\])*?"""(?:""?(?!"))?'  # up to two quotes may stand before the closing three
    r"|'''.*?'''(?:''?(?!'))?"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|#[^\n]*"
    r"|[\[\]{}=.,\n]"
    r"|[A-Za-z0-9_-]+"
    r"|.",
    re.DOTALL,
)
_BARE = pattern(r"[A-Za-z0-9_-]+")

Path = tuple[str, ...]
Data = dict[str, Any]


class Entry(msgspec.Struct, frozen=True):
    """A table header, or a key with its value; lines count from 1."""

    path: Path
    line: int
    end_line: int
    is_header: bool


def entries(text: str) -> Iterator[Entry]:
    """The headers and keys of a document, in order; keys inside inline tables are part of their value."""
    table: Path = ()
    for statement, line, end_line in _statements(text):
        path, is_header = _key_of(statement)
        if is_header:
            table = path
        if path:
            yield Entry(path if is_header else table + path, line, end_line, is_header)


def line_of(text: str, path: Path) -> int | None:
    """The line of a key, else of the nearest table around it."""
    lines: dict[Path, int] = {}
    for entry in entries(text):
        for length in range(1, len(entry.path) + 1):
            lines.setdefault(entry.path[:length], entry.line)
    known = (lines[path[:length]] for length in range(len(path), 0, -1) if path[:length] in lines)
    return next(known, None)


def split_key(dotted: str) -> Path:
    """The parts of `a.b."c.d"`; ValueError if it is not a key."""
    path, rest = _read_path(_TOKEN.findall(dotted))
    if not path or rest:
        raise ValueError(f'invalid key "{dotted}"; expected a key such as "defaults.model"')
    return path


def join_key(path: Sequence[str]) -> str:
    """The dotted form, quoted if needed."""
    return ".".join(part if _BARE.fullmatch(part) else quoted(part) for part in path)


def quoted(text: str) -> str:
    """A TOML basic string."""
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + re.sub(r'[\x00-\x1f\x7f"\\]', lambda m: escapes.get(m[0], f"\\u{ord(m[0]):04x}"), text) + '"'


def lookup(data: Data, parts: Path) -> object:
    """The value of a key, or msgspec.UNSET."""
    node: object = data
    for part in parts:
        if not isinstance(node, dict) or part not in node:
            return msgspec.UNSET
        node = node[part]
    return node


def changed(data: Data, parts: Path, value: object) -> Data:
    """A copy with one key set, and missing tables created."""
    wanted = node = copy.deepcopy(data)
    for part in parts[:-1]:
        if not isinstance(node.get(part), dict):
            node[part] = {}
        node = node[part]
    node[parts[-1]] = value
    return wanted


def without(data: Data, parts: Path) -> Data:
    """A copy without one key."""
    wanted = node = copy.deepcopy(data)
    for part in parts[:-1]:
        node = node[part]
    del node[parts[-1]]
    return wanted


def differences(before: Data, after: Data) -> list[str]:
    """The keys with different values, sorted."""
    old, new = dict(_values(before, ())), dict(_values(after, ()))
    differ = (path for path in old | new if old.get(path, msgspec.UNSET) != new.get(path, msgspec.UNSET))
    return sorted(map(join_key, differ))


def _values(node: object, path: Path) -> Iterator[tuple[Path, object]]:
    """Every value with its key; an empty table is one, too."""
    if not isinstance(node, dict) or not node:
        if path:
            yield path, node
        return
    for key, value in node.items():
        yield from _values(value, (*path, key))


def _statements(text: str) -> Iterator[tuple[list[str], int, int]]:
    """Tokens of one header or key with value, its first and its last line."""
    tokens: list[str] = []
    depth, line, first = 0, 1, 1
    for token in (*_TOKEN.findall(text), "\n"):
        if token == "\n" and depth == 0:
            yield tokens, first, line
            tokens, first = [], line + 1
        elif not token.startswith("#"):
            depth += (token in "[{") - (token in "]}")
            tokens.append(token)
        line += token.count("\n")


def _key_of(statement: list[str]) -> tuple[Path, bool]:
    tokens = [token for token in statement if token.strip()]
    is_header = tokens[:1] == ["["]
    path, _ = _read_path(tokens[2:] if tokens[:2] == ["[", "["] else tokens[is_header:])
    return path, is_header


def _read_path(tokens: list[str]) -> tuple[Path, list[str]]:
    """A dotted key at the start of the tokens, and the tokens after it."""
    rest = [token for token in tokens if token not in (" ", "\t", "\r")]
    parts: list[str] = []
    while rest and (part := _read_part(rest[0])) is not None:
        parts.append(part)
        if rest[1:2] != ["."]:
            return tuple(parts), rest[1:]
        rest = rest[2:]
    return (), rest


def _read_part(token: str) -> str | None:
    if _BARE.fullmatch(token):
        return token
    if len(token) >= 2 and token[0] in "\"'":
        import tomllib

        try:
            return str(tomllib.loads(f"key = {token}")["key"])
        except tomllib.TOMLDecodeError:
            return None
    return None


def insert_key(text: str, path: Path, value: str) -> str:
    """The text with `value` (TOML) under `path`.

    It goes below the commented line of this option, else below the last key of its table, else into a new table at the
    end. The caller checks the result: an inline table cannot be extended.
    """
    statement = f"{join_key(path[-1:])} = {value}"
    if len(path) == 1:
        return f"{statement}\n{text}"
    lines = text.split("\n")
    row = _row_for(lines, list(entries(text)), path)
    if row is None:
        return append_table(text, path[:-1], [statement])
    ending = "\r" if lines[row - 1].endswith("\r") else ""
    lines[row:row] = [statement.replace("\n", f"{ending}\n") + ending]
    return "\n".join(lines)


def append_table(text: str, path: Path, statements: list[str]) -> str:
    """The text with a new table at its end."""
    body = text.rstrip()
    header = f"[{join_key(path)}]"
    return "\n".join([*([body, ""] if body else []), header, *statements, ""])


def remove_table(text: str, path: Path) -> str:
    """The text without a table: from its header to its last key, not the comments after it."""
    lines = text.split("\n")
    gone: set[int] = set()
    first = None
    for entry in entries(text):
        if entry.is_header:
            first = entry.line if entry.path[: len(path)] == path else None
        if first is not None:
            gone.update(range(first, entry.end_line + 1))
    for row in sorted(gone):
        if row + 1 not in gone and _is_blank(lines, row + 1) and _is_blank(lines, min(gone) - 1):
            gone.add(row + 1)  # one of the two blank lines that would meet
    return "\n".join(line for row, line in enumerate(lines, 1) if row not in gone)


def _is_blank(lines: list[str], row: int) -> bool:
    return 1 <= row <= len(lines) and not lines[row - 1].strip()


def _row_for(lines: list[str], found: list[Entry], path: Path) -> int | None:
    """How many lines come before the new one; None if its table has no header."""
    headers = [i for i, entry in enumerate(found) if entry.is_header]
    mine = next((i for i in headers if found[i].path == path[:-1]), None)
    if mine is None:
        return None
    after = next((i for i in headers if i > mine), len(found))
    last_row = found[after].line - 1 if after < len(found) else len(lines)
    inside = {row for entry in found[mine:after] for row in range(entry.line, entry.end_line + 1)}
    shown = re.compile(rf"\s*#\s*{re.escape(join_key(path[-1:]))}\s*=")
    for row in (row for row in range(found[mine].line, last_row + 1) if row not in inside):
        if re.match(r"\s*#\s*\[", lines[row - 1]):
            break  # start of a commented table
        if shown.match(lines[row - 1]):
            return row
    return found[after - 1].end_line
