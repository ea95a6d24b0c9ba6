"""The real client, Claude Code: which program it is, and how it is started."""

import os
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from llmc.agents.claude.files import is_trusted, user_config
from llmc.agents.claude.layout import CONFIG_DIR, ENCLOSING_MARKS, HOOKS, TASK_TOOLS, TOOL_HOOKS
from llmc.agents.protocol import Launch
from llmc.base import proc
from llmc.base.errors import LlmcError


class ClaudeCode:
    """Starts the Claude Code client; the program is a path, or is looked for."""

    name = "claude"

    def __init__(self, command: str = "") -> None:
        self._command = command

    def program(self) -> list[str]:
        path = self._command or shutil.which("claude") or bundled_client()
        if path is None:
            raise LlmcError(
                "the Claude Code client was not found",
                hint="Install Claude Code (npm install -g @anthropic-ai/claude-code), or llmc with its extra `claude` "
                "(pip install '.[claude]' in a checkout of llmc), or set defaults.agent_command to its path.",
            )
        real = os.path.realpath(os.path.expanduser(path))
        if not os.access(real, os.X_OK):
            raise LlmcError(
                f"{path} is not a program", hint="Set [defaults].agent_command to the path of the client."
            )
        return [real]

    def version(self) -> str:
        done = proc.run([*self.program(), "--version"], timeout_s=20, env=self.environment(os.environ))
        return done.stdout.split("\n")[0].strip()

    def argv(self, launch: Launch) -> list[str]:
        flags = ["--model", launch.model, "--settings", str(launch.settings)]
        if launch.skip_permissions:
            flags.append("--dangerously-skip-permissions")
        if launch.allowed_tools:
            flags += ["--allowedTools", ",".join(launch.allowed_tools)]
        if launch.disallowed_tools:
            flags += ["--disallowedTools", ",".join(launch.disallowed_tools)]
        if launch.resume:
            flags += ["--resume", launch.resume]
        return [*self.program(), *flags]

    def environment(self, base: Mapping[str, str], *, task_tools: bool = True) -> dict[str, str]:
        kept = {key: value for key, value in base.items() if key not in ENCLOSING_MARKS}
        return {
            **kept,
            "CLAUDE_CODE_DISABLE_ALTERNATE_SCREEN": "1",  # or tmux has no scrollback to show
            **({TASK_TOOLS: "1"} if task_tools else {}),
            "DISABLE_AUTOUPDATER": "1",
            "TERM": "screen-256color",
        }

    def config_dir(self, environment: Mapping[str, str]) -> Path:
        configured = environment.get(CONFIG_DIR)
        return Path(configured) if configured else Path(environment.get("HOME", "~")).expanduser() / ".claude"

    def settings(self, hook_command: str) -> dict[str, Any]:
        entry = [{"hooks": [{"type": "command", "command": hook_command, "timeout": 5}]}]
        of_tools = {event: [{"matcher": tool, **entry[0]}] for event, tool in TOOL_HOOKS.items()}
        return {
            "hooks": {**dict.fromkeys(HOOKS, entry), **of_tools},
            "skipDangerousModePermissionPrompt": True,
        }

    def setup_problem(self, root: Path, environment: Mapping[str, str]) -> str | None:
        if environment.get("CLAUDE_CODE_SANDBOXED") or is_trusted(root, user_config(environment)):
            return None
        return f"Claude Code does not trust {root} yet and would stop in a dialog. Run `llmc init --trust`."


class Scripted(ClaudeCode):
    """The agent that ships with llmc: same flags, hooks, files and screen, but it does what the prompt's directives say."""

    name = "scripted"

    def __init__(self, private: Path) -> None:
        super().__init__()
        self._private = private

    def program(self) -> list[str]:
        # -P: a worktree with a json.py of its own must not shadow the standard library.
        return [sys.executable, "-P", "-m", "llmc.agents.scripted"]

    def environment(self, base: Mapping[str, str], *, task_tools: bool = True) -> dict[str, str]:
        environment = super().environment(base, task_tools=task_tools)
        return {**environment, CONFIG_DIR: str(self.config_dir(base))}

    def config_dir(self, environment: Mapping[str, str]) -> Path:
        """Never a person's ~/.claude: its own, unless one is named for it."""
        configured = environment.get("LLMC_SCRIPTED_CONFIG_DIR")
        return Path(configured) if configured else self._private / "scripted"

    def setup_problem(self, root: Path, environment: Mapping[str, str]) -> str | None:
        return None


def bundled_client() -> str | None:
    """The client inside the wheel that `llmc[claude]` installs."""
    spec = find_spec("claude_agent_sdk")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "_bundled" / "claude"
    return str(path) if path.is_file() else None
