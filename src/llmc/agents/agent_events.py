"""Events of an agent, and what its screen shows, in terms that fit any client. Pure."""

from enum import StrEnum
from typing import Any, NamedTuple

from msgspec import Struct, field

from llmc.base.names import ClaudeSessionId
from llmc.records.worker import Asked, Cause

#: events that llmc itself puts into an inbox
REPORT, PANE_DIED = "Report", "PaneDied"


class What(StrEnum):
    """What happened."""

    SESSION_STARTED = "session_started"
    PROMPT_ARRIVED = "prompt_arrived"
    TURN_ENDED = "turn_ended"
    TURN_FAILED = "turn_failed"
    DIALOG_OPENED = "dialog_opened"
    SESSION_ENDED = "session_ended"
    #: the agent is about to create a task
    TASK_ANNOUNCED = "task_announced"
    TASK_MADE = "task_made"
    #: `llmc report`
    REPORTED = "reported"
    #: its process exited, as reported by tmux
    EXITED = "exited"
    #: no rule uses it
    OTHER = "other"


class AgentEvent(Struct, frozen=True, kw_only=True):
    """One event; `id` is the file name of its hook, which also gives the order."""

    id: str
    worker: str
    instance: str
    what: What
    #: the client's own name, for the event log
    name: str = ""
    from_subagent: bool = False
    #: the conversation, and where its transcript is
    session: ClaudeSessionId | None = None
    transcript: str = ""
    #: the client's home that contains the transcript; "" if the transcript is not where the client keeps them
    home: str = ""
    #: how the conversation began, or why it ended, in the client's words
    source: str = ""
    end: str = ""
    #: the previous conversation was cleared
    is_cleared: bool = False
    prompt: str = ""
    #: the turn is not over: work still runs in the background
    background_running: bool = False
    #: only shells, no subagents
    only_shells_running: bool = False
    #: of a failed turn: the client's label, the cause, and the last message
    error: str = ""
    cause: Cause = Cause.AGENT
    last_words: str = ""
    asked: Asked | None = None
    #: a question to the user, not a permission
    is_question: bool = False
    task_id: str = ""
    task_subject: str = ""
    task_description: str = ""
    #: the payload of an event from llmc itself, such as a report
    told: dict[str, Any] = field(default_factory=dict)

    @property
    def at_unix(self) -> float:
        """When the sender started, from the name of its file."""
        return int(self.id.partition("-")[0]) / 1e9


class Box(StrEnum):
    """What the input box holds."""

    EMPTY = "empty"
    #: one line of blanks: not a draft, but a command typed after them would not be recognized
    BLANK = "blank"
    DRAFT = "draft"
    #: keys do not go into the box: a dialog or a search is open, or something covers it
    ABSENT = "absent"


class Composer(Struct, frozen=True):
    box: Box
    text: str = ""


class Shown(NamedTuple):
    """A question on the screen."""

    #: all the text in the line for a free answer, which may have several lines; "" if only the client's hint is there
    typed: str
    #: the cursor is in that line
    in_free_line: bool
