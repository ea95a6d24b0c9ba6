"""`.llmc/tasks.jsonl`: what llmc did with tasks, append-only; read on from where the last look ended."""

import contextlib
import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from llmc.errors import LlmcError
from llmc.given import MOST_LINE
from llmc.tasks.books import Books, fold, has_unnamed, name_the_unnamed
from llmc.tools.files import append_line, ends_torn, json_row


class Ledger:
    def __init__(self, path: Path, log: Path | None = None, list_name: str = "") -> None:
        """`log`: where the same is written for people. `list_name`: the list of this root, as it is configured now."""
        self._path = path
        self._log = log
        self._list = list_name
        self._offset = 0
        #: the line before the offset has not ended, and is too long to be one of ours
        self._is_in_long_line = False
        self._books = Books()
        self._reading = threading.Lock()

    def books(self) -> Books:
        """The books as they are now; what is handed out never changes, so other threads may read on."""
        with self._reading:
            if has_unnamed(self._read()) and self._list:
                self._name_the_unnamed()
            return self._books

    def _read(self) -> Books:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                self._take_in(file)
        except FileNotFoundError:
            pass
        return self._books

    def _take_in(self, file: BinaryIO) -> None:
        """Line by line: what somebody else left there may be of any size."""
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
        """Once for each root: see `name_the_unnamed`. Where it cannot be written, this process alone goes by it."""
        row = name_the_unnamed(self._list, time.time())
        with contextlib.suppress(LlmcError):
            self._append(row)
            self._read()
        if has_unnamed(self._books):
            self._books = fold(self._books.copy(), [row])

    def note(self, text: str, *, worker: str = "", task: str = "") -> None:
        """A line for people. That it cannot be written must stop nobody."""
        if self._log is not None:
            words = [time.strftime("%Y-%m-%dT%H:%M:%S%z"), worker, f"task {task}" if task else "", text]
            line = " ".join(filter(None, words)).replace("\n", " ")
            with contextlib.suppress(LlmcError, OSError):
                append_line(self._log, line.encode(errors="replace"))

    def write(self, entry: Mapping[str, Any]) -> None:
        """One line, on the disk before this returns."""
        self._append(entry)
        why = ": ".join(str(entry[key]) for key in ("cause", "reason") if entry.get(key))
        said = f"{entry['action']}: {why}" if why else str(entry["action"])
        self.note(said, worker=str(entry["worker"]), task=str(entry["task"]))

    def _append(self, entry: Mapping[str, Any]) -> None:
        line = json.dumps(entry, ensure_ascii=False).encode(errors="backslashreplace")
        append_line(self._path, b"\n" + line if ends_torn(self._path) else line, durable=True)
