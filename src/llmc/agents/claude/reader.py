"""Reads the hooks, status files and transcripts of Claude Code."""

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
from llmc.records.hook_events import HookEvent

#: `waitingFor` of a question; older clients call every dialog a permission prompt
_FOR_AN_ANSWER = ("input needed", "permission prompt")
#: `waitingFor` of a dialog that a person opened
_OF_A_PERSON = ("", DIALOG_OPEN)


class ClaudeReader:
    hook_names = NAMES

    def event(self, hook: HookEvent) -> AgentEvent:
        return event_of(hook)

    def start_failure(self, lines: Sequence[str]) -> str:
        from llmc.agents.claude.start_failure import reason_of  # hardly any command needs it

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
            found = max(of_directory, key=lambda path: path.stat().st_mtime, default=None)
        return None if found is None else self.transcript(found)


def _status(record: dict[str, Any]) -> tuple[ClientStatus, float]:
    try:
        return ClientStatus(str(record.get("status"))), float(record.get("statusUpdatedAt", 0)) / 1000
    except (ValueError, TypeError):
        return ClientStatus.UNKNOWN, 0.0
