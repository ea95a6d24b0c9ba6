"""The files a client keeps about itself: its status file and its transcript. Both agents write the same ones."""

import os
from glob import escape as glob_escape
from pathlib import Path
from typing import Any

from llmc.agents.protocol import ClientStatus
from llmc.agents.scripted.session import project_slug
from llmc.base.files import json_row, read_json
from llmc.base.names import ClaudeSessionId
from llmc.base.processes import start_of


def client_status(config_dir: Path, pid: int) -> ClientStatus:
    return client_state(config_dir, pid)[0]


def client_state(config_dir: Path, pid: int) -> tuple[ClientStatus, float]:
    """`sessions/<pid>.json`, believed only if it is of this very process: the status, and since when."""
    record = _status_record(config_dir / "sessions" / f"{pid}.json")
    if record is None or str(record.get("procStart")) != start_of(pid):
        return ClientStatus.UNKNOWN, 0.0
    try:
        return ClientStatus(str(record.get("status"))), float(record.get("statusUpdatedAt", 0)) / 1000
    except (ValueError, TypeError):
        return ClientStatus.UNKNOWN, 0.0


def waits_for(config_dir: Path, pid: int) -> str:
    """What a client that waits says that it waits for; "" where it does not say."""
    record = _status_record(config_dir / "sessions" / f"{pid}.json") or {}
    return str(record.get("waitingFor") or "")


def asks_by_itself(config_dir: Path, pid: int) -> bool:
    """Whether the dialog of a client that waits is the agent's question, and not one that a person opened."""
    return waits_for(config_dir, pid) not in ("", "dialog open")


def client_session(config_dir: Path, pid: int) -> ClaudeSessionId | None:
    """The conversation the process is in, by its own status file."""
    record = _status_record(config_dir / "sessions" / f"{pid}.json")
    if record is None or str(record.get("procStart")) != start_of(pid) or not record.get("sessionId"):
        return None
    return ClaudeSessionId(str(record["sessionId"]))


def transcript_of(config_dir: Path, session: ClaudeSessionId | None, cwd: str) -> Path | None:
    """The file of a conversation; without an id the newest one of the directory the agent works in."""
    projects = config_dir / "projects"
    if session:
        return next(iter(projects.glob(f"*/{glob_escape(session)}.jsonl")), None)
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


def size_of(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _status_record(path: Path) -> dict[str, Any] | None:
    for _ in range(3):  # it is rewritten in place: a reader may meet half of it
        try:
            record = read_json(path)
        except OSError:
            return None
        except ValueError:
            continue
        return record if isinstance(record, dict) else None
    return None
