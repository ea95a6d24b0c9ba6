"""Add a key or table to a TOML text, or take a table out, as a person would. Pure.

tomlkit replaces and removes values well. But it counts the comment that introduces the next table as part of the
one before: a new key lands below that comment, and a removed table takes it along.
"""

import re

from llmc.config.keys import Entry, Path, entries, join_key


def insert_key(text: str, path: Path, value: str) -> str:
    """The text with `value` (TOML) under `path`.

    Below the commented-out line that shows this option, else below the last key of its table, else in a new table
    at the end. The caller checks that the text still means what it should: an inline table cannot be added to.
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
    """The text without a table that has a header: from there to its last key, not the comments after it."""
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
    """How many lines come before the new one; None when its table has no header."""
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
            break  # a table that is commented out begins
        if shown.match(lines[row - 1]):
            return row
    return found[after - 1].end_line
