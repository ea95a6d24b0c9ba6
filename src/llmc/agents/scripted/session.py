"""The scripted agent's conversation and its files: the status file, and the transcript in the client's format."""

import json
import os
import re
import threading
import time
from typing import Any

from llmc.agents.claude import layout
from llmc.agents.scripted.command_line import VERSION, Options, UsageError
from llmc.base import given
from llmc.base.processes import start_of
from llmc.base.text import pattern

_UUID = pattern(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def new_uuid() -> str:
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def now_ms() -> int:
    return int(time.time() * 1000)


class Session:
    """Ids and paths. Only the worker thread changes them."""

    def __init__(self, options: Options) -> None:
        self.config_dir = os.environ.get(layout.CONFIG_DIR) or os.path.expanduser("~/.claude")
        self.cwd = os.getcwd()
        self.is_child = os.environ.get(layout.CHILD_SESSION) == "1"
        self.project_dir = os.path.join(self.config_dir, layout.PROJECTS, layout.project_slug(self.cwd))
        self.source = "resume" if options.resume or options.resume_latest else "startup"
        self.prompt_id = ""
        self.id, self.transcript_path = self._identify(options)

    def renew(self) -> None:
        """Start a new conversation, as /clear does."""
        self.id = new_uuid()
        self.prompt_id = ""
        self.transcript_path = self._path(self.id)

    def _path(self, session_id: str) -> str:
        return os.path.join(self.project_dir, layout.transcript_name(session_id))

    def _identify(self, options: Options) -> tuple[str, str]:
        if options.resume_latest:
            return self._latest()
        if options.resume:
            return options.resume, self._existing(options.resume)
        session_id = options.session_id or new_uuid()
        if not _UUID.fullmatch(session_id):
            raise UsageError("Error: Invalid session ID. Must be a valid UUID.")
        if os.path.exists(self._path(session_id)):
            raise UsageError(f"Error: Session ID {session_id} is already in use.")
        return session_id, self._path(session_id)

    def _existing(self, session_id: str) -> str:
        """The transcript to resume, which may be another worktree's."""
        projects = os.path.dirname(self.project_dir)
        slugs = [os.path.basename(self.project_dir), *_listing(projects)]
        for slug in slugs:
            path = os.path.join(projects, slug, layout.transcript_name(session_id))
            if _UUID.fullmatch(session_id) and os.path.exists(path):
                return path
        raise UsageError(f"No conversation found with session ID: {session_id}")

    def _latest(self) -> tuple[str, str]:
        paths = [
            os.path.join(self.project_dir, name)
            for name in _listing(self.project_dir)
            if name.endswith(".jsonl")
        ]
        if not paths:
            raise UsageError("No conversation found to continue")
        latest = max(paths, key=os.path.getmtime)
        return os.path.basename(latest)[: -len(".jsonl")], latest


def _listing(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except FileNotFoundError:
        return []


class StatusFile:
    """`sessions/<pid>.json`, rewritten in place as the client does: a reader may see half of it."""

    def __init__(self, session: Session, enabled: bool) -> None:
        self._session = session
        self._enabled = enabled
        self._path = os.path.join(session.config_dir, layout.SESSIONS, layout.status_name(os.getpid()))
        self._lock = threading.Lock()
        self._started = now_ms()
        self._name = f"{os.path.basename(session.cwd)}-{os.urandom(1).hex()}"
        self._start_ticks = start_of(os.getpid()) or ""
        self.status = ""

    def create(self) -> None:
        """Create the file without a status, as the client does."""
        if self._enabled:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            self._write()

    def set(self, status: str, waiting_for: str = "") -> None:
        self.status = status
        self._write(status, waiting_for)

    def remove(self) -> None:
        with self._lock:
            self._enabled = False
            try:
                os.unlink(self._path)
            except FileNotFoundError:
                pass

    def _write(self, status: str = "", waiting_for: str = "") -> None:
        fields: dict[str, Any] = {
            "pid": os.getpid(),
            "sessionId": self._session.id,
            "cwd": self._session.cwd,
            "startedAt": self._started,
            "procStart": self._start_ticks,
            "version": VERSION,
            "peerProtocol": 1,
            "kind": "interactive",
            "entrypoint": "cli",
            "name": self._name,
            "nameSource": "derived",
            "nameSince": self._started,
        }
        if status:
            fields["status"] = status
            fields["statusUpdatedAt"] = now_ms()
        if waiting_for:
            fields["waitingFor"] = waiting_for
        fields["updatedAt"] = now_ms()
        with self._lock:
            if self._enabled:
                with open(self._path, "w", encoding="utf-8") as file:
                    file.write(json.dumps(fields, separators=(",", ":"), ensure_ascii=False))


Row = dict[str, Any]
Block = dict[str, Any]

BASE_CONTEXT_TOKENS = 20_000
CHARS_PER_TOKEN = 4


def timestamp() -> str:
    now = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"


class Transcript:
    """Appends rows; the first one creates the file. Both threads write."""

    def __init__(self, session: Session, mode: str, enabled: bool) -> None:
        self._session = session
        self._mode = mode
        self._enabled = enabled
        self._lock = threading.RLock()
        self._parent: str | None = None
        self._context_chars = 0
        self._rows = 0
        self.branch = ""

    def restart(self) -> None:
        """The session has a new id: the next row starts a new file."""
        self._parent = None
        self._context_chars = 0
        self._rows = 0

    def close(self) -> None:
        """Write no more rows: what a turn still does while the client exits is not part of the conversation."""
        with self._lock:
            self._enabled = False

    def load(self) -> list[str]:
        """Continue after the last row of a resumed session; returns its prompts."""
        prompts: list[str] = []
        with open(self._session.transcript_path, "rb") as file:
            for line in file:
                row = given.row(line) or {}  # a kill may cut a line short
                self._parent = row.get("uuid", self._parent)
                self._rows += 1
                prompt = _prompt_of(row)
                if prompt:
                    prompts.append(prompt)
                    self._context_chars += len(prompt)
        return prompts

    def user(self, content: str | list[Block], **extra: Any) -> str:
        """A prompt (text) or a tool's result (blocks)."""
        self._context_chars += len(str(content))
        return self._append(
            {
                "promptId": self._session.prompt_id,
                "type": "user",
                "message": {"role": "user", "content": content},
                **extra,
            }
        )

    def prompt(self, text: str, source: str = "typed", kind: str = "human") -> str:
        if not self._rows:
            self._write({"type": "mode", "mode": "normal", "sessionId": self._session.id})
            self._write(
                {"type": "permission-mode", "permissionMode": self._mode, "sessionId": self._session.id}
            )
        return self.user(text, permissionMode=self._mode, origin={"kind": kind}, promptSource=source)

    def assistant(self, message: "Message", block: Block, **extra: Any) -> str:
        """One content block; every block of a message repeats its id and usage."""
        self._context_chars += len(str(block))
        body = {
            "id": message.id,
            "type": "message",
            "role": "assistant",
            "model": message.model,
            "content": [block],
            "stop_reason": message.stop_reason,
            "stop_sequence": None,
            "usage": message.usage,
            "stop_details": None,
        }
        return self._append({"message": body, "requestId": message.request_id, "type": "assistant", **extra})

    def attachment(self, attachment: Block) -> None:
        self._append({"attachment": attachment, "type": "attachment"})

    def system(self, subtype: str, **fields: Any) -> None:
        self._append({"type": "system", "subtype": subtype, **fields})

    def stop_hooks(self, commands: list[str], seconds: float) -> None:
        if not commands:
            return
        self.system(
            "stop_hook_summary",
            hookCount=len(commands),
            hookInfos=[{"command": command, "durationMs": int(seconds * 1000)} for command in commands],
            hookErrors=[],
            hookAdditionalContext=[],
            preventedContinuation=False,
            stopReason="",
            hasOutput=False,
            level="suggestion",
            toolUseID=new_uuid(),
        )

    def turn_duration(self, seconds: float) -> None:
        self.system("turn_duration", durationMs=int(seconds * 1000), messageCount=self._rows, isMeta=False)

    def queue(self, operation: str, **fields: Any) -> None:
        row = {
            "type": "queue-operation",
            "operation": operation,
            "timestamp": timestamp(),
            "sessionId": self._session.id,
        }
        self._write(row | fields)

    def message(self, model: str, stop_reason: str, output: str) -> "Message":
        """A new reply; its size in tokens is estimated from the text."""
        return Message(
            model, stop_reason, self._context_chars // CHARS_PER_TOKEN, len(output) // CHARS_PER_TOKEN + 5
        )

    def _append(self, row: Row) -> str:
        uuid = new_uuid()
        with self._lock:
            parent, self._parent = self._parent, uuid
            self._write(
                {"parentUuid": parent, "isSidechain": False}
                | row
                | {
                    "uuid": uuid,
                    "timestamp": timestamp(),
                    "userType": "external",
                    "entrypoint": "cli",
                    "cwd": self._session.cwd,
                    "sessionId": self._session.id,
                    "session_id": self._session.id,
                    "version": VERSION,
                    "gitBranch": self.branch,
                }
            )
        return uuid

    def _write(self, row: Row) -> None:
        data = json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
        with self._lock:
            self._rows += 1
            if not self._enabled:
                return
            path = self._session.transcript_path
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, data)
            finally:
                os.close(fd)


class Message:
    """What all rows of one reply share."""

    def __init__(self, model: str, stop_reason: str, context_tokens: int, output_tokens: int) -> None:
        self.id = f"msg_{os.urandom(11).hex()}"
        self.request_id = f"req_{os.urandom(10).hex()}"
        self.model = model
        self.stop_reason = stop_reason
        self.usage: dict[str, Any] = {
            "input_tokens": 12,
            "cache_creation_input_tokens": context_tokens // 10,
            "cache_read_input_tokens": BASE_CONTEXT_TOKENS + context_tokens,
            "output_tokens": output_tokens,
            "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
            "service_tier": "standard",
            "cache_creation": {
                "ephemeral_1h_input_tokens": 0,
                "ephemeral_5m_input_tokens": context_tokens // 10,
            },
            "inference_geo": "",
            "iterations": [],
            "speed": "standard",
        }


def git_branch(cwd: str) -> str:
    """The branch checked out in `cwd`, read from git's files without a process."""
    directory = cwd
    while not os.path.exists(os.path.join(directory, ".git")):
        parent = os.path.dirname(directory)
        if parent == directory:
            return ""
        directory = parent
    try:
        git = os.path.join(directory, ".git")
        if os.path.isfile(git):
            with open(git, encoding="utf-8") as file:
                git = os.path.join(directory, file.read().partition("gitdir: ")[2].strip())
        with open(os.path.join(git, "HEAD"), encoding="utf-8") as file:
            return file.read().strip().removeprefix("ref: refs/heads/") or "HEAD"
    except OSError:
        return ""


def _prompt_of(row: Row) -> str:
    if row.get("type") == "user" and isinstance(row["message"]["content"], str) and "origin" in row:
        return str(row["message"]["content"])
    if row.get("type") == "attachment" and row["attachment"].get("type") == "queued_command":
        return str(row["attachment"]["prompt"])
    return ""
