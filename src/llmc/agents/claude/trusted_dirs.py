"""The directories that Claude Code trusts, in its own settings file."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmc.agents.claude.layout import CONFIG_DIR, USER_CONFIG
from llmc.base import given
from llmc.base.errors import LlmcError
from llmc.base.files import write_atomic

#: the entry of a directory that the client trusts
TRUST = {"hasTrustDialogAccepted": True}


class ClaudeTrust:
    """`file` belongs to the user: everything else in it stays."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "ClaudeTrust":
        """`.claude.json`: inside CLAUDE_CONFIG_DIR, else in the home directory."""
        configured = environment.get(CONFIG_DIR)
        place = Path(configured) if configured else Path(environment.get("HOME", "~")).expanduser()
        return cls(place / USER_CONFIG)

    def has(self, place: Path) -> bool:
        entry = self._entry(place)
        return isinstance(entry, dict) and bool(entry.get("hasTrustDialogAccepted"))

    def add(self, place: Path) -> None:
        try:
            data = json.loads(self.file.read_bytes())
            if not isinstance(data, dict):
                raise ValueError("not a JSON object")
        except FileNotFoundError:
            data = {}
        except ValueError as error:
            raise LlmcError(
                f"cannot parse {self.file}: {error}",
                hint="Run `claude` once to repair the file, then run the command again.",
            ) from error
        data.setdefault("projects", {}).setdefault(str(place), {}).update(TRUST)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self._write(data)

    def remove(self, root: Path, place: Path | None = None) -> list[str]:
        try:
            data = json.loads(self.file.read_bytes())
            projects = data["projects"]
            gone = [path for path in projects if Path(path).is_relative_to(root)]
            if place and self._has_only(place):
                gone.append(str(place))
        except (OSError, ValueError, KeyError, TypeError):
            return []
        if gone:
            data["projects"] = {path: entry for path, entry in projects.items() if path not in gone}
            self._write(data)
        return [self._named(path) for path in gone]

    def left(self, place: Path, *, is_ours: bool) -> str:
        if not self.has(place) or (is_ours and self._has_only(place)):
            return ""
        return f"{self._named(str(place))}: remove hasTrustDialogAccepted there to make Claude Code ask for trust again"

    def _named(self, path: str) -> str:
        return f"projects.{json.dumps(path)} in {self.file}"

    def _has_only(self, place: Path) -> bool:
        """Whether the entry is only what `add` writes: no session of the client has added to it."""
        return bool(self._entry(place) == TRUST)

    def _entry(self, place: Path) -> object:
        try:
            return given.parse(self.file.read_bytes()).get("projects", {}).get(str(place))
        except (OSError, ValueError, AttributeError):
            return None

    def _write(self, data: dict[str, Any]) -> None:
        """Write through symlinks, common for such files. Escaped: half a surrogate pair cannot be written as UTF-8."""
        write_atomic(Path(os.path.realpath(self.file)), json.dumps(data, indent=2).encode())
