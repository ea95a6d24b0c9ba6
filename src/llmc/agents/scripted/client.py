"""How to start the scripted agent."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from llmc.agents.claude import client as claude
from llmc.agents.claude.client import ClaudeCode
from llmc.agents.claude.home import own_places
from llmc.agents.claude.layout import CONFIG_DIR, PROJECTS
from llmc.agents.protocol import Agent, Home, Launch, OneShot, Trust

#: where its files are, if not in the root
_OWN_DIR = "LLMC_SCRIPTED_CONFIG_DIR"


class Scripted:
    """An agent without a model that runs the directives in its prompts.

    It takes the flags and settings of Claude Code on purpose: llmc is tested with the hooks, files and screen of the client.
    """

    name = "scripted"
    ships_with_llmc = True
    #: it reports a version of Claude Code
    minimum = ClaudeCode.minimum
    variables = ()

    def __init__(self, private: Path) -> None:
        self._private = private

    def program(self) -> list[str]:
        # -P: a worktree with a json.py of its own must not shadow the standard library.
        return [sys.executable, "-P", "-m", "llmc.agents.scripted"]

    def pinned(self) -> Agent:
        return self

    def version(self) -> str:
        return claude.version_of(self.program())

    def argv(self, launch: Launch) -> list[str]:
        return [*self.program(), *claude.flags(launch)]

    def environment(
        self, base: Mapping[str, str], *, task_tools: bool = True, task_list: str = ""
    ) -> dict[str, str]:
        shared = claude.environment(base, task_tools=task_tools, task_list=task_list)
        return {**shared, CONFIG_DIR: str(self.config_dir(base))}

    def endpoints(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        return ()

    def config_dir(self, environment: Mapping[str, str]) -> Path:
        """Never the user's ~/.claude: its own directory, or the one set for it."""
        configured = environment.get(_OWN_DIR)
        return Path(configured) if configured else self._private / "scripted"

    def conversations(self, environment: Mapping[str, str]) -> Path:
        return self.config_dir(environment) / PROJECTS

    def home(self, environment: Mapping[str, str], place: Path, trusted: Sequence[Path]) -> Home:
        """Like the home of the client, but with nothing of the user's."""
        names = {CONFIG_DIR: str(place), _OWN_DIR: str(place)}
        return Home(names, own_places(place))

    def carry(self, conversation: Path, environment: Mapping[str, str]) -> None:
        from llmc.agents.claude.home import carry  # only after a change of containment

        carry(conversation, self.conversations(environment))

    def settings(self, hook_command: str) -> bytes:
        return claude.settings(hook_command)

    def has_hooks(self, settings: bytes, hook_command: str) -> bool:
        return claude.has_hooks(settings, hook_command)

    def setup_problem(self, root: Path, environment: Mapping[str, str]) -> str | None:
        return None

    def trust(self, environment: Mapping[str, str]) -> Trust | None:
        return None

    def one_shot(self) -> OneShot | None:
        return None
