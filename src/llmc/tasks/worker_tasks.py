"""Tasks made by workers' sessions: marked when their hook names them, and not claimed before that."""

import contextlib
from collections.abc import Collection, Iterable, Mapping
from functools import partial

from msgspec.structs import replace

from llmc.agents.agent_events import AgentEvent, What
from llmc.agents.kinds import event_of
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, LockTimeout
from llmc.base.faults import step as fault_step
from llmc.base.names import TaskId, TaskKey
from llmc.records import inbox
from llmc.records.books import Books, Claim, Made, is_told_again
from llmc.records.hook_events import Malformed
from llmc.records.task import NoTask, Task, TaskStatus, is_id
from llmc.records.worker import WorkerRecord
from llmc.repo.project import Project, of_fleet
from llmc.tasks import task_list
from llmc.tasks.claude_files import task_of_agent
from llmc.tasks.rules import claims
from llmc.tasks.rules.claims import ANNOUNCED_S, Announced, Announcement, hold_for, is_undecided, maker
from llmc.tasks.source import TaskSource, source_of

#: most tasks of a contained worker that may wait for approval: its agent could report any number
MOST_PROPOSED = 100


def mark(
    project: Project, record: WorkerRecord, events: Iterable[AgentEvent | Malformed]
) -> dict[str, tuple[TaskKey, str, str]]:
    """By event: the task that it names, its subject, and why it is held for the user, if it is.

    The supervisor's session shares the workers' list and the fleet's ledger. Runs before the event counts as
    applied: after a crash the task is marked again, which changes nothing.
    """
    created = [e for e in events if isinstance(e, AgentEvent) and e.what is What.TASK_MADE]
    if record.contained:  # only its hooks report its tasks: nothing shows that an earlier launch made one
        created = [event for event in created if event.instance == record.instance]
    project = of_fleet(project)
    if record.contained and project.config.auto.worker_tasks == "off":
        return {}  # the agent has no tools for tasks, so it made up the hook
    source = source_of(project) if created else None
    is_shared = bool(project.config.fleet.database)
    if source is None or not (source.agents_write_here or is_shared):
        return {}
    marked: dict[str, tuple[TaskKey, str, str]] = {}
    for event in created:
        with fault_step("worker_task.mark"):
            bring = _bring_in if is_shared or record.contained else _mark
            task = bring(project, source, record, event, len(marked))
        if task is not None:
            key = source.key(task.id)
            marked[event.id] = (key, task.subject, source.books().kept_back(key))
    if marked:
        # The state may be unwritable, which the remediation agent may be about to fix.
        with contextlib.suppress(LlmcError):
            task_list.tell(project, source, source.books(), source.listing().tasks)
    return marked


def _mark(
    project: Project, source: TaskSource, record: WorkerRecord, event: AgentEvent, before: int
) -> Task | None:
    """Record the task, then mark its file: once in the ledger, the task is the worker's, whatever its file says."""
    task_id = event.task_id
    key = source.key(task_id)
    if not is_id(task_id) or source.books().claim_on(key):
        return None  # not a task, or already claimed
    known = source.books().made.get(key)
    if known is None or not is_told_again(known, event.id):
        note_made(source, key, _made(project, record, event, before))
    return show_made(source, source.books(), task_id)


def _bring_in(
    project: Project, source: TaskSource, record: WorkerRecord, event: AgentEvent, before: int
) -> Task | None:
    """Copy a task from the agent's own list into the root's list, under a new number."""
    books = source.books()
    own = [(key, made) for key, made in books.made.items() if made.worker == record.name]
    known = next((key for key, made in own if made.event == event.id), None)
    if record.contained and sum(books.kept_back(key) == claims.PROPOSED for key, _ in own) >= MOST_PROPOSED:
        source.note(
            f"{MOST_PROPOSED} tasks proposed by {record.name} are waiting for approval; llmc ignores further proposals"
        )
        return None
    try:
        if known is not None:  # added before a crash
            return source.one(known)
        found = _told(event) if record.contained else task_of_agent(project, event.task_id)
    except LockTimeout:
        raise
    except LlmcError:
        return None  # removed since, or not a task
    made = _made(project, record, event, before)
    # What an agent says about goals, holds and claims is ignored.
    plain = replace(found, status=TaskStatus.PENDING, owner="", blocks=(), blocked_by=())
    new = claims.made_by_worker(plain.with_ours(claim=None, hold=None, key=None, goal=None, by=None), made)
    return source.add_made(new or plain, made)


def _told(event: AgentEvent) -> Task:
    """The task of a contained agent, from its hook: llmc does not read the agent's task files."""
    if not event.task_subject.strip():
        raise NoTask("a task needs a subject")
    pending = TaskStatus.PENDING
    return Task(TaskId(""), event.task_subject, event.task_description, pending)


def _made(project: Project, record: WorkerRecord, event: AgentEvent, before: int) -> Made:
    """`before`: how many tasks the worker made in earlier events of this round."""
    at = record.assignment
    hold = hold_for(project.config.auto.worker_tasks, at is not None, (at.made if at else 0) + before)
    root = str(project.root.path)
    return Made(record.name, at.task_id if at else "", root=root, event=event.id, hold=hold)


def note_made(source: TaskSource, task: TaskKey, made: Made) -> None:
    source.write("made", Claim("", task, made.worker), **made.told)


def show_made(source: TaskSource, books: Books, task_id: str) -> Task | None:
    """Mark the task's file, after the ledger."""
    try:
        key = source.key(task_id)
        return source.edit(key, partial(claims.made_by_worker, made=books.made[key]))
    except LockTimeout:
        raise
    except LlmcError:
        return None  # gone, or not a task: the next scan reports it


class Origins:
    """Tells the queue which tasks may still turn out to be made by a worker."""

    def __init__(self, project: Project, source: TaskSource) -> None:
        self._project = project
        self._source = source
        #: tasks of unknown origin, written so recently that a hook may still name them
        self._recent: set[TaskId] = set()

    def undecided(self, changes: Collection[TaskId], tasks: Mapping[TaskId, Task]) -> frozenset[TaskId]:
        """Tasks that must not be claimed yet. Call after reading the files, so that their announcements are visible.

        Also adopts tasks that were announced but never named, because their hook was lost.
        """
        now, announced, books = now_unix(), self._announced(), self._source.books()
        written = self._source.written_unix
        candidates = self._recent.union(changes, map(TaskId, announced.named)) & tasks.keys()
        unknown = {task_id for task_id in candidates if not books.is_known(self._source.key(task_id))}
        undecided = {
            task_id
            for task_id in candidates
            if is_undecided(task_id, written(task_id), task_id not in unknown, announced, now)
        }
        for task_id in unknown - undecided:
            if worker := maker(written(task_id), announced):
                self._adopt(task_id, worker)
        self._recent = {
            task_id for task_id in unknown if now - written(task_id) < ANNOUNCED_S or task_id in undecided
        }
        return frozenset(undecided)

    def at_work(self) -> frozenset[str]:
        """Workers whose agents are busy."""
        records = self._project.store.read().workers.values()
        return frozenset(record.name for record in records if record.status.is_busy)

    def _adopt(self, task_id: TaskId, worker: str) -> None:
        """Propose a task that appeared when an agent announced one, but that no hook named: the user decides."""
        made = Made(worker, root=str(self._project.root.path), hold=claims.PROPOSED)
        note_made(self._source, self._source.key(task_id), made)
        task = show_made(self._source, self._source.books(), task_id)
        with self._project.store.transaction() as tx:
            subject = task.subject if task else ""
            tx.emit("task_proposed", worker=worker, **self._source.key(task_id).fields(), subject=subject)

    def _announced(self) -> Announced:
        """Read the inboxes before the state: an event is in the state before it leaves its inbox."""
        root = self._project.root
        if not self._source.agents_write_here:
            return Announced()  # the agents' tasks go elsewhere
        workers = self._project.store.read().workers
        # A contained agent writes no file here, so its announcements do not count.
        contained = {name for name, record in workers.items() if record.contained}
        folders = list(root.inbox.iterdir()) if root.inbox.is_dir() else []
        folders = [folder for folder in folders if folder.name not in contained]
        waiting = {folder.name: inbox.read(root, folder.name) for folder in folders}
        began: list[Announcement] = []
        named: list[str] = []
        for name, record in self._project.store.read().workers.items():
            # Events of a removed worker are never read.
            if not record.has_branch or record.contained:
                continue
            for hook in waiting.get(name, []):
                event = event_of(hook, record.agent)
                # One that cannot be read may be an announcement, too.
                if isinstance(event, Malformed) or event.what is What.TASK_ANNOUNCED:
                    began.append(Announcement(name, event.at_unix))
                elif event.what is What.TASK_MADE:
                    named.append(event.task_id)
            told = (*record.announced_tasks, *record.unread_hooks)
            began += [Announcement(name, at_unix) for at_unix in told]
        return Announced(began, named)
