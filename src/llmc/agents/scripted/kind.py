"""The scripted agent in the table of agents."""

from pathlib import Path

from llmc.agents.claude.layout import CHILD_SESSION
from llmc.agents.protocol import Agent, Reader


class ScriptedKind:
    child_mark = CHILD_SESSION

    def agent(self, command: str, private: Path) -> Agent:
        from llmc.agents.scripted.client import Scripted

        return Scripted(private)

    def reader(self) -> Reader:
        """That of Claude Code: it writes the same files and fires the same hooks on purpose."""
        from llmc.agents.claude.reader import ClaudeReader

        return ClaudeReader()
