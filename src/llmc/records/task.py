"""A task, wherever it is kept, and what llmc keeps in its metadata; and what a look at a list of them finds. Pure data."""

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from llmc.base.errors import LlmcError
from llmc.base.names import TaskId

DEFAULT_PRIORITY = 3
PRIORITIES = range(5)
#: of a task's number
MOST_DIGITS = 15
#: of a task's id, in bytes: its file's name has to fit, with what is put before and after it
MOST_ID = 200
#: other files of the list begin with a dot
_NO_ID = re.compile(r"^\.|/")
_LABEL = re.compile(r"[A-Za-z0-9_-]+")
#: what a label may be made of, in words
LABEL_WORDS = "letters, digits, hyphen and underscore"


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
        """What llmc itself keeps with it: `metadata.llmc`."""
        value = self.metadata.get("llmc")
        return value if isinstance(value, Mapping) else {}

    def with_ours(self, **changes: Any) -> "Task":
        """The task with these values among llmc's own; None removes one. Everything else in it stays."""
        said = {**self.ours, **changes}
        ours = {key: value for key, value in said.items() if value is not None or key not in changes}
        others = {key: value for key, value in self.metadata.items() if key != "llmc"}
        return replace(self, metadata={**others, "llmc": ours} if ours else others)

    @property
    def verify(self) -> str:
        """The task's own acceptance command."""
        value = self.ours.get("verify")
        return value if isinstance(value, str) else ""

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
    def pool_key(self) -> str:
        """What the task pool command calls it; "" for any other task."""
        value = self.ours.get("key")
        return value if isinstance(value, str) else ""

    @property
    def made_by(self) -> Mapping[str, str]:
        """The worker whose session made it, and the task that one was at; empty for any other task."""
        value = self.ours.get("by")
        return value if isinstance(value, Mapping) else {}


#: gets a task as it is now, and returns it as it shall be; None: leave it
Edit = Callable[[Task], Task | None]


class NoTask(LlmcError):
    """What is there is no valid task; nothing can be written into it either."""


class Unreadable(Struct, frozen=True):
    """Something in a list that is no task."""

    #: what it is called there, and where that is, for people
    file: str
    where: str
    #: what it would be
    task_id: TaskId
    problem: str


class Listing(Struct):
    """The tasks as they are now, and what is none."""

    tasks: dict[TaskId, Task] = field(default_factory=dict)
    unreadable: list[Unreadable] = field(default_factory=list)
    #: what somebody is writing at this moment, by its name there: to be looked at again
    unsettled: set[str] = field(default_factory=set)


class Changes(Struct):
    """What is different since the last look: tasks (None: gone, or no task any more), and what is being written."""

    tasks: dict[TaskId, Task | None] = field(default_factory=dict)
    unsettled: set[str] = field(default_factory=set)


def is_label(text: str) -> bool:
    """Whether it can be the name of a table in TOML, without quotes."""
    return _LABEL.fullmatch(text) is not None


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
