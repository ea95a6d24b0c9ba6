"""Machines of a fleet: each has a checkout, a root on it, and a worker; they share a remote and a ledger."""

import os
import signal
from pathlib import Path

from msgspec.structs import replace

from llmc.base.names import TaskId, TaskKey
from llmc.landing import undo
from llmc.landing.accept import accept
from llmc.landing.accept_journal import Accepted
from llmc.records.transitions import step
from llmc.records.worker import Assignment, Status
from llmc.repo import provision
from llmc.repo.project import Shared
from llmc.repo.rules.fenced_push import Remote
from llmc.sessions.rules.decide import FOUND_COMMITS
from tests.support.ledgers import AnyLedger
from tests.support.remotes import BareRemote
from tests.support.repos import Repo, Worktree, add_worker, make_project, run_git

WORKER = "w1"


class Node:
    def __init__(self, place: Path, bare: BareRemote, ledger: AnyLedger) -> None:
        place.mkdir(parents=True)
        run_git(place, "clone", "-q", str(bare.path), "src")
        self.name = place.name
        self.source: Repo = Worktree(place / "src")
        self.ledger = ledger
        self.project = make_project(str(self.source.path), place / "root")
        self.share(bare.remote)
        _, self.worktree = add_worker(self.project, WORKER)
        self.done = 0

    def share(self, remote: Remote) -> None:
        self.project = replace(self.project, shared=Shared(remote, self.ledger))

    def work(self, subject: str, task: TaskKey | None = None, claim: str = "") -> str:
        """The worker has a commit to land; returns the claim of its task."""
        record = self.project.store.worker(WORKER)
        provision.reset_in_place(self.project, record, provision.refresh_base(self.project), "start")
        self.done += 1
        commit = self.worktree.commit(f"{self.name}-{self.done}.txt", f"{subject}\n", subject)
        assignment = None
        if task is not None:
            claim = claim or self.ledger.claim(task)
            assignment = Assignment(task_id=task.id, task_list=task.list, claim=claim, since_unix=0.0)
        with self.project.store.transaction() as tx:
            tx.move(WORKER, step(Status.NEEDS_REVIEW, FOUND_COMMITS, commit_sha=commit))
            tx.update(WORKER, assignment=assignment, current_prompt=f"Write {subject}")
        return claim

    def accept(self) -> Accepted:
        with self.project.worker_lock(WORKER):
            return accept(self.project, WORKER)

    def undo(self) -> undo.Undone:
        return undo.undo(self.project, undo.target(self.project).commit, lambda *_: "")

    def killed(self, fault: str, act: str = "accept") -> bool:
        """Do it in a process that kills itself at a fault point; returns whether it got there."""
        _, status = os.waitpid(self.started(act, fault), 0)
        return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL

    def started(self, act: str = "accept", fault: str = "") -> int:
        """Do it in another process; returns its pid."""
        pid = os.fork()
        if pid == 0:
            try:
                os.environ["LLMC_FAULT"] = fault
                self.ledger.in_child()
                getattr(self, act)()
            finally:
                os._exit(0)
        return pid

    def hurry(self, limit_s: float) -> None:
        """Do not wait longer than this for the remote."""
        assert self.project.shared is not None
        self.share(replace(self.project.shared.remote, limit_s=limit_s))

    def step(self) -> str | None:
        journal = self.project.store.worker(WORKER).accept
        return journal.step if journal else None


def task(number: int) -> TaskKey:
    return TaskKey("plan", TaskId(str(number)))
