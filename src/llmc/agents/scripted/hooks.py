"""The client's hooks: read from the settings, run with the client's payloads."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from typing import Any

from llmc.agents.scripted import processes
from llmc.agents.scripted.options import Options, UsageError
from llmc.agents.scripted.session import Session

DEFAULT_TIMEOUT_S = 600.0
SESSION_END_TIMEOUT_S = 1.5
EFFORT = {"level": "medium"}

#: events whose payload names the permission mode, and those that name the effort, as sampled from the client
_WITH_MODE = {"UserPromptSubmit", "Stop", "PermissionRequest", "SubagentStop"}
_WITH_EFFORT = {"Stop", "StopFailure", "PermissionRequest", "SubagentStop"}
_TOOL_EVENTS = {"PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch"}


class Hook:
    """One command of the settings."""

    def __init__(self, command: str, timeout_s: float | None, waited_for: bool, matcher: str = "") -> None:
        self.command = command
        self.matcher = matcher
        self.timeout_s = timeout_s
        self.waited_for = waited_for


def load(settings: str) -> dict[str, list[Hook]]:
    """The command hooks of a settings file, or of the JSON text itself; matchers count for tools only."""
    if not settings:
        return {}
    try:
        data = json.loads(settings if settings.lstrip().startswith("{") else _read(settings))
        return {
            event: [
                _hook(raw, str(group.get("matcher") or "")) for group in groups for raw in _commands(group)
            ]
            for event, groups in data.get("hooks", {}).items()
        }
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise UsageError(f"Error: Invalid settings: {error}") from error


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"Error: Settings file not found: {path}") from error


def _commands(group: dict[str, Any]) -> list[dict[str, Any]]:
    return [raw for raw in group.get("hooks", []) if raw.get("type") == "command"]


def _hook(raw: dict[str, Any], matcher: str) -> Hook:
    timeout = raw.get("timeout")
    seconds = None if timeout is None else float(timeout)
    return Hook(str(raw["command"]), seconds, raw.get("async") is not True, matcher)


class Hooks:
    """Runs what is registered for an event and waits for it, as long as its timeout says."""

    def __init__(self, options: Options, session: Session, complain: Callable[[str], None]) -> None:
        self._registered = load(options.settings)
        self._mode = options.mode
        self._session = session
        self._complain = complain

    def commands(self, event: str) -> list[str]:
        return [hook.command for hook in self._registered.get(event, [])]

    def fire(self, event: str, **fields: Any) -> None:
        """Run the event's hooks side by side."""
        hooks = [hook for hook in self._registered.get(event, []) if _wants(hook, event, fields)]
        if not hooks:
            return
        payload = json.dumps(self._payload(event, fields), ensure_ascii=False, separators=(",", ":")).encode()
        env = processes.child_env(self._session) | {"CLAUDE_PROJECT_DIR": self._session.cwd}
        started = [(hook, self._start(hook, payload, env)) for hook in hooks]
        for hook, child in started:
            if hook.waited_for:
                self._finish(event, hook, child)

    def _payload(self, event: str, fields: dict[str, Any]) -> dict[str, Any]:
        payload: dict[str, Any] = {
            "session_id": self._session.id,
            "transcript_path": self._session.transcript_path,
            "cwd": self._session.cwd,
        }
        if self._session.prompt_id:
            payload["prompt_id"] = self._session.prompt_id
        if event in _WITH_MODE or event in _TOOL_EVENTS:
            payload["permission_mode"] = self._mode
        if event in _WITH_EFFORT or event in _TOOL_EVENTS:
            payload["effort"] = EFFORT
        payload["hook_event_name"] = event
        payload.update(fields)
        return payload

    def _start(self, hook: Hook, payload: bytes, env: dict[str, str]) -> "subprocess.Popen[bytes]":
        stdin = processes.pipe_with(payload)
        try:
            return processes.spawn(hook.command, self._session.cwd, env, stdin)
        finally:
            os.close(stdin)

    def _finish(self, event: str, hook: Hook, child: "subprocess.Popen[bytes]") -> None:
        code = processes.wait(child, _timeout(event, hook))
        if code is None:
            processes.end(child)
        elif code:
            self._complain(f"  ⎿  {event} hook error: Failed with non-blocking status code {code}")


def _wants(hook: Hook, event: str, fields: dict[str, Any]) -> bool:
    """The matcher of a tool's hook is a pattern for the tool's name."""
    if event not in _TOOL_EVENTS or hook.matcher in ("", "*"):
        return True
    return re.fullmatch(hook.matcher, fields.get("tool_name", "")) is not None


def _timeout(event: str, hook: Hook) -> float:
    if event == "SessionEnd":
        return SESSION_END_TIMEOUT_S if hook.timeout_s is None else min(hook.timeout_s, 60.0)
    return DEFAULT_TIMEOUT_S if hook.timeout_s is None else hook.timeout_s
