"""What the client writes about itself: the status file of each process, and its own settings with the directories it trusts."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmc.agents.claude.layout import CONFIG_DIR, SESSIONS, USER_CONFIG, status_name
from llmc.agents.protocol import ClientStatus
from llmc.base import given
from llmc.base.errors import LlmcError
from llmc.base.files import read_json, write_atomic
from llmc.base.names import ClaudeSessionId
from llmc.base.processes import start_of


def client_status(config_dir: Path, pid: int) -> ClientStatus:
    return client_state(config_dir, pid)[0]


def client_state(config_dir: Path, pid: int) -> tuple[ClientStatus, float]:
    """`sessions/<pid>.json`, believed only if it is of this very process: the status, and since when."""
    record = _status_record(_status_path(config_dir, pid))
    if record is None or str(record.get("procStart")) != start_of(pid):
        return ClientStatus.UNKNOWN, 0.0
    try:
        return ClientStatus(str(record.get("status"))), float(record.get("statusUpdatedAt", 0)) / 1000
    except (ValueError, TypeError):
        return ClientStatus.UNKNOWN, 0.0


def waits_for(config_dir: Path, pid: int) -> str:
    """What a client that waits says that it waits for; "" where it does not say."""
    record = _status_record(_status_path(config_dir, pid)) or {}
    return str(record.get("waitingFor") or "")


def asks_by_itself(config_dir: Path, pid: int) -> bool:
    """Whether the dialog of a client that waits is the agent's question, and not one that a person opened."""
    return waits_for(config_dir, pid) not in ("", "dialog open")


def client_session(config_dir: Path, pid: int) -> ClaudeSessionId | None:
    """The conversation the process is in, by its own status file."""
    record = _status_record(_status_path(config_dir, pid))
    if record is None or str(record.get("procStart")) != start_of(pid) or not record.get("sessionId"):
        return None
    return ClaudeSessionId(str(record["sessionId"]))


def _status_path(config_dir: Path, pid: int) -> Path:
    return config_dir / SESSIONS / status_name(pid)


def _status_record(path: Path) -> dict[str, Any] | None:
    for _ in range(3):  # it is rewritten in place: a reader may meet half of it
        try:
            record = read_json(path)
        except OSError:
            return None
        except ValueError:
            continue
        return record if isinstance(record, dict) else None
    return None


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
