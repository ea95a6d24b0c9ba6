"""Tasks in Claude Code's own files, with llmc's ledger beside them.

The ledger is authoritative. A claim, or its end, is written to the ledger before the task's file; after a crash between
them, `settle` updates the file. Agents and other roots write to the same files, so each change takes the client's own
locks.
"""

import os
import threading
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

from llmc.agents.claude.layout import TASKS, list_name
from llmc.agents.claude.task_files import TaskFiles, file_name
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, NotFound, UsageError
from llmc.base.faults import step as fault_step
from llmc.base.files import private_dir
from llmc.base.names import TaskKey
from llmc.base.wake import Watch, open_watch
from llmc.records.books import Action, Books, Claim, Made, entry
from llmc.records.task import Changes, Edit, Listing, NoTask, Task, Unreadable
from llmc.records.task_ledger import TaskLedger
from llmc.repo.project import Project, agent_for
from llmc.tasks.rules import claims
from llmc.tasks.source import TaskSource


def task_files(directory: Path) -> TaskFiles:
    """A directory of task files that need not be the list of a root."""
    return TaskFiles(directory)


def open_files(project: Project) -> "ClaudeTasks":
    auto = project.config.auto
    name = list_name(auto.task_list_id) if auto.task_list_id else ""
    ledger = TaskLedger(project.root.tasks_ledger, project.root.log("task_pool"), name)
    if not name:
        return ClaudeTasks(None, ledger)

    def agents_own() -> Path:
        return _agents_lists(project)

    parent = Path(os.path.expanduser(auto.tasks_root)) if auto.tasks_root else agents_own()
    return ClaudeTasks(TaskFiles(parent / name), ledger, agents_own)


def _agents_lists(project: Project) -> Path:
    """Where the agents' task tools keep their lists."""
    return agent_for(project).config_dir(os.environ) / TASKS


def task_of_agent(project: Project, task_id: str) -> Task:
    """A task that an agent of this root made with its own tools; raises NoTask or NotFound without a valid file."""
    return TaskFiles(_agents_lists(project) / list_name(project.config.auto.task_list_id)).get(task_id)


class ClaudeTasks(TaskSource):
    def __init__(
        self, files: TaskFiles | None, ledger: TaskLedger, agents_own: Callable[[], Path] | None = None
    ) -> None:
        """`files`: the configured list, if any. `agents_own`: where the agents' task tools keep their lists."""
        self._configured = files
        self.ledger = ledger
        self._agents_own = agents_own
        #: one scan of the configured list at a time
        self._looking = threading.Lock()
        self._noting = threading.Lock()
        self._is_watched = False
        #: the only files that may have changed since the last scan; None: any
        self._changed: set[str] | None = None
        self._being_written: set[str] = set()

    @property
    def files(self) -> TaskFiles:
        if self._configured is None:
            raise UsageError(
                "this root has no task list", hint="Set one: llmc config set auto.task_list_id my-project"
            )
        return self._configured

    @property
    def list_name(self) -> str:
        return self._configured.list_name if self._configured is not None else ""

    def _of(self, name: str) -> TaskFiles:
        """The list with this name; "", as in records of an older llmc, means the configured one."""
        return self.files.beside(name) if name else self.files

    def listing(self, list_name: str = "") -> Listing:
        with self._looking:
            return self._of(list_name).listing()

    def changes(self) -> Changes:
        with self._noting:
            changed, self._changed = self._changed, set() if self._is_watched else None
        try:
            with self._looking:
                found = self.files.changes(changed)
        except BaseException:
            self.note_changed(None)
            raise
        self._being_written = found.unsettled
        self.note_changed(found.unsettled)
        return found

    def note_changed(self, names: Collection[str] | None) -> None:
        """Add to the files that may have changed since the last scan; None: any."""
        with self._noting:
            self._changed = None if names is None or self._changed is None else self._changed | set(names)

    @property
    def unsettled(self) -> bool:
        return bool(self._changed) or bool(self._being_written)

    @property
    def unreadable(self) -> list[Unreadable]:
        with self._looking:
            return self.files.unreadable

    def one(self, task: TaskKey) -> Task:
        return self._of(task.list).get(task.id)

    def written_unix(self, task_id: str) -> float:
        return self.files.changed_unix(task_id)

    def prepare(self) -> None:
        private_dir(self.files.directory)

    def watch(self) -> "_Watching":
        self.prepare()
        watching = _Watching(self, open_watch(self.files.directory))
        with self._noting:
            self._is_watched, self._changed = True, None  # files may have changed before the watch began
        return watching

    def not_watched(self) -> None:
        with self._noting:
            self._is_watched, self._changed = False, None

    def add(self, new: Task, by: str) -> Task:
        """Write the file, then the ledger row that marks it as ours. Without a row, the file counts as foreign."""
        task = self.files.create(new, self.books().highest_in(self.list_name))
        about = _given(dispatch=task.dispatch, part=task.part, key=task.pool_key)
        with fault_step("task.created"):
            self.write("created", Claim("", self.key(task.id), ""), by=by, **about)
        return task

    def add_made(self, new: Task, made: Made) -> Task:
        """Write the file, already held back, then the ledger; a retry after a crash writes only the ledger."""
        said = (task for task in self.listing().tasks.values() if task.made_by.get("event") == made.event)
        task = next(said, None)
        if task is None:
            marked = new.with_ours(by={**new.made_by, "event": made.event})
            task = self.files.create(marked, self.books().highest_in(self.list_name))
        with fault_step("task.made"):
            self.write("made", Claim("", self.key(task.id), made.worker), **made.told)
        return task

    def edit(self, task: TaskKey, edit: Edit) -> Task:
        return self._of(task.list).change(task.id, edit)

    def remove(self, task: TaskKey, may: Callable[[Task], bool]) -> bool:
        return self._of(task.list).remove(task.id, may)

    def claim(
        self, task: TaskKey, worker: str, subject: str = "", dispatch: str = "", part: str = ""
    ) -> Claim | None:
        claim = Claim(os.urandom(6).hex(), task, worker)
        with fault_step("claim.ledger"):
            self.write("claimed", claim, subject=subject, **_given(dispatch=dispatch, part=part))
        with fault_step("claim.file"):
            try:
                won = self.edit(task, partial(claims.taken, claim=claim)).claim == claim.id
            except (NotFound, NoTask):
                won = False
            except LlmcError:
                self.write("released", claim, reason="cannot write the task file")
                raise
        if task.list == self.list_name:  # the watch may report it only after the next worker has asked
            self.note_changed([file_name(task.id)])
        if not won:
            self.write("released", claim, reason="another worker claimed the task first")
        return claim if won else None

    def renew(self, claim_id: str) -> bool:
        return self.books().holds(claim_id)

    def about_to_land(self, claim: Claim, commit: str) -> None:
        self.write("landing", claim, commit=commit)

    def finish(self, claim: Claim, commit: str) -> None:
        with fault_step("claim.complete"):
            self.write("completed", claim, commit=commit)
        self._edit_if_there(claim.task, partial(claims.done, claim=claim))

    def release(
        self, claim: Claim, reason: str, *, cause: str = "", counts: bool = False, hold: str = ""
    ) -> Books:
        with fault_step("claim.release"):
            self.write(
                "failed" if counts else "released", claim, reason=reason, cause=cause, **_given(hold=hold)
            )
        books = self.books()
        edit = partial(claims.released, claim=claim, hold=books.kept_back(claim.task))
        self._edit_if_there(claim.task, edit)
        return books

    def settle(self) -> list[TaskKey]:
        """Fix only files with our own claim: other contents may be the user's edit (see `is_in_question`)."""
        put_right, books = [], self.books()
        for task in self.listing().tasks.values():
            key = self.key(task.id)
            claim = Claim(task.claim, key, task.owner)
            if not books.has_ended(task.claim, key):
                continue
            edit = partial(claims.released, claim=claim, hold=books.kept_back(key))
            if books.is_completed(key):
                edit = partial(claims.done, claim=claim)
            self._edit_if_there(key, edit)
            put_right.append(key)
        return put_right

    def _edit_if_there(self, task: TaskKey, edit: Edit) -> None:
        if self._configured is None:
            return  # the list has been removed from the configuration
        try:
            self.edit(task, edit)
        except (NotFound, NoTask):
            return  # removed or broken in the meantime; the ledger has the change

    def books(self) -> Books:
        return self.ledger.books()

    @property
    def lost_its_books(self) -> bool:
        return not self.ledger.exists()

    def write(self, action: Action, claim: Claim, **details: Any) -> None:
        self.ledger.write(entry(action, claim, now_unix(), **details))

    def note(self, text: str, *, worker: str = "", task: str = "") -> None:
        self.ledger.note(text, worker=worker, task=task)

    def where(self, task: TaskKey | None = None) -> str:
        files = self._of(task.list if task else "")
        return str(files.directory / file_name(task.id) if task else files.directory)

    @property
    def how_to_unblock(self) -> str:
        return f"edit `blockedBy` or `blocks` in the task files in {self.files.directory}"

    @property
    def agents_write_here(self) -> bool:
        if self._configured is None or self._agents_own is None:
            return False
        own = self._agents_own() / self.list_name
        return self._configured.directory.resolve() == own.resolve()


class _Watching:
    """A watch on the directory of a list."""

    def __init__(self, tasks: ClaudeTasks, watch: Watch) -> None:
        self._tasks = tasks
        self._watch = watch

    def fileno(self) -> int:
        return self._watch.fileno()

    def heard(self) -> bool:
        """False if the changes are unknown: the directory may have been replaced, which the old watch would miss."""
        changed = self._watch.changed()
        self._tasks.note_changed(changed)
        return changed is not None

    def close(self) -> None:
        self._tasks.not_watched()
        self._watch.close()


def _given(**values: str) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}
