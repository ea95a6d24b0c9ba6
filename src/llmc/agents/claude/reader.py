"""Reads the hooks, status files and transcripts of Claude Code, and what it prints when it does not start."""

from collections.abc import Sequence
from glob import escape as glob_escape
from pathlib import Path
from typing import Any

from llmc.agents.agent_events import AgentEvent
from llmc.agents.claude.glance import DIALOG_OPEN, status_record
from llmc.agents.claude.hooks import NAMES, event_of
from llmc.agents.claude.layout import PROJECTS, project_slug, transcript_name
from llmc.agents.protocol import ClientState, ClientStatus, Transcript
from llmc.base.names import ClaudeSessionId
from llmc.base.text import pattern
from llmc.records.hook_events import HookEvent

#: `waitingFor` of a question; older clients call every dialog a permission prompt
_FOR_AN_ANSWER = ("input needed", "permission prompt")
#: `waitingFor` of a dialog that the user opened
_OF_A_PERSON = ("", DIALOG_OPEN)


class ClaudeReader:
    hook_names = NAMES

    def event(self, hook: HookEvent) -> AgentEvent:
        return event_of(hook)

    def start_failure(self, lines: Sequence[str]) -> str:
        return reason_of(lines)

    def state(self, config_dir: Path, pid: int) -> ClientState:
        record = status_record(str(config_dir), pid)
        status, since_unix = _status(record)
        waits_for = str(record.get("waitingFor") or "")
        return ClientState(
            status,
            since_unix,
            session=ClaudeSessionId(str(record["sessionId"])) if record.get("sessionId") else None,
            asks=waits_for not in _OF_A_PERSON,
            wants_answer=waits_for in _FOR_AN_ANSWER,
        )

    def transcript(self, path: str | Path) -> Transcript:
        from llmc.agents.claude.transcripts import ClaudeTranscript

        return ClaudeTranscript(Path(path))

    def find_transcript(
        self, config_dir: Path, session: ClaudeSessionId | None, cwd: str
    ) -> Transcript | None:
        projects = config_dir / PROJECTS
        if session:
            found = next(iter(projects.glob(f"*/{glob_escape(transcript_name(session))}")), None)
        else:
            of_directory = (projects / project_slug(cwd)).glob("*.jsonl")
            found = max(of_directory, key=lambda path: path.lstat().st_mtime, default=None)
        return None if found is None else self.transcript(found)


def _status(record: dict[str, Any]) -> tuple[ClientStatus, float]:
    try:
        return ClientStatus(str(record.get("status"))), float(record.get("statusUpdatedAt", 0)) / 1000
    except (ValueError, TypeError):
        return ClientStatus.UNKNOWN, 0.0


#: what the client prints, and how to fix it
_FIXES = (
    (
        pattern(r"cannot be used with root/sudo"),
        "Run llmc as a non-root user; in a container, run `llmc config set defaults.env.IS_SANDBOX 1`",
    ),
    (pattern(r"^Failed to connect to \S"), "Check your network connection and proxy settings"),
)
#: a line that says what failed; the first pattern that matches a line wins
_ERRORS = (
    pattern(r"^\W*(?:\w*Error|error|fatal|panic|E[A-Z]{3,})\b\W*:"),
    pattern(
        r"\b(?i:cannot|can't|could not|unable to|failed|fatal|refused|denied|invalid|not found|no such)\b"
    ),
    pattern(r"(?i:error)"),
)
_MOST = 300


def reason_of(lines: Sequence[str]) -> str:
    """The error among these lines, with the fix if known; else the last line, or "" if there is none."""
    said = [line.strip() for line in lines if line.strip()]
    for known, fix in _FIXES:
        for line in said:
            if known.search(line):
                return f"{line[:_MOST].rstrip('.')}. {fix}"
    for error in _ERRORS:
        for line in said:
            if error.search(line):
                return line[:_MOST]
    return said[-1][:_MOST] if said else ""
