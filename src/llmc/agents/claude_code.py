"""The real client: Claude Code."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmc.agents.protocol import Launch
from llmc.base import given, proc
from llmc.base.errors import LlmcError
from llmc.base.files import write_atomic

#: the events llmc listens to; no per-tool hooks: with 20 clients those alone fill two cores
HOOKS = (
    "SessionStart",
    "UserPromptSubmit",
    "Stop",
    "StopFailure",
    "SessionEnd",
    "PermissionRequest",
    "Notification",
    "SubagentStop",
    "PostCompact",
    "TaskCreated",
)

#: one tool's hook, for those who have to know of a task before its file exists: the name of the tool
TOOL_HOOKS = {"PreToolUse": "TaskCreate"}

#: marks of an enclosing client: inherited, they silence the transcript and the status file of ours
ENCLOSING_MARKS = (
    "CLAUDECODE",
    "CLAUDE_CODE_CHILD_SESSION",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_PROJECT_DIR",
    "TMUX",
    "TMUX_PANE",
)


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
            # off by default in the newer models
            **({"CLAUDE_CODE_ENABLE_TODO_TOOLS": "1"} if task_tools else {}),
            "DISABLE_AUTOUPDATER": "1",
            "TERM": "screen-256color",
        }

    def config_dir(self, environment: Mapping[str, str]) -> Path:
        configured = environment.get("CLAUDE_CONFIG_DIR")
        return Path(configured) if configured else Path(environment.get("HOME", "~")).expanduser() / ".claude"

    def settings(self, hook_command: str) -> dict[str, Any]:
        entry = [{"hooks": [{"type": "command", "command": hook_command, "timeout": 5}]}]
        of_tools = {event: [{"matcher": tool, **entry[0]}] for event, tool in TOOL_HOOKS.items()}
        return {
            "hooks": {**dict.fromkeys(HOOKS, entry), **of_tools},
            "skipDangerousModePermissionPrompt": True,
        }

    def setup_problem(self, root: Path, environment: Mapping[str, str]) -> str | None:
        if environment.get("CLAUDE_CODE_SANDBOXED") or is_trusted(root, user_config(self, environment)):
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
        return {**environment, "CLAUDE_CONFIG_DIR": str(self.config_dir(base))}

    def config_dir(self, environment: Mapping[str, str]) -> Path:
        """Never a person's ~/.claude: its own, unless one is named for it."""
        configured = environment.get("LLMC_SCRIPTED_CONFIG_DIR")
        return Path(configured) if configured else self._private / "scripted"

    def setup_problem(self, root: Path, environment: Mapping[str, str]) -> str | None:
        return None


def bundled_client() -> str | None:
    """The client inside the wheel that `llmc[claude]` installs."""
    from importlib.util import find_spec

    spec = find_spec("claude_agent_sdk")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "_bundled" / "claude"
    return str(path) if path.is_file() else None


def user_config(agent: ClaudeCode, environment: Mapping[str, str]) -> Path:
    """The client's own `.claude.json`: inside CLAUDE_CONFIG_DIR, else in the home directory."""
    if environment.get("CLAUDE_CONFIG_DIR"):
        return agent.config_dir(environment) / ".claude.json"
    return Path(environment.get("HOME", "~")).expanduser() / ".claude.json"


#: the entry of a directory that the client trusts
_TRUST = {"hasTrustDialogAccepted": True}


def is_trusted(root: Path, config: Path) -> bool:
    entry = _entry(root, config)
    return isinstance(entry, dict) and bool(entry.get("hasTrustDialogAccepted"))


def is_only_trusted(place: Path, config: Path) -> bool:
    """Whether the entry is what `add_trust` writes: no session of the client has noted anything there."""
    return bool(_entry(place, config) == _TRUST)


def _entry(place: Path, config: Path) -> object:
    try:
        return given.parse(config.read_bytes()).get("projects", {}).get(str(place))
    except (OSError, ValueError, AttributeError):
        return None


def add_trust(root: Path, config: Path) -> None:
    """Add one trust entry; everything else in a person's file stays as it is."""
    try:
        data = json.loads(config.read_bytes())
        if not isinstance(data, dict):
            raise ValueError("not an object")
    except FileNotFoundError:
        data = {}
    except ValueError as error:
        raise LlmcError(
            f"{config} is not valid JSON: {error}", hint="Start `claude` once by hand."
        ) from error
    data.setdefault("projects", {}).setdefault(str(root), {}).update(_TRUST)
    config.parent.mkdir(parents=True, exist_ok=True)
    _write(config, data)


def remove_trust(root: Path, config: Path, place: Path | None = None) -> list[str]:
    """Take out what the client noted of a root and of what is below it; the entries. Everything else stays.

    The entry of `place` goes too, if it has nothing but what `add_trust` writes: the client has noted nothing there.
    """
    try:
        data = json.loads(config.read_bytes())
        projects = data["projects"]
        gone = [path for path in projects if Path(path).is_relative_to(root)]
        if place and is_only_trusted(place, config):
            gone.append(str(place))
    except (OSError, ValueError, KeyError, TypeError):
        return []
    if gone:
        data["projects"] = {path: entry for path, entry in projects.items() if path not in gone}
        _write(config, data)
    return gone


def _write(config: Path, data: dict[str, Any]) -> None:
    """Where it really is: people link such files. Escaped, since half an emoji cannot be written otherwise."""
    write_atomic(Path(os.path.realpath(config)), json.dumps(data, indent=2).encode())
