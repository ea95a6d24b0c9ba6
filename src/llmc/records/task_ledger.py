"""`.llmc/tasks.jsonl`: what llmc did with tasks. Append-only, read incrementally.

Beside it, `tasks.books` caches the result of its older part, so that a command does not read a year of tasks again. It
can be deleted at any time; it is valid only for the same file and the same code.
"""

import contextlib
import json
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from llmc.base.errors import LlmcError
from llmc.base.files import append_line, ends_torn, json_row, write_atomic
from llmc.base.given import MOST_LINE
from llmc.records import books
from llmc.records.books import Books, fold, has_unnamed, name_the_unnamed

#: maximum bytes of the ledger that a command reads past the cache
FRESH_BYTES = 1 << 16
#: bytes before the cached position that are compared
TAIL_BYTES = 256


class _Sum(Struct, array_like=True, frozen=True):
    """The books up to a position in the ledger, and the ledger's fingerprint."""

    rules: str
    inode: int
    offset: int
    tail: bytes
    books: Books


class TaskLedger:
    def __init__(self, path: Path, log: Path | None = None, list_name: str = "") -> None:
        """`log`: the log for the user. `list_name`: the currently configured list."""
        self._path = path
        self._log = log
        self._list = list_name
        self._offset = 0
        #: the line before the offset is incomplete and too long to be ours
        self._is_in_long_line = False
        self._books = Books()
        #: the position of the cache
        self._summed = 0
        self._reading = threading.Lock()

    def books(self) -> Books:
        """The current books; a returned value never changes, so other threads may read it."""
        with self._reading:
            if has_unnamed(self._read()) and self._list:
                self._name_the_unnamed()
            return self._books

    def exists(self) -> bool:
        return self._path.exists()

    def _read(self) -> Books:
        try:
            if self._offset and self._path.stat().st_size == self._offset:
                return self._books  # nothing was written since
            with self._path.open("rb") as file:
                if not self._offset:
                    self._begin_with_sum(file)
                file.seek(self._offset)
                self._take_in(file)
                if self._offset - self._summed > FRESH_BYTES and not self._is_in_long_line:
                    self._write_sum(file)
        except FileNotFoundError:
            pass
        return self._books

    def _begin_with_sum(self, file: BinaryIO) -> None:
        try:
            kept = msgspec.msgpack.decode(self._sum.read_bytes(), type=_Sum)
        except (OSError, msgspec.MsgspecError):
            return
        if kept == replace(kept, rules=_rules(), **_place(file, kept.offset)):
            self._books, self._offset, self._summed = kept.books, kept.offset, kept.offset

    def _write_sum(self, file: BinaryIO) -> None:
        self._summed = self._offset
        kept = _Sum(rules=_rules(), offset=self._offset, books=self._books, **_place(file, self._offset))
        with contextlib.suppress(LlmcError, OSError):
            write_atomic(self._sum, msgspec.msgpack.encode(kept))

    @property
    def _sum(self) -> Path:
        return self._path.with_suffix(".books")

    def _take_in(self, file: BinaryIO) -> None:
        """Read line by line: foreign data may have any size."""
        rows = []
        while line := file.readline(MOST_LINE):
            is_whole = line.endswith(b"\n")
            if not is_whole and len(line) < MOST_LINE:
                break  # it is being written
            self._offset += len(line)
            row = json_row(line) if is_whole and not self._is_in_long_line else None
            self._is_in_long_line = not is_whole
            rows += [row] if row is not None else []
        if rows:
            self._books = fold(self._books.copy(), rows)

    def _name_the_unnamed(self) -> None:
        """Name the list of old rows, once per root. If that cannot be written, only this process uses it."""
        row = name_the_unnamed(self._list, time.time())
        with contextlib.suppress(LlmcError):
            self._append(row)
            self._read()
        if has_unnamed(self._books):
            self._books = fold(self._books.copy(), [row])

    def note(self, text: str, *, worker: str = "", task: str = "") -> None:
        """Write a log line for the user; write errors are ignored."""
        if self._log is not None:
            write_note(self._log, text, worker=worker, task=task)

    def write(self, entry: Mapping[str, Any]) -> None:
        """Append one line; it is on disk when this returns."""
        self._append(entry)
        why = ": ".join(str(entry[key]) for key in ("cause", "reason") if entry.get(key))
        said = f"{entry['action']}: {why}" if why else str(entry["action"])
        self.note(said, worker=str(entry["worker"]), task=str(entry["task"]))

    def _append(self, entry: Mapping[str, Any]) -> None:
        line = json.dumps(entry, ensure_ascii=False).encode(errors="backslashreplace")
        append_line(self._path, b"\n" + line if ends_torn(self._path) else line, durable=True)


def write_note(log: Path, text: str, *, worker: str = "", task: str = "") -> None:
    """Write a line to the log for the user; write errors are ignored."""
    words = [time.strftime("%Y-%m-%dT%H:%M:%S%z"), worker, f"task {task}" if task else "", text]
    line = " ".join(filter(None, words)).replace("\n", " ")
    with contextlib.suppress(LlmcError, OSError):
        append_line(log, line.encode(errors="replace"))


def _rules() -> str:
    """Identifies the code that reads the ledger: another llmc version starts over."""
    info = os.stat(books.__file__)
    return f"{books.__file__} {info.st_mtime_ns} {info.st_size}"


def _place(file: BinaryIO, offset: int) -> dict[str, Any]:
    """A fingerprint of the ledger up to this position."""
    length = min(TAIL_BYTES, offset)
    return {"inode": os.fstat(file.fileno()).st_ino, "tail": os.pread(file.fileno(), length, offset - length)}
