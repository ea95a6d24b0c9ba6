"""Accept: a journaled pipeline that turns a worker's commits into one commit on the default branch.

The journal is the field `accept` of the worker's record. It names the next step and is written before that step acts,
so that an accept can resume after a crash; every step can be repeated.

The commit is made first, from trees; then exactly that commit is validated and landed. The worktree stays unchanged
until the reset at the end, unless there are conflicts, or validation has to run there.
"""

import shlex
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from msgspec.structs import replace

from llmc.attention.raising import advice
from llmc.base.clock import now_unix
from llmc.base.errors import ClaimLost, LlmcError, Refused
from llmc.base.faults import step as fault_step
from llmc.base.proc import ShuttingDown
from llmc.base.text import gist
from llmc.landing import at_rest, default_branch, merging, post_accept, rebase, review, validation, ways
from llmc.landing.accept_journal import (
    CHANGED,
    STEPS,
    Accepted,
    Cancelled,
    LandingRejected,
    NotAsked,
    Progress,
    Unseen,
    Waiting,
    WorkChanged,
    cancel,
    completed,
    resumed,
)
from llmc.landing.default_branch import Ahead
from llmc.records.store import accept_key
from llmc.records.transitions import NOT_REVIEWED, step
from llmc.records.worker import AcceptJournal, Assignment, Reviewed, Seen, Status, WorkerRecord
from llmc.repo import git, provision, submodules, trash, uncommitted, worktrees
from llmc.repo.project import Project
from llmc.repo.user_commands import CommandFailed
from llmc.sessions import intake

MAX_ATTEMPTS = 20
#: how much of the task is kept in the event log, for `llmc undo`
PROMPT_IN_EVENT = 4000
#: how long a check of the source or the worker stays valid; a validation or a wait outdates it
CHECK_HOLDS_S = 1.0


def accept(
    project: Project,
    name: str,
    progress: Progress = lambda _: None,
    *,
    only_seen: bool = False,
    agreed: Seen | None = None,
    asked: str = "",
    ahead: Ahead | None = None,
) -> Accepted:
    """Land a worker's work, or resume an interrupted accept; the caller holds the worker's lock.

    `only_seen`: raise `Unseen` if the change differs from the reviewed one and from the one the user `agreed` to land;
    without it, only report that to `progress`. `asked`: the commit that the user was asked about; refuse any other.

    Releases the worker's lock, but not its accept lock, while it validates in a slot or polls a landing.
    """
    with project.try_accept_lock(name) as is_ours:
        if not is_ours:
            raise Refused(
                f"another process is already accepting {name}",
                hint="Run `llmc status` to follow its progress.",
            )
        with ahead or Ahead(project) as begun:
            return _accept(project, name, progress, begun, only_seen, agreed, asked)


def _accept(
    project: Project,
    name: str,
    progress: Progress,
    ahead: Ahead,
    only_seen: bool,
    agreed: Seen | None,
    asked: str,
) -> Accepted:
    record = intake.apply_pending(project, name)
    git.require_worktree(Path(record.worktree_path))
    record = rebase.resolved_by_hand(project, record)
    if rebase.must_validate(record):
        record = rebase.settle(project, name)
    if rebase.must_tell(record):  # an earlier process was killed before it sent the conflicts to the worker
        raise rebase.tell(project, name)
    resumes = record.accept is not None
    record = resumed(project, record) if resumes else _begin(project, record, ahead, asked)
    try:
        return _Pipeline(
            project, record, progress, ahead, resumes=resumes, only_seen=only_seen, agreed=agreed
        ).run()
    except rebase.HasConflicts as found:
        raise rebase.tell(project, name) from found


def _begin(project: Project, record: WorkerRecord, ahead: Ahead, asked: str) -> WorkerRecord:
    if record.status is not Status.NEEDS_REVIEW or record.commit_sha is None:
        raise Refused(
            f"cannot accept {record.name}: its status is {record.status}, not needs_review",
            hint=advice(project, record.name),
        )
    ahead.begin()
    at_rest.refuse_if_disturbed(project, record)
    try:
        found = at_rest.refuse_if_dirty(record)
    except Refused:
        with project.store.transaction() as tx:
            tx.update(record.name, uncommitted=True)
        raise
    at_rest.refuse_if_commits_are_elsewhere(record, found)
    if asked and found.head != asked:  # a process that the agent left running may have amended it, unrecorded
        raise NotAsked(record.name, asked, found.head or "")
    journal = AcceptJournal(step="check", started_unix=now_unix(), tip=found.head or "")
    with project.store.transaction() as tx:
        tx.clear_item(accept_key(record.name))
        return tx.update(record.name, accept=journal, uncommitted=False)


def _why(error: LlmcError) -> str:
    """The message and the last lines of a failed command."""
    output = error.output if isinstance(error, CommandFailed) and "\n" not in error.message else ""
    return gist(f"{error.message}\n{output}")


class _Pipeline:
    def __init__(
        self,
        project: Project,
        record: WorkerRecord,
        progress: Progress,
        ahead: Ahead,
        *,
        resumes: bool,
        only_seen: bool,
        agreed: Seen | None,
    ) -> None:
        assert record.accept is not None
        self.project = project
        self.name = record.name
        self.record = record
        self.journal = record.accept
        self.worktree = Path(record.worktree_path)
        self.progress = progress
        self.ahead = ahead
        self.way = ways.way_of(project)
        self.ticket = ExitStack()
        self.has_ticket = False
        self.resumes = resumes
        self.only_seen = only_seen
        self.agreed = agreed
        #: when the worker was last seen idle and clean; unknown after a crash
        self.worker_seen_at = 0.0 if resumes else time.monotonic()
        #: what this run has done; also unknown after a crash
        self.checked: Path | None = None
        self.checked_at = 0.0
        self.just_made = ""
        self.subject = ""
        self.late = ""
        #: no slot was usable
        self.without_slot = False

    def run(self) -> Accepted:
        with self.ticket:
            while self.journal.step != "done":
                if self._should_go_first():
                    self._take_ticket()
                self._one_step()
                if about := self.record.landing_waits_for:
                    raise Waiting(f"{self.name}: commit {self.journal.squash[:12]} is waiting for {about}")
                if self._can_let_others_land():
                    self.ticket.close()
                    self.has_ticket = False
        return Accepted(self.name, self.journal.squash, self._subject(), self.journal.reviewed, self.late)

    def _should_go_first(self) -> bool:
        """Whether to take the ticket now: after a lost race, or without validation, when others wait only briefly
        and concurrent merges would be wasted.
        """
        if not STEPS.index("merge") <= STEPS.index(self.journal.step) <= STEPS.index("land"):
            return False
        return self.journal.attempt > 1 or not self._has_checks()

    def _has_checks(self) -> bool:
        return validation.is_wanted(self.project, self.record.assignment)

    def _can_let_others_land(self) -> bool:
        """Whether to release the ticket: the commit is on the branch, and no command must run before the next one."""
        waits = self.record.assignment is not None and self.project.config.auto.post_accept_command
        landed = self.journal.step == "done" or STEPS.index(self.journal.step) > STEPS.index("verify")
        return self.has_ticket and landed and not waits

    def _subject(self) -> str:
        if not self.journal.squash or self.subject:
            return self.subject
        return git.out(self.project.root.path, "show", "-s", "--format=%s", self.journal.squash)

    def _one_step(self) -> None:
        current = self.journal.step
        if current in ("validate", "land") and self.journal.reviewed is Reviewed.CHANGED:
            self.progress(CHANGED)
        self.progress(current)
        try:
            with fault_step(f"accept.{current}"):
                after = _ACTIONS[current](self)
        except default_branch.BaseMoved:
            self._again()
            return
        except Unseen as found:
            cancel(self.project, self.name, found.message)
            raise
        except (rebase.HasConflicts, Cancelled):
            raise  # the journal has already ended
        except LlmcError as error:
            self._give_up(current, error)
            if current == "validate" and isinstance(error, CommandFailed):
                self._put_on_its_base()
            raise
        except KeyboardInterrupt:
            # Ctrl-C means stop. Otherwise the daemon would resume the accept as after a crash.
            self._give_up(current, LlmcError("interrupted by Ctrl-C"))
            raise
        if current != "finish":
            stays = after.step != current or after.step == "wait"
            ahead = after.step if stays else STEPS[STEPS.index(current) + 1]
            self._write(replace(after, step=ahead))
        else:
            self.journal = replace(after, step="done")

    def _write(self, journal: AcceptJournal) -> None:
        with self.project.store.transaction() as tx:
            self.record = tx.update(self.name, accept=journal)
            if journal.step != self.journal.step:  # do not report a long wait at every poll
                tx.emit("accept_step", worker=self.name, step=journal.step, commit=journal.squash)
        self.journal = journal

    def _again(self) -> None:
        """Other work landed first: merge with the new base, now holding the ticket."""
        if self.journal.attempt >= MAX_ATTEMPTS:
            error = LlmcError(
                f"cannot land {self.name}'s work: the default branch moved during all {MAX_ATTEMPTS} attempts",
                hint=f"Run `llmc accept {self.name}` again.",
            )
            self._give_up("merge", error)
            raise error
        self.progress("the default branch moved; retrying")
        self._write(replace(self.journal, step="merge", squash="", attempt=self.journal.attempt + 1))

    def _take_ticket(self) -> None:
        if not self.has_ticket:
            self.ticket.enter_context(default_branch.ticket(self.project))
            self.has_ticket = True

    def _give_up(self, at: str, error: LlmcError) -> None:
        """A failure before landing ends the accept; the worker's work is unchanged.

        If the work may have landed, the journal stays, and the next accept finds out.
        """
        was_not_taken = isinstance(error, default_branch.SourceBusy | WorkChanged | ClaimLost)
        landed_perhaps = at in ("land", "wait") and not was_not_taken
        is_over = landed_perhaps or STEPS.index(at) > STEPS.index("wait")
        if isinstance(error, LandingRejected) or not is_over:
            self._end(at, error)

    def _end(self, at: str, error: LlmcError) -> None:
        with self.project.store.transaction() as tx:
            now = tx.update(self.name, accept=None)
            if isinstance(error, LandingRejected) and now.assignment is not None:
                tx.update(self.name, assignment=replace(now.assignment, unlanded=error.message))
            if self.record.assignment is None:  # auto mode handles its own
                said = f"accept failed at step {at}: {_why(error)}"
                about = {"kind": "accept_failed", "severity": "waiting", "who": self.name}
                tx.raise_item(accept_key(self.name), text=said, **about)
            if isinstance(error, default_branch.SourceBusy):
                default_branch.tell_source_busy(self.project, tx, error)
            tx.emit("accept_failed", worker=self.name, reason=gist(error.message), step=at)

    def _put_on_its_base(self) -> None:
        """After a failed check, give the worker the base that it failed on, so that it can find the cause."""
        try:
            rebase.onto_base(self.project, self.name, base=self.journal.base)
        except LlmcError as problem:  # the user may have the worker by now; the failed check matters more
            self.progress(f"{self.name} was not rebased: {problem.message}")

    def check(self) -> AcceptJournal:
        try:
            self._note_source(*self.ahead.source.result())
        except default_branch.SourceBusy:
            # During a landing the source looks as if the user had changed files.
            with default_branch.merge_lock(self.project):
                self._note_source(time.monotonic(), default_branch.check_source(self.project))
        submodules.refuse_unknown_commits(self.project, self.record)
        return self.journal

    def _note_source(self, seen_at: float, place: Path | None) -> None:
        self.checked, self.checked_at = place, seen_at
        if self.checked is not None:
            default_branch.refuse_files_in_the_way(self.project, self.checked, self.worktree)
        default_branch.source_is_free(self.project)

    def merge(self) -> AcceptJournal:
        """Make the commit that lands, under a ref: all of the worker's changes on top of the latest default branch."""
        apart = not self.without_slot and validation.is_apart(self.project, self.record.assignment)
        interrupted = bool(self.record.pre_rebase_sha)  # resume our own rebase
        if not interrupted:
            self._refuse_if_changed()
        in_worktree = self._has_checks() and not apart
        made = self._rebased_first() if interrupted or in_worktree else self._merged()
        if not made.commit:
            # The same change is already on the branch: nothing lands, and the worker becomes idle.
            ahead = self._after_landing()
            return replace(self.journal, step=ahead, base=made.work.base, tip=made.work.tip, squash="")
        default_branch.keep(self.project, self.name, made.commit)
        self.just_made = made.commit
        self.subject = made.subject
        reviewed = review.compare(self.project, self.record, made)
        if reviewed is not Reviewed.SAME:
            self._refuse_what_was_taken_back(made)
        if reviewed is Reviewed.CHANGED and self.only_seen:
            self._refuse_unless_agreed(made)
        return replace(
            self.journal,
            base=made.work.base,
            tip=made.work.tip,
            squash=made.commit,
            tree=made.tree,
            apart=apart,
            reviewed=reviewed,
        )

    def _refuse_unless_agreed(self, made: merging.Made) -> None:
        lands = review.lands_as(made.work, made.tree)
        if self.agreed is None or not review.equals(self.project, self.agreed, lands):
            raise Unseen(
                f"cannot accept {self.name}: the change differs from the one you reviewed",
                hint=f"Run `llmc review {self.name}`, then `llmc accept {self.name}` again.",
                lands=lands,
                message=made.work.message,
                author=made.work.author,
            )

    def _merged(self) -> merging.Made:
        """Merge by trees; only conflicts go to the worktree, and to the worker if necessary."""
        self.ahead.base.wait()  # usually there is nothing left to fetch
        base = provision.refresh_base(self.project)
        try:
            return merging.landing_commit(self.project, self.name, base, git.head(self.worktree))
        except merging.Conflicts:
            return self._rebased_first()

    def _rebased_first(self) -> merging.Made:
        """Rebase the worktree, then make the commit; conflicts end the accept and go to the worker."""
        done = rebase.onto_base(self.project, self.name)
        return merging.landing_commit(self.project, self.name, done.base, done.head)

    def _refuse_what_was_taken_back(self, made: merging.Made) -> None:
        """Refuse reverted changes, unless the user reviewed exactly this change."""
        again = merging.brought_back(self.project, made.work, made.tree, self.record.taken_back)
        if again:
            branch = self.project.config.repo.default_branch
            raise Refused(
                f"{self.name}'s work still contains changes that were reverted on {branch}: {'; '.join(again)}",
                hint=f"To have them removed, run `llmc message {self.name} {shlex.quote(f'Remove the changes reverted on {branch}.')}`. "
                f"To land them anyway, run `llmc review {self.name}`, then `llmc accept {self.name}`.",
            )

    def validate(self) -> AcceptJournal:
        """Validate exactly the commit that lands; once per tree."""
        if not self._has_checks() or self.journal.validated == self.journal.tree:
            return self.journal
        self.worker_seen_at = 0.0
        journal, task = self.journal, self.record.assignment
        if journal.apart:
            return self._validate_apart(journal, task)
        if self.resumes:
            self._clear_away()
        validation.in_worktree(self.project, self.record, journal.squash, journal.base, task)
        return replace(journal, validated=journal.tree)

    def _validate_apart(self, journal: AcceptJournal, task: Assignment | None) -> AcceptJournal:
        """Validate in a slot, with the worker's lock released."""
        project, commit, base = self._cancellable(), journal.squash, journal.base
        try:
            with self.project.worker_unlocked(self.name):
                validation.check_commit(project, self.name, commit, base, worktree=self.worktree, task=task)
        except validation.NoSlot:
            self._look_at_worker()
            self.without_slot = True
            return replace(journal, step="merge", squash="", apart=False)
        except (CommandFailed, ShuttingDown):
            self._look_at_worker()  # if the accept was cancelled, the failure does not matter
            raise
        self._look_at_worker()
        return replace(journal, validated=journal.tree)

    def _clear_away(self) -> None:
        """Remove what a killed check left in the worktree, which was clean when it started."""
        at_rest.refuse_if_disturbed(self.project, self.record)
        at_rest.refuse_if_committed(self.record, self.journal.tip)
        validation.clear_away(
            self.project, self.record, uncommitted.TreeState((), (), head=git.head(self.worktree))
        )

    def _cancellable(self) -> Project:
        """The same project, with commands that stop when the accept is cancelled."""
        stopping = self.project.stopping

        def is_over() -> bool:
            return bool(stopping and stopping()) or self._is_cancelled()

        return replace(self.project, stopping=is_over)

    def _is_cancelled(self) -> bool:
        record = self.project.store.read().workers.get(self.record.name)
        journal = record.accept if record else None
        return journal is None or journal.started_unix != self.journal.started_unix

    def _look_at_worker(self) -> None:
        """Check the worker after its lock was released."""
        self.record = intake.apply_pending(self.project, self.name)
        if self._is_cancelled():
            raise Cancelled(
                f"`llmc accept {self.name}` was cancelled during validation; nothing landed",
                hint=f"Run `llmc events --worker {self.name}` to see why.",
            )

    def _refuse_if_changed(self) -> None:
        """Refuse unless the worker is idle, clean, and still has the same commit."""
        at_rest.refuse_if_committed(self.record, self.journal.tip)
        if time.monotonic() - self.worker_seen_at >= CHECK_HOLDS_S:
            at_rest.refuse_if_changed(self.project, self.record)
            self.worker_seen_at = time.monotonic()

    def land(self) -> AcceptJournal:
        # A commit made by this run cannot have landed; after a crash it may have.
        if self.journal.squash != self.just_made:
            if self.way.verify(self.project, self.journal.squash):
                return replace(self.journal, step="verify")
            if not git.has_commit(self.project.root.path, self.journal.squash):  # its ref was removed as well
                return replace(self.journal, step="merge", squash="")
        self._take_ticket()
        self._refuse_if_changed()
        if self.record.assignment is not None and self.project.in_daemon:
            post_accept.run_due(self.project)
        self._enter_in_ledger(self.journal.squash)
        with default_branch.merge_lock(self.project):
            at_rest.refuse_if_committed(self.record, self.journal.tip)
            fresh = time.monotonic() - self.checked_at < CHECK_HOLDS_S
            checked = self.checked if fresh else None
            answer = self.way.begin(self.project, self._offer(checked))
        return self._answered(answer)

    def _enter_in_ledger(self, commit: str) -> None:
        from llmc.tasks import queue

        if self.record.assignment is not None:
            queue.about_to_land(self.project, self.name, self.record.assignment, commit)

    def _offer(self, checked: Path | None = None) -> ways.Offer:
        task = self.record.assignment
        return ways.Offer(
            self.name,
            self.journal.squash,
            self.journal.base,
            checked,
            task=task.task if task else None,
            claim=task.claim if task else "",
            prompt=self.record.current_prompt[:PROMPT_IN_EVENT],
        )

    def _answered(self, answer: ways.Landed | ways.Waits) -> AcceptJournal:
        if isinstance(answer, ways.Landed):
            if answer.commit != self.journal.squash:  # the other side's own; from now on it is the result
                self.subject = ""
                self._enter_in_ledger(answer.commit)
            return replace(self.journal, step="verify", squash=answer.commit)
        return replace(
            self.journal,
            step="wait",
            receipt=answer.receipt,
            waits_for=answer.about,
            polled_unix=now_unix(),
        )

    def wait(self) -> AcceptJournal:
        """Poll the landing, with the worker's lock released."""
        with self.project.worker_unlocked(self.name):
            answer = self.way.poll(self.project, self._offer(), self.journal.receipt)
        self._look_at_worker()
        if isinstance(answer, ways.SentBack):
            why = f"{self.name}'s work was not accepted: {gist(answer.reason)}"
            raise LandingRejected(
                why, hint=f"To tell the worker what to change: llmc message {self.name} ..."
            )
        if isinstance(answer, ways.NotLanded):
            return replace(self.journal, step="land", receipt="", waits_for="")
        return self._answered(answer)

    def verify(self) -> AcceptJournal:
        if not self.way.verify(self.project, self.journal.squash):
            # Otherwise the next accept would fail the same way.
            self._write(replace(self.journal, step="land"))
            raise LlmcError(
                f"{self.name}: commit {self.journal.squash[:12]} landed but is no longer on the default branch",
                hint=f"The branch may have been reset. Run `llmc accept {self.name}` again to land the commit.",
            )
        problem = self.way.spread(self.project, self._offer())
        if problem:  # it has landed in the source; an unreachable remote is not a failure
            with self.project.store.transaction() as tx:
                tx.emit("push_failed", worker=self.name, reason=problem)
            self.progress(f"warning: cannot push from the source repository to its remote: {problem}")
        return replace(self.journal, step=self._after_landing())

    def _after_landing(self) -> str:
        return "complete" if self.record.assignment is not None else "reset"

    def complete(self) -> AcceptJournal:
        """Complete the task before anything else happens to its worker, so that it is not claimed again."""
        from llmc.tasks import queue

        if self.record.assignment is None:  # an earlier run dropped it below, then crashed
            return self.journal
        try:
            queue.complete_for(self.project, self.name, self.record.assignment, self.journal.squash)
        except ClaimLost:
            # This node or the next holder landed all of its changes; the next holder completes the task.
            with self.project.store.transaction() as tx:
                self.record = tx.update(self.name, assignment=None)
        return self.journal

    def reset(self) -> AcceptJournal:
        """Reset the worker to the new base, in the same directory; its own commits stay pinned."""
        if self.record.seen is not None:
            review.forget(self.project, self.name)
        if not self._is_fresh():
            at_rest.refuse_if_disturbed(self.project, self.record)
            late = at_rest.has_committed(self.record, self.journal.tip)  # while its work landed
            if late:  # report before the reset: after a crash, the worktree no longer shows it
                self._tell_late(trash.late_key(self.name), f"llmc trash list --worker {self.name}")
            why = "late" if late else trash.ACCEPTED
            ref = provision.reset_in_place(self.project, self.record, self.project.base, why)
            if ref:
                with self.project.store.transaction() as tx:
                    tx.emit("work_pinned", worker=self.name, reason=why, ref=ref)
                if late:
                    self.late = ref
                    self._tell_late(trash.late_key(ref), f"llmc trash show {trash.short(ref)}")
        return self.journal

    def _tell_late(self, key: str, next: str) -> None:
        said = f"{self.name} made more commits while its work was landing; those commits are in the trash"
        with self.project.store.transaction() as tx:
            tx.clear_item(trash.late_key(self.name))
            tx.raise_item(key, kind="late_work", severity="waiting", who=self.name, text=said, next=next)

    def _is_fresh(self) -> bool:
        """Whether the worktree is already at the new base and clean; removes the locks of a killed git first."""
        if not git.same_commit(self.worktree, "HEAD", self.project.base):
            return False
        worktrees.drop_dead_locks(self.project, self.record)
        return uncommitted.tree_state(self.worktree).clean

    def finish(self) -> AcceptJournal:
        with self.project.store.transaction() as tx:
            if self.journal.squash:
                tx.emit(
                    "accepted",
                    worker=self.name,
                    commit=self.journal.squash,
                    prompt=self.record.current_prompt[:PROMPT_IN_EVENT],
                    subject=self.record.current_subject,
                    reviewed=self.journal.reviewed,
                )
            else:
                tx.emit("accepted_nothing", worker=self.name, base=self.journal.base)
            completed(tx, self.name, self.journal.squash or None)
            tx.move(self.name, step(Status.IDLE, "accepted", **NOT_REVIEWED))
            rebase.queue_others(tx, self.name)
        return self.journal


_ACTIONS: dict[str, Callable[[_Pipeline], AcceptJournal]] = {name: getattr(_Pipeline, name) for name in STEPS}
