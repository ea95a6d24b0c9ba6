"""Checks of git: the root's clone with its worktrees and branches, and the source."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from llmc.base import locks
from llmc.base.errors import LlmcError, Refused
from llmc.base.faults import step as fault_step
from llmc.base.proc import ToolMissing
from llmc.doctor.check import Check, Sight, Turn
from llmc.doctor.rules.facts import Facts
from llmc.doctor.rules.findings import Finding, fixable
from llmc.landing import slots, undo
from llmc.repo import clone_guard, git, git_locks, own_objects, trash, worktrees
from llmc.repo.project import Project
from llmc.repo.rules.clone_config import CLONE_SETTINGS
from llmc.repo.rules.git_lock import GitLock
from llmc.repo.setup import configure_clone

SOURCE_TIMEOUT_S = 20.0
#: how long a command that is at work on a worker is waited for
LOCK_S = 10.0


class Setting(Struct, frozen=True):
    """A setting of the root's clone that `init` makes."""

    key: str
    wanted: str | None
    found: str | None


class Branch(Struct, frozen=True):
    """A branch `llmc/...` of the root's clone; `ahead` counts what the default branch does not have."""

    name: str
    worker: str
    ahead: int | None = 0
    checked_out: bool = False


def _undo_stopped(facts: Facts, seen: tuple[str, ...]) -> Iterator[Finding]:
    for commit in () if facts.daemon.runs else seen:
        yield Finding(f"an undo of {commit[:12]} stopped", "`llmc undo` goes on with it")


def _stray(facts: Facts, _: tuple[()]) -> Iterator[Finding]:
    for stray in facts.strays:
        take_in = f"`llmc add {stray.name}` takes it in as it is, or move it away"
        fix = take_in if stray.is_worktree else "move it away"
        yield Finding(f".worktrees/{stray.name} belongs to no worker", fix, subject=stray.name)


def _pruned(at: Sight) -> Iterator[str]:
    """Worktrees whose directory is gone, but for those of workers: these are made again."""
    root = at.project.root
    owned = {record.worktree_path for record in at.state.workers.values()} if at.state else set()
    for path, _ in git.worktrees(root.path, gone=True):
        if path not in owned and Path(path).parent != root.slots:  # a slot is made again by its next user
            yield path


def _gone(_: Facts, seen: tuple[str, ...]) -> Iterator[Finding]:
    for path in seen:
        yield fixable(f"git remembers a worktree that is gone: {path}", subject=path)


def _forget_worktree(project: Project, _: str) -> str:
    with project.repo_lock():
        worktrees.prune(project)
    return "forgotten"


def _unused(_: Facts, seen: tuple[str, ...]) -> Iterator[Finding]:
    for path in seen:
        yield fixable(f"no check uses the slot {path} any more", ": removed", subject=path)


def _discard_slot(project: Project, path: str) -> str:
    one = next((one for one in slots.left_over(project) if str(one.path) == path), None)
    if one is None:
        return "no longer so"
    slots.discard(project, one)
    return "removed"


def _unreadable(facts: Facts, _: tuple[()]) -> Iterator[Finding]:
    if facts.clone_problem:
        fix = "make a new root with `llmc init --target PATH`, and take branches from this one"
        yield Finding(f"the root's clone cannot be read: {facts.clone_problem}", fix)


def _settings(at: Sight) -> list[Setting]:
    def value(*where: str) -> str | None:
        done = git.git(at.project.root.path, "config", *where, check=False)
        return done.stdout.strip() if done.ok else None

    found = [Setting(key, want, value("--local", "--get", key)) for key, want in CLONE_SETTINGS.items()]
    if found[0].found == "true":  # before, both files are one
        found.append(
            Setting("core.bare of the root alone", "true", value("--worktree", "--get", "core.bare"))
        )
        found.append(Setting("core.bare", None, value("--local", "--get", "core.bare")))
    return found


def _changed(_: Facts, seen: tuple[Setting, ...]) -> Iterator[Finding]:
    for setting in seen:
        if setting.found == setting.wanted:
            continue
        is_now = f"is {setting.found!r}" if setting.found is not None else "is not set"
        should = f"{setting.wanted!r}" if setting.wanted is not None else "unset"
        text = f"the setting {setting.key} of the root's clone {is_now}, it should be {should}"
        yield fixable(text, subject=setting.key)


def _configure(project: Project, _: str) -> str:
    with project.repo_lock():
        configure_clone(project.root.path)
    return "set"


def _shared(_: Facts, seen: tuple[bool, ...]) -> Iterator[Finding]:
    if any(seen):
        text = "the root's clone shares files with the source: an agent that overwrites one here overwrites it there"
        yield fixable(text, ": copied")


def _undone(at: Sight) -> list[tuple[str, str]]:
    """What the attention list has, and what could not be written there yet: key and text."""
    root = str(at.project.root.path)
    with clone_guard.rows_unsaid(root) as rows:
        found = {clone_guard.key_of(root, row): f"{row.path}: {row.text}" for row in rows}
    with contextlib.suppress(LlmcError):
        items = at.project.store.read().attention.items()
        found |= {key: item.text for key, item in items if item.kind == "git_config"}
    return list(found.items())


def _planted(_: Facts, seen: tuple[tuple[str, str], ...]) -> Iterator[Finding]:
    for key, text in seen:
        fix = "look at what that worker does; --repair takes this off the list"
        yield Finding(text, fix, subject=key, repairable=True)


def _seen_setting(project: Project, key: str) -> str:
    root = str(project.root.path)
    with clone_guard.rows_unsaid(root) as rows, project.store.transaction() as tx:
        tx.clear_item(key)
        rows[:] = [row for row in rows if clone_guard.key_of(root, row) != key]
    return "off the list"


def _left_lock(_: Facts, seen: tuple[GitLock, ...]) -> Iterator[Finding]:
    for lock in seen:
        if lock.trouble and lock.of_source:
            fix = f"it is your repository: if no git command runs there, rm {lock.path}"
            yield Finding(lock.trouble, fix, subject=lock.path)
        elif lock.trouble:
            yield fixable(lock.trouble, subject=lock.path)


def _drop_lock(project: Project, path: str) -> str:
    """Only one that no git command has, and while llmc's own cannot begin."""
    with project.repo_lock():
        lock = Path(path)
        if not lock.exists():
            return "no longer so"
        if git_locks.lock_in_use(lock, project.root.path):
            raise Refused("a git command is at work there", hint="Look again: llmc doctor")
        lock.unlink(missing_ok=True)
    return "removed"


def _branches(at: Sight) -> Iterator[Branch]:
    clone = at.project.root.path
    for (name,) in git.refs(clone, "refs/heads/llmc", "refname:lstrip=2"):
        worker = name.removeprefix("llmc/")
        # What `llmc trash restore` made is a person's; a branch of a worker that is being added has its lock.
        if name.startswith("llmc/restored/") or locks.is_locked(at.project.root.lock(f"worker-{worker}")):
            continue
        ahead = git.ahead_of(clone, at.project.base, f"refs/heads/{name}")
        yield Branch(name, worker, ahead, git.checked_out_at(clone, name) is not None)


def _unowned(facts: Facts, seen: tuple[Branch, ...]) -> Iterator[Finding]:
    owned = {worker.record.branch for worker in facts.workers}
    for branch in seen:
        if branch.name in owned or branch.checked_out:
            continue
        text = f"the branch {branch.name} belongs to no worker"
        if branch.ahead == 0:
            yield fixable(f"{text}; all of it is on the default branch", ": removed", subject=branch.name)
            continue
        what = f"{branch.ahead} commits" if branch.ahead and branch.ahead > 1 else "work"
        text += f", and has {what} that the default branch has not"
        yield fixable(text, ": pinned in the trash, then removed", subject=branch.name)


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


def _source(at: Sight) -> Iterator[tuple[str, str]]:
    """Why work cannot land, and the fix."""
    source, branch = at.project.source, at.project.config.repo.default_branch
    set_source = "`llmc config set repo.source PATH` names where it is now"
    if not branch:
        yield "repo.default_branch is not set", "`llmc config set repo.default_branch main`"
        return
    try:
        has_branch = True
        if "://" in source or source.startswith("git@"):
            asked = ["ls-remote", "--exit-code", "--heads", source, f"refs/heads/{branch}"]
            done = git.git(at.project.root.path, *asked, check=False, timeout_s=SOURCE_TIMEOUT_S)
            has_branch = done.returncode != 2
            if not done.ok and has_branch:
                yield f"the source {source} cannot be reached: {' '.join(done.stderr.split())}", set_source
        elif not Path(source).is_dir():
            yield f"the source {source} is gone", set_source
        elif not git.git(Path(source), "rev-parse", "--git-dir", check=False).ok:
            yield f"the source {source} is not a git repository", set_source
        else:
            has_branch = git.resolve(Path(source), f"refs/heads/{branch}") is not None
    except ToolMissing:
        return  # said of git itself
    except LlmcError as error:
        yield f"the source {source} cannot be reached: {error.message}", "try again"
    if not has_branch:
        fix = "`llmc config set repo.default_branch BRANCH` names the branch work lands on"
        yield f"the source has no branch {branch!r}", fix


# fmt: off
CHECKS = (
    Check("undo_stopped", "workers", "an undo stopped, and nobody goes on with it",
        look=lambda at: filter(None, [undo.stopped(at.project)]), judge=_undo_stopped, needs=("state",)),
    Check("worktree_stray", "worktrees", "a directory in .worktrees belongs to no worker", judge=_stray,
        needs=("state",)),
    Check("worktree_pruned", "worktrees", "git remembers a worktree that is gone", look=_pruned, judge=_gone,
        fix=_forget_worktree, turn=Turn.PRUNED, needs=("clone", "state")),
    Check("slot", "worktrees", "a slot that no check uses any more",
        look=lambda at: (str(one.path) for one in slots.left_over(at.project)), judge=_unused,
        fix=_discard_slot, turn=Turn.PRUNED, needs=("config", "state")),
    Check("clone", "git", "the root's clone cannot be read", judge=_unreadable),
    Check("setting", "git", "a git setting that `init` made is another one", look=_settings, judge=_changed,
        fix=_configure, turn=Turn.CLONE, needs=("clone",)),
    Check("shared_objects", "git", "files of the root's clone are the source's own files too",
        look=lambda at: [own_objects.is_shared(at.project.root.path / ".git")], judge=_shared,
        fix=lambda project, _: own_objects.make_own(project), turn=Turn.CLONE, needs=("clone",)),
    Check("git_config", "git", "settings in the root's clone ran or redirected a program, and were undone",
        look=_undone, judge=_planted, fix=_seen_setting, turn=Turn.CLONE, late=True),
    Check("git_lock", "git", "a git command that is gone left a lock in the root's clone or in the source",
        look=lambda at: git_locks.git_locks(at.project, at.state), judge=_left_lock, fix=_drop_lock,
        turn=Turn.ROOT, needs=("clone",)),
    Check("branch", "git", "a branch `llmc/...` belongs to no worker", look=_branches, judge=_unowned,
        fix=_remove_branch, turn=Turn.BRANCHES, needs=("clone", "config", "state")),
    Check("source", "source", "work cannot land: the source, or its branch, is not there", look=_source,
        judge=lambda _, seen: (Finding(text, fix) for text, fix in seen), needs=("config",)),
)
# fmt: on
