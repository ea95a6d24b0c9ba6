"""The directories that Claude Code trusts, in its own settings file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmc.agents.claude.layout import CONFIG_DIR, USER_CONFIG
from llmc.base import given
from llmc.base.errors import LlmcError
from llmc.base.files import explain, rewrite

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
            if not isinstance(data, dict) or not _has_objects(data, str(place)):
                raise ValueError("not the JSON objects that Claude Code writes")
        except FileNotFoundError:
            data = {}
        except OSError as error:
            raise explain(error, f"cannot read {self.file}") from error
        except (ValueError, RecursionError) as error:
            raise LlmcError(
                f"cannot parse {self.file}: {error}",
                hint="Run `claude` once to repair the file, then run the command again.",
            ) from error
        data.setdefault("projects", {}).setdefault(str(place), {}).update(TRUST)
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
        """Escaped: half a surrogate pair cannot be written as UTF-8."""
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            rewrite(self.file, json.dumps(data, indent=2).encode())
        except OSError as error:
            raise explain(error, f"cannot write {self.file}") from error


def _has_objects(data: dict[str, Any], place: str) -> bool:
    projects = data.get("projects", {})
    return isinstance(projects, dict) and isinstance(projects.get(place, {}), dict)
