"""Tokens an agent has used, from its transcripts, read incrementally."""

import os
from pathlib import Path
from typing import Any

import msgspec

from llmc.agents.client_files import subagents_of
from llmc.base import given
from llmc.records.usage import Usage as Usage


class Meter:
    """Adds up what one conversation used, its subagents included.

    The client writes a row for each content block of a message and repeats the message's usage in every one of
    them, so a message counts once, by its id; the last row of a message has its final numbers.
    """

    def __init__(self, transcript: Path) -> None:
        self._transcript = transcript
        #: of each file: its inode, and how far it was read
        self._read_to: dict[Path, tuple[int, int]] = {}
        self._messages: dict[str, Usage] = {}
        self._totals: dict[str, Usage] = {}

    def read(self) -> dict[str, Usage]:
        """Tokens by model so far; reads only what was written since the last call.

        What was counted stays counted when a file is gone or was replaced.
        """
        for path in [self._transcript, *subagents_of(self._transcript)]:
            self._read_file(path)
        return dict(self._totals)

    def _read_file(self, path: Path) -> None:
        try:
            found = os.stat(path)
            inode, offset = self._read_to.get(path, (found.st_ino, 0))
            if found.st_ino != inode or found.st_size < offset:
                offset = 0  # another file: its messages count once all the same
            if found.st_size == offset:
                return
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read()
        except OSError:
            return  # not there yet, or not now: the next look reads it
        complete = data[: data.rfind(b"\n") + 1]
        self._read_to[path] = (found.st_ino, offset + len(complete))
        for line in complete.splitlines():
            if b'"usage"' in line and b'"assistant"' in line:
                self._count(line)

    def _count(self, line: bytes) -> None:
        try:
            row: dict[str, Any] = given.parse(line)
            if row.get("type") != "assistant":
                return
            message = row["message"]
            usage = msgspec.convert(message["usage"], Usage)
            model, key = str(message["model"]), str(message["id"])
        except (ValueError, KeyError, TypeError, AttributeError, msgspec.ValidationError):
            return
        if model != "<synthetic>":  # the client's own words, such as an API error; nobody was asked
            before = self._messages.get(key, Usage())
            more = usage.since(before)
            self._messages[key] = before + more
            self._totals[model] = self._totals.get(model, Usage()) + more
