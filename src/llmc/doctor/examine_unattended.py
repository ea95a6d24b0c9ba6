"""Looks for what a fleet meets when nobody watches it, for `llmc doctor`, as facts. Changes nothing."""

import contextlib
import os
import socket
import stat
from pathlib import Path
from typing import Any

from llmc.base import locks, processes
from llmc.base.clock import age_s, now_unix
from llmc.base.errors import LlmcError
from llmc.base.files import json_row, read_json, read_text
from llmc.config.paths import Root
from llmc.doctor.rules import facts as seen
from llmc.goals.goals import open_store
from llmc.goals.store.errors import SET_ASIDE
from llmc.records.event_log import EventLog
from llmc.records.items import Registration
from llmc.repo.project import Project
from llmc.tasks.rules.claims import is_nobodys
from llmc.tasks.source import source_of
from llmc.tasks.task_list import overview
from llmc.tasks.worker_tasks import Origins

_NOTES = "manual_intervention_needed_*.txt"
#: a process that began this much later than its registration was written is another one
_SAME_PROCESS_S = 5.0


def unusable(root: Root) -> tuple[seen.Unusable, ...]:
    """Directories and files of llmc's own that their owner may not use, or that are not ours."""
    folders = (
        root.path,
        root.private,
        root.logs,
        root.worktrees,
        root.inbox,
        root.locks,
        root.agents,
        root.trash,
        root.bin,
    )
    files = (root.config, root.state, root.events, root.daemon, root.tasks_ledger, root.logs / "daemon.jsonl")
    wanted = [(path, 0o700) for path in folders] + [(path, 0o600) for path in files]
    return tuple(found for path, bits in wanted if (found := _unusable(path, bits)) is not None)


def _unusable(path: Path, bits: int) -> seen.Unusable | None:
    try:
        info = path.stat()
    except OSError:
        return None  # gone, or behind one that is named itself
    mode, owned = stat.S_IMODE(info.st_mode), info.st_uid == os.getuid()
    return None if owned and mode & bits == bits else seen.Unusable(str(path), mode, owned)


def claims(project: Project) -> tuple[seen.LeftClaim, ...]:
    """The claims that this root's ledger holds open."""
    books = source_of(project).books()
    return tuple(seen.LeftClaim(claim.id, claim.task.id, claim.worker) for claim in books.claims.values())


def goal_problems(project: Project) -> tuple[tuple[str, str], ...]:
    """What keeps goals from being driven that only their own commands would tell; nothing is changed by looking."""
    store = open_store(project)
    if not store.path.exists():
        return ()
    try:
        with store.reading() as found:
            mode = found.safe_mode()
            found.views()
    except LlmcError as error:
        return ((f"the goals' store: {error.message}", error.hint),)
    if store.damage:
        return ((store.damage, f"put a good copy there; {SET_ASIDE[0].lower()}{SET_ASIDE[1:]}"),)
    told = [
        (f"{goal_id}: {why}", "`llmc overseer export` has it") for goal_id, why in found.unreadable.items()
    ]
    if mode is not None:
        text = f"goals are in safe mode, and nothing is sent: a damaged store was set aside as {mode.file}"
        told.append((text, "look at it, then `llmc overseer safe-mode --clear`"))
    return tuple(told)


def task_problems(project: Project) -> tuple[str, ...]:
    if not project.config.auto.task_list_id:
        return ()
    try:
        return tuple(overview(source_of(project), recent=0).problems)
    except LlmcError as error:
        return (error.message,)


def unowned_tasks(project: Project) -> tuple[str, ...]:
    """What auto mode would free at its next look."""
    if not project.config.auto.task_list_id:
        return ()
    with contextlib.suppress(LlmcError):
        source = source_of(project)
        at_work, books = Origins(project, source).at_work(), source.books()
        tasks = source.listing().tasks.values()
        return tuple(task.id for task in tasks if is_nobodys(task, source.key(task.id), books, at_work))
    return ()


def manual_notes(root: Root) -> tuple[seen.ManualNote, ...]:
    found = []
    for path in sorted(root.private.glob(_NOTES)):
        lines = [line for line in read_text(path).splitlines() if line.strip()]
        found.append(
            seen.ManualNote(str(path), lines[0].strip()[:200] if lines else "(empty)", str(root.logs))
        )
    return tuple(found)


def dead_overseer(root: Root) -> str:
    """`overseer.json` of a supervisor that is gone; "" when there is none, or it lives."""
    path = root.private / "overseer.json"
    try:
        written = path.stat().st_mtime
        registration: Any = read_json(path)
        pid = int(registration["pid"])
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return str(path)  # half a file is of nobody who lives
    began = processes.began_unix(pid)
    lives = began is not None and began <= written + _SAME_PROCESS_S
    return "" if lives else str(path)


def remembered(root: Root) -> tuple[str, ...]:
    """The workers that were added and not removed, by the event log."""
    found: dict[str, None] = {}
    with contextlib.suppress(OSError):
        for line in EventLog(str(root.events)).lines_since(0):
            event = json_row(line) if b'"worker_' in line else None
            if event is not None and event.get("action") == "worker_added":
                found[str(event.get("worker"))] = None
            elif event is not None and event.get("action") == "worker_removed":
                found.pop(str(event.get("worker")), None)
    return tuple(found)


def socket_problem(root: Root) -> str:
    """Why a wake-up does not reach the daemon; "" when it does. Nothing is sent."""
    try:
        path = root.wake_socket()
    except LlmcError as error:
        return error.message
    if not os.path.lexists(path):
        return f"{path} is gone"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(str(path))
        except OSError as error:
            return f"nobody listens at {path} ({error.strerror})"
    return ""


def heartbeat_age_s(root: Root, registration: Registration) -> float | None:
    """Since the last sign of life of this very daemon, or since it registered; None without auto mode."""
    if registration.auto is not True or not registration.ready:
        return None
    now = now_unix()
    try:
        ages = [age_s(root.daemon.stat().st_mtime, now)]
        beat = read_json(root.heartbeat)
        if beat.get("instance_id") == registration.instance_id:
            ages.append(age_s(float(beat["timestamp_unix"]), now))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass  # not written yet, or just now
    return min(ages)


def other_pid(root: Root, registration: Registration) -> int | None:
    """The process that daemon.json names, where it is not the one that has the daemon's lock."""
    signed = locks.signer(root.lock("daemon"))
    return registration.pid if signed is not None and registration.pid != signed else None
