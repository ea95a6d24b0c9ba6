"""How to start the scripted agent."""

import sys
from collections.abc import Mapping
from pathlib import Path

from llmc.agents.claude.client import LikeClaude
from llmc.agents.claude.layout import CONFIG_DIR
from llmc.agents.protocol import Agent, OneShot, Trust


class Scripted(LikeClaude):
    """An agent without a model that runs the directives in its prompts.

    It is like Claude Code on purpose: llmc is tested with the hooks, files and screen of the client.
    """

    name = "scripted"
    ships_with_llmc = True

    def __init__(self, private: Path) -> None:
        self._private = private

    def program(self) -> list[str]:
        # -P: a worktree with a json.py of its own must not shadow the standard library.
        return [sys.executable, "-P", "-m", "llmc.agents.scripted"]

    def pinned(self) -> Agent:
        return self

    def environment(
        self, base: Mapping[str, str], *, task_tools: bool = True, task_list: str = ""
    ) -> dict[str, str]:
        shared = super().environment(base, task_tools=task_tools, task_list=task_list)
        return {**shared, CONFIG_DIR: str(self.config_dir(base))}

    def config_dir(self, environment: Mapping[str, str]) -> Path:
        """Never the user's ~/.claude: its own directory, or the one set for it."""
        configured = environment.get("LLMC_SCRIPTED_CONFIG_DIR")
        return Path(configured) if configured else self._private / "scripted"

    def setup_problem(self, root: Path, environment: Mapping[str, str]) -> str | None:
        return None

    def trust(self, environment: Mapping[str, str]) -> Trust | None:
        return None

    def one_shot(self) -> OneShot | None:
        return None
