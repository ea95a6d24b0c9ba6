"""Mends what `llmc doctor` found: each kind of finding through the one function that does such a thing anyway.

Nothing is assumed to be as it was seen: under the worker's lock it is looked at once more, and only what is still
wrong is mended. Whatever would be lost is pinned first.
"""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from llmc.base import locks
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, Refused
from llmc.base.faults import step as fault_step
from llmc.base.files import explain
from llmc.base.names import SessionName, WorkerName
from llmc.doctor import canary, examine, examine_unattended
from llmc.doctor.examine_worker import worker_facts
from llmc.doctor.rules.facts import Facts, PaneState
from llmc.doctor.rules.findings import Finding, Kind
from llmc.doctor.rules.of_worker import worker_findings
from llmc.doctor.rules.records import mends
from llmc.landing import rebase, slots
from llmc.records.worker import Status, WorkerRecord
from llmc.repo import clone_guard, git, git_locks, own_objects, provision, trash, worktrees
from llmc.repo.project import Project, agent_for
from llmc.repo.setup import configure_clone, write_launcher
from llmc.reports import bad_rows
from llmc.sessions import sessions
from llmc.tasks import commands, queue
from llmc.tasks.source import source_of
from llmc.workers import fleet, reset

#: how long a command or the daemon that is at work on a worker is waited for
LOCK_S = 10.0


class Repair(Struct, frozen=True):
    """What became of one finding."""

    finding: Finding
    done: bool
    text: str


def repair_all(project: Project, facts: Facts, plan: list[Finding]) -> list[Repair]:
    """Mend what the plan says, one after another; what fails or is refused is said, and the others go on."""
    plan = sorted((finding for finding in plan if finding.repairable), key=lambda f: _ORDER.index(f.kind))
    shut = {one.path for one in facts.unusable}  # what llmc cannot use comes first: nothing could be written
    first = [finding for finding in plan if finding.kind is Kind.PERMISSIONS and finding.subject in shut]
    records = [finding for finding in plan if finding.kind is Kind.RECORD]
    done = [_repair(project, finding) for finding in first]
    done += _mend_records(project, facts, records) if records else []
    return done + [_repair(project, finding) for finding in plan if finding not in first + records]


def _repair(project: Project, finding: Finding) -> Repair:
    try:
        if finding.kind in _OF_A_WORKER:
            text = _on_worker(project, finding)
        else:
            text = _OF_THE_ROOT[finding.kind](project, finding.subject)
    except LlmcError as error:
        return Repair(finding, False, f"not repaired: {error.message} {error.hint}".strip())
    except OSError as error:
        return Repair(finding, False, f"not repaired: {error}")
    with contextlib.suppress(LlmcError), project.store.transaction() as tx:
        tx.emit("repaired", worker=finding.worker or None, kind=finding.kind, problem=finding.text)
    return Repair(finding, True, text)


def _mend_records(project: Project, facts: Facts, plan: list[Finding]) -> list[Repair]:
    """All records in one transaction: state.json is only ever written when every record in it is valid."""
    mended = set()
    try:
        with project.store.transaction() as tx:
            for worker in facts.workers:
                name = worker.record.name
                if tx.state.workers.get(name) != worker.record:
                    continue  # somebody changed it since, so it was mended
                for mend in mends(worker, facts.now):
                    if mend.fields:
                        tx.update(name, **mend.fields)
                    if mend.change:
                        tx.move(name, mend.change)
                    tx.emit("repaired", worker=name, kind=Kind.RECORD, problem=mend.text)
                    mended.add((name, mend.text))
    except LlmcError as error:
        return [
            Repair(finding, False, f"not repaired: {error.message} {error.hint}".strip()) for finding in plan
        ]
    return [
        Repair(finding, True, "repaired")
        if (finding.worker, finding.subject) in mended
        else Repair(finding, True, "changed meanwhile")
        for finding in plan
    ]


def _on_worker(project: Project, finding: Finding) -> str:
    name = finding.worker
    with project.worker_lock(name, timeout_s=LOCK_S):
        facts = worker_facts(project, name, ours=True)
        if facts is None:
            return "the worker is gone"
        still = worker_findings(facts, now_unix(), project.daemon_runs())
        now = next((other for other in still if other.same_as(finding)), None)
        if now is None:
            return "no longer so"
        if not now.repairable:
            raise Refused(now.fix)
        text = _OF_A_WORKER[finding.kind](project, facts.record)
        starts = finding.kind in _NEEDS_A_START and (
            facts.pane is not PaneState.NONE or project.daemon_runs()
        )
    if starts and (problem := fleet.bring_up(project, name)):
        return f"{text}, but its agent did not start: {problem}"
    return text


def _offline(project: Project, record: WorkerRecord) -> str:
    sessions.reconcile(project, record.name)
    return "offline now; `llmc up --detach` starts its agent"


def _register_hooks(project: Project, record: WorkerRecord) -> str:
    sessions.write_settings(project, record.name, agent_for(project))
    return "registered again"


def _reset(project: Project, record: WorkerRecord) -> str:
    done = reset.reset_worker(project, record.name)
    kept = f"; its work is kept: llmc trash restore {trash.short(done.pinned)}" if done.pinned else ""
    problem = f", but its agent did not start: {done.problem}" if done.problem else ""
    return f"{done.status} at {done.base[:12]}{kept}{problem}"


def _make_worktree(project: Project, record: WorkerRecord) -> str:
    """The agent's directory is gone, so it is ended: a new directory of that name is not the one it is in."""
    sessions.end(project, record.name, "worktree gone")
    provision.provision(project, record)
    return f"made again from {record.branch}"


def _link_worktree(project: Project, record: WorkerRecord) -> str:
    """The directory stays, and with it the agent that works in it; a worker without a task gets a clean start."""
    provision.provision(project, record)
    if record.status.is_free:
        return f"linked to the clone again; {_reset(project, record)}"
    return "linked to the clone again; its files are as they were"


def _drop_index_lock(project: Project, record: WorkerRecord) -> str:
    return "removed" if worktrees.drop_dead_locks(project, record) else "no longer so"


def _end_rebase(project: Project, record: WorkerRecord) -> str:
    """Without a task the worker gets a clean start; with one, its commits are as they were before the rebase."""
    if record.status.is_free:
        return _reset(project, record)
    rebase.refuse_if_disturbed(project, record)
    worktree = Path(record.worktree_path)
    with fault_step("repair.pin"):
        back = git.resolve(worktree, f"refs/heads/{record.branch}")
        blocked = trash.in_the_way(worktree, git.resolve(worktree, "HEAD"), back) if back else []
        ref = trash.pin(
            project.root, worktree, record.name, "rebase-abort", branch=record.branch, ignored=blocked
        )
    with project.store.transaction() as tx:
        tx.emit("work_pinned", worker=record.name, reason="doctor", ref=ref)
    with fault_step("repair.remove"):
        for command in ("rebase", "am"):
            if git.rebase_in_progress(worktree):
                git.git(worktree, command, "--abort", check=False, timeout_s=300)
    if git.rebase_in_progress(worktree):
        raise LlmcError(
            f"git could not abort the rebase in {worktree}", hint=f"`llmc reset {record.name}` gives it up."
        )
    if record.status is Status.NEEDS_REVIEW:
        with project.store.transaction() as tx:
            tx.update(record.name, commit_sha=git.head(worktree))
    return f"aborted; what was there is kept: llmc trash restore {trash.short(ref)}"


def _clear_daemon(project: Project, _: str) -> str:
    """While its lock is ours no daemon can start, so nothing of a living one is removed."""
    claim = locks.hold_forever(project.root.lock("daemon"))
    if claim is None:
        raise Refused("a daemon runs now", hint="Look again: llmc doctor")
    try:
        for path in examine.daemon_files(project.root):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise explain(error, "cannot remove what the daemon left") from error
    finally:
        os.close(claim)
    return "removed; `llmc up --detach` starts a new one"


def _write_launcher(project: Project, _: str) -> str:
    write_launcher(project.root)
    return "written again, for this llmc"


def _close_directory(_: Project, path: str) -> str:
    try:
        os.chmod(path, 0o700 if os.path.isdir(path) else 0o600)
    except OSError as error:
        raise explain(error, f"cannot change {path}") from error
    return "private now"


def _end_canary(project: Project, _: str) -> str:
    canary.repair_leftovers(project.root)
    return "ended"


def _forget_overseer(project: Project, path: str) -> str:
    if examine_unattended.dead_overseer(project.root) != path:
        return "no longer so"
    Path(path).unlink(missing_ok=True)
    return "removed"


def _drop_git_lock(project: Project, path: str) -> str:
    """Only one that no git command has, and while llmc's own cannot begin."""
    with project.repo_lock():
        lock = Path(path)
        if not lock.exists():
            return "no longer so"
        if git_locks.lock_in_use(lock, project.root.path):
            raise Refused("a git command is at work there", hint="Look again: llmc doctor")
        lock.unlink(missing_ok=True)
    return "removed"


def _free_task(project: Project, claim_id: str) -> str:
    """As auto mode does when it begins; a daemon that runs now does it itself."""
    books = source_of(project).books()
    claim = next((claim for claim in books.claims.values() if claim.id == claim_id), None)
    if claim is None or project.daemon_runs():
        return "no longer so"
    record = project.store.read().workers.get(WorkerName(claim.worker))
    if record is not None and record.assignment is not None and record.assignment.claim == claim.id:
        return "no longer so"
    queue.free(project, claim, "its worker is not at it")
    return "free again"


def _free_unowned(project: Project, task_id: str) -> str:
    if task_id not in examine_unattended.unowned_tasks(project):
        return "no longer so"
    commands.release(project, task_id)
    return "pending again"


def _configure(project: Project, _: str) -> str:
    with project.repo_lock():
        configure_clone(project.root.path)
    return "set"


def _own_objects(project: Project, _: str) -> str:
    return own_objects.make_own(project)


def _seen_setting(project: Project, key: str) -> str:
    root = str(project.root.path)
    with clone_guard.rows_unsaid(root) as rows, project.store.transaction() as tx:
        tx.clear_item(key)
        rows[:] = [row for row in rows if clone_guard.key_of(root, row) != key]
    return "off the list"


def _end_session(project: Project, name: str) -> str:
    if any(record.session_id == name for record in project.store.read().workers.values()):
        return "no longer so"
    sessions.end_stray(project, SessionName(name))
    return "ended"


def _forget_worktree(project: Project, _: str) -> str:
    with project.repo_lock():
        worktrees.prune(project)
    return "forgotten"


def _discard_slot(project: Project, path: str) -> str:
    one = next((one for one in slots.left_over(project) if str(one.path) == path), None)
    if one is None:
        return "no longer so"
    slots.discard(project, one)
    return "removed"


def _remove_branch(project: Project, branch: str) -> str:
    """A worker of this name may be on its way: its lock first, then another look."""
    name, clone = branch.removeprefix("llmc/"), project.root.path
    with project.worker_lock(trash.safe(name), timeout_s=LOCK_S), project.repo_lock():
        tip = git.resolve(clone, f"refs/heads/{branch}")
        owned = any(record.branch == branch for record in project.store.read().workers.values())
        if tip is None or owned or git.checked_out_at(clone, branch) is not None:
            return "no longer so"
        ref = None
        if not git.is_ancestor(clone, tip, project.base):
            with fault_step("repair.pin"):
                ref = trash.pin_commit(project.root, trash.safe(name), "doctor", tip)
        with fault_step("repair.remove"):
            git.git(clone, "update-ref", "-d", f"refs/heads/{branch}", tip)
    return f"removed; its commits are kept: llmc trash restore {trash.short(ref)}" if ref else "removed"


def _put_rows_aside(project: Project, path: str) -> str:
    bad_rows.put_aside(project.root, Path(path))
    bad_rows.tell(project)
    return "put aside in logs/bad-rows.log"


_OF_A_WORKER: dict[Kind, Callable[[Project, WorkerRecord], str]] = {
    Kind.SESSION_MISSING: _offline,
    Kind.SESSION_DEAD: _offline,
    Kind.HOOKS: _register_hooks,
    Kind.WORKTREE_MISSING: _make_worktree,
    Kind.WORKTREE_BROKEN: _link_worktree,
    Kind.INDEX_LOCK: _drop_index_lock,
    Kind.REBASE: _end_rebase,
    Kind.WORKTREE_OFF_BRANCH: _reset,
    Kind.WORKTREE_DIRTY: _reset,
    Kind.WORKER_ERROR: _reset,
}

_OF_THE_ROOT: dict[Kind, Callable[[Project, str], str]] = {
    Kind.DAEMON_CRASHED: _clear_daemon,
    Kind.LAUNCHER: _write_launcher,
    Kind.PERMISSIONS: _close_directory,
    Kind.SETTING: _configure,
    Kind.SHARED_OBJECTS: _own_objects,
    Kind.GIT_CONFIG: _seen_setting,
    Kind.SESSION_WITHOUT_WORKER: _end_session,
    Kind.WORKTREE_PRUNED: _forget_worktree,
    Kind.SLOT: _discard_slot,
    Kind.BRANCH: _remove_branch,
    Kind.CANARY_LEFT: _end_canary,
    Kind.OVERSEER_CRASHED: _forget_overseer,
    Kind.GIT_LOCK: _drop_git_lock,
    Kind.CLAIM: _free_task,
    Kind.BAD_ROWS: _put_rows_aside,
    Kind.UNOWNED_TASK: _free_unowned,
}

#: records first, or nothing could be written; then what others need; branches last
_ORDER = (
    Kind.RECORD,
    Kind.DAEMON_CRASHED,
    Kind.OVERSEER_CRASHED,
    Kind.CANARY_LEFT,
    Kind.LAUNCHER,
    Kind.PERMISSIONS,
    Kind.GIT_LOCK,
    Kind.SETTING,
    Kind.SHARED_OBJECTS,
    Kind.GIT_CONFIG,
    Kind.SESSION_WITHOUT_WORKER,
    Kind.HOOKS,
    Kind.WORKTREE_BROKEN,  # before git forgets worktrees
    Kind.WORKTREE_PRUNED,
    Kind.SLOT,
    Kind.WORKTREE_MISSING,
    Kind.INDEX_LOCK,
    Kind.REBASE,
    Kind.WORKTREE_OFF_BRANCH,
    Kind.WORKTREE_DIRTY,
    Kind.WORKER_ERROR,
    Kind.SESSION_MISSING,
    Kind.SESSION_DEAD,
    Kind.CLAIM,
    Kind.BAD_ROWS,
    Kind.UNOWNED_TASK,
    Kind.BRANCH,
)

_NEEDS_A_START = (Kind.WORKTREE_MISSING, Kind.WORKTREE_BROKEN)
