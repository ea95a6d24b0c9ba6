"""Tasks that workers' sessions make: marked when their hook names them, and not given out before that."""

import os
from collections.abc import Collection, Iterable, Mapping
from functools import partial

from llmc.agents.task_files import TaskFiles, list_name
from llmc.errors import LlmcError, LockTimeout
from llmc.names import TaskId
from llmc.services.project import Project, agent_for
from llmc.services.task_list import open_list
from llmc.state import inbox
from llmc.tasks import claims
from llmc.tasks.model import Task
from llmc.tasks.origin import ANNOUNCED_S, Announced, hold_for, is_undecided
from llmc.tools.clock import now_unix
from llmc.tools.faults import step as fault_step
from llmc.workers.events import HookEvent, Malformed
from llmc.workers.model import WorkerRecord


def mark(
    project: Project, record: WorkerRecord, events: Iterable[HookEvent | Malformed]
) -> dict[str, tuple[Task, str]]:
    """By event: the task that it names, and why that waits for a person, if it does.

    Before the event counts as applied: a crash in between marks it again, which changes nothing.
    """
    created = [e for e in events if isinstance(e, HookEvent) and e.name == "TaskCreated"]
    files = _shared_list(project) if created else None
    if files is None:
        return {}
    at = record.assignment
    marked: dict[str, tuple[Task, str]] = {}
    by = {"worker": record.name, **({"task": at.task_id} if at else {})}
    for event in created:
        made = (at.made if at else 0) + len(marked)
        hold = hold_for(project.config.auto.worker_tasks, at is not None, made)
        with fault_step("worker_task.mark"):
            task = _mark(files, event.text("task_id"), by, hold)
        if task is not None:
            marked[event.id] = (task, task.waits_for_a_person)
    return marked


def _mark(files: TaskFiles, task_id: str, by: dict[str, str], hold: str) -> Task | None:
    try:
        return files.change(task_id, partial(claims.made_by_worker, by=by, hold=hold))
    except LockTimeout:
        raise
    except LlmcError:
        return None  # gone, or no task: whoever reads the list says so


def _shared_list(project: Project) -> TaskFiles | None:
    """The list, if it is the one that the agents' own task tools write to."""
    auto = project.config.auto
    if not auto.task_list_id:
        return None
    files = open_list(project)
    own = agent_for(project).config_dir(os.environ) / "tasks" / list_name(auto.task_list_id)
    return files if files.directory.resolve() == own.resolve() else None


class Origins:
    """Tells the queue which tasks may still turn out to be a worker's."""

    def __init__(self, project: Project, files: TaskFiles) -> None:
        self._project = project
        self._files = files
        #: tasks that changed so lately that they could be
        self._recent: set[TaskId] = set()

    def undecided(
        self, changes: Collection[TaskId], tasks: Mapping[TaskId, Task], known: Collection[str]
    ) -> frozenset[TaskId]:
        """Those that must not be taken yet. The files were read before this: what they show was announced before that.

        `known`: tasks that llmc has taken before.
        """
        now, announced = now_unix(), self._announced()
        self._recent = {
            task_id
            for task_id in self._recent.union(changes)
            if now - self._files.changed_unix(task_id) < ANNOUNCED_S
        }

        def waits(task: Task) -> bool:
            ours = bool(task.ours) or task.id in known
            return is_undecided(task, self._files.changed_unix(task.id), ours, announced, now)

        candidates = self._recent.union(map(TaskId, announced.named)) & tasks.keys()
        return frozenset(task_id for task_id in candidates if waits(tasks[task_id]))

    def _announced(self) -> Announced:
        """First the inboxes, then the state: an event is in the state before it leaves its inbox."""
        root = self._project.root
        folders = list(root.inbox.iterdir()) if root.inbox.is_dir() else []
        waiting = {folder.name: inbox.read(root, folder.name) for folder in folders}
        began: list[float] = []
        named: list[str] = []
        for (
            name,
            record,
        ) in self._project.store.read().workers.items():  # nobody reads what a removed one left
            events = [event for event in waiting.get(name, []) if isinstance(event, HookEvent)]
            began += [event.at_unix for event in events if event.makes_a_task]
            began += record.announced_tasks
            named += [event.text("task_id") for event in events if event.name == "TaskCreated"]
        return Announced(began, named)
