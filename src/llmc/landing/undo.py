"""Undo an accept: one revert commit, validated and landed like an accept. Its task can then run again.

Journaled in the state: the field `undo` names the next step and is written before that step acts, so that it can resume
after a crash. The running undo holds the landing ticket; a journal without a holder was interrupted.
"""

import shlex
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from msgspec import Struct
from msgspec.structs import replace

from llmc.base import locks
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, LockTimeout, NotFound, Refused
from llmc.base.faults import step as fault_step
from llmc.base.given import number, text
from llmc.base.text import gist, some_files
from llmc.landing import default_branch, merging, rebase, remote, validation, ways
from llmc.landing.accept_journal import LandingRejected, Waiting, may_have_landed
from llmc.records.event_log import EventLog
from llmc.records.state import State, UndoJournal
from llmc.records.worker import WorkerRecord
from llmc.repo import git, provision
from llmc.repo.project import Project
from llmc.tasks import task_orders
from llmc.tasks.source import source_of

#: the name under which a revert is landed, validated and logged; not a valid worker name
NAME = "_undo"
REF = f"refs/llmc/land/{NAME}"
#: the steps in their order; after `finish` the step is DONE
STEPS = ("revert", "validate", "land", "verify", "return", "finish")
DONE = "done"
MAX_ATTEMPTS = 20
#: how long `resume` waits for another landing, and every undo for a goal tick
RESUME_S, TICK_S = 0.2, 120.0

#: reopens the plan item of a commit, with a reason; returns a line about it, "" for none
Reopen = Callable[[Project, str, str], str]


class Undone(Struct, frozen=True):
    worker: str
    commit: str
    revert: str
    subject: str
    prompt: str
    #: what can be run again, as text; "" if the work had no task
    returned: str


Answer = ways.Landed | ways.Waits | ways.SentBack | ways.NotLanded


class Target(Struct, frozen=True):
    """What an undo would revert now."""

    worker: str
    commit: str
    prompt: str
    at_unix: float = 0.0
    #: its undo was interrupted and resumes
    begun: bool = False


def target(project: Project) -> Target:
    """The interrupted undo, else the latest accept that was not undone; refuses while that accept has not finished."""
    state = project.store.read()
    journal = state.undo
    if journal is not None and journal.step != DONE:
        return _begun(journal)
    newest, pending = _newest_accept(project), _newest_pending(state)
    accepted_unix = newest.at_unix if newest else 0.0
    pending_unix = pending.accept.started_unix if pending and pending.accept else 0.0
    if journal is not None and max(accepted_unix, pending_unix) <= journal.started_unix:
        return _begun(
            journal
        )  # the daemon finished it, and the user has not seen that: a repeated command refers to it
    if (unfinished := _unfinished(project, state, newest)) is not None:
        raise _not_finished(project, unfinished, newest)
    if pending is not None and pending_unix > accepted_unix:
        raise _not_landed_yet(pending, newest)
    if newest is None:
        raise NotFound(
            "nothing to undo: no accepted work left", hint="Run `llmc events` to see what happened."
        )
    return newest


def _begun(journal: UndoJournal) -> Target:
    return Target(journal.worker, journal.commit, journal.prompt, journal.started_unix, begun=True)


def _newest_accept(project: Project) -> Target | None:
    """The latest accept that was not undone, by any machine that lands here."""
    shared = project.shared
    if shared is not None:
        entry = remote.newest_landing(project, shared)
        return Target(entry.worker, entry.commit, entry.prompt, entry.at_unix) if entry else None
    undone = set()
    for event in EventLog(str(project.root.events)).newest(b'"accepted"', b'"undone"'):
        worker, commit, prompt = (text(event.get(key)) for key in ("worker", "commit", "prompt"))
        if event.get("action") == "undone":
            undone.add(commit)
        elif event.get("action") == "accepted" and commit and commit not in undone:
            return Target(worker, commit, prompt, number(event.get("ts")) or 0.0)
    return None


def _newest_pending(state: State) -> WorkerRecord | None:
    """The worker whose accept started last, of those that wait to land."""
    pending = [record for record in state.workers.values() if record.landing_waits_for]
    return max(pending, key=lambda record: record.accept.started_unix if record.accept else 0.0, default=None)


def _unfinished(project: Project, state: State, newest: Target | None) -> WorkerRecord | None:
    """A worker whose work landed after `newest`, or is `newest`, but whose accept goes on; its event comes last."""
    root = project.root.path
    maybe = {r.accept.squash: r for r in state.workers.values() if r.accept and may_have_landed(r.accept)}
    known = [commit for commit in maybe if commit and git.has_commit(root, commit)]
    if not known:
        return None
    base = provision.refresh_base(project)
    landed = [commit for commit in known if git.is_ancestor(root, commit, base)]
    if newest is not None and git.has_commit(root, newest.commit):
        landed = [commit for commit in landed if git.is_ancestor(root, newest.commit, commit)]
    return maybe[landed[0]] if landed else None


def _not_finished(project: Project, record: WorkerRecord, before: Target | None) -> Refused:
    assert record.accept is not None
    name, commit = record.name, record.accept.squash
    hint = f"Run `llmc accept {name}` to finish the accept, then `llmc undo` again."
    if project.others_accept(name):
        hint = f"Run `llmc undo` again when `llmc status` shows that the accept of {name} has finished."
    return Refused(
        f"cannot undo the last accepted work: {commit[:12]} from {name} has landed, but its accept has not finished",
        hint=hint + _to_undo_before(before if before and before.commit != commit else None),
    )


def _to_undo_before(before: Target | None) -> str:
    if before is None:
        return ""
    return f" To undo the work accepted before it, run `git revert {before.commit[:12]}` in the source repository."


def _not_landed_yet(pending: WorkerRecord, before: Target | None) -> Refused:
    """The refusal; undoing the accept before it instead would not be what the user means."""
    assert pending.accept is not None
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(pending.accept.started_unix))
    hint = f"Run `llmc accept {pending.name}` to check again and, if it has landed, finish the accept."
    hint += _to_undo_before(before)
    return Refused(
        f"cannot undo the last accepted work because it has not landed yet: {pending.accept.squash[:12]} from {pending.name} "
        f"has been waiting for {pending.landing_waits_for} since {since}",
        hint=hint,
    )


def undo(project: Project, commit: str, reopen: Reopen) -> Undone:
    """Revert the commit that `target` named, or resume. Nothing is removed from the history."""
    asked = _ask(project)
    with default_branch.ticket(project):
        wanted = target(project)
        if wanted.commit != commit:
            raise Refused(
                "other work was accepted in the meantime; nothing was undone", hint="Run `llmc undo` again."
            )
        journal = project.store.read().undo
        if journal is None or not wanted.begun:
            journal = _begin(project, wanted)
        _Steps(project, journal, reopen, asked).land()
    return _give_back(project, reopen, default_branch.ticket(project), keep=False)


def resume(project: Project, reopen: Reopen) -> Undone | None:
    """Finish an undo whose process was killed or whose landing takes long; None: there is none, or it still waits."""
    journal = project.store.read().undo
    if journal is None or journal.step == DONE:
        return None
    try:
        asked = _ask(project)
        with default_branch.ticket(project, RESUME_S):
            journal = project.store.read().undo
            if journal is None or journal.step == DONE:
                return None
            _Steps(project, journal, reopen, asked).land()
        return _give_back(project, reopen, default_branch.ticket(project, RESUME_S), keep=True)
    except (LockTimeout, Waiting):
        return None


def _ask(project: Project) -> tuple[str, Answer] | None:
    """The receipt and outcome of a revert that waits to land, if any; polled without a lock: it may take long."""
    journal = project.store.read().undo
    if journal is None or journal.step != "land" or not journal.receipt:
        return None
    return journal.receipt, ways.way_of(project).poll(project, _offer(journal), journal.receipt)


def stopped(project: Project) -> str:
    """The commit whose undo was interrupted and is not running; "" if there is none."""
    journal = project.store.read().undo
    if journal is None or journal.step == DONE or locks.is_locked(project.root.lock("ticket")):
        return ""
    return journal.commit


def _give_back(
    project: Project, reopen: Reopen, ticket: AbstractContextManager[None], *, keep: bool
) -> Undone:
    """Run the steps after landing; `keep`: keep the journal until the user has seen the result."""
    # A tick that has just seen the merge must not mark a plan item done after it was reopened.
    with locks.lock(project.root.lock("goals"), locks.Rank.TICK, timeout_s=TICK_S), ticket:
        journal = project.store.read().undo
        if journal is None:  # another process has finished it
            raise NotFound("the undo has already finished", hint="Run `llmc events` to see what happened.")
        steps = _Steps(project, journal, reopen, None)
        steps.give_back()
        if not keep:
            with project.store.transaction() as tx:
                tx.journal_undo(None)
    done = steps.journal
    subject = _subject(project, done.commit)
    return Undone(done.worker, done.commit, done.revert, subject, done.prompt, done.returned)


def _begin(project: Project, wanted: Target) -> UndoJournal:
    default_branch.check_source(project)
    journal = UndoJournal(
        step=STEPS[0],
        started_unix=now_unix(),
        worker=wanted.worker,
        commit=wanted.commit,
        prompt=wanted.prompt,
    )
    with project.store.transaction() as tx:
        tx.journal_undo(journal)
    return journal


class _Steps:
    """The steps of an undo; the caller holds the ticket. `asked`: an earlier receipt and its outcome."""

    def __init__(
        self, project: Project, journal: UndoJournal, reopen: Reopen, asked: tuple[str, Answer] | None
    ) -> None:
        self.project = project
        self.asked = asked
        self.root = project.root.path
        self.journal = journal
        self.reopen = reopen
        self.way = ways.way_of(project)

    def land(self) -> None:
        """The steps until the revert is on the branch."""
        while self.journal.step in STEPS[: STEPS.index("return")]:
            self._one_step()

    def give_back(self) -> None:
        while self.journal.step != DONE:
            self._one_step()

    def _one_step(self) -> None:
        current = self.journal.step
        try:
            with fault_step(f"undo.{current}"):
                after = _ACTIONS[current](self)
        except default_branch.BaseMoved:
            after = self._again()
        except LlmcError as error:
            self._give_up(current, error)
            raise
        except KeyboardInterrupt:  # Ctrl-C means stop
            self._give_up(current, LlmcError("interrupted by Ctrl-C"))
            raise
        if current != "finish":
            ahead = after.step if after.step != current else STEPS[STEPS.index(current) + 1]
            after = replace(after, step=ahead)
            self._write(after)
        self.journal = after

    def _write(self, journal: UndoJournal) -> None:
        with self.project.store.transaction() as tx:
            tx.journal_undo(journal)

    def _again(self) -> UndoJournal:
        """The branch moved: make another revert, on its current state."""
        if self.journal.attempt >= MAX_ATTEMPTS:
            error = LlmcError(
                f"cannot land the revert: the default branch moved during all {MAX_ATTEMPTS} attempts; nothing was undone",
                hint="Run `llmc undo` again.",
            )
            self._give_up("revert", error)
            raise error
        fresh = {"revert": "", "receipt": "", "waits_for": ""}
        return replace(self.journal, step="revert", **fresh, attempt=self.journal.attempt + 1)

    def _give_up(self, at: str, error: LlmcError) -> None:
        """A failure before landing ends the undo. If the revert may have landed, the next undo finds out."""
        landed_perhaps = at == "land" and not isinstance(error, (default_branch.SourceBusy, LandingRejected))
        if landed_perhaps or STEPS.index(at) > STEPS.index("land"):
            return
        with self.project.store.transaction() as tx:
            tx.journal_undo(None)
            tx.emit(
                "undo_failed",
                worker=self.journal.worker,
                reason=gist(error.message),
                step=at,
                commit=self.journal.commit,
            )

    def _revert(self) -> UndoJournal:
        """Make the revert commit, under a ref; or find the one that landed before a crash."""
        base = provision.refresh_base(self.project)
        made = self._landed_before(base)
        if made:
            return replace(self.journal, step="verify", base=base, revert=made)
        made = _revert_of(self.project, self.journal.commit, base)
        git.git(self.root, "update-ref", REF, made)
        return replace(self.journal, base=base, revert=made)

    def _landed_before(self, base: str) -> str:
        """Our revert of this commit, if it is already on the branch: then only the journal was lost."""
        made = git.resolve(self.root, REF)
        if made is None or not git.is_ancestor(self.root, made, base):
            return ""
        said = git.out(self.root, "show", "-s", "--no-show-signature", "--format=%B", made)
        return made if said.endswith(_reverts(self.journal.commit)) else ""

    def _validate(self) -> UndoJournal:
        try:
            validation.check_commit(self.project, NAME, self.journal.revert, self.journal.base, worktree=None)
        except validation.NoSlot as error:
            raise LlmcError(
                f"cannot validate the revert: {error.message}; nothing was undone",
                hint=f"To revert without validation, run `git revert {self.journal.commit[:12]}` in the source repository.",
            ) from error
        return self.journal

    def _land(self) -> UndoJournal:
        answer = self._landing()
        if isinstance(answer, ways.Waits):
            self._write(replace(self.journal, receipt=answer.receipt, waits_for=answer.about))
            raise Waiting(
                f"the revert {self.journal.revert[:12]} has not landed yet: it is waiting for {answer.about}",
                hint="The daemon checks again from time to time. To check now: llmc undo",
            )
        if isinstance(answer, ways.SentBack):
            raise LandingRejected(
                f"the revert {self.journal.revert[:12]} was not accepted: {gist(answer.reason)}",
                hint="Nothing was undone. To try again, run `llmc undo`.",
            )
        if isinstance(answer, ways.Landed):
            return replace(self.journal, revert=answer.commit)
        return self.journal

    def _landing(self) -> Answer:
        is_known = self.asked is not None and self.asked[0] == self.journal.receipt
        answer = self.asked[1] if self.asked is not None and is_known else None
        if answer is not None and not isinstance(answer, ways.NotLanded):
            return answer
        if self.way.verify(self.project, self.journal.revert):  # landed before a crash
            return ways.Landed(self.journal.revert)
        if self.journal.receipt and answer is None:  # another process has just handed the revert over
            return ways.Waits(self.journal.receipt, self.journal.waits_for)
        with default_branch.merge_lock(self.project):
            return self.way.begin(self.project, _offer(self.journal))

    def _verify(self) -> UndoJournal:
        if not self.way.verify(self.project, self.journal.revert):
            raise LlmcError(
                f"the revert {self.journal.revert[:12]} landed but is no longer on the default branch",
                hint="The branch may have been reset. To see what happened, run "
                f"`git reflog {shlex.quote(self.project.config.repo.default_branch)}` in the source repository. "
                f"To revert the work again, run `git revert {self.journal.commit[:12]}` there.",
            )
        problem = self.way.spread(self.project, _offer(self.journal))
        if problem:
            with self.project.store.transaction() as tx:
                tx.emit("push_failed", worker=self.journal.worker, reason=problem)
        return self.journal

    def _return(self) -> UndoJournal:
        """Reopen the commit's plan item, or make its task pending again."""
        commit = self.journal.commit
        opened = self.reopen(self.project, commit, f"its commit {commit[:12]} was undone")
        if opened:
            return replace(self.journal, returned=opened)
        task_id, said = task_orders.pending_again(self.project, commit)
        return replace(self.journal, task_id=task_id, returned=said)

    def _finish(self) -> UndoJournal:
        done = replace(self.journal, step=DONE)
        with self.project.store.transaction() as tx:
            told = {"commit": done.commit, "revert": done.revert, "reason": done.returned}
            tx.emit("undone", worker=done.worker, **told)
            if done.task_id and (task := source_of(self.project).books().landed_as(done.commit)):
                tx.emit("task_requeued", **task.fields(), reason=f"its commit {done.commit[:12]} was undone")
            rebase.queue_others(tx, NAME)
            tx.journal_undo(done)
        return done


def _offer(journal: UndoJournal) -> ways.Offer:
    return ways.Offer(NAME, journal.revert, journal.base, reverts=journal.commit)


_ACTIONS: dict[str, Callable[[_Steps], UndoJournal]] = {name: getattr(_Steps, f"_{name}") for name in STEPS}


def _revert_of(project: Project, commit: str, base: str) -> str:
    """A commit on `base` that reverts `commit`; made from trees, without a checkout."""
    root = project.root.path
    if not git.is_ancestor(root, commit, base):
        raise Refused(
            f"nothing to undo: {commit[:12]} is no longer on the default branch",
            hint="The branch may have been reset. To see what happened, run "
            f"`git reflog {shlex.quote(project.config.repo.default_branch)}` in the source repository.",
        )
    try:
        tree = merging.merge_with(project, commit, base, f"{commit}^", base=base)
    except merging.Conflicts as error:
        raise Refused(
            f"cannot revert {commit[:12]}: later commits changed the same lines in {some_files(error.files)}",
            hint=f"To revert it by hand, run `git revert {commit[:12]}` in the source repository.",
        ) from error
    if tree == git.tree_of(root, base):
        raise Refused(
            f"nothing to undo: the changes in {commit[:12]} are no longer on the default branch",
            hint="Run `git log` in the source repository to see what removed them.",
        )
    message = f'Revert "{_subject(project, commit)}"\n\n{_reverts(commit)}\n'
    env = {} if git.config_get(root, "user.email") else git.OWN_IDENTITY
    text = message.encode("utf-8", "surrogateescape")
    done = git.git(root, "commit-tree", tree, "-p", base, "-F", "-", input=text, env=env)
    return done.stdout.strip()


def _reverts(commit: str) -> str:
    return f"This reverts commit {commit}."


def _subject(project: Project, commit: str) -> str:
    return git.out(project.root.path, "show", "-s", "--format=%s", commit)
