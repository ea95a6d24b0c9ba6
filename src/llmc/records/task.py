"""A task, llmc's own metadata in it, and the result of scanning a list. Pure data."""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from llmc.base.errors import LlmcError
from llmc.base.given import text
from llmc.base.names import TaskId

DEFAULT_PRIORITY = 3
PRIORITIES = range(5)
#: maximum digits of a task's number
MOST_DIGITS = 15
#: maximum bytes of a task's id: it becomes part of a file name
MOST_ID = 200
#: other files of the list start with a dot
_NO_ID = re.compile(r"^\.|/")
_LABEL = re.compile(r"[A-Za-z0-9_-]+")
#: allowed characters of a label, as text
LABEL_WORDS = "letters, digits, hyphens and underscores"


class TaskStatus(StrEnum):
    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


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
        """0 is highest; anything but a number counts as 3, and values out of range are clamped."""
        value = self.metadata.get("priority")
        if isinstance(value, bool) or not isinstance(value, int | float):
            return DEFAULT_PRIORITY
        return int(min(max(value, PRIORITIES.start), PRIORITIES.stop - 1))

    @property
    def label(self) -> str:
        return text(self.metadata.get("label"))

    @property
    def ours(self) -> Mapping[str, Any]:
        """llmc's own metadata: `metadata.llmc`."""
        return _mapping(self.metadata.get("llmc"))

    def with_ours(self, **changes: Any) -> "Task":
        """The task with these values set in llmc's metadata; None removes one. Everything else stays."""
        said = {**self.ours, **changes}
        ours = {key: value for key, value in said.items() if value is not None or key not in changes}
        others = {key: value for key, value in self.metadata.items() if key != "llmc"}
        return replace(self, metadata={**others, "llmc": ours} if ours else others)

    @property
    def verify(self) -> str:
        """The task's own verify command."""
        return text(self.ours.get("verify"))

    @property
    def model(self) -> str:
        """The Claude model for this task; "" means the worker's."""
        value = text(self.ours.get("model"))
        return value if is_model(value) else ""

    @property
    def budget(self) -> dict[str, Any] | None:
        """The task's own limits."""
        value = self.ours.get("budget")
        return dict(value) if isinstance(value, Mapping) else None

    @property
    def claim(self) -> str:
        """The id of the claim on it; an owner's name is not unique across roots."""
        return text(self.ours.get("claim"))

    @property
    def waits_for_a_person(self) -> str:
        """Why it is held although nothing blocks it: `proposed`, `quarantined`, `parked`; or ""."""
        return text(self.ours.get("hold"))

    @property
    def dispatch(self) -> str:
        """The goal dispatch that made it, which runs at most once; "" for other tasks."""
        return text(self._goal.get("dispatchId"))

    @property
    def part(self) -> str:
        """The plan item that it is for, the same for every attempt; "" for other tasks."""
        ids = [self._goal.get(name) for name in ("goalId", "workNodeId")]
        return "/".join(map(str, ids)) if all(ids) else ""

    @property
    def pool_key(self) -> str:
        """Its key from the task pool command; "" for other tasks."""
        return text(self.ours.get("key"))

    @property
    def made_by(self) -> Mapping[str, str]:
        """The worker whose session made it, and that worker's task; empty for other tasks."""
        return _mapping(self.ours.get("by"))

    @property
    def _goal(self) -> Mapping[str, Any]:
        return _mapping(self.ours.get("goal"))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


#: takes the current task and returns the new one; None: no change
Edit = Callable[[Task], Task | None]


class NoTask(LlmcError):
    """Not a valid task; it cannot be edited either."""


class Unreadable(Struct, frozen=True):
    """An entry of a list that is not a valid task."""

    #: its name and path, for the user
    file: str
    where: str
    #: the id it would have
    task_id: TaskId
    problem: str


class Listing(Struct):
    """The current tasks, and invalid entries."""

    tasks: dict[TaskId, Task] = field(default_factory=dict)
    unreadable: list[Unreadable] = field(default_factory=list)
    #: names of files that are being written now, to be read again
    unsettled: set[str] = field(default_factory=set)


class Changes(Struct):
    """Changes since the last scan: tasks (None: gone, or no longer valid), and what is being written."""

    tasks: dict[TaskId, Task | None] = field(default_factory=dict)
    unsettled: set[str] = field(default_factory=set)


def is_label(name: str) -> bool:
    """Whether it is a valid bare key in TOML."""
    return _LABEL.fullmatch(name) is not None


def is_id(name: str) -> bool:
    """Whether it is a valid task id, which becomes a file name in the list's directory."""
    return (
        0 < len(name.encode(errors="replace")) <= MOST_ID and name.isprintable() and not _NO_ID.search(name)
    )


def is_model(name: str) -> bool:
    """Whether it is a valid model name, which becomes an argument of the client."""
    return re.fullmatch(r"[A-Za-z0-9][!-~]{0,199}", name) is not None


def is_number(task_id: str) -> bool:
    """Whether it is a number as the client assigns them; a longer one would leave no next number."""
    return task_id.isascii() and task_id.isdigit() and len(task_id) <= MOST_DIGITS


def in_order(task_id: str) -> tuple[int, int, str]:
    """A sort key that puts 2 before 10, and names after numbers."""
    return (0, int(task_id), "") if is_number(task_id) else (1, 0, task_id)
