"""Claude Code as a kind of agent."""

from pathlib import Path
from typing import TYPE_CHECKING

from llmc.agents.claude.layout import CHILD_SESSION
from llmc.agents.protocol import Agent, Kind, Reader

if TYPE_CHECKING:
    from llmc.agents.screens import Screen


class ClaudeKind:
    child_mark, interrupt_key = CHILD_SESSION, "Escape"

    def agent(self, command: str, private: Path) -> Agent:
        from llmc.agents.claude.client import ClaudeCode

        return ClaudeCode(command)

    def reader(self) -> Reader:
        from llmc.agents.claude.reader import ClaudeReader

        return ClaudeReader()

    def screen(self) -> "Screen":
        from llmc.agents.claude.screen import ClaudeScreen

        return ClaudeScreen()


KIND: Kind = ClaudeKind()
