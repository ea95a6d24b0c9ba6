"""The options of `up --auto`, which override config.toml. Pure."""

import shlex
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from llmc.base.text import pattern
from llmc.config.model import Config

_PLAIN = pattern(r"[\w./-]+( [\w./-]+)*")


class AutoOptions(Struct, frozen=True):
    concurrency: int | None = None
    post_accept_command: str | None = None
    until_unix: float | None = None
    max_tasks: int | None = None
    max_cost: float | None = None

    def applied(self, config: Config) -> Config:
        said: dict[str, Any] = {
            "concurrency": self.concurrency,
            "post_accept_command": self.post_accept_command,
        }
        given = {key: value for key, value in said.items() if value is not None}
        return replace(config, auto=replace(config.auto, **given))

    def recorded(self) -> dict[str, Any]:
        """The options to keep in state.json, for hints with the command that starts auto mode again.

        Hints leave the machine: they include a post-accept command only if it is plain words, which hold no secret.
        """
        until = self.until_unix and datetime.fromtimestamp(int(self.until_unix))
        said = {
            "--concurrency": self.concurrency,
            "--post-accept-command": _in_hints(self.post_accept_command),
            "--until": until and until.isoformat(timespec="seconds" if until.second else "minutes"),
            "--max-tasks": self.max_tasks,
            "--max-cost": self.max_cost and f"{self.max_cost:.15g}",
        }
        options = {name: str(value) for name, value in said.items() if value is not None}
        return {"run_options": options, "run_until_unix": self.until_unix or 0.0}


def _in_hints(command: str | None) -> str | None:
    """A command of plain words and paths; for any other, a placeholder that the user replaces."""
    if command is None:
        return None
    return shlex.quote(command) if not command or _PLAIN.fullmatch(command) else "COMMAND"
