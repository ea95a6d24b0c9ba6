"""Tokens an agent has used, from its transcripts, read incrementally."""

import json
from pathlib import Path
from typing import Any

import msgspec


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one kind of message or a sum of them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_creation_input_tokens=self.cache_creation_input_tokens + other.cache_creation_input_tokens,
            cache_read_input_tokens=self.cache_read_input_tokens + other.cache_read_input_tokens,
        )


class Meter:
    """Adds up what one conversation used, its subagents included.

    The client writes a row for each content block of a message and repeats the message's usage in every one of
    them, so a message counts once, by its id; the last row of a message has its final numbers.
    """

    def __init__(self, transcript: Path) -> None:
        self._transcript = transcript
        self._offsets: dict[Path, int] = {}
        self._messages: dict[str, tuple[str, Usage]] = {}

    def read(self) -> dict[str, Usage]:
        """Tokens by model so far; reads only what was written since the last call."""
        for path in [self._transcript, *self._subagents()]:
            self._read_file(path)
        totals: dict[str, Usage] = {}
        for model, usage in self._messages.values():
            totals[model] = totals.get(model, Usage()) + usage
        return totals

    def _subagents(self) -> list[Path]:
        folder = self._transcript.with_suffix("") / "subagents"
        return sorted(folder.glob("agent-*.jsonl"))

    def _read_file(self, path: Path) -> None:
        offset = self._offsets.get(path, 0)
        try:
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read()
        except FileNotFoundError:
            return
        complete = data[: data.rfind(b"\n") + 1]
        self._offsets[path] = offset + len(complete)
        for line in complete.splitlines():
            if b'"usage"' in line and b'"assistant"' in line:
                self._count(line)

    def _count(self, line: bytes) -> None:
        try:
            row: dict[str, Any] = json.loads(line)
            if row.get("type") != "assistant":
                return
            message = row["message"]
            usage = msgspec.convert(message["usage"], Usage)
            model = str(message["model"])
        except (ValueError, KeyError, TypeError, msgspec.ValidationError):
            return
        if model != "<synthetic>":  # the client's own words, such as an API error; nobody was asked
            self._messages[str(message["id"])] = (model, usage)
