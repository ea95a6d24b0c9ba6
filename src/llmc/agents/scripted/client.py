"""How llmc starts the agent that ships with it."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmc.agents.claude import client as claude
from llmc.agents.claude.layout import CONFIG_DIR
from llmc.agents.protocol import Launch


class Scripted:
    """An agent without a model, which does what its prompt's directives say.

    It takes the flags and settings of Claude Code on purpose: llmc is tested with the hooks, files and screen of the client.
    """

    name = "scripted"

    def __init__(self, private: Path) -> None:
        self._private = private

    def program(self) -> list[str]:
        # -P: a worktree with a json.py of its own must not shadow the standard library.
        return [sys.executable, "-P", "-m", "llmc.agents.scripted"]

    def version(self) -> str:
        return claude.version_of(self.program())

    def argv(self, launch: Launch) -> list[str]:
        return [*self.program(), *claude.flags(launch)]

    def environment(self, base: Mapping[str, str], *, task_tools: bool = True) -> dict[str, str]:
        shared = claude.environment(base, task_tools=task_tools)
        return {**shared, CONFIG_DIR: str(self.config_dir(base))}

    def config_dir(self, environment: Mapping[str, str]) -> Path:
        """Never a person's ~/.claude: its own, unless one is named for it."""
        configured = environment.get("LLMC_SCRIPTED_CONFIG_DIR")
        return Path(configured) if configured else self._private / "scripted"

    def settings(self, hook_command: str) -> dict[str, Any]:
        return claude.settings(hook_command)

    def setup_problem(self, root: Path, environment: Mapping[str, str]) -> str | None:
        return None
