"""The record of one remediation, `logs/remediation_<time>.txt`: written as it goes, and never deleted."""

import os
import time
from pathlib import Path

from llmc.agents.client_files import rows_since, size_of, subagents_of
from llmc.agents.transcript_text import ends_a_turn, row_text
from llmc.base.clock import now_unix
from llmc.base.files import append_line, explain, private_dir
from llmc.config.paths import Root


class RemediationLog:
    """Follows the conversation and appends what is new in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: how far each transcript was read
        self._read_to: dict[Path, int] = {}
        #: the last row that was read is one that the client writes when a turn is over
        self.turn_is_over = False

    @classmethod
    def create(cls, root: Root) -> "RemediationLog":
        """A new file; the names sort by time."""
        folder = private_dir(root.logs)
        while True:
            path = folder / f"remediation_{_stamp(now_unix())}.txt"
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            except FileExistsError:
                continue  # of the same millisecond
            except OSError as error:
                raise explain(error, f"cannot create {path}") from error
            return cls(path)

    def section(self, title: str, text: str = "") -> None:
        self._append(f"=== {title}\n{text}".rstrip("\n") + "\n")

    def follow(self, transcript: Path) -> bool:
        """Append what was said since the last look, by subagents too; whether there was anything."""
        if not transcript.name:
            return False  # it has not said yet where that is
        found = self._follow_file(transcript, "agent", is_main=True)
        for path in subagents_of(transcript):
            found |= self._follow_file(path, f"sub{path.stem}")
        return found

    def _follow_file(self, path: Path, speaker: str, *, is_main: bool = False) -> bool:
        offset = self._read_to.get(path, 0)
        if size_of(path) <= offset:
            return False
        rows, self._read_to[path] = rows_since(path, b"", offset)
        if is_main:
            self.turn_is_over = ends_a_turn(rows, self.turn_is_over)
        text = "".join(row_text(row, speaker) for row in rows)
        if text:
            self._append(text)
        return self._read_to[path] > offset

    def _append(self, text: str) -> None:
        append_line(self.path, text.encode("utf-8", "backslashreplace"))


def _stamp(now: float) -> str:
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"
