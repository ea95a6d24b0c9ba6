"""The transcript of a conversation, which the client writes: its rows, its end, as text for people, and the tokens it used."""

import contextlib
import json
import os
import re
from datetime import datetime
from glob import escape as glob_escape
from pathlib import Path
from typing import Any

import msgspec

from llmc.agents.claude.layout import PROJECTS, project_slug, transcript_name
from llmc.base import given
from llmc.base.files import json_row
from llmc.base.names import ClaudeSessionId
from llmc.records.tokens import Tokens as Tokens


def transcript_of(config_dir: Path, session: ClaudeSessionId | None, cwd: str) -> Path | None:
    """The file of a conversation; without an id the newest one of the directory the agent works in."""
    projects = config_dir / PROJECTS
    if session:
        return next(iter(projects.glob(f"*/{glob_escape(transcript_name(session))}")), None)
    return max(
        (projects / project_slug(cwd)).glob("*.jsonl"), key=lambda path: path.stat().st_mtime, default=None
    )


def subagents_of(transcript: Path) -> list[Path]:
    """The transcripts of the agents that a conversation has started."""
    return sorted((transcript.with_suffix("") / "subagents").glob("agent-*.jsonl"))


def prompts_in(path: Path) -> list[str]:
    """The prompts of a conversation that llmc sent, oldest first."""
    rows, _ = rows_since(path, b"[llmc ", 0)
    return [text for row in rows if (text := row_text(row))]


def rows_since(path: Path, needle: bytes, offset: int) -> tuple[list[dict[str, Any]], int]:
    """The complete rows after byte `offset` that contain `needle`, and the offset to go on from."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read()
    except (FileNotFoundError, IsADirectoryError):
        return [], offset
    complete = data[: data.rfind(b"\n") + 1]
    rows = (json_row(line) for line in complete.split(b"\n") if needle in line)
    return [row for row in rows if row is not None], offset + len(complete)


def row_text(row: dict[str, Any]) -> str:
    """The text a user or queue row carries; other rows repeat prompts and prove nothing."""
    if row.get("type") == "queue-operation":
        content = row.get("content") if row.get("operation") == "enqueue" else ""
    elif row.get("type") == "user":
        message = row.get("message")
        content = message.get("content") if isinstance(message, dict) else ""
    else:
        content = ""
    if isinstance(content, list):
        content = "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def queued_in(path: Path) -> list[str] | None:
    """The messages in the client's queue, oldest first, as its transcript has them; None where that cannot be told.

    A row that takes one out does not always say which: then it is the oldest.
    """
    waiting: list[str] = []
    for row in rows_since(path, b'"queue-operation"', 0)[0]:
        content = row.get("content")
        match row.get("operation") if row.get("type") == "queue-operation" else "":
            case "":
                continue  # another row, which quotes one
            case "enqueue":
                waiting.append(str(content))
            case "dequeue" | "remove" | "popOne" | "popAll":
                waiting.remove(content if content in waiting else waiting[0]) if waiting else None
            case _:
                return None
    return waiting


def is_synthetic(row: dict[str, Any]) -> bool:
    """A reply that the client wrote itself, such as that of an API error."""
    message = row.get("message")
    return isinstance(message, dict) and message.get("model") == "<synthetic>"


def is_reply(row: dict[str, Any]) -> bool:
    """What the agent itself wrote."""
    return row.get("type") == "assistant" and not is_synthetic(row)


def is_queued(row: dict[str, Any]) -> bool:
    """A prompt that the client put into its queue: the agent has not read it yet."""
    return row.get("type") == "queue-operation"


def replies_since(path: Path, offset: int) -> tuple[int, int]:
    """How many rows the agent itself wrote after byte `offset`, and the offset to go on from."""
    rows, end = rows_since(path, b"assistant", offset)
    return sum(map(is_reply, rows)), end


def size_of(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


Row = dict[str, Any]

_AFTER_A_TURN = ("stop_hook_summary", "turn_duration")


def readable(row: Row, speaker: str = "agent") -> str:
    """One row of a transcript, nothing left out; "" for rows that are no part of the conversation."""
    kind = row.get("type")
    if kind == "user":
        parts = [_of_user(block) for block in _blocks(row)]
    elif kind == "assistant":
        parts = [_of_agent(block, speaker) for block in _blocks(row)]
    elif kind == "system" and row.get("content"):
        parts = [_part("system", _plain(row["content"]))]
    else:
        parts = []
    when = str(row.get("timestamp", ""))[:19]
    return "".join(f"[{when}] {part}\n" for part in parts if part)


def ends_a_turn(rows: list[Row], before: bool) -> bool:
    """Whether a turn is over after these rows: the client says so in a row of its own, after the last reply."""
    for row in rows:
        if row.get("type") == "system" and row.get("subtype") in _AFTER_A_TURN:
            before = True
        elif row.get("type") in ("user", "assistant"):
            before = False
    return before


def _blocks(row: Row) -> list[Any]:
    message = row.get("message")
    content = message.get("content") if isinstance(message, dict) else message
    return content if isinstance(content, list) else [{"type": "text", "text": _plain(content)}]


def _of_user(block: Any) -> str:
    if isinstance(block, dict) and block.get("type") == "tool_result":
        title = "tool output (an error)" if block.get("is_error") else "tool output"
        return _part(title, _plain(block.get("content")))
    return _part("prompt", _plain(block))


def _of_agent(block: Any, speaker: str) -> str:
    match block:
        case {"type": "tool_use", "name": name, "input": dict(arguments)}:
            lines = [f"{key}: {_argument(value)}" for key, value in arguments.items()]
            return _part(f"{speaker} calls {name}", "\n".join(lines))
        case {"type": "thinking", "thinking": text}:
            return _part(f"{speaker} thinks", _plain(text)) if text else ""
    return _part(speaker, _plain(block))


def _part(title: str, text: str) -> str:
    body = "".join(f"    {line}\n" for line in text.splitlines())
    return f"{title}\n{body}".rstrip("\n")


def _argument(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _plain(value: Any) -> str:
    """Text as it is; lists of blocks joined; anything else as JSON."""
    match value:
        case None:
            return ""
        case str():
            return value
        case {"type": "text", "text": str(text)}:
            return text
        case list():
            return "\n".join(map(_plain, value))
    return json.dumps(value, ensure_ascii=False)


class Meter:
    """Adds up what one conversation used, its subagents included.

    The client writes a row for each content block of a message and repeats the message's usage in every one of
    them, so a message counts once, by its id; the last row of a message has its final numbers.
    """

    def __init__(self, transcript: Path) -> None:
        self._transcript = transcript
        #: of each file: its inode, and how far it was read
        self._read_to: dict[Path, tuple[int, int]] = {}
        self._messages: dict[str, Tokens] = {}
        self._totals: dict[str, Tokens] = {}

    def read(self) -> dict[str, Tokens]:
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
            usage = msgspec.convert(message["usage"], Tokens)
            model, key = str(message["model"]), str(message["id"])
        except (ValueError, KeyError, TypeError, AttributeError, msgspec.ValidationError):
            return
        if model != "<synthetic>":  # the client's own words, such as an API error; nobody was asked
            before = self._messages.get(key, Tokens())
            more = usage.since(before)
            self._messages[key] = before + more
            self._totals[model] = self._totals.get(model, Tokens()) + more


#: so much of the end of a transcript is read; a single row of output can be longer
TAIL_BYTES = 256 * 1024
_OURS = re.compile(r"^\[llmc [a-z]+-[0-9a-z-]+\]$", re.MULTILINE)


def last_word_unix(path: Path) -> float | None:
    """When the agent itself last wrote something; an error of the client's is not its word."""
    times = [_at(row) for row in _rows(path) if is_reply(row)]
    known = [at for at in times if at is not None]
    return max(known, default=None)


def last_word_id(path: Path) -> str:
    """The id of the newest message of the agent's own, also of one that only calls a tool; "" for none."""
    own = [row for row in _rows(path) if is_reply(row)]
    return str(own[-1].get("uuid") or "") if own else ""


def last_growth_unix(path: Path) -> float | None:
    """When anything was last written into the conversation or into one of its subagents': also what a tool printed."""
    times = []
    for file in (path, *subagents_of(path)):
        with contextlib.suppress(OSError):
            times.append(file.stat().st_mtime)
    return max(times, default=None)


def last_messages(path: Path, most: int) -> list[tuple[str, str, float, str]]:
    """Id, role, time and text, oldest first; roles are those of goals/drive/liveness.py. Tool output is no message."""
    found = []
    for row in _rows(path):
        text, at = _text(row), _at(row)
        role = _role(row, text)
        if role and text.strip() and at is not None:
            found.append((str(row.get("uuid") or ""), role, at, text))
    return found[-most:]


def _role(row: dict[str, Any], text: str) -> str:
    match row.get("type"):
        case "assistant":
            return "error" if is_synthetic(row) else "assistant"
        case "user" if not row.get("isMeta") and not _is_tool_output(row):
            return "llmc" if _OURS.search(text) else "person"
    return ""


def _is_tool_output(row: dict[str, Any]) -> bool:
    content = (row.get("message") or {}).get("content")
    return isinstance(content, list) and any(
        isinstance(block, dict) and block.get("type") == "tool_result" for block in content
    )


def _text(row: dict[str, Any]) -> str:
    message = row.get("message")
    content = message.get("content") if isinstance(message, dict) else ""
    if isinstance(content, list):
        content = "\n".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _at(row: dict[str, Any]) -> float | None:
    try:
        return datetime.fromisoformat(str(row.get("timestamp"))).timestamp()
    except ValueError:
        return None


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(0, end - TAIL_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return []
    whole = lines if end <= TAIL_BYTES else lines[1:]
    return [row for row in map(json_row, whole) if row is not None]
