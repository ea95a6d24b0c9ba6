"""Child processes: tool commands, shells left in the background, and the client's hooks, read from the settings."""

import json
import os
import re
import select
import signal
import subprocess
import threading
from collections.abc import Callable
from typing import IO, Any, NamedTuple

from llmc.agents.scripted.command_line import Options, UsageError
from llmc.agents.scripted.session import Session
from llmc.hook_client import PORTABLE

TERM_GRACE_S = 1.0
PIPE_BYTES = 65536


def child_env(session: Session) -> dict[str, str]:
    """The environment of everything that the client starts."""
    return {
        **os.environ,
        "CLAUDECODE": "1",
        "CLAUDE_CODE_CHILD_SESSION": "1",
        "CLAUDE_CODE_SESSION_ID": session.id,
        "CLAUDE_CODE_ENTRYPOINT": "cli",
    }


def spawn(
    command: str, cwd: str, env: dict[str, str], stdin: int | None = None, output: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """`sh -c` in its own session, so that it can be ended with everything it started."""
    return subprocess.Popen(
        ["/bin/sh", "-c", command],
        cwd=cwd if os.path.isdir(cwd) else None,
        env=env,
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=subprocess.DEVNULL if output is None else output,
        stderr=subprocess.DEVNULL if output is None else subprocess.STDOUT,
        start_new_session=True,
    )


def pipe_with(data: bytes) -> int:
    """A pipe with `data` to read; does not block if nothing reads it."""
    reader, writer = os.pipe()
    if len(data) <= PIPE_BYTES:
        _write_all(writer, data)
    else:
        threading.Thread(target=_write_all, args=(writer, data), daemon=True).start()
    return reader


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(fd, rest) :]
    except OSError:
        pass  # the reader left early
    finally:
        os.close(fd)


def wait(child: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    """The exit code, or None after the timeout. Popen.wait polls; a pidfd does not."""
    if PORTABLE:
        try:
            return child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
    try:
        fd = os.pidfd_open(child.pid)
    except ProcessLookupError:
        return child.wait()
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        if not poll.poll(timeout_s * 1000):
            return None
    finally:
        os.close(fd)
    return child.wait()


def signal_group(child: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def end(child: subprocess.Popen[bytes]) -> None:
    """End the child and what it started."""
    signal_group(child, signal.SIGTERM)
    wait(child, TERM_GRACE_S)
    kill(child)
    child.wait()


def end_soon(child: subprocess.Popen[bytes]) -> None:
    """Like `end`, for a child that another thread waits for."""
    signal_group(child, signal.SIGTERM)
    timer = threading.Timer(TERM_GRACE_S, kill, (child,))
    timer.daemon = True
    timer.start()


def kill(child: subprocess.Popen[bytes]) -> None:
    """Kill the whole group now."""
    signal_group(child, signal.SIGKILL)


class Background:
    """A shell in the background; `on_end` is called from its own thread when the shell exits."""

    def __init__(
        self, session: Session, command: str, tool_use_id: str, on_end: "Callable[[Background], None]"
    ) -> None:
        self.id = f"b{os.urandom(4).hex()}"
        self.command = command
        self.tool_use_id = tool_use_id
        self.output_path = os.path.join(session.project_dir, session.id, "tasks", self.id + ".output")
        self.is_running = True
        self.exit_code = 0
        self._on_end = on_end
        os.makedirs(os.path.dirname(self.output_path), mode=0o700, exist_ok=True)
        with open(self.output_path, "wb") as output:
            self._child = spawn(command, session.cwd, child_env(session), output=output)
        threading.Thread(target=self._watch, daemon=True).start()

    def described(self) -> dict[str, Any]:
        """As it appears in a Stop payload."""
        return {
            "id": self.id,
            "type": "shell",
            "status": "running",
            "description": "scripted",
            "command": self.command,
        }

    def kill(self) -> None:
        if self.is_running:
            kill(self._child)

    def notification(self) -> str:
        status = "completed" if self.exit_code == 0 else "failed"
        return (
            "<task-notification>\n"
            f"<task-id>{self.id}</task-id>\n"
            f"<tool-use-id>{self.tool_use_id}</tool-use-id>\n"
            f"<output-file>{self.output_path}</output-file>\n"
            f"<status>{status}</status>\n"
            f'<summary>Background command "scripted" {status} (exit code {self.exit_code})</summary>\n'
            "</task-notification>"
        )

    def _watch(self) -> None:
        self.exit_code = self._child.wait()
        self.is_running = False
        self._on_end(self)


DEFAULT_TIMEOUT_S = 600.0
SESSION_END_TIMEOUT_S = 1.5
EFFORT = {"level": "medium"}

#: events whose payload names the permission mode, and those that name the effort, as sampled from the client
_WITH_MODE = {"UserPromptSubmit", "Stop", "PermissionRequest", "SubagentStop"}
_WITH_EFFORT = {"Stop", "StopFailure", "PermissionRequest", "SubagentStop"}
_TOOL_EVENTS = {"PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch"}


class Hook(NamedTuple):
    """A hook command from the settings."""

    command: str
    timeout_s: float | None
    waited_for: bool
    matcher: str


def load_hooks(settings: str) -> dict[str, list[Hook]]:
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
    """Runs the hooks of an event, and waits for each up to its timeout."""

    def __init__(self, options: Options, session: Session, complain: Callable[[str], None]) -> None:
        self._registered = load_hooks(options.settings)
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
        env = child_env(self._session) | {"CLAUDE_PROJECT_DIR": self._session.cwd}
        started = [(hook, self._start(hook, payload, env)) for hook in hooks]
        for hook, child in started:
            if hook.waited_for:
                self._finish(event, hook, child)

    def fire_aside(self, event: str, **fields: Any) -> threading.Thread:
        """The same in its own thread: a slow hook must not hold up keys."""
        thread = threading.Thread(target=self.fire, args=(event,), kwargs=fields, daemon=True)
        thread.start()
        return thread

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
        stdin = pipe_with(payload)
        try:
            return spawn(hook.command, self._session.cwd, env, stdin)
        finally:
            os.close(stdin)

    def _finish(self, event: str, hook: Hook, child: "subprocess.Popen[bytes]") -> None:
        code = wait(child, _hook_timeout(event, hook))
        if code is None:
            end(child)
        elif code:
            self._complain(f"  ⎿  {event} hook error: Failed with non-blocking status code {code}")


def _wants(hook: Hook, event: str, fields: dict[str, Any]) -> bool:
    """Whether a hook runs for this event. For tools, its matcher is a pattern for the tool's name."""
    if event not in _TOOL_EVENTS or hook.matcher in ("", "*"):
        return True
    return re.fullmatch(hook.matcher, fields.get("tool_name", "")) is not None


def _hook_timeout(event: str, hook: Hook) -> float:
    if event == "SessionEnd":
        return SESSION_END_TIMEOUT_S if hook.timeout_s is None else min(hook.timeout_s, 60.0)
    return DEFAULT_TIMEOUT_S if hook.timeout_s is None else hook.timeout_s
