"""Rebase a worker's commits onto the latest default branch, and handle conflicts.

`pre_rebase_sha` is recorded and pinned before git acts. It shows whether a rebase in progress is ours; a rebase that a
crash interrupted is aborted and repeated.
"""

from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from llmc.agents.protocol import ClientStatus
from llmc.attention.raising import advice
from llmc.base import proc
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, Refused, ToolFailed
from llmc.base.faults import step as fault_step
from llmc.base.panes import Pane
from llmc.base.text import some_files
from llmc.landing import at_rest, merging, review, validation
from llmc.landing.failing_base import BaseFails
from llmc.records.store import Transaction
from llmc.records.transitions import NO_REBASE, step
from llmc.records.worker import Status, WorkerRecord
from llmc.repo import git, provision, trash, uncommitted, worktrees
from llmc.repo.project import Project
from llmc.repo.user_commands import CommandFailed
from llmc.sessions import intake
from llmc.sessions.rules import decide
from llmc.sessions.sessions import status_of

#: how much of a validation's output is sent to the worker
OUTPUT_CHARS = 4000
#: how many commits reverted on the branch are searched for in a worker's work
MOST_TAKEN_BACK = 20
#: overrides the user's settings: no autostash, no other branch moves, no editor opens
_SETTINGS = ("rebase.autoStash=false", "rebase.updateRefs=false", "core.editor=:")


class Rebased(Struct, frozen=True):
    """The worker's commits are on top of `base`; `moved` is False if they already were."""

    base: str
    head: str
    moved: bool


class HasConflicts(Exception):
    """The worker is `rebasing`; `tell` must send it the conflicts."""


class Conflict(LlmcError):
    """A worker's commits conflict with the default branch."""

    def __init__(self, message: str, *, hint: str, worker: str, files: tuple[str, ...]) -> None:
        super().__init__(message, hint=hint)
        self.details = {"worker": worker, "status": Status.REBASING, "conflicts": list(files)}


def rebase(project: Project, name: str) -> Rebased:
    """Run `llmc rebase`, or finish an interrupted one; the caller holds the worker's lock."""
    record = resolved_by_hand(project, intake.apply_pending(project, name))
    if must_validate(record):
        record = settle(project, name)
        if record.status is Status.NEEDS_REVIEW:
            head = git.head(Path(record.worktree_path))
            return Rebased(git.resolve(project.root.path, project.base) or head, head, moved=True)
    if must_tell(record):
        raise tell(project, name)
    if record.status is not Status.NEEDS_REVIEW or record.accept is not None:
        why = (
            "its work is being accepted"
            if record.accept
            else f"its status is {record.status}, not needs_review"
        )
        raise Refused(
            f"cannot rebase {name}: {why}",
            hint=advice(project, record.name),
        )
    if not was_interrupted(record):
        at_rest.refuse_if_dirty(record)
    try:
        done = onto_base(project, name, then_validate=True)
    except HasConflicts as found:
        raise tell(project, name) from found
    if must_validate(project.store.worker(name)):
        settle(project, name)
    return done


def keep_rebased(project: Project, name: str) -> LlmcError | None:
    """Rebase automatically, because the branch moved; returns a conflict to report, if any.

    A clean rebase is not validated here: accept validates what lands. Otherwise each landing would validate, and lock,
    every worker in review again.
    """
    record = project.store.worker(name)
    at_rest.refuse_if_dirty(record)
    try:
        done = onto_base(project, name)
    except HasConflicts:
        return tell(project, name)
    if record.rebase_due and not done.moved:
        with project.store.transaction() as tx:
            tx.update(name, rebase_due=False)
    return None


def queue_others(tx: Transaction, landed: str) -> None:
    """Queue a rebase of the other workers in review; their own lanes run it once this lock is released."""
    for record in list(tx.state.workers.values()):
        if record.name != landed and record.status is Status.NEEDS_REVIEW and record.accept is None:
            tx.update(record.name, rebase_due=True)


def wake_queued(project: Project) -> None:
    """Wake the lanes of queued workers; without a daemon, the next patrol, `review` or `accept` rebases them."""
    for record in project.store.read().workers.values():
        if record.rebase_due:
            project.wake(record.name)


def must_validate(record: WorkerRecord) -> bool:
    """Whether git has finished a rebase that is not validated yet."""
    return record.status is Status.REBASING and record.validation_due


def settle(project: Project, name: str) -> WorkerRecord:
    """Validate rebased work and apply the transition that follows, also after a crash in between.

    Raises if a clean rebase or the default branch itself fails; a worker that resolved conflicts gets its failure.
    """
    record = project.store.worker(name)
    worktree = Path(record.worktree_path)
    at_rest.wait(project, record)
    facts = intake.git_facts(project, record)
    if facts is None:
        raise intake.unreadable(name)
    # A new turn has started: its end decides. Files left by a validation do not matter.
    if facts.rebasing or facts.marked or not facts.on_base:
        with project.store.transaction() as tx:
            return tx.update(name, validation_due=False)
    with fault_step("rebase.validate"):
        failed = _failed_check(project, record, facts)
        if git.head(worktree) != facts.head:
            raise LlmcError(
                f"cannot finish rebasing {name}: the worker made a commit during validation",
                hint="Run the command again to validate the new commit.",
            )
        blamed = failed is not None and not isinstance(failed, BaseFails)
        code = (failed.returncode or 1) if failed and blamed else 0
        output = failed.output[-OUTPUT_CHARS:] if failed else ""
        with project.store.transaction() as tx:
            verdict = decide.after_validation(tx.worker(name), facts.head, code, output)
            tx.update(name, **verdict.fields)
            tx.emit(verdict.action, worker=name, **verdict.details)
            after = tx.move(name, verdict.change) if verdict.change else tx.worker(name)
    if failed and after.status is Status.NEEDS_REVIEW:
        failed.message = failed.message.replace(
            "; nothing landed", ", but the work was rebased and is waiting for review"
        )
        raise failed
    return after


def _failed_check(project: Project, record: WorkerRecord, facts: decide.GitFacts) -> CommandFailed | None:
    base = record.rebase_base or git.resolve(project.root.path, project.base) or facts.head
    try:
        validation.checked_out(project, record, facts.head, base)
    except CommandFailed as error:
        return error
    return None


def was_interrupted(record: WorkerRecord) -> bool:
    """Whether a crash interrupted a rebase."""
    return record.status is Status.NEEDS_REVIEW and bool(record.pre_rebase_sha)


def onto_base(project: Project, name: str, *, then_validate: bool = False, base: str = "") -> Rebased:
    """Rebase a worker onto `base`, or the latest default branch. Raises HasConflicts; other failures change nothing.

    With `then_validate`, a clean rebase makes a validation due, if one is configured.
    """
    record = project.store.worker(name)
    worktree = Path(record.worktree_path)
    at_rest.refuse_if_disturbed(project, record)
    worktrees.drop_dead_locks(project, record)
    base = base or provision.refresh_base(project)
    before = _without_open_rebase(project, record, worktree)
    work = merging.work_of(project, name, base, before)
    if work.on_base:
        if record.pre_rebase_sha:  # the rebase was done, but a crash came before it was recorded
            _record_clean(project, name, base, before, then_validate)
        return Rebased(base, before, moved=bool(record.pre_rebase_sha))
    if work.has_merges or _changes_attributes(worktree, work):
        before = _collapse(project, record, worktree, work)
    done = _begin(project, record, worktree, before, work)
    if not done.ok and before == work.tip and len(work.commits) > 1 and _merges(project, work):
        # The commits conflict one by one, but not as a whole.
        git.git(worktree, "rebase", "--abort", check=False, timeout_s=300)
        before = _collapse(project, record, worktree, work)
        done = _begin(project, record, worktree, before, work)
    rebasing, after = uncommitted.rebase_in_progress(worktree), git.head(worktree)
    if done.ok and not rebasing:
        provision.furnish(project, record)  # the new base may need other submodules and files
        _record_clean(project, name, base, after, then_validate)
        return Rebased(base, after, moved=True)
    raise _gave_trouble(project, record, worktree, before, done)


def _without_open_rebase(project: Project, record: WorkerRecord, worktree: Path) -> str:
    """HEAD, after aborting a rebase left by our own crash."""
    if not uncommitted.rebase_in_progress(worktree):
        return git.head(worktree)
    if not record.pre_rebase_sha:
        raise Refused(
            f"cannot rebase {record.name}: a rebase that llmc did not start is in progress in its worktree",
            hint=f"Run `llmc attach {record.name}` and finish or abort the rebase, then run the command again.",
        )
    provision.pin_in_the_way(project, record, record.pre_rebase_sha, "rebase-abort")
    provision.pin_unfinished(project, record, "rebase-abort")
    git.git(worktree, "rebase", "--abort", timeout_s=300)
    return git.head(worktree)


def _changes_attributes(worktree: Path, work: merging.Work) -> bool:
    """Whether the worker's own `.gitattributes` would decide how its later commits are merged."""
    flags = ["--quiet", "--no-ext-diff", work.parting, work.tip, "--", ":(glob)**/.gitattributes"]
    return not git.git(worktree, "diff", *flags, check=False, timeout_s=300).ok


def _merges(project: Project, work: merging.Work) -> bool:
    try:
        merging.merged_tree(project, work)
    except merging.Conflicts:
        return False
    return True


def _collapse(project: Project, record: WorkerRecord, worktree: Path, work: merging.Work) -> str:
    """Squash all commits into one with the same tree; files and index stay unchanged. The commits are pinned first."""
    one = merging.collapsed(project, work)
    with fault_step("rebase.collapse"):
        ref = _pinned(project, record, worktree, work.tip)
        git.git(worktree, "reset", "--quiet", "--soft", one)
        with project.store.transaction() as tx:
            now = tx.update(record.name, **_renamed(tx.worker(record.name), work.tip, one))
            tx.emit("commits_collapsed", worker=now.name, commit=one, tip=work.tip, ref=ref)
    return one


def _renamed(record: WorkerRecord, old: str, new: str) -> dict[str, Any]:
    """The fields of a record that name its commits, updated after they changed."""
    fields: dict[str, Any] = {}
    if record.status is Status.NEEDS_REVIEW:
        fields["commit_sha"] = new
    if record.reviewed_sha == old:
        fields["reviewed_sha"] = new
    if record.accept is not None:
        fields["accept"] = replace(record.accept, tip=new)
    return fields


def _begin(
    project: Project, record: WorkerRecord, worktree: Path, before: str, work: merging.Work
) -> proc.Done:
    _persist(project, record, worktree, before, work)
    with fault_step("rebase.run"):
        return _run(worktree, before, work.base)


def _gave_trouble(
    project: Project, record: WorkerRecord, worktree: Path, before: str, done: proc.Done
) -> Exception:
    """The exception to raise: conflicts for the worker to resolve, or an error, with everything unchanged."""
    name = record.name
    files = uncommitted.conflicted_files(worktree)
    if files and record.status in (Status.NEEDS_REVIEW, Status.REBASING):
        _record_conflicts(project, name, files)
        return HasConflicts()
    _restore(project, name, worktree, before, done.stderr or done.stdout)
    if files:
        return LlmcError(
            f"{name}'s commits conflict with {project.config.repo.default_branch} in {some_files(files)}, but {name} cannot resolve the conflicts while its status is {record.status}",
            hint=f"Run `{project.start_command(record)}`, then run the command again; the worker will resolve the conflicts.",
        )
    return ToolFailed(done.argv, done.returncode, done.stderr or done.stdout)


def _run(worktree: Path, before: str, base: str) -> proc.Done:
    """Run git rebase; continue it if rerere resolved and staged every conflict."""
    settings = [arg for setting in _SETTINGS for arg in ("-c", setting)]
    env = _committer(worktree, before)
    done = git.git(worktree, *settings, "rebase", "--quiet", base, check=False, timeout_s=300, env=env)
    while (
        not done.ok
        and uncommitted.rebase_in_progress(worktree)
        and not uncommitted.conflicted_files(worktree)
    ):
        at = git.head(worktree)
        done = git.git(worktree, *settings, "rebase", "--continue", check=False, timeout_s=300, env=env)
        if git.head(worktree) == at:
            break
    return done


def _committer(worktree: Path, commit: str) -> dict[str, str]:
    """The configured identity; without one, the author is also the committer."""
    if git.config_get(worktree, "user.email"):
        return {}
    shown = git.git(worktree, "show", "-s", "--format=%an%x00%ae", commit).stdout
    name, email = shown.strip("\n").split("\0")
    return {"GIT_COMMITTER_NAME": name, "GIT_COMMITTER_EMAIL": email}


def _persist(project: Project, record: WorkerRecord, worktree: Path, before: str, work: merging.Work) -> None:
    with fault_step("rebase.persist"):
        ref = _pinned(project, record, worktree, before)
        provision.pin_in_the_way(project, record, work.base, "rebase")
        # After the rebase, nothing shows that the worker had these commits.
        taken_back = dict.fromkeys([*record.taken_back, *merging.taken_back(project, work)])
        with project.store.transaction() as tx:
            tx.update(
                record.name,
                pre_rebase_sha=before,
                rebase_base=work.base,
                rebase_started_at_unix=now_unix(),
                taken_back=tuple(taken_back)[-MOST_TAKEN_BACK:],
            )
            tx.emit("rebase_started", worker=record.name, commit=before, base=work.base, ref=ref)


def _pinned(project: Project, record: WorkerRecord, worktree: Path, commit: str) -> str:
    """A ref that pins only the commits: a rebase refuses changed files and leaves new ones alone."""
    places = [f"refs/llmc/trash/{record.name}"]
    kept = git.out(
        worktree, "for-each-ref", "--count=1", "--format=%(refname)", "--contains", commit, *places
    )
    return kept or trash.pin_commit(project.root, record.name, "rebase", commit)


def _record_clean(project: Project, name: str, base: str, head: str, then_validate: bool) -> None:
    before = project.store.worker(name)
    seen: dict[str, Any] = {}
    if (
        before.reviewed_sha == before.pre_rebase_sha
        and before.seen is not None
        and review.is_same(project, name, before.seen, head, base)
    ):
        seen = {"reviewed_sha": head}  # the user has reviewed this change, under another commit id
    if before.accept is not None:
        seen["accept"] = replace(before.accept, tip=head)
    with fault_step("rebase.record"), project.store.transaction() as tx:
        record = tx.update(name, **NO_REBASE, **seen)
        tx.emit("rebased", worker=name, commit=head, base=base)
        if record.status is Status.REBASING:
            tx.move(name, step(Status.NEEDS_REVIEW, "rebased", commit_sha=head))
        elif record.status is Status.NEEDS_REVIEW and then_validate and project.config.repo.validate:
            due = {"validation_due": True, "since_unix": record.since_unix}
            tx.move(name, step(Status.REBASING, "waiting for validation", **due))
        elif record.status is Status.NEEDS_REVIEW:
            tx.update(name, commit_sha=head)


def _record_conflicts(project: Project, name: str, files: tuple[str, ...]) -> None:
    """In one transaction: end an accept without landing, and set the worker to `rebasing`."""
    with fault_step("rebase.record"), project.store.transaction() as tx:
        record = tx.worker(name)
        if record.accept is not None:
            tx.emit("accept_failed", worker=name, reason=f"conflicts in {some_files(files)}", step="merge")
        tx.emit("rebase_conflicted", worker=name, files=files, base=record.rebase_base)
        tx.update(
            name,
            accept=None,
            conflicted_files=files,
            resolution_attempts=0,
            conflict_prompt_due=True,
            validate_rebase=bool(project.config.repo.validate),
        )
        if record.status is not Status.REBASING:
            tx.move(name, step(Status.REBASING, "conflicts"))


def _restore(project: Project, name: str, worktree: Path, before: str, output: str) -> None:
    git.git(worktree, "rebase", "--abort", check=False, timeout_s=300)
    if uncommitted.rebase_in_progress(worktree) or git.head(worktree) != before:
        raise LlmcError(
            f"{name}: the rebase failed and could not be aborted: {output.strip()[-1000:]}",
            hint=f"To fix it by hand, run `llmc attach {name}`. The last commit before the rebase is {before[:12]}.",
        )
    with project.store.transaction() as tx:
        tx.update(name, **NO_REBASE)
        tx.emit("rebase_failed", worker=name, reason=output.strip()[-500:])


def resolved_by_hand(project: Project, record: WorkerRecord) -> WorkerRecord:
    """Ask git again about a worker whose rebase failed: no hook reports what the user did in the worktree.

    The caller holds the worker's lock, and the user does not have the worker.
    """
    if record.status is not Status.ERROR or not record.pre_rebase_sha:
        return record
    pane = project.pane(record)
    if isinstance(pane, Pane) and not pane.dead and status_of(record, pane) is ClientStatus.BUSY:
        return record
    facts = intake.git_facts(project, record)
    if facts is None:
        return record
    change, told = decide.by_hand(record, facts), decide.still_unresolved(record, facts)
    if change is None and not told:
        return record
    with project.store.transaction() as tx:
        if change is None:
            return tx.update(record.name, error_reason=told)
        tx.emit(
            "rebase_resolved", worker=record.name, reason=change.reason, ahead=facts.ahead, dirty=facts.dirty
        )
        return tx.move(record.name, change)


def must_tell(record: WorkerRecord) -> bool:
    """Whether conflicts or a failed validation have not been sent to the worker yet."""
    on_its_way = record.delivery is not None and (
        record.delivery.outcome.open and decide.is_about_a_rebase(record.delivery)
    )
    return record.status is Status.REBASING and (record.conflict_prompt_due or on_its_way)


def tell(project: Project, name: str) -> LlmcError:
    """Send the due prompt; returns the error for the caller of the rebase."""
    from llmc.landing import prompts  # lazy: an accept without conflicts sends nothing
    from llmc.sessions import submit

    record = project.store.worker(name)
    with fault_step("rebase.prompt"):
        if record.conflict_prompt_due and record.validation_output:
            text = prompts.validation_prompt(project, record)
            receipt = submit.submit(project, name, "validation", text, conflict_prompt_due=False)
        elif record.conflict_prompt_due:
            facts = intake.git_facts(project, record)
            if facts is None:
                return intake.unreadable(name)
            if not facts.rebasing and _has_ended(project, record, facts):
                return LlmcError(
                    f"the rebase of {name} has already ended",
                    hint="Run `llmc status` to see the worker's status.",
                )
            text, files = prompts.conflict_prompt(project, record, facts)
            together = tuple(dict.fromkeys([*record.conflicted_files, *files]))
            receipt = submit.submit(
                project, name, "conflict", text, conflict_prompt_due=False, conflicted_files=together
            )
        else:
            receipt = submit.deliver(project, name)
    files = project.store.worker(name).conflicted_files or record.conflicted_files
    branch = project.config.repo.default_branch
    if record.validation_output:
        problem, does = (
            f"{name}'s commits fail validation after the rebase onto {branch}",
            "is fixing the failure",
        )
    else:
        problem, does = (
            f"{name}'s commits conflict with {branch} in {some_files(files)}",
            "is resolving the conflicts",
        )
    if receipt.outcome.arrived:
        text = f"{problem}; {name} {does}"
        return Conflict(
            text,
            hint=f"Run `llmc accept {name}` again once {name}'s status is needs_review.",
            worker=name,
            files=files,
        )
    text = f"{problem}; the prompt to {name} was {receipt.outcome}: {receipt.reason}"
    return Conflict(text, hint=f"To see what {name} is doing: llmc attach {name}", worker=name, files=files)


def _has_ended(project: Project, record: WorkerRecord, facts: decide.GitFacts) -> bool:
    """Whether the rebase ended without a turn of the agent; if so, record that: there is nothing to send."""
    verdict = decide.after_round(record, facts, {"ahead": facts.ahead, "dirty": facts.dirty})
    if verdict.action not in ("rebase_resolved", "rebase_aborted"):
        return False
    with project.store.transaction() as tx:
        tx.update(record.name, **verdict.fields)
        tx.emit(verdict.action, worker=record.name, **verdict.details)
        if verdict.change:
            tx.move(record.name, verdict.change)
    return True
