"""Shells that are left running past the end of a turn."""

import os
import threading
from collections.abc import Callable
from typing import Any

from llmc.agents.scripted import processes
from llmc.agents.scripted.session import Session


class Background:
    """One such shell; `on_end` is called from its own thread when it is over."""

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
            self._child = processes.spawn(command, session.cwd, processes.child_env(session), output=output)
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
            processes.kill(self._child)

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
