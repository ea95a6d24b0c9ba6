"""How to read what Claude Code says of itself: its hooks, its status file, its transcripts."""

from collections.abc import Sequence
from glob import escape as glob_escape
from pathlib import Path
from typing import Any

from llmc.agents.agent_events import AgentEvent
from llmc.agents.claude.hooks import NAMES, event_of
from llmc.agents.claude.layout import PROJECTS, SESSIONS, project_slug, status_name, transcript_name
from llmc.agents.protocol import ClientState, ClientStatus, Transcript
from llmc.base.files import read_json
from llmc.base.names import ClaudeSessionId
from llmc.base.processes import start_of
from llmc.records.hook_events import HookEvent

#: what a client says that waits for an answer to a question; older ones call every dialog a permission prompt
_FOR_AN_ANSWER = ("input needed", "permission prompt")
#: and what it says of a dialog that a person opened
_OF_A_PERSON = ("", "dialog open")


class ClaudeReader:
    hook_names = NAMES

    def event(self, hook: HookEvent) -> AgentEvent:
        return event_of(hook)

    def start_failure(self, lines: Sequence[str]) -> str:
        from llmc.agents.claude.start_failure import reason_of  # hardly any command needs it

        return reason_of(lines)

    def state(self, config_dir: Path, pid: int) -> ClientState:
        """`sessions/<pid>.json`, believed only if it is of this very process."""
        record = _status_record(config_dir / SESSIONS / status_name(pid))
        if record is None or str(record.get("procStart")) != start_of(pid):
            return ClientState()
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
