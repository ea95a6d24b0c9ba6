"""A conversation as text for people: every prompt, reply, tool call with its arguments, and tool output. Pure."""

import json
from typing import Any

Row = dict[str, Any]

_AFTER_A_TURN = ("stop_hook_summary", "turn_duration")


def row_text(row: Row, speaker: str = "agent") -> str:
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
