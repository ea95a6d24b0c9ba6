"""The scripted agent as a kind of agent."""

from pathlib import Path
from typing import TYPE_CHECKING

from llmc.agents.claude.layout import CHILD_SESSION
from llmc.agents.protocol import Agent, Kind, Reader

if TYPE_CHECKING:
    from llmc.agents.screens import Screen


class ScriptedKind:
    child_mark, interrupt_key = CHILD_SESSION, "Escape"

    def agent(self, command: str, private: Path) -> Agent:
        from llmc.agents.scripted.client import Scripted

        return Scripted(private)

    def reader(self) -> Reader:
        """Claude Code's: the scripted agent writes the same files and fires the same hooks on purpose."""
        from llmc.agents.claude.reader import ClaudeReader

        return ClaudeReader()

    def screen(self) -> "Screen":
        from llmc.agents.claude.screen import ClaudeScreen

        return ClaudeScreen()


KIND: Kind = ScriptedKind()
