"""A task as Claude Code's own task files have it, and what llmc keeps in its metadata."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from llmc.base.names import TaskId

DEFAULT_PRIORITY = 3
PRIORITIES = range(5)
#: of a task's number
MOST_DIGITS = 15
#: of a task's id, in bytes: its file's name has to fit, with what is put before and after it
MOST_ID = 200
#: a command may have lines and tabs
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
#: other files of the list begin with a dot
_NO_ID = re.compile(r"^\.|/")
_LABEL = re.compile(r"[A-Za-z0-9_-]+")
#: what a label may be made of, in words
LABEL_WORDS = "letters, digits, hyphen and underscore"


class TaskStatus(StrEnum):
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class BadTask(ValueError):
    """A file that is no task; says what is wrong with it, in one line."""


class Task(Struct, frozen=True):
    id: TaskId
    subject: str
    description: str
    status: TaskStatus
    blocks: tuple[TaskId, ...] = ()
    blocked_by: tuple[TaskId, ...] = ()
    owner: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def priority(self) -> int:
        """0 is first; what is no number counts as 3, what lies outside is moved to the edge."""
        value = self.metadata.get("priority")
        if isinstance(value, bool) or not isinstance(value, int | float):
            return DEFAULT_PRIORITY
        return int(min(max(value, PRIORITIES.start), PRIORITIES.stop - 1))

    @property
    def label(self) -> str:
        value = self.metadata.get("label")
        return value if isinstance(value, str) else ""

    @property
    def ours(self) -> Mapping[str, Any]:
        """What llmc itself keeps in the file: `metadata.llmc`."""
        return _ours(self.metadata)

    @property
    def verify(self) -> str:
        """The task's own acceptance command."""
        return _verify(self.metadata)

    @property
    def model(self) -> str:
        """The Claude model that it is to be done with; "" for that of its worker."""
        value = self.ours.get("model")
        return value if isinstance(value, str) and is_model(value) else ""

    @property
    def budget(self) -> dict[str, Any] | None:
        """The task's own limits."""
        value = self.ours.get("budget")
        return dict(value) if isinstance(value, Mapping) else None

    @property
    def claim(self) -> str:
        """The id of the claim on it; an owner's name alone is the same in every root."""
        value = self.ours.get("claim")
        return value if isinstance(value, str) else ""

    @property
    def waits_for_a_person(self) -> str:
        """Why it is not taken although nothing blocks it: `proposed`, `quarantined`, `parked`; or nothing."""
        value = self.ours.get("hold")
        return value if isinstance(value, str) else ""

    @property
    def dispatch(self) -> str:
        """The dispatch of a goal that made it, under which it is done at most once; "" for any other task."""
        goal = self.ours.get("goal")
        value = goal.get("dispatchId") if isinstance(goal, Mapping) else None
        return value if isinstance(value, str) else ""

    @property
    def part(self) -> str:
        """The part of a goal's plan that it is for, whichever attempt at that it is; "" for any other task."""
        goal = self.ours.get("goal")
        ids = [goal.get(name) for name in ("goalId", "workNodeId")] if isinstance(goal, Mapping) else []
        return "/".join(map(str, ids)) if all(ids) else ""

    @property
    def made_by(self) -> Mapping[str, str]:
        """The worker whose session made it, and the task that one was at; empty for any other task."""
        value = self.ours.get("by")
        return value if isinstance(value, Mapping) else {}


def parse(stem: str, raw: object) -> Task:
    """The task in a file `<stem>.json`."""
    if not is_id(stem):
        raise BadTask("its name cannot be the id of a task")
    if not isinstance(raw, dict):
        raise BadTask("it is no JSON object")
    for name in ("id", "subject", "description", "status"):
        if not isinstance(raw.get(name), str):
            raise BadTask(f"`{name}` is missing" if name not in raw else f"`{name}` is no text")
    if raw["id"] != stem:
        raise BadTask(f"its id is {raw['id'][:80]!r}, the file's name says {stem!r}")
    try:
        status = TaskStatus(raw["status"])
    except ValueError:
        raise BadTask(f"`status` is {raw['status'][:80]!r}; it can be {', '.join(TaskStatus)}") from None
    owner = raw.get("owner") or ""
    metadata = raw.get("metadata") or {}
    if not isinstance(owner, str):
        raise BadTask("`owner` is no text")
    if not isinstance(metadata, dict):
        raise BadTask("`metadata` is no object")
    if status is not TaskStatus.COMPLETED:  # what is done needs no label any more
        _check_label(metadata.get("label"))
    if (model := _ours(metadata).get("model")) and not (isinstance(model, str) and is_model(model)):
        raise BadTask(f"`metadata.llmc.model` is {str(model)[:80]!r}, which cannot be the name of a model")
    if _CONTROL.search(_verify(metadata)):
        raise BadTask("`metadata.llmc.verify` has a control character")
    return Task(
        id=TaskId(stem),
        subject=raw["subject"],
        description=raw["description"],
        status=status,
        blocks=_ids(raw, "blocks"),
        blocked_by=_ids(raw, "blockedBy"),
        owner=owner,
        metadata=metadata,
    )


def _check_label(label: object) -> None:
    """It names a table of the context file: another one would be taken for no label at all."""
    if label is not None and not isinstance(label, str):
        raise BadTask("`metadata.label` is no text")
    if label and not is_label(label):
        raise BadTask(f"`metadata.label` is {label[:80]!r}; a label has {LABEL_WORDS} only")


def is_label(text: str) -> bool:
    """Whether it can be the name of a table in TOML, without quotes."""
    return _LABEL.fullmatch(text) is not None


def _verify(metadata: Mapping[str, Any]) -> str:
    value = _ours(metadata).get("verify")
    return value if isinstance(value, str) else ""


def _ours(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    value = metadata.get("llmc")
    return value if isinstance(value, Mapping) else {}


def _ids(raw: dict[str, Any], name: str) -> tuple[TaskId, ...]:
    value = raw.get(name)
    if value is None:
        raise BadTask(f"`{name}` is missing")
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadTask(f"`{name}` is no list of ids")
    if odd := next((item for item in value if not is_id(item)), ""):
        raise BadTask(f"`{name}` has {odd[:80]!r}, which cannot be the id of a task")
    return tuple(TaskId(item) for item in value)


def is_id(text: str) -> bool:
    """Whether it can be the name of a task: that of a file in the list's own directory."""
    return (
        0 < len(text.encode(errors="replace")) <= MOST_ID and text.isprintable() and not _NO_ID.search(text)
    )


def is_model(text: str) -> bool:
    """Whether it can be the name of a model: it becomes an argument of the client's command line."""
    return re.fullmatch(r"[A-Za-z0-9][!-~]{0,199}", text) is not None


def is_number(task_id: str) -> bool:
    """Whether it is a number as the client gives them; a longer one could not be followed by another."""
    return task_id.isascii() and task_id.isdigit() and len(task_id) <= MOST_DIGITS


def in_order(task_id: str) -> tuple[int, int, str]:
    """A key that puts 2 before 10, and names after numbers."""
    return (0, int(task_id), "") if is_number(task_id) else (1, 0, task_id)
