"""Checks of git: the root's clone with its worktrees and branches, and the source."""

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from llmc.base import locks
from llmc.base.errors import LlmcError, Refused
from llmc.base.faults import step as fault_step
from llmc.base.files import explain
from llmc.base.proc import ToolMissing
from llmc.config.options import check_worker_name, is_auto_name
from llmc.doctor.check import LOCK_S, Check, Finding, Sight, Turn, fixable
from llmc.doctor.rules.facts import Facts
from llmc.landing import default_branch, slots, undo
from llmc.repo import clone_guard, dead_locks, git, git_locks, own_objects, sources, trash, worktrees
from llmc.repo.git_locks import GitLock
from llmc.repo.project import Project
from llmc.repo.rules.clone_config import CLONE_SETTINGS
from llmc.repo.setup import configure_clone


class Setting(Struct, frozen=True):
    """A git setting that `llmc init` writes in the root's clone."""

    key: str
    wanted: str | None
    found: str | None


class Branch(Struct, frozen=True):
    """A branch `llmc/...` in the root's clone; `ahead` counts commits that are not on the default branch."""

    name: str
    worker: str
    ahead: int | None = 0
    checked_out: bool = False


def _undo_stopped(facts: Facts, seen: tuple[str, ...]) -> Iterator[Finding]:
    for commit in () if facts.daemon.runs else seen:
        yield Finding(f"the undo of {commit[:12]} was interrupted", "run `llmc undo` to finish it")


def _stray(facts: Facts, _: tuple[()]) -> Iterator[Finding]:
    for stray in facts.strays:
        adopt = _adopting(stray.name) if stray.is_worktree else ""
        fix = f"run `{adopt}` to adopt it, or " if adopt else ""
        text = f".worktrees/{stray.name} does not belong to any worker"
        yield Finding(text, f"{fix}move it out of .worktrees", subject=stray.name)


def _adopting(name: str) -> str:
    """The command that makes a worktree of this name a worker's; "" if no worker may have the name."""
    if is_auto_name(name):
        return "llmc doctor --rebuild"
    return f"llmc add {name}" if check_worker_name(name) is None else ""


def _pruned(at: Sight) -> Iterator[str]:
    """Worktrees whose directory is gone, except those of workers, which are recreated."""
    root = at.project.root
    owned = {record.worktree_path for record in at.state.workers.values()} if at.state else set()
    for path, _ in git.worktrees(root.path, gone=True):
        if path not in owned and Path(path).parent != root.slots:  # a slot is recreated on its next use
            yield path


def _gone(_: Facts, seen: tuple[str, ...]) -> Iterator[Finding]:
    for path in seen:
        yield fixable(f"stale git worktree entry: {path}", subject=path)


def _forget_worktree(project: Project, path: str) -> str:
    with project.repo_lock():
        worktrees.prune(project, Path(path), trash.safe(Path(path).name))
    return "removed"


def _unused(_: Facts, seen: tuple[str, ...]) -> Iterator[Finding]:
    for path in seen:
        yield fixable(f"unused validation slot: {path}", ", which removes it", subject=path)


def _discard_slot(project: Project, path: str) -> str:
    one = next((one for one in slots.left_over(project) if str(one.path) == path), None)
    if one is None:
        return "already resolved"
    slots.discard(project, one)
    return "removed"


def _unreadable(facts: Facts, _: tuple[()]) -> Iterator[Finding]:
    if facts.clone_problem:
        fix = "create a new root with `llmc init --target PATH`, then fetch this root's branches into it"
        yield Finding(f"cannot read the root's clone: {facts.clone_problem}", fix)


def _settings(at: Sight) -> list[Setting]:
    def value(*where: str) -> str | None:
        done = git.git(at.project.root.path, "config", *where, check=False)
        return done.stdout.strip() if done.ok else None

    found = [Setting(key, want, value("--local", "--get", key)) for key, want in CLONE_SETTINGS.items()]
    if found[0].found == "true":  # else both are the same file
        found.append(Setting("core.bare (worktree)", "true", value("--worktree", "--get", "core.bare")))
        found.append(Setting("core.bare", None, value("--local", "--get", "core.bare")))
    return found


def _changed(_: Facts, seen: tuple[Setting, ...]) -> Iterator[Finding]:
    for setting in seen:
        if setting.found == setting.wanted:
            continue
        is_now = f"is {setting.found!r}" if setting.found is not None else "is not set"
        should = f"{setting.wanted!r}" if setting.wanted is not None else "unset"
        text = f"git setting {setting.key} in the root's clone {is_now}; it should be {should}"
        yield fixable(text, subject=setting.key)


def _configure(project: Project, _: str) -> str:
    with project.repo_lock():
        configure_clone(project.root.path)
    return "set"


def _shared(_: Facts, seen: tuple[bool, ...]) -> Iterator[Finding]:
    if any(seen):
        text = (
            "the root's clone shares object files with the source repository, so a write in one changes both"
        )
        yield fixable(text, ", which gives the clone its own copies")


def _undone(at: Sight) -> list[tuple[str, str]]:
    """Key and text of each removed git setting: those on the attention list, and those not added to it yet."""
    root = str(at.project.root.path)
    with clone_guard.rows_unsaid(root) as rows:
        found = {clone_guard.key_of(root, row): f"{row.path}: {row.text}" for row in rows}
    with contextlib.suppress(LlmcError):
        items = at.project.store.read().attention.items()
        found |= {key: item.text for key, item in items if item.kind == "git_config"}
    return list(found.items())


def _planted(_: Facts, seen: tuple[tuple[str, str], ...]) -> Iterator[Finding]:
    for key, text in seen:
        fix = "check what the agents are doing, then run `llmc doctor --repair` to dismiss this finding"
        yield Finding(text, fix, subject=key, repairable=True)


def _seen_setting(project: Project, key: str) -> str:
    root = str(project.root.path)
    with clone_guard.rows_unsaid(root) as rows, project.store.transaction() as tx:
        tx.clear_item(key)
        rows[:] = [row for row in rows if clone_guard.key_of(root, row) != key]
    return "removed from the attention list"


def _left_lock(_: Facts, seen: tuple[GitLock, ...]) -> Iterator[Finding]:
    for lock in seen:
        if lock.trouble and lock.of_source:
            fix = f"if no git command is running in the source repository, run: rm {shlex.quote(lock.path)}"
            yield Finding(lock.trouble, fix, subject=lock.path)
        elif lock.trouble:
            yield fixable(lock.trouble, subject=lock.path)


def _drop_lock(project: Project, path: str) -> str:
    """Remove a lock that no git command holds, while llmc's own git commands cannot start."""
    with project.repo_lock():
        try:
            return "removed" if dead_locks.drop(project.root.path, Path(path)) else "already resolved"
        except dead_locks.InUse as error:
            raise Refused(
                f"a git command is using the lock: pid {error}",
                hint="When it has finished, run `llmc doctor --repair` again.",
            ) from None
        except OSError as error:
            raise explain(error, f"cannot remove {path}") from error


def _branches(at: Sight) -> Iterator[Branch]:
    clone = at.project.root.path
    for (name,) in git.refs(clone, "refs/heads/llmc", "refname:lstrip=2"):
        worker = name.removeprefix("llmc/")
        # Restored branches belong to the user; while a worker is being added, its lock is held.
        if name.startswith("llmc/restored/") or locks.is_locked(at.project.root.lock(f"worker-{worker}")):
            continue
        ahead = git.ahead_of(clone, at.project.base, f"refs/heads/{name}")
        yield Branch(name, worker, ahead, git.checked_out_at(clone, name) is not None)


def _unowned(facts: Facts, seen: tuple[Branch, ...]) -> Iterator[Finding]:
    owned = {worker.record.branch for worker in facts.workers}
    for branch in seen:
        if branch.name in owned or branch.checked_out:
            continue
        text = f"branch {branch.name} does not belong to any worker"
        if branch.ahead == 0:
            yield fixable(f"{text} and is fully merged", ", which deletes it", subject=branch.name)
            continue
        what = f"{branch.ahead} commits that are" if branch.ahead and branch.ahead > 1 else "work that is"
        text += f" and has {what} not on the default branch"
        yield fixable(text, ", which moves it to the trash", subject=branch.name)


def _remove_branch(project: Project, branch: str) -> str:
    """Take the worker's lock and check again first: a worker of this name may be about to be added."""
    name, clone = branch.removeprefix("llmc/"), project.root.path
    with project.worker_lock(trash.safe(name), timeout_s=LOCK_S), project.repo_lock():
        tip = git.resolve(clone, f"refs/heads/{branch}")
        owned = any(record.branch == branch for record in project.store.read().workers.values())
        if tip is None or owned or git.checked_out_at(clone, branch) is not None:
            return "already resolved"
        ref = None
        if not git.is_ancestor(clone, tip, project.base):
            with fault_step("repair.pin"):
                ref = trash.pin_commit(project.root, trash.safe(name), "doctor", tip)
        with fault_step("repair.remove"):
            git.git(clone, "update-ref", "-d", f"refs/heads/{branch}", tip)
    return f"moved to the trash; to restore it: llmc trash restore {trash.short(ref)}" if ref else "deleted"


def _source(at: Sight) -> Iterator[tuple[str, str]]:
    """Why nothing can land, and the fix."""
    is_listed = at.state is not None and default_branch.SOURCE in at.state.attention
    try:
        if missing := sources.problem(at.project):
            yield missing.message, missing.advice
        elif busy := default_branch.blocked(at.project, listed=is_listed):
            yield busy.message, f"{busy.hint[:1].lower()}{busy.hint[1:].removesuffix('.')}"
    except ToolMissing:
        return  # reported by the check of programs


# fmt: off
CHECKS = (
    Check("undo_stopped", "workers", "an undo was interrupted, and no daemon is running to finish it",
        look=lambda at: filter(None, [undo.stopped(at.project)]), judge=_undo_stopped, needs=("state",)),
    Check("worktree_stray", "worktrees", "a directory in .worktrees does not belong to any worker", judge=_stray,
        needs=("state",)),
    Check("worktree_pruned", "worktrees", "git has an entry for a deleted worktree", look=_pruned, judge=_gone,
        fix=_forget_worktree, turn=Turn.PRUNED, needs=("clone", "state")),
    Check("slot", "worktrees", "a validation slot is no longer used",
        look=lambda at: (str(one.path) for one in slots.left_over(at.project)), judge=_unused,
        fix=_discard_slot, turn=Turn.PRUNED, needs=("config", "state")),
    Check("clone", "git", "git cannot read the root's clone", judge=_unreadable),
    Check("setting", "git", "a git setting written by `llmc init` was changed", look=_settings, judge=_changed,
        fix=_configure, turn=Turn.CLONE, needs=("clone",)),
    Check("shared_objects", "git", "the root's clone shares object files with the source repository",
        look=lambda at: [own_objects.is_shared(at.project.root.path / ".git")], judge=_shared,
        fix=lambda project, _: own_objects.make_own(project), turn=Turn.CLONE, needs=("clone",)),
    Check("git_config", "git", "llmc removed dangerous git settings from the root's clone",
        look=_undone, judge=_planted, fix=_seen_setting, turn=Turn.CLONE, late=True),
    Check("git_lock", "git", "the root's clone or the source repository has a stale git lock",
        look=lambda at: git_locks.git_locks(at.project, at.state), judge=_left_lock, fix=_drop_lock,
        turn=Turn.ROOT, needs=("clone",)),
    Check("branch", "git", "an `llmc/...` branch does not belong to any worker", look=_branches, judge=_unowned,
        fix=_remove_branch, turn=Turn.BRANCHES, needs=("clone", "config", "state")),
    Check("source", "source", "the source repository or its default branch is missing or unreachable, or nothing can land in it", look=_source,
        judge=lambda _, seen: (Finding(text, fix) for text, fix in seen), needs=("config",)),
)
# fmt: on
