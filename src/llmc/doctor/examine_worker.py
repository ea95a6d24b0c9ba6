"""Looks at one worker for `llmc doctor`: its record, session and worktree, as facts. Changes nothing."""

import json
import os
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from llmc.agents.claude.transcripts import prompts_in
from llmc.base import locks, processes
from llmc.base.clock import age_s, now_unix
from llmc.base.errors import LlmcError, ToolFailed
from llmc.base.files import read_json
from llmc.base.panes import Pane, Panes
from llmc.base.proc import ToolMissing
from llmc.base.tmux import Unknown
from llmc.doctor.rules import facts as seen
from llmc.doctor.rules.records import task_in
from llmc.landing.prompts import task_of
from llmc.records.worker import Status, WorkerRecord
from llmc.repo import git
from llmc.repo.project import Project, agent_for
from llmc.repo.worktrees import lock_holders
from llmc.sessions import sessions

#: how long a command or the daemon may be at a worker before it is looked at only in part
PATIENCE_S = 2.0


def worker_facts(project: Project, name: str, *, ours: bool = False) -> seen.WorkerFacts | None:
    """One worker, seen at a moment when nothing was changing; `ours`: the caller holds its lock. None: it is gone."""
    lock = project.root.lock(f"worker-{name}")
    for _ in range(3):
        busy = not ours and not processes.wait_until(lambda: not locks.is_locked(lock), PATIENCE_S)
        record = _record(project, name)
        if record is None:
            return None
        found = _worker(project, record, locks.holder(lock) if busy else "")
        if busy or (_record(project, name) == record and (ours or not locks.is_locked(lock))):
            return found
    return replace(found, busy_with=locks.holder(lock))


def _record(project: Project, name: str) -> WorkerRecord | None:
    try:
        return next((r for key, r in project.store.read().workers.items() if key == name), None)
    except LlmcError:
        return None


def _worker(project: Project, record: WorkerRecord, busy_with: str) -> seen.WorkerFacts:
    mine = pane_of(project, record)
    if isinstance(mine, Unknown):
        state = seen.PaneState.UNKNOWN
    else:
        state = seen.PaneState.NONE if mine is None else seen.PaneState.ALIVE
        state = seen.PaneState.DEAD if mine is not None and mine.dead else state
    return seen.WorkerFacts(
        record=record,
        place=str(project.root.worktree(record.name)),
        pane=state,
        attached=isinstance(mine, Pane) and mine.attached,
        tree=tree_facts(project, record),
        busy_with=busy_with,
        settings_problem=_settings_problem(project, record) if state is seen.PaneState.ALIVE else "",
        found_prompt=_found_prompt(project, record),
    )


def panes_of(project: Project) -> Panes | Unknown:
    try:
        return project.tmux.panes()
    except LlmcError as error:  # tmux is not installed
        return Unknown(error.message)


def pane_of(project: Project, record: WorkerRecord) -> Pane | Unknown | None:
    try:
        return project.pane(record)
    except LlmcError as error:
        return Unknown(error.message)


def tree_facts(project: Project, record: WorkerRecord) -> seen.Tree | None:
    """What git says of a worktree; None without git."""
    worktree = Path(record.worktree_path)
    try:
        tip = _or_empty(lambda: git.resolve(project.root.path, f"refs/heads/{record.branch}"))
        if not os.path.lexists(worktree):
            return seen.Tree(exists=False, tip=tip)
        if not (worktree / ".git").exists():
            return seen.Tree(problem="it has no .git", foreign=True, tip=tip)
        if not git.is_worktree_of(worktree, project.root.path):
            return seen.Tree(problem="it is not a worktree of this root", foreign=True, tip=tip)
        return _readable_tree(project, worktree, tip)
    except ToolMissing:
        return None
    except (LlmcError, OSError) as error:
        return seen.Tree(problem=" ".join(str(error).split())[:300], tip=tip)


def _or_empty(ask: Callable[[], str | None]) -> str:
    try:
        return ask() or ""
    except ToolFailed:
        return ""


def _readable_tree(project: Project, worktree: Path, tip: str) -> seen.Tree:
    changes = git.tree_state(worktree)
    branch = git.git(worktree, "symbolic-ref", "--quiet", "HEAD", check=False)
    age, in_use = _index_lock(worktree)
    operations = git.operations_in_progress(worktree)
    return seen.Tree(
        branch=branch.stdout.strip().removeprefix("refs/heads/") if branch.ok else "",
        head=git.resolve(worktree, "HEAD") or "",
        tip=tip,
        ahead=ahead_of(worktree, project.base, "HEAD"),
        dirty=(*changes.tracked, *changes.untracked),
        rebasing="rebase" in operations,
        operation=next((name for name in operations if name != "rebase"), ""),
        lock_age_s=age,
        lock_in_use=in_use,
    )


def ahead_of(repo: Path, base: str, tip: str) -> int | None:
    try:
        return git.divergence(repo, base, tip).ahead
    except ToolFailed:
        return None


def _index_lock(worktree: Path) -> tuple[float | None, bool]:
    """The age of a lock, and whether a process has it open or a git command works in the worktree."""
    lock = git.git_paths(worktree, "index.lock")[0]
    try:
        age = age_s(lock.stat().st_mtime, now_unix())
    except FileNotFoundError:
        return None, False
    return age, bool(lock_holders(worktree, lock))


def _settings_problem(project: Project, record: WorkerRecord) -> str:
    path = sessions.settings_file(project, record.name)
    try:
        wanted = json.loads(sessions.settings_text(project, record.name, agent_for(project)))
        found = read_json(path)
    except FileNotFoundError:
        return f"its hooks are registered nowhere: {path} is gone"
    except (OSError, ValueError, LlmcError):
        return f"its hooks cannot be read: {path}"
    same = isinstance(found, dict) and found.get("hooks") == wanted["hooks"]
    return "" if same else f"its hooks are not those of this llmc: {path}"


def _found_prompt(project: Project, record: WorkerRecord) -> str:
    """The task of a worker whose record has none, from its conversation."""
    if record.status is not Status.WORKING or record.current_prompt or not record.transcript_path:
        return ""
    try:
        prompt_id, sent = task_in(prompts_in(Path(record.transcript_path)))
    except OSError:
        return ""
    return task_of(project, record, prompt_id, sent) if prompt_id else ""
