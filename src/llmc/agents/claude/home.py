"""The home of a contained Claude Code: its own conversations and status files, the user's settings read-only.

With the user's own home an agent could write settings, MCP servers and plugins that run in the user's next session. And
clients in PID namespaces have the same few pids: they would overwrite each other's status files.
"""

import contextlib
import json
import os
import re
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
from llmc.base import given, inside
from llmc.base.files import open_given, private_dir, remove_tree, write_atomic
from llmc.base.hosts import with_port
from llmc.base.text import pattern
from llmc.sandbox.rules import Mount

_SETTINGS = "settings.json"
#: the user's own, read-only
_JSON = (_SETTINGS, "settings.local.json", "keybindings.json")
_READ = (*_JSON, "CLAUDE.md", "plugins", "skills", "agents", "commands", "output-styles", "rules")
#: copied from `.claude.json` besides flags and counters: the account, the key of a console login, and appearance
_NEEDED = ("oauthAccount", "primaryApiKey", "theme", "editorMode", "lastOnboardingVersion")
#: the user's answers when the client asked about an API key: for each answer, the ends of keys
_KEY, _KEY_ANSWERS, _KEY_END = "ANTHROPIC_API_KEY", "customApiKeyResponses", 20
#: stop the client's own connections to hosts that are not listed: news, updates, statistics, plugins
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
#: how deep the directory beside it is copied; the client's own has one level
_DEEPEST = 8
_BLOCK = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def make_home(home: Path, config_dir: Path, environment: Mapping[str, str], trusted: Sequence[Path]) -> Home:
    """Prepare the home, with the needed part of the user's `.claude.json` and trust in these directories only."""
    own = own_places(home)
    found = _needed(
        _read(ClaudeTrust.of(environment).file), _variables(config_dir, environment).get(_KEY, "")
    )
    found["projects"] = {str(place): dict(TRUST) for place in trusted}
    for name in (USER_CONFIG, *_JSON):
        if (home / name).is_dir() and not (home / name).is_symlink():
            remove_tree(home / name)  # an agent made it, and no file could be written there
    write_atomic(home / USER_CONFIG, json.dumps(found, indent=2).encode())
    shown = [(name, config_dir / name) for name in (*_READ, _LOGIN) if (config_dir / name).exists()]
    mounts = [Mount(str(home / name), name == _LOGIN, str(path.resolve())) for name, path in shown]
    for name in _JSON:
        if not (home / name).exists():
            write_atomic(home / name, b"{}")  # where the user's file is mounted; stays if that is removed
    quiet = {name: environment.get(name, "1") for name in _QUIET}
    # The client refuses to run as root with permissions skipped, unless it is contained.
    names = {CONFIG_DIR: str(home), "IS_SANDBOX": "1", **quiet}
    return Home(names, (*own, *mounts))


def _needed(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The part of the user's `.claude.json` to copy. Flags and counters say which dialogs the user has answered."""
    flags = {name: value for name, value in config.items() if isinstance(value, bool | int | float)}
    answers = config.get(_KEY_ANSWERS)
    listed = answers.items() if isinstance(answers, dict) else ()
    # The ends of other keys are not for the agent.
    of_key = {name: [key[-_KEY_END:]] for name, ends in listed if key and key[-_KEY_END:] in (ends or ())}
    return {**flags, **{name: config[name] for name in _NEEDED if name in config}, _KEY_ANSWERS: of_key}


def own_places(home: Path) -> tuple[Mount, ...]:
    """The home, and what llmc reads in it: each a mount of its own, which the agent cannot replace with a link."""
    places = [home, *(home / name for name in (PROJECTS, SESSIONS, TASKS))]
    for place in places:
        if place.is_symlink():  # from an earlier version, which let an agent make one
            place.unlink()
        private_dir(place).chmod(0o700)  # an agent may have removed llmc's permission to read it
    return tuple(Mount(str(place), True, str(place)) for place in places)


def endpoints(config_dir: Path, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The hosts of its model, from its variables."""
    found = _variables(config_dir, environment)
    urls = [str(value) for name, value in found.items() if value and re.fullmatch(ENDPOINT, name)]
    return tuple(filter(None, map(_host_of, urls))) or ENDPOINTS


def _variables(config_dir: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of the client, which the user's settings may set too."""
    set_there = _read(config_dir / _SETTINGS).get("env")
    return {**environment, **(set_there if isinstance(set_there, dict) else {})}


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
    """Copy a transcript, with those of its subagents in the directory beside it.

    Other things that an agent may have made there stay behind: links, pipes, and more than fits. The next client would
    write through a link. Only conversations are copied: the directory beside a file named `memory`, for example, would
    replace what the user's own client reads.
    """
    if not _CONVERSATION.fullmatch(conversation.name) or os.path.realpath(conversation) != str(conversation):
        return
    folder = projects / conversation.parent.name
    if has_own_home(projects.parent):
        _remove_links(folder)
    private_dir(folder)
    left = _MOST_CARRIED
    with inside.folder_of(conversation.parent, conversation.name) as (source, name):
        left -= _copied(name, source, folder, name, left)
    with contextlib.suppress(OSError):  # it has no subagents
        for at, folders, names in inside.walk(conversation.parent, conversation.stem):
            if at.path.count("/") >= _DEEPEST:
                folders.clear()
            for name in names:
                left -= _copied(name, at.fd, folder, f"{at.path}/{name}", left)


def _copied(name: str, source: int, folder: Path, target: str, left: int) -> int:
    """Copy a regular file that fits from an open directory to `target` in the folder; returns its size, else 0."""
    from llmc.base import trees  # most launches copy none

    entry = os.lstat(name, dir_fd=source)
    if not stat.S_ISREG(entry.st_mode) or entry.st_size > left:
        return 0
    rest = entry.st_size
    with open_given(Path(name), source) as file, inside.folder_of(folder, target, make=True) as (to, last):
        with contextlib.suppress(FileNotFoundError):
            trees.remove(last, to)
        with open(os.open(last, _NEW, 0o600, dir_fd=to), "wb") as copy:
            while rest > 0 and (block := file.read(min(rest, _BLOCK))):
                copy.write(block)
                rest -= len(block)
    return entry.st_size


def _remove_links(folder: Path) -> None:
    """Remove the links that an agent made in its own home: a copy would be written through them."""
    if folder.is_symlink():
        folder.unlink()
    with contextlib.suppress(FileNotFoundError):
        for at, _, names in inside.walk(folder):
            for name in names:
                if stat.S_ISLNK(os.lstat(name, dir_fd=at.fd).st_mode):
                    os.unlink(name, dir_fd=at.fd)
