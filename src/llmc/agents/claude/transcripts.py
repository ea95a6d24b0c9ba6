"""Transcripts of Claude Code: prompts and replies, text for people, and the tokens used."""

import contextlib
import json
import os
import re
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from llmc.agents.claude.glance import has_own_home
from llmc.agents.claude.layout import transcript_name
from llmc.agents.protocol import Passage, Prompt
from llmc.base import given
from llmc.base.files import json_row, open_given
from llmc.base.names import ClaudeSessionId
from llmc.records.worker import Tokens

Row = dict[str, Any]

#: how much of the end of a transcript is read; a single row can be longer
TAIL_BYTES = 256 * 1024
#: how much is read at once; larger than the transcripts of clients
MOST_BYTES = 256 << 20
_OURS = re.compile(r"^\[llmc [a-z]+-[0-9a-z-]+\]$", re.MULTILINE)
_AFTER_A_TURN = ("stop_hook_summary", "turn_duration")


class ClaudeTranscript:
    """One file of rows, each a line of JSON."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def session(self) -> ClaudeSessionId:
        return ClaudeSessionId(self.path.stem)

    def size(self) -> int:
        try:
            return os.lstat(self.path).st_size
        except OSError:
            return 0

    def subagents(self) -> "list[ClaudeTranscript]":
        found = (self.path.with_suffix("") / "subagents").glob("agent-*.jsonl")
        return [ClaudeTranscript(path) for path in sorted(found)]

    def sibling(self, session: str) -> "ClaudeTranscript":
        return ClaudeTranscript(self.path.with_name(transcript_name(session)))

    def prompts(self, holding: str, since: int = 0) -> tuple[list[Prompt], int]:
        rows, end = self._rows(holding.encode(), since)
        found = ((row_text(row), row.get("type") == "queue-operation") for row in rows)
        return [Prompt(text, queued) for text, queued in found if text], end

    def queued(self) -> list[str] | None:
        """A row that removes a message does not always say which one; then it is the oldest."""
        waiting: list[str] = []
        for row in self._rows(b'"queue-operation"', 0)[0]:
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

    def answer_to(self, question: str, since: int) -> tuple[str, int]:
        rows, end = self._rows(b'"answers"', since)
        results = (row.get("toolUseResult") for row in rows)
        answers = (result.get("answers") for result in results if isinstance(result, dict))
        found = [one.get(question) for one in answers if isinstance(one, dict)]
        return next((one for one in reversed(found) if isinstance(one, str)), ""), end

    def replies(self, since: int) -> tuple[int, int]:
        rows, end = self._rows(b"assistant", since)
        return sum(map(is_reply, rows)), end

    def passage(self, since: int, speaker: str, *, was_over: bool = False) -> Passage:
        rows, end = self._rows(b"", since)
        text = "".join(readable(row, speaker) for row in rows)
        return Passage(text, ends_a_turn(rows, was_over), end)

    def last_reply_unix(self) -> float | None:
        """Errors of the client do not count as replies."""
        times = [_at(row) for row in self._last_rows() if is_reply(row)]
        return max((at for at in times if at is not None), default=None)

    def last_reply_id(self) -> str:
        own = [row for row in self._last_rows() if is_reply(row)]
        return str(own[-1].get("uuid") or "") if own else ""

    def last_growth_unix(self) -> float | None:
        times = []
        for file in (self, *self.subagents()):
            with contextlib.suppress(OSError):
                times.append(file.path.lstat().st_mtime)
        return max(times, default=None)

    def last_messages(self, most: int) -> list[tuple[str, str, float, str]]:
        found = []
        for row in self._last_rows():
            text, at = _joined(_content(row)), _at(row)
            role = _role(row, text)
            if role and text.strip() and at is not None:
                found.append((str(row.get("uuid") or ""), role, at, text))
        return found[-most:]

    def meter(self) -> "Meter":
        return Meter(self)

    def _rows(self, needle: bytes, offset: int) -> tuple[list[Row], int]:
        """The complete rows after byte `offset` that contain `needle`, and the offset to go on from."""
        try:
            complete = _complete_lines(self.path, offset)
        except OSError:
            return [], offset
        rows = (json_row(line) for line in complete.split(b"\n") if needle in line)
        return [row for row in rows if row is not None], offset + len(complete)

    def _last_rows(self) -> list[Row]:
        try:
            with _opened(self.path) as file:
                end = file.seek(0, 2)
                file.seek(max(0, end - TAIL_BYTES))
                lines = file.read().split(b"\n")
        except OSError:
            return []
        whole = lines if end <= TAIL_BYTES else lines[1:]
        return [row for row in map(json_row, whole) if row is not None]


def _complete_lines(path: Path, offset: int) -> bytes:
    with _opened(path) as file:
        file.seek(offset)
        data = file.read(MOST_BYTES)
    return data[: data.rfind(b"\n") + 1]


def _opened(path: Path) -> BinaryIO:
    """An agent may put something else in its place: a pipe would block, and a link lead to a conversation of the user.

    Below the home of a contained agent, no part of the path may be a link. A subagent's transcript is two levels deeper.
    """
    homes = [place for place in path.parents[2:5] if has_own_home(place)]
    if not homes:
        return open_given(path)
    home, way = homes[-1], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    folder = os.open(home, way)
    try:
        for part in path.relative_to(home).parts[:-1]:
            inner = os.open(part, way, dir_fd=folder)
            os.close(folder)
            folder = inner
        return open_given(Path(path.name), folder)
    finally:
        os.close(folder)


def row_text(row: dict[str, Any]) -> str:
    """The text of a user or queue row; other rows repeat prompts and prove nothing."""
    if row.get("type") == "queue-operation":
        content = row.get("content") if row.get("operation") == "enqueue" else ""
    elif row.get("type") == "user":
        content = _content(row)
    else:
        content = ""
    return _joined(content)


def is_synthetic(row: dict[str, Any]) -> bool:
    """A reply that the client itself wrote, such as for an API error."""
    message = row.get("message")
    return isinstance(message, dict) and message.get("model") == "<synthetic>"


def is_reply(row: dict[str, Any]) -> bool:
    """A reply of the agent."""
    return row.get("type") == "assistant" and not is_synthetic(row)


def readable(row: Row, speaker: str = "agent") -> str:
    """One row as text, complete; "" for rows outside the conversation."""
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
    """Whether a turn is over after these rows: the client writes a row for that after the last reply."""
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
        title = "tool error" if block.get("is_error") else "tool output"
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

    def __init__(self, transcript: ClaudeTranscript) -> None:
        self._transcript = transcript
        #: of each file: its inode, and how far it was read
        self._read_to: dict[Path, tuple[int, int]] = {}
        self._messages: dict[str, Tokens] = {}
        self._totals: dict[str, Tokens] = {}

    def read(self) -> dict[str, Tokens]:
        """Tokens by model so far; reads only what was written since the last call.

        What was counted stays counted when a file is gone or was replaced.
        """
        for file in (self._transcript, *self._transcript.subagents()):
            self._read_file(file.path)
        return dict(self._totals)

    def _read_file(self, path: Path) -> None:
        try:
            found = os.lstat(path)
            inode, offset = self._read_to.get(path, (found.st_ino, 0))
            if found.st_ino != inode or found.st_size < offset:
                offset = 0  # another file; its messages still count once
            if found.st_size == offset:
                return
            complete = _complete_lines(path, offset)
        except OSError:
            return  # not readable yet: the next look reads it
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
        if model != "<synthetic>":  # written by the client, such as an API error; no model was asked
            before = self._messages.get(key, Tokens())
            more = usage.since(before)
            self._messages[key] = before + more
            self._totals[model] = self._totals.get(model, Tokens()) + more


def _role(row: dict[str, Any], text: str) -> str:
    match row.get("type"):
        case "assistant":
            return "error" if is_synthetic(row) else "assistant"
        case "user" if not row.get("isMeta") and not _is_tool_output(row):
            return "llmc" if _OURS.search(text) else "person"
    return ""


def _is_tool_output(row: dict[str, Any]) -> bool:
    content = _content(row)
    return isinstance(content, list) and any(
        isinstance(block, dict) and block.get("type") == "tool_result" for block in content
    )


def _content(row: Row) -> Any:
    message = row.get("message")
    return message.get("content") if isinstance(message, dict) else ""


def _joined(content: Any) -> str:
    """The text of a message, in all its parts."""
    if isinstance(content, list):
        content = "\n".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return given.text(content)


def _at(row: dict[str, Any]) -> float | None:
    try:
        return datetime.fromisoformat(str(row.get("timestamp"))).timestamp()
    except ValueError:
        return None
