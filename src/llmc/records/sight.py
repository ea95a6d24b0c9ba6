"""Current facts about a root beside state.json: locks, registrations, clients' status files, the disk.

Shared by `status`, `digest` and the daemon. Light, for the hot commands: reads small files with the standard library,
changes nothing and waits for no lock.
"""

import os
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

from llmc.base import given
from llmc.base.flocks import is_locked, signer
from llmc.base.panes import Pane, Panes, find
from llmc.config import root_layout
from llmc.records.items import NO_SOURCE, Facts, Glance, Raw, Registration, Seen, up_auto

#: asks a running client (agents/glance.py); takes the agent and directory of a worker's record, and the pid
Glancing = Callable[[object, object, int], Glance]

#: time limit of git in the source
GIT_S = 10.0
#: how `git status` reports an unfinished operation
_UNDER_WAY = (b"You are currently", b"in progress", b"still merging")


def look(root: str, state: Mapping[str, Any], panes: Panes | None, now: float, glance: Glancing) -> Facts:
    """Collect the facts. `panes`: from tmux; None if it did not answer."""
    lock = f"{root}/{root_layout.DAEMON_LOCK}"
    running = is_locked(lock)
    overseer = read_record(f"{root}/{root_layout.OVERSEER_FILE}")
    workers = state.get("workers") or {}
    return Facts(
        now=now,
        running=running,
        holder=signer(lock) if running else None,
        daemon=registration(root),
        supervised=overseer is not None and is_locked(f"{root}/{root_layout.OVERSEER_LOCK}"),
        overseer=overseer,
        workers={name: _seen(root, record, panes, glance) for name, record in workers.items()},
        disk_free_bytes=_disk_free(root),
        canary=read_record(f"{root}/{root_layout.CANARY}") if running else None,
        source_is_free=bool(source_is_free(state)),
        source_fix=_source_fix(state),
        up_auto=up_auto(state.get("auto") or {}, now),
        beat_unix=_changed(f"{root}/{root_layout.HEARTBEAT}"),
    )


def last_beat(root: str, instance: str) -> float:
    """When auto mode of this daemon last sent a heartbeat; 0: unknown."""
    record = read_record(f"{root}/{root_layout.HEARTBEAT}") or {}
    return (record.get("instance_id") == instance and given.number(record.get("timestamp_unix"))) or 0.0


def registration(root: str | os.PathLike[str]) -> Registration | None:
    """The current daemon.json, whether or not its daemon is alive."""
    return Registration.read(read_record(f"{os.fspath(root)}/{root_layout.DAEMON}"))


def read_record(path: str) -> Raw | None:
    """A small JSON object; None if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            value = given.parse(file.read())
    except (OSError, ValueError, TypeError):
        return None
    return value if isinstance(value, dict) else None


def agent_pane(record: Mapping[str, Any], panes: Panes) -> Pane | None:
    """The pane of a worker's agent."""
    keys = ("name", "session_id", "pane_id", "instance")
    worker, session, pane_id, instance = (record.get(key, "") for key in keys)
    return find(panes, worker, session, pane_id, instance)


def _seen(root: str, record: Mapping[str, Any], panes: Panes | None, glance: Glancing) -> Seen:
    acting = is_locked(f"{root}/{root_layout.LOCKS}/worker-{record.get('name')}.lock")
    if panes is None:
        return Seen(None, acting=acting)
    pane = agent_pane(record, panes)
    if pane is None or pane.dead:
        return Seen(False, rests=True, acting=acting)
    said = glance(record.get("agent"), record.get("config_dir"), pane.pid)
    return Seen(pane.attached, said.dialog, said.rests, acting)


def _changed(path: str) -> float:
    """When a file was last written; 0 if there is none."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _disk_free(root: str) -> int | None:
    try:
        found = os.statvfs(root)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _source_fix(state: Mapping[str, Any]) -> str:
    """The command that fixes a missing source; "" if it is there again. Runs git only if it was missing."""
    for key, item in (state.get("attention") or {}).items():
        if key.startswith(NO_SOURCE) and isinstance(item, Mapping):
            branch = f"refs/heads/{key.removeprefix(NO_SOURCE)}"
            done = _git_in_source(item.get("who"), "rev-parse", "--verify", "--quiet", branch)
            return given.text(item.get("next")) if done is None or done.returncode else ""
    return ""


def source_is_free(state: Mapping[str, Any]) -> bool | None:
    """Whether the source is clean again after an accept found the user's work there; None if git does not answer.

    Runs git only after such an accept.
    """
    item = (state.get("attention") or {}).get("source")
    said = given.text(item.get("text")) if isinstance(item, Mapping) else ""
    if not isinstance(item, Mapping) or "index.lock" in said:
        return False
    untracked = "normal" if "untracked" in said else "no"
    done = _git_in_source(item.get("who"), "status", f"--untracked-files={untracked}")
    if done is None:
        return None
    is_clean = b"nothing to commit" in done.stdout
    return is_clean and not any(words in done.stdout for words in _UNDER_WAY)


def _git_in_source(source: object, *args: str) -> "subprocess.CompletedProcess[bytes] | None":
    """Run git in the source; None if it could not start or timed out."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    env |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        return subprocess.run(["git", "-C", str(source), *args], capture_output=True, timeout=GIT_S, env=env)
    except (OSError, subprocess.TimeoutExpired):
        return None
