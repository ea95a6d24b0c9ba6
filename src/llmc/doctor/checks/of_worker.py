"""Checks of one worker: its record, session and worktree, and interrupted operations."""

from collections.abc import Iterator
from pathlib import Path

from llmc.attention.rules import ASKS
from llmc.base.errors import LlmcError
from llmc.base.faults import step as fault_step
from llmc.doctor.check import Finding, Repair, Turn, WorkerCheck, fixable, held
from llmc.doctor.rules.facts import Facts, PaneState, Tree, WorkerFacts
from llmc.doctor.rules.records import record_fixes
from llmc.landing import at_rest
from llmc.records.worker import Cause, Status, WorkerRecord
from llmc.repo import git, provision, trash, uncommitted, worktrees
from llmc.repo.git_locks import STALE_LOCK_S
from llmc.repo.project import Project, agent_for
from llmc.sessions import sessions
from llmc.workers import reset

_CLEAN_START = ", which resets the worker and moves its work to the trash"


def _record(worker: WorkerFacts) -> Iterator[Finding]:
    for fix in record_fixes(worker):
        yield fixable(fix.text, subject=fix.text)


def _fix_records(project: Project, facts: Facts, plan: list[Finding]) -> list[Repair]:
    """Fix all records in one transaction: state.json is written only if every record in it is valid."""
    fixed = set()
    try:
        with project.store.transaction() as tx:
            for worker in facts.workers:
                name = worker.record.name
                if tx.state.workers.get(name) != worker.record:
                    continue  # changed since, so already fixed
                for fix in record_fixes(worker):
                    if fix.fields:
                        tx.update(name, **fix.fields)
                    if fix.change:
                        tx.move(name, fix.change)
                    tx.emit("repaired", worker=name, kind="record", problem=fix.text)
                    fixed.add((name, fix.text))
    except LlmcError as error:
        text = f"not repaired: {error.message}. {error.hint}".removesuffix(". ")
        return [Repair(finding, False, text) for finding in plan]
    said = {True: "repaired", False: "not needed; the worker changed in the meantime"}
    return [Repair(finding, True, said[(finding.worker, finding.subject) in fixed]) for finding in plan]


def _session_missing(worker: WorkerFacts) -> Iterator[Finding]:
    if worker.record.status.is_live and worker.pane is PaneState.NONE:
        yield fixable(f"has status {worker.record.status}, but its tmux pane is gone")


def _session_dead(worker: WorkerFacts) -> Iterator[Finding]:
    if worker.record.status.is_live and worker.pane is PaneState.DEAD:
        yield fixable(f"has status {worker.record.status}, but its agent has exited")


def _offline(project: Project, record: WorkerRecord) -> str:
    sessions.reconcile(project, record.name)
    return f"marked as offline; run `{project.start_command(record)}` to start its agent"


def _session_unknown(worker: WorkerFacts) -> Iterator[Finding]:
    record = worker.record
    if record.status is Status.OFFLINE and worker.pane is PaneState.ALIVE and not record.instance:
        yield Finding(
            "is offline, but an agent is running in its session",
            f"run `{worker.start}` to restart it",
        )


def _not_started(worker: WorkerFacts) -> Iterator[Finding]:
    record = worker.record
    if record.status is Status.OFFLINE and record.cause == Cause.CONFIG and record.error_reason:
        yield Finding(f"did not start: {record.error_reason}", f"fix the cause, then run `{worker.start}`")


def _hooks(worker: WorkerFacts) -> Iterator[Finding]:
    if worker.pane is PaneState.ALIVE and worker.settings_problem:
        yield fixable(worker.settings_problem, "; the fix takes effect when the agent restarts")


def _register_hooks(project: Project, record: WorkerRecord) -> str:
    sessions.write_settings(project, record.name, agent_for(project))
    return "rewritten"


def _error(worker: WorkerFacts) -> Iterator[Finding]:
    if worker.record.status is Status.ERROR:
        yield fixable(f"stopped with an error: {worker.record.error_reason}", _CLEAN_START)


def _reset(project: Project, record: WorkerRecord) -> str:
    done = reset.reset_worker(project, record.name)
    kept = f"; to restore its work: llmc trash restore {trash.short(done.pinned)}" if done.pinned else ""
    problem = f"; the agent did not start: {done.problem}" if done.problem else ""
    return f"{done.status} at {done.base[:12]}{kept}{problem}"


def _accept_stopped(worker: WorkerFacts) -> Iterator[Finding]:
    """Report nothing if a daemon runs: it finishes the accept."""
    record = worker.record
    if record.accept is not None and not worker.daemon_runs:
        stopped = "`llmc accept` was interrupted before it finished"
        text = "accepted work is waiting to land" if record.accept.step == "wait" else stopped
        yield Finding(text, f"run `llmc accept {record.name}` to finish landing")


def _delivery_stopped(worker: WorkerFacts) -> Iterator[Finding]:
    record = worker.record
    if record.delivery is None or worker.daemon_runs or record.accept is not None:
        return
    if record.delivery.outcome.open:
        text = f"prompt {record.delivery.prompt_id} is pending, but no daemon is running to deliver it"
        yield Finding(text, f"run `{worker.start}`")


def _missing(worker: WorkerFacts) -> Iterator[Finding]:
    if worker.tree is not None and not worker.tree.exists:
        yield fixable(
            f"its worktree {worker.record.worktree_path} is missing",
            ", which recreates it from the worker's branch",
        )


def _make_worktree(project: Project, record: WorkerRecord) -> str:
    """Stop the agent first: it still runs in the deleted directory, not in the new one of the same name."""
    sessions.end(project, record.name, "worktree gone")
    provision.provision(project, record)
    return f"recreated from {record.branch}"


def _broken(worker: WorkerFacts) -> Iterator[Finding]:
    name, tree = worker.record.name, worker.tree
    if tree is None or not tree.exists or not tree.problem:
        return
    text = f"its worktree is unusable: {tree.problem}"
    if tree.foreign:
        yield fixable(text, ", which links it to the root's clone again and keeps its files")
    else:
        nuke = f"remove the worker with `llmc nuke {name}` (everything goes to the trash)"
        yield Finding(text, f"fix it in a shell (`llmc console {name}`), or {nuke}")


def _link_worktree(project: Project, record: WorkerRecord) -> str:
    """Keep the directory and the agent in it; reset a worker without a task."""
    provision.provision(project, record)
    if record.status.is_free:
        return f"linked to the root's clone again; {_reset(project, record)}"
    return "linked to the root's clone again; its files are unchanged"


def _readable(worker: WorkerFacts) -> Tree | None:
    """The worktree, if git can read it."""
    tree = worker.tree
    return tree if tree is not None and tree.exists and not tree.problem else None


def _index_lock(worker: WorkerFacts) -> Iterator[Finding]:
    tree = _readable(worker)
    if tree is None or tree.lock_age_s is None or tree.lock_in_use or tree.lock_age_s < STALE_LOCK_S:
        return
    yield fixable(f"its worktree has a stale index.lock ({_age(tree.lock_age_s)} old)")


def _age(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 60:.0f} minutes"


def _drop_index_lock(project: Project, record: WorkerRecord) -> str:
    return "removed" if worktrees.drop_dead_locks(project, record) else "already resolved"


def _at_rest(worker: WorkerFacts) -> Tree | None:
    """The worktree, if no agent is working in it; a worker in error is reset as a whole."""
    status = worker.record.status
    return None if status is Status.ERROR or status.is_busy else _readable(worker)


def _rebase(worker: WorkerFacts) -> Iterator[Finding]:
    record, tree = worker.record, _at_rest(worker)
    asks = record.status is Status.NEEDS_INPUT and record.reason in ASKS
    if tree is None or not tree.rebasing:
        return
    if record.status is not Status.REBASING and not record.pre_rebase_sha and not asks:
        yield fixable(
            f"has status {record.status}, but its worktree has an abandoned rebase",
            ", which saves the work and aborts the rebase",
        )


def _end_rebase(project: Project, record: WorkerRecord) -> str:
    """Reset a worker without a task; with one, go back to the commits from before the rebase."""
    if record.status.is_free:
        return _reset(project, record)
    at_rest.refuse_if_disturbed(project, record)
    worktree = Path(record.worktree_path)
    with fault_step("repair.pin"):
        back = git.resolve(worktree, f"refs/heads/{record.branch}")
        blocked = trash.in_the_way(worktree, git.resolve(worktree, "HEAD"), back) if back else set()
        ref = trash.pin(
            project.root, worktree, record.name, "rebase-abort", branch=record.branch, ignored=sorted(blocked)
        )
    with project.store.transaction() as tx:
        tx.emit("work_pinned", worker=record.name, reason="doctor", ref=ref)
    with fault_step("repair.remove"):
        for command in ("rebase", "am"):
            if uncommitted.rebase_in_progress(worktree):
                git.git(worktree, command, "--abort", check=False, timeout_s=300)
    if uncommitted.rebase_in_progress(worktree):
        raise LlmcError(
            f"git could not abort the rebase in {worktree}",
            hint=f"Run `llmc reset {record.name}` to discard the rebase.",
        )
    if record.status is Status.NEEDS_REVIEW:
        with project.store.transaction() as tx:
            tx.update(record.name, commit_sha=git.head(worktree))
    return f"rebase aborted; to restore the work: llmc trash restore {trash.short(ref)}"


def _off_branch(worker: WorkerFacts) -> Iterator[Finding]:
    """A worker without a task, or with work to review, must be on its branch."""
    record, tree = worker.record, _at_rest(worker)
    if tree is None or tree.rebasing or tree.branch == record.branch:
        return
    waits = record.status is Status.NEEDS_REVIEW
    fresh = record.status is Status.OFFLINE and not record.current_prompt and tree.ahead == 0
    if not (waits or record.status.is_free or (fresh and not tree.dirty)):
        return
    where = tree.branch or f"a detached HEAD at {tree.head[:12]}"
    text = f"has status {record.status}, but its worktree is on {where}, not on {record.branch}"
    if waits:
        fix = f"run: llmc message {record.name} 'Move all your commits to {record.branch}.'"
        yield Finding(text, fix)
    else:
        yield fixable(text, _CLEAN_START)


def _dirty(worker: WorkerFacts) -> Iterator[Finding]:
    """A worker without a task must have a clean worktree; one on another branch is reset anyway."""
    record, tree = worker.record, _at_rest(worker)
    if tree is None or tree.rebasing or any(_off_branch(worker)):
        return
    rests = record.status is Status.IDLE or (record.status is Status.OFFLINE and not record.current_prompt)
    if rests and (what := _left_in(tree)):
        yield fixable(f"is {record.status}, but {what}", _CLEAN_START)


def _left_in(tree: Tree) -> str:
    if tree.operation:
        return f"a {tree.operation} is in progress in its worktree"
    if not tree.dirty:
        return ""
    more = f" and {len(tree.dirty) - 3} more" if len(tree.dirty) > 3 else ""
    return f"has uncommitted changes: {', '.join(tree.dirty[:3])}{more}"


# fmt: off
CHECKS = (
    WorkerCheck("record", "state", "a worker's entry in state.json is invalid or inconsistent", _record,
        fix_all=_fix_records, turn=Turn.RECORDS, guard=lambda _, __: "", while_busy=True),
    WorkerCheck("session_missing", "sessions", "a worker's tmux pane is gone, but the worker is not marked offline",
        _session_missing, _offline, turn=Turn.SESSIONS, guard=held),
    WorkerCheck("session_dead", "sessions", "a worker's agent has exited, but the worker is not marked offline",
        _session_dead, _offline, turn=Turn.SESSIONS, guard=held),
    WorkerCheck("session_unknown", "sessions", "an unknown agent is running in a worker's session", _session_unknown),
    WorkerCheck("start_failed", "sessions", "a worker's agent failed to start", _not_started),
    WorkerCheck("hooks", "sessions", "an agent's hook settings are missing or were changed",
        _hooks, _register_hooks, turn=Turn.CLONE, guard=held),
    WorkerCheck("worker_error", "workers", "a worker stopped with an error", _error, _reset, turn=Turn.RESETS),
    WorkerCheck("accept_stopped", "workers", "`llmc accept` was interrupted, and no daemon is running to finish it",
        _accept_stopped),
    WorkerCheck("delivery_stopped", "workers", "a prompt is pending, and no daemon is running to deliver it",
        _delivery_stopped),
    WorkerCheck("worktree_missing", "worktrees", "a worktree is missing", _missing, _make_worktree,
        starts=True),
    WorkerCheck("worktree_broken", "worktrees", "git cannot use a worktree", _broken, _link_worktree,
        turn=Turn.LINKS, starts=True),
    WorkerCheck("worktree_off_branch", "worktrees",
        "a worktree is not on its worker's branch", _off_branch, _reset,
        turn=Turn.RESETS),
    WorkerCheck("worktree_dirty", "worktrees", "an idle worker has uncommitted changes", _dirty, _reset,
        turn=Turn.RESETS),
    WorkerCheck("index_lock", "worktrees", "a worktree has a stale index.lock", _index_lock,
        _drop_index_lock),
    WorkerCheck("rebase", "worktrees", "a worktree has an abandoned rebase", _rebase, _end_rebase),
)
# fmt: on
