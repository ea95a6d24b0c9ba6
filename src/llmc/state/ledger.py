"""`.llmc/tasks.jsonl`: what llmc did with tasks, append-only; read on from where the last look ended."""

import contextlib
import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmc.errors import LlmcError
from llmc.tasks.books import Books, fold
from llmc.tools.files import append_line, ends_torn, json_row


class Ledger:
    def __init__(self, path: Path, log: Path | None = None) -> None:
        """`log`: where the same is written for people."""
        self._path = path
        self._log = log
        self._offset = 0
        self._books = Books()
        self._reading = threading.Lock()

    def books(self) -> Books:
        """The books as they are now; what is handed out never changes, so other threads may read on."""
        with self._reading:
            return self._read()

    def _read(self) -> Books:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return self._books
        whole = data[: data.rfind(b"\n") + 1]
        if whole:
            self._offset += len(whole)
            rows = (json_row(line) for line in whole.splitlines())
            self._books = fold(self._books.copy(), [row for row in rows if row is not None])
        return self._books

    def note(self, text: str, *, worker: str = "", task: str = "") -> None:
        """A line for people. That it cannot be written must stop nobody."""
        if self._log is not None:
            words = [time.strftime("%Y-%m-%dT%H:%M:%S%z"), worker, f"task {task}" if task else "", text]
            line = " ".join(filter(None, words)).replace("\n", " ")
            with contextlib.suppress(LlmcError, OSError):
                append_line(self._log, line.encode(errors="replace"))

    def write(self, entry: Mapping[str, Any]) -> None:
        """One line, on the disk before this returns."""
        line = json.dumps(entry, ensure_ascii=False).encode()
        append_line(self._path, b"\n" + line if ends_torn(self._path) else line, durable=True)
        why = ": ".join(str(entry[key]) for key in ("cause", "reason") if entry.get(key))
        said = f"{entry['action']}: {why}" if why else str(entry["action"])
        self.note(said, worker=str(entry["worker"]), task=str(entry["task"]))
