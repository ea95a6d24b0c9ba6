"""What llmc needs from an agent: how to start it (`Agent`), and how to read what it writes (`Reader`).

`agents/kinds.py` finds the implementations.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from llmc.agents.agent_events import AgentEvent, What
from llmc.base.names import ClaudeSessionId
from llmc.records.hook_events import HookEvent
from llmc.records.worker import Spent, Tokens

if TYPE_CHECKING:
    from llmc.agents.screens import Screen
    from llmc.sandbox.rules import Mount


class ClientStatus(StrEnum):
    """The status that a client reports."""

    IDLE = "idle"
    BUSY = "busy"
    #: a dialog is open: any key would answer it
    WAITING = "waiting"
    #: at the prompt, with a shell running in the background
    SHELL = "shell"
    #: the client reports nothing
    UNKNOWN = "unknown"


class ClientState(Struct, frozen=True):
    """What a running client reports about itself."""

    status: ClientStatus = ClientStatus.UNKNOWN
    since_unix: float = 0.0
    session: ClaudeSessionId | None = None
    #: the open dialog is the agent's, not one that the user opened
    asks: bool = False
    #: the open dialog is a question that can be answered
    wants_answer: bool = False


class Prompt(Struct, frozen=True):
    """A prompt in a transcript."""

    text: str
    #: still in the client's queue: the agent has not read it
    queued: bool = False


class Passage(Struct, frozen=True):
    """A part of a transcript, as readable text."""

    text: str
    #: whether the turn is over at its end
    turn_is_over: bool
    #: where the next part begins
    end: int


class Meter(Protocol):
    """Adds up the tokens of one conversation, its subagents included."""

    def read(self) -> dict[str, Tokens]:
        """Tokens by model so far."""
        ...


class Transcript(Protocol):
    """The file of a conversation, written by the client. Offsets are in bytes; a missing file is empty."""

    @property
    def path(self) -> Path: ...

    @property
    def session(self) -> ClaudeSessionId: ...

    def size(self) -> int: ...

    def subagents(self) -> "Sequence[Transcript]":
        """The transcripts of its subagents."""
        ...

    def sibling(self, session: str) -> "Transcript":
        """The transcript of another conversation in the same directory."""
        ...

    def prompts(self, holding: str, since: int = 0) -> tuple[list[Prompt], int]:
        """The prompts that contain this text, oldest first, and the offset to continue from."""
        ...

    def queued(self) -> list[str] | None:
        """The messages in the client's queue, oldest first; None if unknown."""
        ...

    def answer_to(self, question: str, since: int) -> tuple[str, int]:
        """The recorded answer, "" for none, and the offset to continue from."""
        ...

    def replies(self, since: int) -> tuple[int, int]:
        """The number of replies of the agent, and the offset to continue from."""
        ...

    def passage(self, since: int, speaker: str, *, was_over: bool = False) -> Passage:
        """Everything after `since`. `was_over`: whether the turn was over before."""
        ...

    def last_reply_unix(self) -> float | None: ...

    def last_reply_id(self, until_unix: float) -> str:
        """The last reply that began by then, also one that only calls a tool; "" for none."""
        ...

    def last_growth_unix(self) -> float | None:
        """When anything was last written, including tool output and subagents."""
        ...

    def last_messages(self, most: int) -> list[tuple[str, str, float, str]]:
        """Id, role, time and text, oldest first, without tool output. The roles are in goals/drive/liveness.py."""
        ...

    def meter(self) -> Meter: ...


class Reader(Protocol):
    """Reads what one kind of agent writes. Needs no configuration."""

    @property
    def hook_names(self) -> Mapping[What, str]:
        """The agent's own name for the hook of each event."""
        ...

    def event(self, hook: HookEvent) -> AgentEvent: ...

    def start_failure(self, lines: Sequence[str]) -> str:
        """Why a client exited on start, from what it printed, with the fix if known; "" if it printed nothing."""
        ...

    def state(self, config_dir: Path, pid: int) -> ClientState: ...

    def transcript(self, path: str | Path) -> Transcript: ...

    def find_transcript(
        self, config_dir: Path, session: ClaudeSessionId | None, cwd: str
    ) -> Transcript | None:
        """The transcript of a conversation; without an id, the newest one for the working directory."""
        ...


class Launch(Struct, frozen=True):
    """How to start an agent for a worker."""

    settings: Path
    model: str
    skip_permissions: bool
    allowed_tools: tuple[str, ...]
    #: without the tools that wait for the user
    unattended: bool = False
    resume: ClaudeSessionId | None = None


class Home(Struct, frozen=True):
    """The home of a contained client: variables that name it, and what the client sees there."""

    environment: Mapping[str, str]
    mounts: "tuple[Mount, ...]"


class Answer(Struct, frozen=True):
    """One answer of a client; `error` is the client's message, `status` the HTTP status if known."""

    text: str
    model: str = ""
    #: as reported by the client
    spent: Spent = Spent()
    error: str = ""
    status: int = 0


class OneShot(Protocol):
    """Asks a client one question without a session. The client may read the repository, but not change it."""

    def argv(self, schema: Mapping[str, Any], model: str) -> list[str]:
        """The prompt goes to standard input; the answer is JSON with this schema. `model`: "" for the client's default."""
        ...

    def environment(self, base: Mapping[str, str]) -> dict[str, str]: ...

    def answer(self, stdout: str) -> Answer | None:
        """The answer in what the client printed; None if there is none."""
        ...


class Trust(Protocol):
    """The user's file in which a client keeps its trusted directories."""

    @property
    def file(self) -> Path: ...

    def add(self, place: Path) -> None: ...

    def remove(self, root: Path, place: Path | None = None) -> list[str]:
        """Remove the entries of a root and of everything below it, and describe each.

        The entry of `place` is removed too, if it contains only what `add` writes.
        """
        ...

    def left(self, place: Path, *, is_ours: bool) -> str:
        """The entry of `place` that `remove` leaves, and how to delete it; "" for none. `is_ours`: `remove` was given `place`."""
        ...


class Agent(Protocol):
    """An agent program, and how to start it."""

    @property
    def name(self) -> str: ...

    @property
    def ships_with_llmc(self) -> bool:
        """Part of llmc: it needs no canary, and an update cannot replace it under a running daemon."""
        ...

    @property
    def minimum(self) -> tuple[int, ...]:
        """The oldest version that llmc was tested with."""
        ...

    def program(self) -> list[str]:
        """The resolved program; raises with a hint if there is none."""
        ...

    def pinned(self) -> "Agent":
        """This agent with the program path fixed as it is now."""
        ...

    def version(self) -> str: ...

    def argv(self, launch: Launch) -> list[str]: ...

    def environment(
        self, base: Mapping[str, str], *, task_tools: bool = True, task_list: str = ""
    ) -> dict[str, str]:
        """The environment of the agent. `task_tools`: give it its own tools for tasks; `task_list`: the list they use."""
        ...

    @property
    def variables(self) -> tuple[str, ...]:
        """The user's variables that a contained agent needs, in the syntax of `sandbox.env`."""
        ...

    def endpoints(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        """The hosts of its model, which a contained agent may connect to, in the syntax of `sandbox.hosts`."""
        ...

    def config_dir(self, environment: Mapping[str, str]) -> Path: ...

    def conversations(self, environment: Mapping[str, str]) -> Path:
        """The directory of its transcripts."""
        ...

    def home(self, environment: Mapping[str, str], place: Path, trusted: Sequence[Path]) -> Home:
        """Prepare a home of its own for a contained agent, in which these directories are trusted."""
        ...

    def carry(self, conversation: Path, environment: Mapping[str, str]) -> None:
        """Copy a conversation from another home to the one of this environment, so that it can be resumed there."""
        ...

    def settings(self, hook_command: str) -> bytes:
        """The settings file that makes it report each event to llmc."""
        ...

    def has_hooks(self, settings: bytes, hook_command: str) -> bool:
        """Whether a settings file registers exactly these hooks; ValueError if it cannot be parsed."""
        ...

    def setup_problem(self, root: Path, environment: Mapping[str, str]) -> str | None:
        """Why a start would stop in a dialog, with the fix; None if it would not."""
        ...

    def trust(self, environment: Mapping[str, str]) -> Trust | None:
        """None if it works in any directory."""
        ...

    def one_shot(self) -> OneShot | None:
        """None if it needs a session."""
        ...


class Kind(Protocol):
    """A kind of agent. Its parts are loaded on first use."""

    @property
    def child_mark(self) -> str:
        """An environment variable that the agent sets in every process it starts."""
        ...

    @property
    def interrupt_key(self) -> str:
        """The key that ends a turn and keeps the draft in the input box."""
        ...

    def agent(self, command: str, private: Path) -> Agent:
        """`command`: the path of the program, "" to search for it. `private`: a directory for its own files."""
        ...

    def reader(self) -> Reader: ...

    def screen(self) -> "Screen":
        """See agents/screens.py for who may use it."""
        ...
