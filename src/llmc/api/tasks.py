"""The task list, and the commands on tasks."""

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from llmc.attention import raising
from llmc.base.names import TaskId as TaskId
from llmc.base.text import gist
from llmc.records.books import QUARANTINED, Books
from llmc.records.items import Item
from llmc.records.task import PRIORITIES as PRIORITIES
from llmc.records.task import Task as Task
from llmc.repo.project import Project
from llmc.tasks import list_files, task_list, task_orders
from llmc.tasks.list_files import Taken as Taken
from llmc.tasks.rules import graph
from llmc.tasks.rules.claims import PROPOSED
from llmc.tasks.rules.draft import typed
from llmc.tasks.source import TaskSource, source_of
from llmc.tasks.task_list import Imported as Imported
from llmc.tasks.task_list import Overview as Overview
from llmc.tasks.task_list import left_to_do as left_to_do
from llmc.tasks.task_orders import approve as approve
from llmc.tasks.task_orders import done as done
from llmc.tasks.task_orders import prioritise as prioritise
from llmc.tasks.task_orders import release as release
from llmc.tasks.task_orders import requeue as requeue


class TaskBoard(Struct, frozen=True):
    """The task list, with llmc's own records about it."""

    found: Overview
    books: Books

    def hold(self, task: Task) -> str:
        """Why it is held back, as one word; "" if it is not."""
        return self.books.kept_back(self.found.key(task.id)) or task.waits_for_a_person

    def why(self, task: Task) -> str:
        """The reason in detail, if known."""
        key = self.found.key(task.id)
        word, kept = self.hold(task), self.books.kept.get(key)
        if word == PROPOSED and (made := self.made_by(task)):
            return f"created by {made}"
        if word == QUARANTINED:
            said, reason = self.books.why_kept(key)
            return f"it {said}: {gist(reason)}" if reason else ""
        if word and kept is not None:
            return gist(kept.reason)
        if self.found.states.get(task.id) == graph.QUESTION:
            named = shlex.quote(task.id)
            return f"a task with this ID was already completed. To run this one: llmc tasks requeue {named}. To mark this one done: llmc tasks done {named}"
        return ""

    def maker(self, task: Task) -> dict[str, str]:
        """The worker that created it, and the task it was working on. An older llmc wrote this only into the task."""
        made = self.books.made.get(self.found.key(task.id))
        if made is None:
            return {key: str(value) for key, value in task.made_by.items()}
        return {"worker": made.worker, **({"task": made.at} if made.at else {})}

    def made_by(self, task: Task) -> str:
        by = self.maker(task)
        at = f" on task {by['task']}" if by.get("task") else ""
        return f"{by['worker']}{at}" if by.get("worker") else ""

    def attempts(self, task: Task) -> list[dict[str, Any]]:
        return [asdict(failure) for failure in self.books.failures.get(self.found.key(task.id), ())]

    def view(self, task: Task) -> dict[str, Any]:
        """One task, for scripts."""
        found = self.found
        return {
            "id": task.id,
            "list": found.list_name,
            "subject": task.subject,
            "description": task.description,
            "state": found.states[task.id],
            "status": task.status,
            "owner": task.owner or None,
            "priority": task.priority,
            "label": task.label or None,
            "after": sorted(found.edges.get(task.id, ())),
            "verify": task.verify or None,
            "hold": self.hold(task) or None,
            "hold_reason": self.why(task) or None,
            "made_by": self.maker(task) or None,
            "attempts": self.attempts(task),
            "metadata": dict(task.metadata),
        }


def board(project: Project, *, recent: int | None = None) -> TaskBoard:
    """The list; `recent` limits the number of completed tasks."""
    source = source_of(project)
    return TaskBoard(task_list.overview(source, recent=recent), source.books())


def get(project: Project, found: TaskBoard, task_id: str) -> Task:
    """One task, or an error with the next command."""
    source = source_of(project)
    return found.found.tasks.get(TaskId(task_id)) or source.one(source.key(task_id))


def releasable(project: Project, found: TaskBoard) -> Collection[str]:
    """Claimed tasks that no worker of this root is working on."""
    return task_orders.releasable(project, found.found)


def stopped(project: Project) -> Item | None:
    """Why nothing finishes the open tasks, as in `status`; None if auto mode or another node, root or client may."""
    found = raising.without_auto(project)
    return None if found is None or _is_at_work_elsewhere(project) else found


def _is_at_work_elsewhere(project: Project) -> bool:
    """Whether another node of the fleet is running, or another root or a client has claimed a task."""
    if project.config.fleet.database:
        from llmc.fleet import nodes  # most roots work alone

        own = nodes.node_name(project.config)
        return any(node.name != own and node.state in ("up", "draining") for node in nodes.nodes(project))
    return bool(task_orders.releasable(project, task_list.overview(source_of(project), recent=0)))


def drawn(found: TaskBoard, *, mermaid: bool) -> Iterable[str]:
    """The dependency graph, as lines."""
    overview = found.found
    draw_lines = graph.mermaid if mermaid else graph.tree
    return draw_lines(list(overview.tasks.values()), overview.edges, overview.states)


def _to_change(project: Project) -> TaskSource:
    project.store.refuse_elsewhere()
    return source_of(project)


def add(project: Project, subject: str, file: Path | None, options: Mapping[str, Any]) -> Task:
    """Add a task by its subject or from a Markdown file; options override the file.

    Lines below the subject are its description.
    """
    written = task_list.read_drafts([file])[0] if file else typed(subject)
    if not file and written.description and options.get("description"):
        both = f"{written.description}\n\n{options['description']}"
        options = {**options, "description": both}
    return task_list.add(_to_change(project), task_list.with_options(written, options))


def import_list(project: Project, directory: Path) -> Taken:
    """Add the open tasks of a directory of task files that are not in the list yet; says which were left out."""
    return list_files.take_in(_to_change(project), directory)


def follow_files(project: Project, directory: Path) -> Iterator[Taken]:
    """Like `import_list`, but goes on as files appear, until the user stops it; yields what each round added."""
    return list_files.follow(_to_change(project), directory)


def export(project: Project, directory: Path) -> list[Task]:
    """Write all tasks of the list into a new directory, as task files."""
    return list_files.export(source_of(project), directory)


def import_files(project: Project, paths: Iterable[Path], *, again: bool) -> Imported:
    """Import tasks from Markdown files and directories, all or none; skips tasks already in the list unless `again`."""
    drafts = task_list.read_drafts(paths)
    return task_list.import_all(_to_change(project), drafts, again=again)
