"""An agent unlike any other: its own hooks, status, transcript and screen, none of them Claude Code's JSON.

Its status is a line (`asleep 12.5`) in `<pid>.state`, its transcript has a line for each message (`you> `,
`later> `, `me> `, `cost> opus 7`), and its box is the last line of the screen, after `$ `.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from llmc.agents import kinds
from llmc.agents.agent_events import AgentEvent, Box, Composer, Shown, What
from llmc.agents.protocol import (
    Agent,
    ClientState,
    ClientStatus,
    Kind,
    Meter,
    Passage,
    Prompt,
    Reader,
    Transcript,
)
from llmc.agents.screens import Screen
from llmc.base.names import ClaudeSessionId
from llmc.records.hook_events import HookEvent
from llmc.records.items import Glance
from llmc.records.worker import Tokens

NAME = "other"
_STATUSES = {
    "asleep": ClientStatus.IDLE,
    "awake": ClientStatus.BUSY,
    "asking": ClientStatus.WAITING,
    "choosing": ClientStatus.WAITING,
}
_HOOKS = {What.PROMPT_ARRIVED: "heard", What.TURN_ENDED: "fell_silent"}


def register(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a folder in agents/ and its name in config/model.py do."""
    for name, content in (("kind", {"KIND": KIND}), ("glance", {"glance": _glance})):
        module = ModuleType(f"llmc.agents.{NAME}.{name}")
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(kinds, "AGENTS", (*kinds.AGENTS, NAME))


def _glance(config_dir: str, pid: int) -> Glance:
    said = OtherReader().state(Path(config_dir), pid)
    return Glance("it asks" if said.asks else "", said.status is ClientStatus.IDLE)


class OtherTranscript:
    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def session(self) -> ClaudeSessionId:
        return ClaudeSessionId(self.path.name.removeprefix("talk-"))

    def size(self) -> int:
        return len(self._text())

    def subagents(self) -> Sequence[Transcript]:
        return []

    def sibling(self, session: str) -> Transcript:
        return OtherTranscript(self.path.with_name(f"talk-{session}"))

    def prompts(self, holding: str, since: int = 0) -> tuple[list[Prompt], int]:
        rows = [row for row in self._rows(since) if row[0] in ("you", "later") and holding in row[1]]
        return [Prompt(said, queued=who == "later") for who, said in rows], self.size()

    def queued(self) -> list[str] | None:
        return [said for who, said in self._rows() if who == "later"]

    def answer_to(self, question: str, since: int) -> tuple[str, int]:
        found = [said for who, said in self._rows(since) if who == f"re {question}"]
        return (found or [""])[-1], self.size()

    def replies(self, since: int) -> tuple[int, int]:
        return sum(who == "me" for who, _ in self._rows(since)), self.size()

    def passage(self, since: int, speaker: str, *, was_over: bool = False) -> Passage:
        rows = self._rows(since)
        is_over = rows[-1][0] == "me" if rows else was_over
        return Passage("".join(f"{speaker}: {said}\n" for _, said in rows), is_over, self.size())

    def last_reply_unix(self) -> float | None:
        return self.last_growth_unix()

    def last_reply_id(self, until_unix: float) -> str:
        return str(self.replies(0)[0] or "")

    def last_growth_unix(self) -> float | None:
        return self.path.stat().st_mtime if self.path.exists() else None

    def last_messages(self, most: int) -> list[tuple[str, str, float, str]]:
        return [(str(at), "assistant", 1.0, said) for at, (_, said) in enumerate(self._rows())][-most:]

    def meter(self) -> Meter:
        return _Meter(self)

    def _text(self) -> str:
        return self.path.read_text() if self.path.exists() else ""

    def _rows(self, since: int = 0) -> list[tuple[str, str]]:
        parted = (line.partition("> ") for line in self._text()[since:].splitlines())
        return [(who, said.replace("\\n", "\n")) for who, _, said in parted]


class _Meter:
    def __init__(self, transcript: OtherTranscript) -> None:
        self._transcript = transcript

    def read(self) -> dict[str, Tokens]:
        found: dict[str, Tokens] = {}
        for model, count in (said.split() for who, said in self._transcript._rows() if who == "cost"):
            found[model] = found.get(model, Tokens()) + Tokens(output_tokens=int(count))
        return found


class OtherReader:
    hook_names = _HOOKS

    def event(self, hook: HookEvent) -> AgentEvent:
        means = {name: what for what, name in _HOOKS.items()}
        what = means.get(hook.name, What.OTHER)
        about = {"id": hook.id, "worker": hook.worker, "instance": hook.instance}
        return AgentEvent(**about, what=what, name=hook.name, prompt=hook.text("words"))

    def state(self, config_dir: Path, pid: int) -> ClientState:
        try:
            word, since = (config_dir / f"{pid}.state").read_text().split()
        except OSError:
            return ClientState()
        return ClientState(
            _STATUSES[word], float(since), asks=word == "asking", wants_answer=word == "asking"
        )

    def transcript(self, path: str | Path) -> Transcript:
        return OtherTranscript(Path(path))

    def find_transcript(
        self, config_dir: Path, session: ClaudeSessionId | None, cwd: str
    ) -> Transcript | None:
        return self.transcript(config_dir / f"talk-{session}") if session else None


class OtherScreen:
    clear, leave, erase_key, up_key = ":new", ":bye", "C-k", "C-p"

    def composer(self, screen: str, cursor: tuple[int, int] | None = None) -> Composer:
        mark, _, text = screen.rstrip("\n").rpartition("\n")[2].partition("$ ")
        if mark:
            return Composer(Box.ABSENT)
        return Composer(Box.DRAFT, text) if text else Composer(Box.EMPTY)

    def holds(self, box: Composer, header: str, text: str) -> bool:
        return header in box.text

    def is_placeholder(self, box: Composer) -> bool:
        return False

    def recognise(
        self, screen: str, question: str, options: tuple[str, ...], cursor: tuple[int, int] | None = None
    ) -> Shown | None:
        return Shown("", in_free_line=False) if screen.startswith(question) else None

    def option_key(self, number: int) -> str:
        return "abcdefgh"[number - 1]


class OtherKind:
    child_mark, interrupt_key = "OTHER_CHILD", "C-c"

    def agent(self, command: str, private: Path) -> Agent:
        raise NotImplementedError("no test starts it")

    def reader(self) -> Reader:
        return OtherReader()

    def screen(self) -> Screen:
        return OtherScreen()


KIND: Kind = OtherKind()
