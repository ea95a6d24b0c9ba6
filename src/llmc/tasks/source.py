"""The interface of a task source, and which source a root has.

A task is identified by (list, id). A source holds the tasks, and the books: what llmc did with them. A claim is in both
or in neither. The sources are Claude Code's own files (tasks/claude_files.py) and, for several machines, the
fleet's database (tasks/shared.py).
"""

from collections.abc import Callable
from typing import Any, Protocol

from llmc.base.names import TaskId, TaskKey
from llmc.records.books import Action, Books, Claim, Made
from llmc.records.task import Changes, Edit, Listing, Task, Unreadable
from llmc.repo.project import Project


class Watching(Protocol):
    """A watch for changed tasks. `fileno()` becomes readable when one changes."""

    def fileno(self) -> int: ...

    def heard(self) -> bool:
        """Pass the changes on to the source. False: this watch may miss the next change; close it and open another."""
        ...

    def close(self) -> None: ...


class TaskSource(Protocol):
    """The tasks of a root. Safe to use from several threads.

    Raises NotFound for an unknown task, NoTask for an unreadable one. An id is never used as a path.
    """

    @property
    def list_name(self) -> str:
        """The list that tasks are added to and claimed from; "" if none is configured."""
        ...

    def key(self, task_id: str) -> TaskKey:
        """The full key of a task in that list."""
        return TaskKey(self.list_name, TaskId(task_id))

    # Read.

    def listing(self, list_name: str = "") -> Listing:
        """All tasks of a list; "" means the configured one."""
        ...

    def changes(self) -> Changes:
        """What changed since the last call; everything on the first."""
        ...

    @property
    def unsettled(self) -> bool:
        """Whether `changes` must be called again: a file was being written, or has not been read yet."""
        ...

    @property
    def unreadable(self) -> list[Unreadable]:
        """Files that were not valid tasks at the last scan."""
        ...

    def one(self, task: TaskKey) -> Task: ...

    def written_unix(self, task_id: str) -> float:
        """When a task was last written, as of the last scan."""
        ...

    def prepare(self) -> None:
        """Create the list, so that it can be watched."""
        ...

    def watch(self) -> Watching:
        """Start watching, so that `changes` need not read everything."""
        ...

    # Change.

    def add(self, new: Task, by: str) -> Task:
        """Add a task; return it with a new id that no task of the list ever had."""
        ...

    def add_made(self, new: Task, made: Made) -> Task:
        """Add a task that an agent made, not to be claimed before its maker is recorded. An event adds one task."""
        ...

    def edit(self, task: TaskKey, edit: Edit) -> Task:
        """Change a task under its lock; fields unknown to `edit` stay."""
        ...

    def remove(self, task: TaskKey, may: Callable[[Task], bool]) -> bool:
        """Remove a task from its list if `may` still allows it; whether it is gone."""
        ...

    # Claim. All or nothing: after a crash, `settle` completes or reverts what was started.

    def claim(
        self, task: TaskKey, worker: str, subject: str = "", dispatch: str = "", part: str = ""
    ) -> Claim | None:
        """Claim a task for a worker if it is free and not held back; None: another worker claimed the task first."""
        ...

    def renew(self, claim_id: str) -> bool:
        """Whether the claim is still held. Called at each check of its worker; a source whose claims expire renews it."""
        ...

    def about_to_land(self, claim: Claim, commit: str) -> None:
        """Record the commit before it lands: if the state is lost, the task is not done twice.

        Raises ClaimLost if the claim has run out; then the commit must not land.
        """
        ...

    def finish(self, claim: Claim, commit: str) -> None:
        """Complete the task after its work landed. The task may be gone: the books have it."""
        ...

    def release(
        self, claim: Claim, reason: str, *, cause: str = "", counts: bool = False, hold: str = ""
    ) -> Books:
        """Release the task. With `counts` it is a failed attempt; after too many, the task is held for the user."""
        ...

    def settle(self) -> list[TaskKey]:
        """Finish what a crash left half done; return the tasks that were fixed."""
        ...

    # Books.

    def books(self) -> Books:
        """A snapshot of the books."""
        ...

    @property
    def lost_its_books(self) -> bool:
        """Whether the books are gone, so that only the tasks themselves say who has them."""
        ...

    def write(self, action: Action, claim: Claim, **details: Any) -> None:
        """Write an entry to the books; it is on disk when this returns."""
        ...

    def note(self, text: str, *, worker: str = "", task: str = "") -> None:
        """Write a log line for the user; write errors are ignored."""
        ...

    # Show.

    def where(self, task: TaskKey | None = None) -> str:
        """The path of the list, or of one of its tasks."""
        ...

    @property
    def how_to_unblock(self) -> str:
        """How to change the dependencies of a task, as an imperative."""
        ...

    @property
    def agents_write_here(self) -> bool:
        """Whether the agents' own task tools write to this list."""
        ...


def _agents_files(project: Project) -> TaskSource:
    from llmc.tasks.claude_files import open_files

    return open_files(project)


def _of_the_fleet(project: Project) -> TaskSource:
    from llmc.tasks.shared import open_shared

    return open_shared(project)


#: how to open each kind of source
SOURCES: dict[str, Callable[[Project], TaskSource]] = {"files": _agents_files, "database": _of_the_fleet}


def source_of(project: Project) -> TaskSource:
    """The task source of a root; without a list, only the books."""
    return SOURCES["database" if project.config.fleet.database else "files"](project)
