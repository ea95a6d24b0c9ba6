"""Accept: a journaled pipeline that turns a worker's commits into one commit on the default branch.

The journal is the field `accept` of the worker's record. It names the step that comes next and is written before
that step acts, so a crash anywhere resumes there; every step can be repeated.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from llmc.auto.model import NOT_DIRTY, due_fields
from llmc.errors import LlmcError, Refused
from llmc.names import TaskKey
from llmc.review import messages
from llmc.services import (
    intake,
    landing,
    post_accept,
    provision,
    rebase,
    review,
    submodules,
    validation,
)
from llmc.services.authorship import signature
from llmc.services.project import Project
from llmc.state.store import Transaction
from llmc.tools import git, locks
from llmc.tools.clock import now_unix
from llmc.tools.faults import step as fault_step
from llmc.workers.model import AcceptJournal, Reviewed, Status, WorkerRecord
from llmc.workers.transitions import step

#: the steps in their order; `finish` ends the journal
STEPS = ("check", "rebase", "validate", "squash", "land", "verify", "complete", "reset", "finish")
MAX_ATTEMPTS = 20
#: so much of the task is kept in the event log, for `llmc undo`
PROMPT_IN_EVENT = 4000
#: so long a look at the source is good enough to land by; a validation or a wait for others makes it old
CHECK_HOLDS_S = 1.0

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Accepted:
    worker: str
    #: empty when all of the work was on the branch already, and nothing had to land
    commit: str
    subject: str
    reviewed: Reviewed


def accept(project: Project, name: str, progress: Progress = lambda _: None) -> Accepted:
    """Land a worker's work, or go on with an accept that was interrupted; the caller holds the worker's lock."""
    record = intake.apply_pending(project, name)
    if not Path(record.worktree_path, ".git").exists():
        raise Refused(f"the worktree of {name} is gone", hint="`llmc up` makes it again, from its branch.")
    if rebase.must_validate(record):
        record = rebase.settle(project, name)
    if rebase.must_tell(record):  # an accept, or a rebase, was killed before the worker knew of its conflicts
        raise rebase.tell(project, name)
    if record.accept is None:
        record = _begin(project, record)
    try:
        return _Pipeline(project, record, progress).run()
    except rebase.HasConflicts as found:
        raise rebase.tell(project, name) from found


def _begin(project: Project, record: WorkerRecord) -> WorkerRecord:
    if record.status is not Status.NEEDS_REVIEW or record.commit_sha is None:
        raise Refused(
            f"{record.name} is {record.status}, only a worker in needs_review can be accepted",
            hint=f"See `llmc status`, or wait for it: llmc wait {record.name} --status needs_review",
        )
    rebase.refuse_if_disturbed(project, record)
    found = rebase.refuse_if_dirty(record)
    _refuse_if_commits_are_elsewhere(record, found)
    journal = AcceptJournal(step="check", started_unix=now_unix(), tip=found.head or "")
    with project.store.transaction() as tx:
        return tx.update(record.name, accept=journal)


def _refuse_if_commits_are_elsewhere(record: WorkerRecord, found: git.TreeState) -> None:
    """What lands is what HEAD has; an agent that changed branches may have left commits behind."""
    if found.branch == record.branch:
        return
    worktree = Path(record.worktree_path)
    tip = git.resolve(worktree, f"refs/heads/{record.branch}")
    if tip is not None and not git.is_ancestor(worktree, tip, "HEAD"):
        raise Refused(
            f"{record.name} left its branch {record.branch}, which has commits that are not in what would land",
            hint=f"llmc message {record.name} 'Bring all your commits together on {record.branch}.'",
        )


class _Pipeline:
    def __init__(self, project: Project, record: WorkerRecord, progress: Progress) -> None:
        assert record.accept is not None
        self.project = project
        self.name = record.name
        self.record = record
        self.journal = record.accept
        self.worktree = Path(record.worktree_path)
        self.progress = progress
        self.ticket = ExitStack()
        self.has_ticket = False
        #: what this very run has done, which after a crash is not known
        self.checked: Path | None = None
        self.checked_at = 0.0
        self.just_made = ""
        self.subject = ""

    def run(self) -> Accepted:
        with self.ticket:
            while self.journal.step != "done":
                if self._should_go_first():
                    self._take_ticket()
                self._one_step()
                if self._can_let_others_land():
                    self.ticket.close()
                    self.has_ticket = False
        return Accepted(self.name, self.journal.squash, self._subject(), self.journal.reviewed)

    def _should_go_first(self) -> bool:
        """After a lost race; and where nothing has to be validated, because then nobody waits for long.

        Others who rebase at the same time would rebase in vain.
        """
        if not STEPS.index("rebase") <= STEPS.index(self.journal.step) <= STEPS.index("land"):
            return False
        task = self.record.assignment
        validates = self.project.config.repo.validate or (task is not None and task.verify)
        return self.journal.attempt > 1 or not validates

    def _can_let_others_land(self) -> bool:
        """It is on the branch, and no command has to run before somebody else's is."""
        waits = self.record.assignment is not None and self.project.config.auto.post_accept_command
        landed = self.journal.step == "done" or STEPS.index(self.journal.step) > STEPS.index("verify")
        return self.has_ticket and landed and not waits

    def _subject(self) -> str:
        if not self.journal.squash or self.subject:
            return self.subject
        return git.out(self.worktree, "show", "-s", "--format=%s", self.journal.squash)

    def _one_step(self) -> None:
        current = self.journal.step
        self.progress(current)
        try:
            with fault_step(f"accept.{current}"):
                after = _ACTIONS[current](self)
        except landing.BaseMoved:
            self._again()
            return
        except rebase.HasConflicts:
            raise  # the journal ended with the step that made the worker `rebasing`
        except LlmcError as error:
            self._give_up(current, error)
            raise
        except KeyboardInterrupt:
            # Who presses Ctrl-C means stop. Without this the daemon would finish it as it finishes a crash.
            self._give_up(current, LlmcError("interrupted by Ctrl-C"))
            raise
        if current != "finish":
            ahead = after.step if after.step != current else STEPS[STEPS.index(current) + 1]
            self._write(replace(after, step=ahead))
        else:
            self.journal = replace(after, step="done")

    def _write(self, journal: AcceptJournal) -> None:
        with self.project.store.transaction() as tx:
            self.record = tx.update(self.name, accept=journal)
            tx.emit("accept_step", worker=self.name, step=journal.step, commit=journal.squash)
        self.journal = journal

    def _again(self) -> None:
        """Somebody else landed first: rebase and validate on the new base, and from now on with the ticket."""
        if self.journal.attempt >= MAX_ATTEMPTS:
            error = LlmcError(f"{self.name}: the default branch moved {MAX_ATTEMPTS} times while accepting")
            self._give_up("rebase", error)
            raise error
        self.progress("the branch moved; again")
        again = replace(self.journal, step="rebase", squash="", rebased="", attempt=self.journal.attempt + 1)
        self._write(again)

    def _take_ticket(self) -> None:
        """First come, first served: nobody else lands while somebody holds it. It dies with its holder."""
        if not self.has_ticket:
            path = self.project.root.lock("ticket")
            self.ticket.enter_context(locks.lock(path, locks.Rank.TICKET, timeout_s=7200))
            self.has_ticket = True

    def _give_up(self, at: str, error: LlmcError) -> None:
        """A failure before anything landed ends the accept, and the worker keeps its work as it is.

        Where it may have landed the journal stays, and the next accept finds out.
        """
        landed_perhaps = at == "land" and not isinstance(error, landing.SourceBusy)
        if landed_perhaps or STEPS.index(at) > STEPS.index("land"):
            return
        with self.project.store.transaction() as tx:
            tx.update(self.name, accept=None)
            tx.emit("accept_failed", worker=self.name, reason=error.message[:500], step=at)

    def check(self) -> AcceptJournal:
        try:
            self._look_at_source()
        except landing.SourceBusy:
            with self._merge_lock():  # while somebody's work lands, it looks as if a person had changed files
                self._look_at_source()
        submodules.refuse_unknown_commits(self.project, self.record)
        return self.journal

    def _look_at_source(self) -> None:
        self.checked = landing.check_source(self.project)
        self.checked_at = time.monotonic()
        if self.checked is not None:
            landing.refuse_files_in_the_way(self.project, self.checked, self.worktree)

    def _merge_lock(self) -> AbstractContextManager[None]:
        return locks.lock(self.project.root.lock("merge"), locks.Rank.MERGE, timeout_s=600)

    def rebase(self) -> AcceptJournal:
        """The worker's commits on top of the newest base. Conflicts end the accept: the worker resolves them first."""
        done = rebase.onto_base(self.project, self.name)
        return replace(self.journal, base=done.base, rebased=done.head)

    def validate(self) -> AcceptJournal:
        validation.validate(self.project, self.name, self.worktree)
        if self.record.assignment is not None:
            validation.verify(self.project, self.name, self.worktree, self.record.assignment)
        return self.journal

    def squash(self) -> AcceptJournal:
        """One commit with the rebased tree; its id is in the journal before it lands."""
        base, rebased = self.journal.base, self.journal.rebased
        trees, commits = _commits(self.worktree, base, rebased)
        if not commits or trees[base] == trees[rebased]:
            # The same change is on the branch already: nothing lands, and the worker is free again.
            return replace(self.journal, step=self._after_landing(), squash="")
        message = messages.squashed([commit.message for commit in commits])
        first = commits[0]
        done = git.git(
            self.worktree,
            *["commit-tree", trees[rebased], "-p", base, "-F", "-"],
            input=message.encode("utf-8", "surrogateescape"),
            env=signature(self.worktree, first.author, first.email, first.date),
        )
        squash = done.stdout.strip()
        self.just_made = squash
        self.subject = messages.subject(message)
        reviewed = review.compare(self.record, self.journal.base, squash)
        return replace(self.journal, squash=squash, reviewed=reviewed)

    def land(self) -> AcceptJournal:
        # One made by this very run cannot have landed; after a crash it may have.
        if self.journal.squash != self.just_made and landing.is_landed(self.project, self.journal.squash):
            return self.journal
        self._take_ticket()
        if self.record.assignment is not None and self.project.in_daemon:
            post_accept.run_due(self.project)
        if self.record.assignment is not None:
            from llmc.services import claims  # a person's own work has no task, and need not wait for this

            claims.about_to_land(self.project, self.record.name, self.record.assignment, self.journal.squash)
        with self._merge_lock():
            fresh = time.monotonic() - self.checked_at < CHECK_HOLDS_S
            checked = self.checked if fresh else None
            landing.land(self.project, self.name, self.journal.squash, self.journal.base, checked=checked)
        return self.journal

    def verify(self) -> AcceptJournal:
        if not landing.is_landed(self.project, self.journal.squash):
            raise LlmcError(
                f"{self.name}: {self.journal.squash[:12]} was landed, but is not on the branch now",
                hint="Somebody may have moved the branch back; accept again lands it again.",
            )
        problem = landing.push_onward(self.project)
        if problem:  # it has landed where it must; a remote that is away is no reason to fail
            with self.project.store.transaction() as tx:
                tx.emit("push_failed", worker=self.name, reason=problem)
            self.progress(f"not pushed onward: {problem}")
        return replace(self.journal, step=self._after_landing())

    def _after_landing(self) -> str:
        return "complete" if self.record.assignment is not None else "reset"

    def complete(self) -> AcceptJournal:
        """The task is completed before anything else happens to its worker: nobody may take it again."""
        assert self.record.assignment is not None
        from llmc.services import claims  # a person's own work has no task, and need not wait for this

        claims.complete_for(self.project, self.record.name, self.record.assignment, self.journal.squash)
        return self.journal

    def reset(self) -> AcceptJournal:
        """The worker starts over on the new base, in the same directory; its own commits stay pinned."""
        if not git.same_commit(self.worktree, "HEAD", self.project.base):
            rebase.refuse_if_disturbed(self.project, self.record)
            ref = provision.reset_in_place(self.project, self.record, self.project.base, "accepted")
            if ref:
                with self.project.store.transaction() as tx:
                    tx.emit("work_pinned", worker=self.name, reason="accepted", ref=ref)
        return self.journal

    def finish(self) -> AcceptJournal:
        with self.project.store.transaction() as tx:
            if self.journal.squash:
                tx.emit(
                    "accepted",
                    worker=self.name,
                    commit=self.journal.squash,
                    prompt=self.record.current_prompt[:PROMPT_IN_EVENT],
                    reviewed=self.journal.reviewed,
                )
            else:
                tx.emit("accepted_nothing", worker=self.name, base=self.journal.base)
            completed(tx, self.name, self.journal.squash or None)
            tx.move(self.name, step(Status.IDLE, "accepted"))
            rebase.queue_others(tx, self.name)
        return self.journal


def completed(tx: Transaction, name: str, commit: str | None) -> None:
    """The worker's task, if it had one, counts as completed."""
    task = tx.worker(name).assignment
    if task is not None:
        count_completed(tx, name, task.task, commit, task.subject)


def count_completed(tx: Transaction, name: str, task: TaskKey, commit: str | None, subject: str) -> None:
    auto = tx.state.auto
    tx.update_auto(
        tasks_completed=auto.tasks_completed + 1,
        last_task_completion_unix=tx.now,
        **due_fields((*auto.due, task) if commit else auto.due),
        **NOT_DIRTY,
    )
    tx.emit("task_completed", worker=name, **task.fields(), commit=commit, subject=subject)


_ACTIONS: dict[str, Callable[[_Pipeline], AcceptJournal]] = {name: getattr(_Pipeline, name) for name in STEPS}


@dataclass(frozen=True)
class _Commit:
    author: str
    email: str
    date: str
    message: str


def _commits(worktree: Path, base: str, tip: str) -> tuple[dict[str, str], list[_Commit]]:
    """What base..tip consists of, oldest first; and the trees of these commits and of the base."""
    flags = ["--reverse", "--boundary", "--no-show-signature", "-z", "--format=%m%H%n%T%n%an%n%ae%n%aI%n%B"]
    trees: dict[str, str] = {}
    commits = []
    for row in git.git(worktree, "log", *flags, f"{base}..{tip}").stdout.split("\0"):
        if row:
            name, tree, author, email, date, message = row.split("\n", 5)
            trees[name[1:]] = tree
            if name[0] != "-":  # else it is where the range begins
                commits.append(_Commit(author, email, date, message))
    return trees, commits
