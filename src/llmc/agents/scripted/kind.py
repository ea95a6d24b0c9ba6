"""The scripted agent as a kind of agent. It has the files, hooks and screen of Claude Code on purpose."""

from pathlib import Path

from llmc.agents.claude.kind import ClaudeKind
from llmc.agents.protocol import Agent, Kind


class ScriptedKind(ClaudeKind):
    def agent(self, command: str, private: Path) -> Agent:
        from llmc.agents.scripted.client import Scripted

        return Scripted(private)


KIND: Kind = ScriptedKind()
