"""Where the tasks of a root are kept: what llmc needs of such a place, and which one a root has.

A task is named by (list, id). A source keeps the tasks, and the books of what llmc did with them: a claim is in both, or in
none. Claude Code's own files are one (tasks/claude_files.py).
"""

from collections.abc import Callable
from typing import Any, Protocol

from llmc.base.names import TaskId, TaskKey
from llmc.config.model import Auto
from llmc.records.books import Action, Books, Claim
from llmc.records.task import Changes, Edit, Listing, Task, Unreadable
from llmc.repo.project import Project


class Watching(Protocol):
    """Tells that tasks changed. `fileno()` becomes readable then."""

    def fileno(self) -> int: ...

    def heard(self) -> bool:
        """What was told is known to the source. False: this watch may miss the next change; close it and begin another."""
        ...

    def close(self) -> None: ...


class TaskSource(Protocol):
    """The tasks of a root. Several threads may ask at once.

    A task that is not there is a NotFound, one that cannot be read a NoTask; an id is never taken for a path.
    """

    @property
    def list_name(self) -> str:
        """The list that tasks are added to and given out from; "" where none is configured."""
        ...

    def key(self, task_id: str) -> TaskKey:
        """A task of that list, by its whole name."""
        return TaskKey(self.list_name, TaskId(task_id))

    # What is there.

    def listing(self, list_name: str = "") -> Listing:
        """All tasks of a list; "": of the configured one."""
        ...

    def changes(self) -> Changes:
        """What is different since the last call; everything, at the first."""
        ...

    @property
    def unsettled(self) -> bool:
        """Whether `changes` has to be asked again, because something was being written, or was not looked at yet."""
        ...

    @property
    def unreadable(self) -> list[Unreadable]:
        """What was no task at the last look."""
        ...

    def one(self, task: TaskKey) -> Task: ...

    def written_unix(self, task_id: str) -> float:
        """When a task was last written, as of the last look."""
        ...

    def prepare(self) -> None:
        """The list exists from now on, and can be watched."""
        ...

    def watch(self) -> Watching:
        """Begin to be told of changes; `changes` need not look at everything from then on."""
        ...

    # What becomes of it.

    def add(self, new: Task, by: str) -> Task:
        """The task, with the id it got: one that no task of the list has, or ever had."""
        ...

    def edit(self, task: TaskKey, edit: Edit) -> Task:
        """Change a task while nobody else can; what `edit` does not know of it stays."""
        ...

    def remove(self, task: TaskKey, may: Callable[[Task], bool]) -> bool:
        """Take a task out of its list if it still may be; whether it is gone."""
        ...

    # Who is at it. All or nothing: after a crash `settle` makes one of the two of what was begun.

    def claim(
        self, task: TaskKey, worker: str, subject: str = "", dispatch: str = "", part: str = ""
    ) -> Claim | None:
        """The task is this worker's, if nobody has it and nothing keeps it back; None: somebody else was faster."""
        ...

    def renew(self, claim_id: str) -> bool:
        """Whether the claim is still held. A source whose claims expire prolongs it; asked at each look at its worker."""
        ...

    def about_to_land(self, claim: Claim, commit: str) -> None:
        """Written before the commit lands: should the state get lost meanwhile, nobody does the task again."""
        ...

    def finish(self, claim: Claim, commit: str) -> None:
        """Its work has landed. A task that is gone is no problem: the books know."""
        ...

    def release(
        self, claim: Claim, reason: str, *, cause: str = "", counts: bool = False, hold: str = ""
    ) -> Books:
        """The task is free again. What `counts` is a failed attempt; too many of them keep it back for a person."""
        ...

    def settle(self) -> list[TaskKey]:
        """What a crash left half done is finished; the tasks that were put right."""
        ...

    # What llmc did.

    def books(self) -> Books:
        """As they are now; what is handed out never changes."""
        ...

    def write(self, action: Action, claim: Claim, **details: Any) -> None:
        """A line of the books, kept before this returns."""
        ...

    def note(self, text: str, *, worker: str = "", task: str = "") -> None:
        """A line for people. That it cannot be written stops nobody."""
        ...

    # For people.

    def where(self, task: TaskKey | None = None) -> str:
        """Where the list, or one of its tasks, can be looked at."""
        ...

    @property
    def how_to_unblock(self) -> str:
        """What a person does to change what a task waits for, as an imperative."""
        ...

    @property
    def agents_write_here(self) -> bool:
        """Whether it is what the agents' own task tools write to."""
        ...


def _claude_files(project: Project) -> TaskSource:
    from llmc.tasks.claude_files import open_files

    return open_files(project)


#: by the type of a root's settings for auto mode: how its source is opened
SOURCES: dict[type[Auto], Callable[[Project], TaskSource]] = {Auto: _claude_files}


def source_of(project: Project) -> TaskSource:
    """The tasks of a root; without a list, only the books."""
    return SOURCES[type(project.config.auto)](project)
