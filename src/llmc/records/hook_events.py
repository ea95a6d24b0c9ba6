"""What an agent's hooks said, as data. Pure."""

from typing import Any

import msgspec

from llmc.base.names import ClaudeSessionId


class HookEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the inbox; `id` is its file name, which also gives the order."""

    id: str
    worker: str
    instance: str
    payload: dict[str, Any]

    @property
    def name(self) -> str:
        return self.text("hook_event_name")

    @property
    def claude_session_id(self) -> ClaudeSessionId | None:
        value = self.text("session_id")
        return ClaudeSessionId(value) if value else None

    @property
    def makes_a_task(self) -> bool:
        """The agent is about to make a task: told before its file exists."""
        return self.name == "PreToolUse" and self.text("tool_name") == "TaskCreate"

    @property
    def at_unix(self) -> float:
        """When the sender started, from the name of its file."""
        return int(self.id.partition("-")[0]) / 1e9

    @property
    def from_subagent(self) -> bool:
        return bool(self.payload.get("agent_id"))

    @property
    def background_running(self) -> bool:
        """A Stop with work still running in the background is not an end."""
        return bool(self._running())

    @property
    def only_shells_running(self) -> bool:
        """Whether what runs in the background is shells, which nobody waits for, and no agent."""
        return self.background_running and all(task.get("type") == "shell" for task in self._running())

    def _running(self) -> list[dict[str, Any]]:
        tasks = self.payload.get("background_tasks")
        found = tasks if isinstance(tasks, list) else []
        return [task for task in found if isinstance(task, dict) and task.get("status") == "running"]

    def text(self, key: str) -> str:
        value = self.payload.get(key)
        return value if isinstance(value, str) else ""


class Malformed(msgspec.Struct, frozen=True, kw_only=True):
    """An inbox file that is not an event."""

    id: str
    problem: str
