"""Claude Code in the table of agents."""

from pathlib import Path

from llmc.agents.claude.layout import CHILD_SESSION
from llmc.agents.protocol import Agent, Reader


class ClaudeKind:
    child_mark = CHILD_SESSION

    def agent(self, command: str, private: Path) -> Agent:
        from llmc.agents.claude.client import ClaudeCode

        return ClaudeCode(command)

    def reader(self) -> Reader:
        from llmc.agents.claude.reader import ClaudeReader

        return ClaudeReader()
