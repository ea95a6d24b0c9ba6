"""The home of a contained Claude Code: its own conversations and status files, the user's settings to read only.

With the user's own home an agent could write settings, MCP servers and plugins that run in the user's next session. And
clients in PID namespaces have the same few pids: they would overwrite each other's status files.
"""

import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llmc.agents.claude.glance import has_own_home
from llmc.agents.claude.layout import (
    CONFIG_DIR,
    ENDPOINT,
    ENDPOINTS,
    PROJECTS,
    SESSIONS,
    TASKS,
    USER_CONFIG,
)
from llmc.agents.claude.trusted_dirs import TRUST, ClaudeTrust
from llmc.agents.protocol import Home
from llmc.base import given
from llmc.base.files import private_dir, write_atomic
from llmc.base.hosts import with_port
from llmc.base.text import pattern
from llmc.sandbox.rules import Mount

_SETTINGS = "settings.json"
#: the user's own, read-only
_READ = (
    *(_SETTINGS, "settings.local.json", "keybindings.json", "CLAUDE.md", "plugins", "skills", "agents"),
    *("commands", "output-styles", "rules"),
)
#: for its own sake it connects to hosts that are not listed: news, updates, statistics, plugins
_QUIET = (
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL",
)
#: as the client names its conversations
_CONVERSATION = pattern(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.jsonl")
#: the login, which the client renews: the only file that is shared
_LOGIN = ".credentials.json"
#: how much of a conversation is copied to another home
_MOST_CARRIED = 1 << 30


def make_home(home: Path, config_dir: Path, environment: Mapping[str, str], trusted: Sequence[Path]) -> Home:
    """Prepare the directory, with the user's `.claude.json` as it is now and trust in these directories only."""
    own = own_places(home)
    data = _read(ClaudeTrust.of(environment).file)
    data["projects"] = {str(place): dict(TRUST) for place in trusted}
    data.pop("mcpServers", None)  # their settings have tokens
    write_atomic(home / USER_CONFIG, json.dumps(data, indent=2).encode())
    found = [(name, config_dir / name) for name in (*_READ, _LOGIN) if (config_dir / name).exists()]
    mounts = [Mount(str(home / name), name == _LOGIN, str(path.resolve())) for name, path in found]
    for name in _READ:
        if name.endswith(".json") and not (home / name).exists():
            write_atomic(home / name, b"{}")  # where the user's is mounted; it stays when theirs is removed
    quiet = {name: environment.get(name, "1") for name in _QUIET}
    # The client refuses to run as root with permissions skipped, unless it is contained.
    names = {CONFIG_DIR: str(home), "IS_SANDBOX": "1", **quiet}
    return Home(names, (*own, *mounts))


def own_places(home: Path) -> tuple[Mount, ...]:
    """The home, and what llmc reads in it: each a mount of its own, which the agent cannot replace with a link."""
    places = [home, *(home / name for name in (PROJECTS, SESSIONS, TASKS))]
    for place in places:
        if place.is_symlink():  # from an earlier version, which let an agent make one
            place.unlink()
        private_dir(place)
    return tuple(Mount(str(place), True, str(place)) for place in places)


def endpoints(config_dir: Path, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Where its model is, by its variables, which the user's settings may set too."""
    set_there = _read(config_dir / _SETTINGS).get("env")
    found = {**environment, **(set_there if isinstance(set_there, dict) else {})}
    urls = [str(value) for name, value in found.items() if value and ENDPOINT.fullmatch(name)]
    return tuple(filter(None, map(_host_of, urls))) or ENDPOINTS


def _host_of(url: str) -> str:
    """Host and port; "" if it has none."""
    from urllib.parse import urlsplit

    try:
        found = urlsplit(url)
        port = found.port or (80 if found.scheme == "http" else 443)
    except ValueError:
        return ""
    return with_port(found.hostname, port) if found.hostname else ""


def _read(file: Path) -> dict[str, Any]:
    try:
        data = given.parse(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def carry(conversation: Path, projects: Path) -> None:
    """Copy a transcript, with those of its subagents beside it. What an agent may have made besides stays: links, pipes,
    and more than fits. A link is neither followed nor copied, or the next client would write through it.

    With another name, such as `memory`, the directory beside it would replace what the user's own client reads.
    """
    import shutil  # saves 2 ms in most commands

    if not _CONVERSATION.fullmatch(conversation.name):
        return
    left = _MOST_CARRIED

    def skipped(folder: str, names: list[str]) -> list[str]:
        nonlocal left
        found = []
        for name in names:
            entry = os.lstat(os.path.join(folder, name))
            is_copied = stat.S_ISDIR(entry.st_mode) or (stat.S_ISREG(entry.st_mode) and entry.st_size <= left)
            left -= entry.st_size if is_copied else 0
            found += [] if is_copied else [name]
        return found

    folder = projects / conversation.parent.name
    inner = conversation.with_suffix("")
    if os.path.realpath(conversation) != str(conversation) or skipped(
        str(conversation.parent), [conversation.name]
    ):
        return
    if has_own_home(projects.parent):
        _remove_links(folder)
    shutil.copyfile(conversation, private_dir(folder) / conversation.name)
    if inner.is_dir() and not inner.is_symlink():
        shutil.copytree(inner, folder / inner.name, ignore=skipped, dirs_exist_ok=True)


def _remove_links(folder: Path) -> None:
    """What an agent made in its own home: a copy would be written through them."""
    inside = [Path(place, name) for place, *names in os.walk(folder) for some in names for name in some]
    for path in (folder, *inside):
        if path.is_symlink():
            path.unlink()
