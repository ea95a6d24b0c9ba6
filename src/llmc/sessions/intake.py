"""Apply hook events to the state: in order, each exactly once, under the worker's lock."""

import time
from pathlib import Path

from msgspec.structs import replace

from llmc.agents import inbox_events
from llmc.agents.agent_events import PANE_DIED, AgentEvent, What
from llmc.base import processes
from llmc.base.errors import LlmcError, ToolFailed
from llmc.base.faults import step as fault_step
from llmc.base.files import append_line, private_dir, read_text
from llmc.base.names import TaskKey
from llmc.base.panes import Pane
from llmc.base.tmux import Unknown
from llmc.records import inbox
from llmc.records.hook_events import Malformed
from llmc.records.store import Transaction
from llmc.records.worker import Status, WorkerRecord
from llmc.repo import git
from llmc.repo.project import Project
from llmc.repo.rules import conflicts
from llmc.sessions import leftovers
from llmc.sessions.rules import decide


def apply_pending(project: Project, name: str) -> WorkerRecord:
    """Apply a worker's inbox to its record; the caller holds the worker's lock."""
    while True:
        record = project.store.worker(name)
        waiting = inbox_events.waiting(project.root, name, record.agent)
        fresh = [event for event in waiting if event.id not in record.applied_events]
        if fresh:
            record = _apply(project, record, fresh, [event.id for event in waiting])
        with fault_step("intake.forget"):
            inbox.forget(project.root, name, [event.id for event in waiting])
        if not fresh:
            return _settled(project, record)


def _settled(project: Project, record: WorkerRecord) -> WorkerRecord:
    """With what a contained agent could not connect to."""
    if not record.contained:
        return record
    from llmc.sessions import connections  # most agents are not contained

    return connections.settle(project, record)


def apply_exit(project: Project, record: WorkerRecord) -> WorkerRecord:
    """Write the event for a dead pane that was seen before its hook; the hook itself then counts as old."""
    seen = AgentEvent(
        id=f"{time.time_ns()}-0.json",
        worker=record.name,
        instance=record.instance,
        what=What.EXITED,
        name=PANE_DIED,
    )
    return _apply(project, record, [seen], list(record.applied_events))


def git_facts(project: Project, record: WorkerRecord) -> decide.GitFacts | None:
    """Git facts of the worktree; None if it cannot be read."""
    if not record.has_branch:
        return decide.NO_BRANCH
    worktree = Path(record.worktree_path)
    try:
        found = git.tree_state(worktree)
        if found.head is None:
            return None
        return decide.GitFacts(
            head=found.head,
            ahead=_ahead(project, worktree, found.head),
            dirty=not found.clean,
            rebasing=git.rebase_in_progress(worktree),
            on_base=not record.rebase_base or git.is_ancestor(worktree, record.rebase_base, "HEAD"),
            marked=_marked(worktree, record) if record.pre_rebase_sha else (),
        )
    except ToolFailed:
        return None


def _ahead(project: Project, worktree: Path, head: str) -> int:
    """How many commits it is ahead of the base; usually none, which needs no git call."""
    if git.same_commit(worktree, head, project.base):
        return 0
    return git.divergence(worktree, project.base, "HEAD").ahead


def _marked(worktree: Path, record: WorkerRecord) -> tuple[str, ...]:
    """Conflicted files with more markers than either side had: a file may contain markers as text."""

    def committed(commit: str, name: str) -> int:
        done = git.git(worktree, "show", f"{commit}:{name}", check=False)
        return conflicts.marker_count(done.stdout) if done.ok else 0

    found = []
    for name in record.conflicted_files:
        here = conflicts.marker_count(read_text(worktree / name))
        if here and here > max(committed(record.rebase_base, name), committed(record.pre_rebase_sha, name)):
            found.append(name)
    return tuple(found)


def _apply(
    project: Project, record: WorkerRecord, fresh: list[AgentEvent | Malformed], waiting: list[str]
) -> WorkerRecord:
    facts = _observe(project, record, fresh)
    made = _tasks_made(project, record, fresh)
    name = record.name
    if any(decide.tells_an_end(record, event, facts) for event in fresh if isinstance(event, AgentEvent)):
        leftovers.end_with_its_agent(project, record)  # first: once it is offline, its launch is unknown
    with fault_step("intake.apply"), project.store.transaction() as tx:
        for event in fresh:
            if isinstance(event, Malformed):
                tx.emit("hook_ignored", worker=name, why=event.problem)
                continue
            verdict = decide.judge(tx.worker(name), event, facts)
            if verdict.fields:
                tx.update(name, **verdict.fields)
            tx.emit(verdict.action, worker=name, event=event.id, **verdict.details)
            if event.id in made:
                _count(tx, name, *made[event.id])
            if verdict.change:
                tx.move(name, verdict.change)
        after = tx.update(name, applied_events=tuple(waiting))
    if after.status is Status.OFFLINE and after.reason == "crashed" != record.reason:
        keep_last_words(project, after)
    return after


def _tasks_made(
    project: Project, record: WorkerRecord, fresh: list[AgentEvent | Malformed]
) -> dict[str, tuple[TaskKey, str, str]]:
    made = any(isinstance(event, AgentEvent) and event.what is What.TASK_MADE for event in fresh)
    if not made or not record.shares_the_list:
        return {}
    from llmc.tasks import worker_tasks  # saves 18 ms in most commands

    return worker_tasks.mark(project, record, fresh)


def _count(tx: Transaction, name: str, task: TaskKey, subject: str, hold: str) -> None:
    """Report a task made by the worker's session."""
    at = tx.worker(name).assignment
    if at is not None:
        tx.update(name, assignment=replace(at, made=at.made + 1))
    if hold:
        tx.emit("task_proposed", worker=name, **task.fields(), subject=subject)


def _observe(project: Project, record: WorkerRecord, events: list[AgentEvent | Malformed]) -> decide.Facts:
    live = [e for e in events if isinstance(e, AgentEvent) and e.instance == record.instance]
    facts = git_facts(project, record) if any(decide.wants_git(e) for e in live) else None
    pane = project.pane(record) if any(e.what is What.EXITED for e in live) else None
    if not isinstance(pane, Pane):
        return decide.Facts(git=facts, agent_lives=isinstance(pane, Unknown))
    lives = not pane.dead and processes.is_alive(pane.pid)
    return decide.Facts(git=facts, exit_code=pane.exit_code, agent_lives=lives)


def keep_last_words(project: Project, record: WorkerRecord) -> None:
    """Copy the screen of a crashed agent into its log, because the pane will be gone."""
    try:
        pane = project.pane(record)
        screen = project.tmux.capture(pane, history=200).rstrip() if isinstance(pane, Pane) else "(gone)"
    except LlmcError as error:
        screen = f"(cannot read the screen: {error.message})"
    log = project.root.log(record.name)
    private_dir(log.parent)
    append_line(
        log, f"--- {record.name}: {record.error_reason}; last lines of its screen:\n{screen}".encode()
    )
