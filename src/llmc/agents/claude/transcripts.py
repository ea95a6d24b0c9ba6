"""Transcripts of Claude Code: prompts and replies, readable text, and the tokens used."""

import contextlib
import json
import os
import re
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from llmc.agents.claude.followed import Prompts, Queue, remembered
from llmc.agents.claude.glance import has_own_home
from llmc.agents.claude.json_lines import Budget, Row, Rows
from llmc.agents.claude.layout import transcript_name
from llmc.agents.protocol import Passage, Prompt
from llmc.base import given
from llmc.base.files import open_given
from llmc.base.names import ClaudeSessionId
from llmc.records.worker import Tokens

#: how much of the end of a transcript is read; a single row can be longer
TAIL_BYTES = 256 * 1024
#: how much of a file one passage covers; the next one has the rest
PASSAGE_BYTES = 32 << 20
#: in every row that is part of a conversation
_TYPED = b'"type"'
#: more than any conversation has: subagent files, models, and messages whose rows may still come
MOST_SUBAGENTS = 10_000
MOST_MODELS = 20
MOST_MESSAGES = 100_000
#: longer names are cut
MOST_NAME = 200
#: counts the tokens of all models beyond MOST_MODELS
OTHER_MODEL = "unknown"
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
        folder = self.path.with_suffix("") / "subagents"
        try:
            with os.scandir(folder) as entries:
                names = [entry.name for entry in islice(entries, MOST_SUBAGENTS)]
        except OSError:
            return []
        found = sorted(name for name in names if name.startswith("agent-") and name.endswith(".jsonl"))
        return [ClaudeTranscript(folder / name) for name in found]

    def sibling(self, session: str) -> "ClaudeTranscript":
        return ClaudeTranscript(self.path.with_name(transcript_name(session)))

    def prompts(self, holding: str, since: int = 0) -> tuple[list[Prompt], int]:
        """Without `since`, reads only what is new since the last call: every check of a delivery asks again."""
        make = partial(Prompts, holding, row_text)
        if since:
            later = make()
            later.read_rows(self._rows(later.needle, since))
            return later.found, later.end
        found = remembered(self.path, f"prompts {holding}", make)
        with found.lock:
            found.read_on(self.path, partial(_opened, self.path))
            return list(found.found), found.end

    def queued(self) -> list[str] | None:
        queue = remembered(self.path, "queue", Queue)
        with queue.lock:
            queue.read_on(self.path, partial(_opened, self.path))
            return list(queue.waiting) if queue.is_known and queue.is_whole else None

    def answer_to(self, question: str, since: int) -> tuple[str, int]:
        rows, answer = self._rows(b'"answers"', since), ""
        for row in rows:
            result = row.get("toolUseResult")
            answers = result.get("answers") if isinstance(result, dict) else None
            given_one = answers.get(question) if isinstance(answers, dict) else None
            answer = given_one if isinstance(given_one, str) else answer
        return answer, rows.end

    def replies(self, since: int) -> tuple[int, int]:
        rows = self._rows(b'"assistant"', since)
        return sum(map(is_reply, rows)), rows.end

    def passage(self, since: int, speaker: str, *, was_over: bool = False) -> Passage:
        rows, is_over, text = self._rows(_TYPED, since, Budget(PASSAGE_BYTES)), was_over, list[str]()
        for row in rows:
            text.append(readable(row, speaker))
            is_over = ends_a_turn(row, is_over)
        return Passage("".join(text), is_over, rows.end)

    def last_reply_unix(self) -> float | None:
        """Errors of the client do not count as replies."""
        times = [_at(row) for row in self._last_rows() if is_reply(row)]
        return max((at for at in times if at is not None), default=None)

    def last_reply_id(self, until_unix: float) -> str:
        own = [
            row
            for row in self._last_rows()
            if is_reply(row) and ((at := _at(row)) is None or at <= until_unix)
        ]
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

    def _rows(self, needle: bytes, offset: int, budget: Budget | None = None) -> Rows:
        """The complete rows after byte `offset` that contain `needle`, and the offset to go on from."""
        return Rows(partial(_opened, self.path), (needle,), offset, budget or Budget())

    def _last_rows(self) -> Iterable[Row]:
        size = self.size()
        return self._rows(_TYPED, max(0, size - TAIL_BYTES))


def _opened(path: Path) -> BinaryIO:
    """Open a transcript. An agent may have replaced it with a pipe, which blocks, or a link to the user's own.

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
    """Whether the client itself wrote this reply, such as for an API error."""
    message = row.get("message")
    return isinstance(message, dict) and message.get("model") == "<synthetic>"


def is_reply(row: dict[str, Any]) -> bool:
    """Whether this row is a reply of the agent."""
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


def ends_a_turn(row: Row, before: bool) -> bool:
    """Whether the turn is over after this row: the client marks the end with a row after the last reply."""
    if row.get("type") == "system" and row.get("subtype") in _AFTER_A_TURN:
        return True
    return before and row.get("type") not in ("user", "assistant")


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
    """Adds up the tokens of one conversation, its subagents included.

    The client writes a row for each content block of a message and repeats the message's usage in every one of
    them, so a message counts once, by its id; the last row of a message has its final numbers.
    """

    def __init__(self, transcript: ClaudeTranscript) -> None:
        self._transcript = transcript
        #: of each file: its inode, and how far it was read
        self._read_to: dict[Path, tuple[int, int]] = {}
        #: usage by message id; only the newest are kept
        self._messages: dict[str, Tokens] = {}
        self._totals: dict[str, Tokens] = {}

    def read(self) -> dict[str, Tokens]:
        """Tokens by model so far. Reads what was written since the last call; what is too much is left to later calls.

        Tokens stay counted when a file is removed or replaced.
        """
        budget, files = Budget(), (self._transcript, *self._transcript.subagents())
        here = {file.path: self._read_file(file.path, budget) for file in files}
        self._read_to = {path: place for path, place in here.items() if place is not None}
        return dict(self._totals)

    def _read_file(self, path: Path, budget: Budget) -> tuple[int, int] | None:
        """The file's inode, and how far it was read; None if it is gone."""
        try:
            found = os.lstat(path)
        except OSError:
            return None
        inode, offset = self._read_to.get(path, (found.st_ino, 0))
        if found.st_ino != inode or found.st_size < offset:
            offset = 0  # another file; its messages still count once
        if found.st_size == offset:
            return found.st_ino, offset
        rows = Rows(partial(_opened, path), (b'"usage"', b'"assistant"'), offset, budget)
        for row in rows:
            self._count(row)
        return found.st_ino, rows.end

    def _count(self, row: Row) -> None:
        try:
            if row.get("type") != "assistant":
                return
            message = row["message"]
            usage = msgspec.convert(message["usage"], Tokens)
            model, key = str(message["model"])[:MOST_NAME], str(message["id"])[:MOST_NAME]
        except (ValueError, KeyError, TypeError, AttributeError, msgspec.ValidationError):
            return
        if model != "<synthetic>":  # written by the client, such as an API error; no model was asked
            before = self._messages.pop(key, Tokens())
            more = usage.since(before)
            self._messages[key] = before + more
            if len(self._messages) > MOST_MESSAGES:
                del self._messages[next(iter(self._messages))]
            if len(self._totals) >= MOST_MODELS and model not in self._totals:
                model = OTHER_MODEL
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
    """The text of all parts of a message."""
    if isinstance(content, list):
        content = "\n".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return given.text(content)


def _at(row: dict[str, Any]) -> float | None:
    try:
        return datetime.fromisoformat(str(row.get("timestamp"))).timestamp()
    except ValueError:
        return None
