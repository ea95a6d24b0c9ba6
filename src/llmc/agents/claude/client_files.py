"""Claude Code's own settings, with the directories that it trusts."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmc.agents.claude.layout import CONFIG_DIR, USER_CONFIG
from llmc.base import given
from llmc.base.errors import LlmcError
from llmc.base.files import write_atomic


def user_config(environment: Mapping[str, str]) -> Path:
    """The client's own `.claude.json`: inside CLAUDE_CONFIG_DIR, else in the home directory."""
    configured = environment.get(CONFIG_DIR)
    place = Path(configured) if configured else Path(environment.get("HOME", "~")).expanduser()
    return place / USER_CONFIG


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
