"""Claude Code: how to find and start it, in a session or for one question."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llmc.agents.claude.layout import (
    CONFIG_DIR,
    ENCLOSING_MARKS,
    HOOKS,
    NEED_A_PERSON,
    OWN_VARIABLES,
    PROJECTS,
    TASK_LIST,
    TASK_TOOLS,
    TOOL_HOOKS,
)
from llmc.agents.claude.trusted_dirs import ClaudeTrust
from llmc.agents.protocol import Agent, Answer, Home, Launch, OneShot, Trust
from llmc.base import proc
from llmc.base.errors import LlmcError
from llmc.base.given import number, parse
from llmc.records.worker import Spent, Tokens


class ClaudeCode:
    """Claude Code at the path `command`, or else the one on PATH or the bundled one."""

    name = "claude"
    ships_with_llmc = False
    minimum = (2, 1, 197)
    variables = OWN_VARIABLES

    def __init__(self, command: str = "") -> None:
        self._command = command

    def program(self) -> list[str]:
        import shutil  # takes 2 ms, and few commands need it

        path = self._command or shutil.which("claude") or bundled_client()
        if path is None:
            raise LlmcError(
                "Claude Code is not installed or not on PATH",
                hint="Install it with `npm install -g @anthropic-ai/claude-code`, or run `pip install '.[claude]'` in a "
                "checkout of llmc. If it is installed elsewhere, run `llmc config set defaults.agent_command PATH`.",
            )
        real = os.path.realpath(os.path.expanduser(path))
        if not os.access(real, os.X_OK):
            raise LlmcError(
                f"cannot run Claude Code: {path} is not an executable file",
                hint="To use another `claude` program, run `llmc config set defaults.agent_command PATH`.",
            )
        return [real]

    def pinned(self) -> Agent:
        return ClaudeCode(self.program()[0])

    def version(self) -> str:
        return version_of(self.program())

    def argv(self, launch: Launch) -> list[str]:
        return [*self.program(), *flags(launch)]

    def environment(
        self, base: Mapping[str, str], *, task_tools: bool = True, task_list: str = ""
    ) -> dict[str, str]:
        return environment(base, task_tools=task_tools, task_list=task_list)

    def endpoints(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        from llmc.agents.claude.home import endpoints  # most agents are not contained

        return endpoints(self.config_dir(environment), environment)

    def config_dir(self, environment: Mapping[str, str]) -> Path:
        configured = environment.get(CONFIG_DIR)
        return Path(configured) if configured else Path(environment.get("HOME", "~")).expanduser() / ".claude"

    def conversations(self, environment: Mapping[str, str]) -> Path:
        return self.config_dir(environment) / PROJECTS

    def home(self, environment: Mapping[str, str], place: Path, trusted: Sequence[Path]) -> Home:
        from llmc.agents.claude.home import make_home  # most agents are not contained

        return make_home(place, self.config_dir(environment), environment, trusted)

    def carry(self, conversation: Path, environment: Mapping[str, str]) -> None:
        from llmc.agents.claude.home import carry  # only after a change of containment

        carry(conversation, self.conversations(environment))

    def settings(self, hook_command: str) -> bytes:
        return settings(hook_command)

    def has_hooks(self, settings: bytes, hook_command: str) -> bool:
        return has_hooks(settings, hook_command)

    def setup_problem(self, root: Path, environment: Mapping[str, str]) -> str | None:
        if environment.get("CLAUDE_CODE_SANDBOXED") or ClaudeTrust.of(environment).has(root):
            return None
        return f"Claude Code does not trust {root} yet and would stop at its trust dialog. Run `llmc init --trust`."

    def trust(self, environment: Mapping[str, str]) -> Trust | None:
        return ClaudeTrust.of(environment)

    def one_shot(self) -> OneShot | None:
        return PrintMode(self)


def version_of(program: list[str]) -> str:
    done = proc.run([*program, "--version"], timeout_s=20, env=environment(os.environ))
    return done.stdout.split("\n")[0].strip()


def flags(launch: Launch) -> list[str]:
    given = ["--model", launch.model, "--settings", str(launch.settings)]
    if launch.skip_permissions:
        given.append("--dangerously-skip-permissions")
    if launch.allowed_tools:
        given += ["--allowedTools", ",".join(launch.allowed_tools)]
    if launch.unattended:
        given += ["--disallowedTools", ",".join(NEED_A_PERSON)]
    if launch.resume:
        given += ["--resume", launch.resume]
    return given


def environment(base: Mapping[str, str], *, task_tools: bool = True, task_list: str = "") -> dict[str, str]:
    """The client's environment, without the marks of a client that llmc itself may run in."""
    kept = {key: value for key, value in base.items() if key not in (*ENCLOSING_MARKS, TASK_LIST)}
    return {
        **kept,
        "CLAUDE_CODE_DISABLE_ALTERNATE_SCREEN": "1",  # else tmux has no scrollback
        **({TASK_TOOLS: "1"} if task_tools else {}),
        **({TASK_LIST: task_list} if task_list else {}),
        "DISABLE_AUTOUPDATER": "1",
        "TERM": "screen-256color",
    }


def settings(hook_command: str) -> bytes:
    given = {"hooks": _hooks(hook_command), "skipDangerousModePermissionPrompt": True}
    return json.dumps(given, indent=1).encode()


def has_hooks(given: bytes, hook_command: str) -> bool:
    found = parse(given)
    return isinstance(found, dict) and found.get("hooks") == _hooks(hook_command)


def _hooks(command: str) -> dict[str, Any]:
    entry = [{"hooks": [{"type": "command", "command": command, "timeout": 5}]}]
    of_tools = {event: [{"matcher": tool, **entry[0]}] for event, tool in TOOL_HOOKS.items()}
    return {**dict.fromkeys(HOOKS, entry), **of_tools}


def bundled_client() -> str | None:
    """The client inside the wheel that `llmc[claude]` installs."""
    from importlib.util import find_spec

    spec = find_spec("claude_agent_sdk")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "_bundled" / "claude"
    return str(path) if path.is_file() else None


#: a planner reads the repository and changes nothing
READ_ONLY_TOOLS = "Read,Grep,Glob"


class PrintMode:
    """`claude -p`: one question to the client without a session, and its answer."""

    def __init__(self, client: Agent) -> None:
        self._client = client

    def argv(self, schema: Mapping[str, Any], model: str) -> list[str]:
        """Keeps no session, and starts none of the user's MCP servers."""
        flags = ["-p", "--output-format", "json", "--json-schema", json.dumps(schema)]
        flags += ["--no-session-persistence", "--strict-mcp-config", "--tools", READ_ONLY_TOOLS]
        return [*self._client.program(), *flags, *(["--model", model] if model else [])]

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        return self._client.environment(base, task_tools=False)

    def answer(self, stdout: str) -> Answer | None:
        try:
            result = parse(stdout)
        except ValueError:
            return None
        if not isinstance(result, dict) or result.get("type") != "result":
            return None
        said = str(result.get("result") or "")
        if (structured := result.get("structured_output")) is not None:
            said = json.dumps(structured, ensure_ascii=False)
        status = result.get("api_error_status")
        failed = bool(result.get("is_error")) or result.get("subtype") != "success"
        errors = result.get("errors") or [said or str(result.get("subtype"))]
        return Answer(
            text=said,
            model=", ".join(sorted(map(str, _table(result, "modelUsage")))),
            spent=_spent(result),
            error="; ".join(map(str, errors)) if failed else "",
            status=status if isinstance(status, int) else 0,
        )


def _spent(result: Mapping[str, Any]) -> Spent:
    usage = _table(result, "usage")
    read = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    tokens = Tokens(
        input_tokens=sum(int(number(usage.get(name)) or 0) for name in read),
        output_tokens=int(number(usage.get("output_tokens")) or 0),
    )
    return Spent(tokens=tokens, cost=number(result.get("total_cost_usd")) or 0.0)


def _table(result: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = result.get(key)
    return found if isinstance(found, dict) else {}
