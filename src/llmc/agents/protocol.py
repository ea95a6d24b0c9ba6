"""What llmc needs of an agent: how it is started (`Agent`), and how to read what it says of itself (`Reader`).

Claude Code and the scripted agent stand behind both; `agents/registry.py` says which there are.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from llmc.agents.agent_events import AgentEvent, What
from llmc.base.names import ClaudeSessionId
from llmc.records.hook_events import HookEvent
from llmc.records.tokens import Spent, Tokens

if TYPE_CHECKING:
    from llmc.agents.screens import Screen


class ClientStatus(StrEnum):
    """What the client says of itself."""

    IDLE = "idle"
    BUSY = "busy"
    #: a dialog is open: whatever is typed now would answer it
    WAITING = "waiting"
    #: at the prompt, with a shell running in the background
    SHELL = "shell"
    #: it says nothing
    UNKNOWN = "unknown"


class ClientState(Struct, frozen=True):
    """What one running client says of itself."""

    status: ClientStatus = ClientStatus.UNKNOWN
    since_unix: float = 0.0
    session: ClaudeSessionId | None = None
    #: while it waits: the agent asks, and no person opened the dialog
    asks: bool = False
    #: while it waits: an answer to a question is what it waits for
    wants_answer: bool = False


class Prompt(Struct, frozen=True):
    """A prompt as a transcript has it."""

    text: str
    #: it is in the client's queue: the agent has not read it yet
    queued: bool = False


class Passage(Struct, frozen=True):
    """A part of a transcript, as text for people."""

    text: str
    #: whether its turn is over at the end of it
    turn_is_over: bool
    #: where the next part begins
    end: int


class Meter(Protocol):
    """Adds up the tokens of one conversation, its subagents included."""

    def read(self) -> dict[str, Tokens]:
        """Tokens by model so far; what was counted stays counted."""
        ...


class Transcript(Protocol):
    """The file of a conversation, which the client writes. Offsets are bytes of it; a file that is not there is empty."""

    @property
    def path(self) -> Path: ...

    @property
    def session(self) -> ClaudeSessionId: ...

    def size(self) -> int: ...

    def subagents(self) -> "Sequence[Transcript]":
        """Those of the agents that the conversation has started."""
        ...

    def sibling(self, session: str) -> "Transcript":
        """That of another conversation in the same directory."""
        ...

    def prompts(self, holding: str, since: int = 0) -> tuple[list[Prompt], int]:
        """The prompts with that text in them, oldest first; and the offset to go on from."""
        ...

    def queued(self) -> list[str] | None:
        """The messages in the client's queue, oldest first; None where it cannot be told."""
        ...

    def answer_to(self, question: str, since: int) -> tuple[str, int]:
        """The answer that the client wrote down, "" for none; and the offset to go on from."""
        ...

    def replies(self, since: int) -> tuple[int, int]:
        """How often the agent itself wrote something; and the offset to go on from."""
        ...

    def passage(self, since: int, speaker: str, *, was_over: bool = False) -> Passage:
        """Everything from there on; `was_over`: whether the turn was over before."""
        ...

    def last_reply_unix(self) -> float | None: ...

    def last_reply_id(self) -> str:
        """Also of a reply that only calls a tool; "" for none."""
        ...

    def last_growth_unix(self) -> float | None:
        """When anything was written, by a tool or a subagent too."""
        ...

    def last_messages(self, most: int) -> list[tuple[str, str, float, str]]:
        """Id, role, time and text, oldest first; roles are those of goals/drive/liveness.py. Tool output is no message."""
        ...

    def meter(self) -> Meter: ...


class Reader(Protocol):
    """How to read what an agent of one kind says of itself; needs no settings."""

    @property
    def hook_names(self) -> Mapping[What, str]:
        """What it calls the hook that tells of each event."""
        ...

    def event(self, hook: HookEvent) -> AgentEvent: ...

    def start_failure(self, lines: Sequence[str]) -> str:
        """Why a client exited at its start, from what it printed; a fix is named as `llmc ...`. "": it printed nothing."""
        ...

    def state(self, config_dir: Path, pid: int) -> ClientState: ...

    def transcript(self, path: str | Path) -> Transcript: ...

    def find_transcript(
        self, config_dir: Path, session: ClaudeSessionId | None, cwd: str
    ) -> Transcript | None:
        """That of a conversation; without an id the newest one of the directory the agent works in."""
        ...


class Launch(Struct, frozen=True):
    """How to start an agent for a worker."""

    settings: Path
    model: str
    skip_permissions: bool
    allowed_tools: tuple[str, ...]
    #: no person is there: it gets no tool that waits for one
    unattended: bool = False
    resume: ClaudeSessionId | None = None


class Answer(Struct, frozen=True):
    """One answer of a client; `error` is what it says went wrong, with the HTTP status where there is one."""

    text: str
    model: str = ""
    #: as the client says; nothing where it says nothing
    spent: Spent = Spent()
    error: str = ""
    status: int = 0


class OneShot(Protocol):
    """How to ask a client one thing without a session. It may read the repository, and changes nothing."""

    def argv(self, schema: Mapping[str, Any], model: str) -> list[str]:
        """The prompt comes on standard input; the answer is JSON of that schema. `model`: "" for the client's own."""
        ...

    def environment(self, base: Mapping[str, str]) -> dict[str, str]: ...

    def answer(self, stdout: str) -> Answer | None:
        """What the client printed; None where that is no answer."""
        ...


class Trust(Protocol):
    """The file in which a client keeps the directories that a person trusts. It is the person's."""

    @property
    def file(self) -> Path: ...

    def add(self, place: Path) -> None: ...

    def remove(self, root: Path, place: Path | None = None) -> list[str]:
        """Take out what the client noted of a root and of what is below it; each entry in words.

        The entry of `place` goes too, if it has nothing but what `add` writes.
        """
        ...

    def left(self, place: Path, *, is_ours: bool) -> str:
        """The entry of `place` that stays, and how a person takes it back; "" for none. `is_ours`: `remove` is told of it."""
        ...


class Agent(Protocol):
    """An agent program: how it is started."""

    @property
    def name(self) -> str: ...

    @property
    def ships_with_llmc(self) -> bool:
        """It changes with llmc only: nothing has to be tried, and its program does not change under a daemon."""
        ...

    @property
    def minimum(self) -> tuple[int, ...]:
        """The oldest version that llmc was tried with."""
        ...

    def program(self) -> list[str]:
        """The resolved program; an error that names the fix when there is none."""
        ...

    def pinned(self) -> "Agent":
        """The same, with the program that it is at this moment."""
        ...

    def version(self) -> str: ...

    def argv(self, launch: Launch) -> list[str]: ...

    def environment(
        self, base: Mapping[str, str], *, task_tools: bool = True, task_list: str = ""
    ) -> dict[str, str]:
        """What it runs with. `task_tools`: it may make tasks with tools of its own; `task_list`: in that list."""
        ...

    def config_dir(self, environment: Mapping[str, str]) -> Path: ...

    def conversations(self, environment: Mapping[str, str]) -> Path:
        """Where its transcripts are."""
        ...

    def settings(self, hook_command: str) -> bytes:
        """The file it is started with, so that it tells llmc of each event."""
        ...

    def has_hooks(self, settings: bytes, hook_command: str) -> bool:
        """Whether such a file registers exactly these hooks; ValueError where it cannot be read."""
        ...

    def setup_problem(self, root: Path, environment: Mapping[str, str]) -> str | None:
        """Why a start would stop in a dialog, with the fix; None when it would not."""
        ...

    def trust(self, environment: Mapping[str, str]) -> Trust | None:
        """None where it works in any directory."""
        ...

    def one_shot(self) -> OneShot | None:
        """None where it can only work in a session."""
        ...


class Kind(Protocol):
    """A kind of agent: what can be had of it. Each is loaded when it is asked for."""

    @property
    def child_mark(self) -> str:
        """The variable that it sets in everything it starts."""
        ...

    @property
    def interrupt_key(self) -> str:
        """Ends its turn, and leaves the draft in its box."""
        ...

    def agent(self, command: str, private: Path) -> Agent:
        """`command`: the path of its program, "" to look for it. `private`: a directory for files of its own."""
        ...

    def reader(self) -> Reader: ...

    def screen(self) -> "Screen":
        """For those who press keys (agents/screens.py)."""
        ...
