"""Creating and changing a task in the client's task list, under the client's locks."""

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llmc.agents.claude import layout
from llmc.agents.scripted.session import Session

LOCK_TRIES = 30
LOCK_RETRY_S = 0.09
STALE_LOCK_S = 10.0


class LockHeldError(Exception):
    """Somebody else kept the list locked for all tries."""


def is_enabled(allowed_tools: list[str]) -> bool:
    """2.1.325 turned the task tools off for current models, unless asked for."""
    return os.environ.get(layout.TASK_TOOLS) == "1" or "TaskCreate" in allowed_tools


def list_dir(session: Session) -> str:
    name = os.environ.get(layout.TASK_LIST) or session.id
    return os.path.join(session.config_dir, layout.TASKS, layout.list_name(name))


def create(session: Session, given: dict[str, Any]) -> str:
    """Write the next N.json; returns N."""
    directory = list_dir(session)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    with open(os.path.join(directory, ".lock"), "a", encoding="utf-8"):
        pass
    with _locked(os.path.join(directory, ".lock.lock")):
        task_id = str(1 + _highest(directory))
        task: dict[str, Any] = {
            "id": task_id,
            "subject": given["subject"],
            "description": given["description"],
            "status": "pending",
            "blocks": [],
            "blockedBy": [],
        }
        if "metadata" in given:
            task["metadata"] = given["metadata"]
        with open(os.path.join(directory, task_id + ".json"), "w", encoding="utf-8") as file:
            json.dump(task, file, indent=2, ensure_ascii=False)
    return task_id


def update(session: Session, task_id: str, metadata: dict[str, Any]) -> None:
    """Add to a task's metadata; null takes a key out."""
    path = os.path.join(list_dir(session), task_id + ".json")
    with _locked(path + ".lock"):
        with open(path, encoding="utf-8") as file:
            task = json.load(file)
        merged = {**(task.get("metadata") or {}), **metadata}
        task["metadata"] = {key: value for key, value in merged.items() if value is not None}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(task, file, indent=2, ensure_ascii=False)


def _highest(directory: str) -> int:
    numbers = [int(name[:-5]) for name in os.listdir(directory) if re.fullmatch(r"\d+\.json", name)]
    try:
        with open(os.path.join(directory, ".highwatermark"), encoding="utf-8") as file:
            numbers.append(int(file.read().strip() or 0))
    except (OSError, ValueError):
        pass
    return max(numbers, default=0)


@contextmanager
def _locked(path: str) -> Iterator[None]:
    for _ in range(LOCK_TRIES):
        if _try_lock(path):
            break
        time.sleep(LOCK_RETRY_S)
    else:
        raise LockHeldError("Lock file is already being held")
    try:
        yield
    finally:
        try:
            os.rmdir(path)
        except FileNotFoundError:
            pass  # taken over as stale


def _try_lock(path: str) -> bool:
    try:
        os.mkdir(path)
        return True
    except FileExistsError:
        pass
    try:
        if time.time() - os.stat(path).st_mtime > STALE_LOCK_S:
            os.rmdir(path)
    except OSError:
        pass  # released or taken over meanwhile
    return False
