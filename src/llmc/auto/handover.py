"""Hands a task from one machine of a fleet to another: what its earlier holder landed, and what it left unfinished.

Does nothing without a fleet: there, the unfinished work of a task is in the trash of its root.
"""

import shlex
from pathlib import Path

from llmc.auto.auto_run import Run
from llmc.base.errors import LlmcError, Unreachable
from llmc.base.names import TaskKey
from llmc.landing import accept_journal, remote
from llmc.records.books import Claim
from llmc.records.worker import WorkerRecord
from llmc.repo import fence, git, handed_work
from llmc.repo.project import Project
from llmc.tasks import queue
from llmc.tasks.source import TaskSource, source_of


def take_over(run: Run, project: Project, record: WorkerRecord, claim: Claim) -> bool:
    """Whether the worker may start the task that it claimed: no earlier holder has landed it, and none will."""
    source = run.queue.source
    try:
        commit = remote.take_over(project, claim.task, claim.id)
    except (Unreachable, fence.RemoteRefused) as error:
        run.say(f"{record.name}: cannot start task {claim.task}: {error.message}")
        queue.release(project, source, claim, error.message)
        run.look_again(record.name, accept_journal.POLL_S)
        return False
    if commit:
        complete_landed(project, source, claim, commit)
        run.say(f"{record.name}: task {claim.task} was completed by another node: {commit[:12]}")
        run.on_change()
    return not commit


def complete_landed(project: Project, source: TaskSource, claim: Claim, commit: str) -> None:
    """Complete a task whose commit landed before this worker could."""
    subject = source.books().subjects.get(claim.task, "")
    source.finish(claim, commit)
    with project.store.transaction() as tx:
        accept_journal.count_completed(tx, claim.worker, claim.task, commit, subject)


def unfinished_work(project: Project, task: TaskKey) -> str:
    """Prompt text that says where an earlier holder left its work; "" if there is none or the remote does not say."""
    shared = project.shared
    if shared is None:
        return ""
    try:
        handed_work.send_unsent(project.root.path, shared.remote)
        commit = handed_work.newest(project.root.path, shared.remote, task)
    except LlmcError:
        return ""  # the task can be done without it
    if commit is None:
        return ""
    base = shlex.quote(f"origin/{project.config.repo.default_branch}")
    return (
        f"\n\nAn earlier attempt at this task was interrupted. Its work is in commit {commit}.\n"
        f"See it with `git diff {base}...{commit}`. To continue from it: git merge --squash {commit}"
    )


def hand_over(project: Project, source: TaskSource, record: WorkerRecord) -> None:
    """Push the commits of a worker that lost its task or stops, for the next holder. They also stay pinned here."""
    shared, task = project.shared, record.assignment
    if shared is None or task is None or source.books().is_completed(task.task):
        return
    tip = git.resolve(Path(record.worktree_path), f"refs/heads/{record.branch}")
    if tip is not None and git.ahead_of(project.root.path, project.base, tip):
        token = shared.ledger.token_of(task.claim)
        handed_work.offer(project.root.path, shared.remote, task.task, token, tip)


def withdraw(project: Project) -> None:
    """Remove work that this machine offered for tasks that are completed now."""
    shared = project.shared
    names = handed_work.offered(project.root.path) if shared is not None else set()
    if shared is None or not names:
        return
    completed = source_of(project).books().completed
    done = {handed_work.name_of(TaskKey(of, task)) for of, tasks in completed.items() for task in tasks}
    if over := names & done:
        handed_work.withdraw(project.root.path, shared.remote, over)
