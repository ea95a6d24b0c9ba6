"""The end of a conversation: when the agent last said something, and its last few messages."""

import contextlib
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from llmc.agents.claude.transcripts import is_synthetic, subagents_of
from llmc.base.files import json_row

#: so much of the end of a transcript is read; a single row of output can be longer
TAIL_BYTES = 256 * 1024
_OURS = re.compile(r"^\[llmc [a-z]+-[0-9a-z-]+\]$", re.MULTILINE)


def last_word_unix(path: Path) -> float | None:
    """When the agent itself last wrote something; an error of the client's is not its word."""
    times = [_at(row) for row in _rows(path) if row.get("type") == "assistant" and not is_synthetic(row)]
    known = [at for at in times if at is not None]
    return max(known, default=None)


def last_word_id(path: Path) -> str:
    """The id of the newest message of the agent's own, also of one that only calls a tool; "" for none."""
    own = [row for row in _rows(path) if row.get("type") == "assistant" and not is_synthetic(row)]
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
