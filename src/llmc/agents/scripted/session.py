"""Which conversation this is, where its files are, and the client's status file."""

import json
import os
import re
import threading
import time
from typing import Any

from llmc.agents.scripted.options import VERSION, Options, UsageError
from llmc.base.patterns import pattern

MAX_SLUG_CHARS = 200

_UUID = pattern(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def new_uuid() -> str:
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def now_ms() -> int:
    return int(time.time() * 1000)


def project_slug(cwd: str) -> str:
    """The client's directory name for a project (read in 2.1.325): every character that is not a letter or digit is a dash."""
    slug = re.sub(r"[^a-zA-Z0-9]", "-", cwd)
    if len(slug) <= MAX_SLUG_CHARS:
        return slug
    digest = 0
    for char in cwd:
        digest = (digest * 31 + ord(char)) & 0xFFFFFFFF
    return f"{slug[:MAX_SLUG_CHARS]}-{digest:x}"


class Session:
    """Ids and paths. Only the worker thread changes them."""

    def __init__(self, options: Options) -> None:
        self.config_dir = os.environ.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude")
        self.cwd = os.getcwd()
        self.is_child = os.environ.get("CLAUDE_CODE_CHILD_SESSION") == "1"
        self.project_dir = os.path.join(self.config_dir, "projects", project_slug(self.cwd))
        self.source = "resume" if options.resume or options.resume_latest else "startup"
        self.prompt_id = ""
        self.id, self.transcript_path = self._identify(options)

    def renew(self) -> None:
        """A new conversation, as after /clear."""
        self.id = new_uuid()
        self.prompt_id = ""
        self.transcript_path = self._path(self.id)

    def _path(self, session_id: str) -> str:
        return os.path.join(self.project_dir, session_id + ".jsonl")

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
        """The transcript to go on with; it may be another worktree's."""
        projects = os.path.dirname(self.project_dir)
        slugs = [os.path.basename(self.project_dir), *_listing(projects)]
        for slug in slugs:
            path = os.path.join(projects, slug, session_id + ".jsonl")
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
        self._path = os.path.join(session.config_dir, "sessions", f"{os.getpid()}.json")
        self._lock = threading.Lock()
        self._started = now_ms()
        self._name = f"{os.path.basename(session.cwd)}-{os.urandom(1).hex()}"
        self._start_ticks = _start_ticks()
        self.status = ""

    def create(self) -> None:
        """The client's file is there before it has a status."""
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


def _start_ticks() -> str:
    """Field 22 of /proc/self/stat: with the pid it names this process for good."""
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[19]
    except OSError:
        return ""
