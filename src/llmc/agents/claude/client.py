"""The real client, Claude Code: which program it is, and how it is started."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmc.agents.claude.client_files import is_trusted, user_config
from llmc.agents.claude.layout import (
    CONFIG_DIR,
    ENCLOSING_MARKS,
    HOOKS,
    TASK_TOOLS,
    TOOL_HOOKS,
)
from llmc.agents.protocol import Launch
from llmc.base import proc
from llmc.base.errors import LlmcError


class ClaudeCode:
    """Starts the Claude Code client; the program is a path, or is looked for."""

    name = "claude"

    def __init__(self, command: str = "") -> None:
        self._command = command

    def program(self) -> list[str]:
        import shutil  # 2 ms that hardly any command needs

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
        return version_of(self.program())

    def argv(self, launch: Launch) -> list[str]:
        return [*self.program(), *flags(launch)]

    def environment(self, base: Mapping[str, str], *, task_tools: bool = True) -> dict[str, str]:
        return environment(base, task_tools=task_tools)

    def config_dir(self, environment: Mapping[str, str]) -> Path:
        configured = environment.get(CONFIG_DIR)
        return Path(configured) if configured else Path(environment.get("HOME", "~")).expanduser() / ".claude"

    def settings(self, hook_command: str) -> dict[str, Any]:
        return settings(hook_command)

    def setup_problem(self, root: Path, environment: Mapping[str, str]) -> str | None:
        if environment.get("CLAUDE_CODE_SANDBOXED") or is_trusted(root, user_config(environment)):
            return None
        return f"Claude Code does not trust {root} yet and would stop in a dialog. Run `llmc init --trust`."


def version_of(program: list[str]) -> str:
    done = proc.run([*program, "--version"], timeout_s=20, env=environment(os.environ))
    return done.stdout.split("\n")[0].strip()


def flags(launch: Launch) -> list[str]:
    given = ["--model", launch.model, "--settings", str(launch.settings)]
    if launch.skip_permissions:
        given.append("--dangerously-skip-permissions")
    if launch.allowed_tools:
        given += ["--allowedTools", ",".join(launch.allowed_tools)]
    if launch.disallowed_tools:
        given += ["--disallowedTools", ",".join(launch.disallowed_tools)]
    if launch.resume:
        given += ["--resume", launch.resume]
    return given


def environment(base: Mapping[str, str], *, task_tools: bool = True) -> dict[str, str]:
    """What it runs with: nothing of a client that llmc itself may run in."""
    kept = {key: value for key, value in base.items() if key not in ENCLOSING_MARKS}
    return {
        **kept,
        "CLAUDE_CODE_DISABLE_ALTERNATE_SCREEN": "1",  # or tmux has no scrollback to show
        **({TASK_TOOLS: "1"} if task_tools else {}),
        "DISABLE_AUTOUPDATER": "1",
        "TERM": "screen-256color",
    }


def settings(hook_command: str) -> dict[str, Any]:
    """Settings with which it tells llmc of each event."""
    entry = [{"hooks": [{"type": "command", "command": hook_command, "timeout": 5}]}]
    of_tools = {event: [{"matcher": tool, **entry[0]}] for event, tool in TOOL_HOOKS.items()}
    return {
        "hooks": {**dict.fromkeys(HOOKS, entry), **of_tools},
        "skipDangerousModePermissionPrompt": True,
    }


def bundled_client() -> str | None:
    """The client inside the wheel that `llmc[claude]` installs."""
    from importlib.util import find_spec

    spec = find_spec("claude_agent_sdk")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "_bundled" / "claude"
    return str(path) if path.is_file() else None
