"""What an agent tells and shows, in llmc's own words: the events that the rules judge, and what is on its screen. Pure."""

from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct, field

from llmc.base.names import ClaudeSessionId
from llmc.records.causes import Cause
from llmc.records.worker import Asked

#: what llmc itself puts into an inbox, by the names in the files
REPORT, PANE_DIED = "Report", "PaneDied"


class What(StrEnum):
    """What has happened."""

    SESSION_STARTED = "session_started"
    PROMPT_ARRIVED = "prompt_arrived"
    TURN_ENDED = "turn_ended"
    TURN_FAILED = "turn_failed"
    DIALOG_OPENED = "dialog_opened"
    SESSION_ENDED = "session_ended"
    #: the agent is about to make a task: told before the task is there
    TASK_ANNOUNCED = "task_announced"
    TASK_MADE = "task_made"
    #: `llmc report`
    REPORTED = "reported"
    #: its process ended, as tmux tells it
    EXITED = "exited"
    #: nothing that any rule asks for
    OTHER = "other"


class AgentEvent(Struct, frozen=True, kw_only=True):
    """One event; `id` is the file name of its hook, which also gives the order."""

    id: str
    worker: str
    instance: str
    what: What
    #: what the client calls it: for the event log
    name: str = ""
    from_subagent: bool = False
    #: the conversation, and where its transcript is
    session: ClaudeSessionId | None = None
    transcript: str = ""
    #: how a conversation began, or why it ended, in the client's words
    source: str = ""
    end: str = ""
    #: it began because the one before was cleared
    is_cleared: bool = False
    prompt: str = ""
    #: a turn that ended with work still running in the background is not at its end
    background_running: bool = False
    #: shells, which nobody waits for, and no agent
    only_shells_running: bool = False
    #: of a turn that failed: the client's label, what that means, and its last words
    error: str = ""
    cause: Cause = Cause.AGENT
    last_words: str = ""
    asked: Asked | None = None
    #: the agent asks a person, and not for a permission
    is_question: bool = False
    task_id: str = ""
    #: of what llmc told itself, such as a report: all of it
    told: dict[str, Any] = field(default_factory=dict)

    @property
    def at_unix(self) -> float:
        """When the sender started, from the name of its file."""
        return int(self.id.partition("-")[0]) / 1e9


class Box(StrEnum):
    """What the composer on the screen holds."""

    EMPTY = "empty"
    #: nothing but blanks in one line, which are nobody's text; but what follows them is not read as if it came first
    BLANK = "blank"
    DRAFT = "draft"
    #: keys do not go into a composer: a dialog, a search, or something is drawn over it
    ABSENT = "absent"


class Composer(Struct, frozen=True):
    box: Box
    text: str = ""


class Shown(NamedTuple):
    """A question that is on the screen."""

    #: what stands in the line for another answer; "" while nothing does
    typed: str
    #: the cursor is in that line
    in_free_line: bool
