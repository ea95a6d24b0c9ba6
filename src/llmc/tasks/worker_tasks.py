"""Tasks that workers' sessions make: marked when their hook names them, and not given out before that."""

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping
from functools import partial

from llmc.agents.claude.layout import list_name
from llmc.agents.claude.task_files import TaskFiles
from llmc.agents.events import AgentEvent, What
from llmc.agents.hooks import event_of
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, LockTimeout
from llmc.base.faults import step as fault_step
from llmc.base.names import TaskId, TaskKey
from llmc.records import inbox
from llmc.records.books import Books, Claim, Made, entry, is_told_again
from llmc.records.hook_events import HookEvent, Malformed
from llmc.records.ledger import Ledger
from llmc.records.task import Task, is_id
from llmc.records.worker import BUSY, WorkerRecord
from llmc.repo.project import Project, agent_for, of_fleet
from llmc.tasks import task_list
from llmc.tasks.rules import claims
from llmc.tasks.rules.claims import ANNOUNCED_S, Announced, Announcement, hold_for, is_undecided, maker
from llmc.tasks.task_list import open_ledger, open_list


def mark(
    project: Project, record: WorkerRecord, events: Iterable[AgentEvent | Malformed]
) -> dict[str, tuple[TaskKey, str, str]]:
    """By event: the task that it names, its subject, and why that waits for a person, if it does.

    The supervisor's session shares the list with the workers'. The ledger is the fleet's, whoever made a task.
    Before the event counts as applied: a crash in between marks it again, which changes nothing.
    """
    created = [e for e in events if isinstance(e, AgentEvent) and e.what is What.TASK_MADE]
    project = of_fleet(project)
    files = _shared_list(project) if created else None
    if files is None:
        return {}
    ledger = open_ledger(project)
    marked: dict[str, tuple[TaskKey, str, str]] = {}
    for event in created:
        with fault_step("worker_task.mark"):
            task = _mark(project, files, ledger, record, event, len(marked))
        if task is not None:
            key = files.key(task.id)
            marked[event.id] = (key, task.subject, ledger.books().kept_back(key))
    if marked:
        # A state that cannot be written may be what the supervisor's agent is about to mend.
        with contextlib.suppress(LlmcError):
            task_list.tell(project, files, ledger.books(), files.listing().tasks)
    return marked


def _mark(
    project: Project, files: TaskFiles, ledger: Ledger, record: WorkerRecord, event: AgentEvent, before: int
) -> Task | None:
    """The ledger first: from then on it is the worker's, whatever its file says."""
    at, task_id = record.assignment, event.task_id
    key = files.key(task_id)
    if not is_id(task_id) or ledger.books().claim_on(key):
        return None  # no task, or one that was given out: nobody makes that
    known = ledger.books().made.get(key)
    if known is None or not is_told_again(known, event.id):
        hold = hold_for(project.config.auto.worker_tasks, at is not None, (at.made if at else 0) + before)
        note_made(
            project, ledger, key, Made(record.name, at.task_id if at else "", event=event.id, hold=hold)
        )
    return show_made(files, ledger.books(), task_id)


def note_made(project: Project, ledger: Ledger, task: TaskKey, made: Made) -> None:
    said = {"at": made.at, "root": str(project.root.path), "event": made.event, "hold": made.hold}
    ledger.write(entry("made", Claim("", task, made.worker), now_unix(), **said))


def show_made(files: TaskFiles, books: Books, task_id: str) -> Task | None:
    """The file says so, too."""
    try:
        return files.change(task_id, partial(claims.made_by_worker, made=books.made[files.key(task_id)]))
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
        #: tasks that nobody knows anything of, and that were written so lately that a hook may still name them
        self._recent: set[TaskId] = set()

    def undecided(
        self, changes: Collection[TaskId], tasks: Mapping[TaskId, Task], ledger: Ledger
    ) -> frozenset[TaskId]:
        """Those that must not be taken yet. The files were read before this: what they show was announced before that.

        What was announced, and never named, is found here too: its hook was lost.
        """
        now, announced, books = now_unix(), self._announced(), ledger.books()
        written = self._files.changed_unix
        candidates = self._recent.union(changes, map(TaskId, announced.named)) & tasks.keys()
        unknown = {task_id for task_id in candidates if not books.is_known(self._files.key(task_id))}
        undecided = {
            task_id
            for task_id in candidates
            if is_undecided(task_id, written(task_id), task_id not in unknown, announced, now)
        }
        for task_id in unknown - undecided:
            if worker := maker(written(task_id), announced):
                self._adopt(ledger, task_id, worker)
        self._recent = {
            task_id for task_id in unknown if now - written(task_id) < ANNOUNCED_S or task_id in undecided
        }
        return frozenset(undecided)

    def at_work(self) -> frozenset[str]:
        """Workers whose agents are at something now."""
        records = self._project.store.read().workers.values()
        return frozenset(record.name for record in records if record.status in BUSY)

    def _adopt(self, ledger: Ledger, task_id: TaskId, worker: str) -> None:
        """An agent was about to make a task, nothing named it, and this one appeared then: a person has to look."""
        note_made(self._project, ledger, self._files.key(task_id), Made(worker, hold=claims.PROPOSED))
        task = show_made(self._files, ledger.books(), task_id)
        with self._project.store.transaction() as tx:
            subject = task.subject if task else ""
            tx.emit("task_proposed", worker=worker, **self._files.key(task_id).fields(), subject=subject)

    def _announced(self) -> Announced:
        """First the inboxes, then the state: an event is in the state before it leaves its inbox."""
        root = self._project.root
        if _shared_list(self._project) is None:
            return Announced()  # their tasks are made elsewhere
        folders = list(root.inbox.iterdir()) if root.inbox.is_dir() else []
        waiting = {folder.name: inbox.read(root, folder.name) for folder in folders}
        began: list[Announcement] = []
        named: list[str] = []
        for name, record in self._project.store.read().workers.items():
            # Nobody reads what a removed one left.
            if not record.has_branch:
                continue
            hooks = [hook for hook in waiting.get(name, []) if isinstance(hook, HookEvent)]
            events = [event_of(hook, record.agent) for hook in hooks]
            began += [
                Announcement(name, event.at_unix) for event in events if event.what is What.TASK_ANNOUNCED
            ]
            began += [Announcement(name, at_unix) for at_unix in record.announced_tasks]
            named += [event.task_id for event in events if event.what is What.TASK_MADE]
        return Announced(began, named)
