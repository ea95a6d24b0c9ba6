"""Collects the facts about a root and its workers that several checks need. Changes nothing, and works on a damaged root."""

import contextlib
import os
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from llmc.agents.kinds import reader_of
from llmc.auto import prices
from llmc.auto.rules.costs import complaint
from llmc.base import locks, processes
from llmc.base.clock import age_s, now_unix
from llmc.base.errors import ConfigError, LlmcError, NotFound, ToolFailed
from llmc.base.files import json_row, read_given
from llmc.base.names import OVERSEER, WorkerName
from llmc.base.panes import Pane, Panes
from llmc.base.proc import ToolMissing
from llmc.base.tmux import Unknown
from llmc.config.load import advice, check_text, read_text
from llmc.config.paths import Root
from llmc.doctor import canary, programs
from llmc.doctor.check import Sight
from llmc.doctor.checks.what_runs import daemon_facts
from llmc.doctor.rebuild import task_of_transcript
from llmc.doctor.rules import facts as seen
from llmc.landing.prompts import task_of
from llmc.records.event_log import EventLog
from llmc.records.state import State
from llmc.records.store import NewerState
from llmc.records.worker import Status, WorkerRecord
from llmc.repo import git, git_dirs, uncommitted
from llmc.repo.dead_locks import lock_holders
from llmc.repo.project import Project, agent_for, bare_project, opened
from llmc.sessions import sessions

T = TypeVar("T")

#: how long to wait for a command or the daemon before a worker is checked only in part
PATIENCE_S = 2.0


def look(root: Root) -> Sight:
    """The facts that several checks need; a check collects the others itself."""
    project, config_problems = open_any(root)
    # Sessions first: a worker that is added meanwhile has no session yet, a removed one has none left.
    panes = _answer(project.tmux.panes)
    state, state_facts = _state(project)
    names: list[str] = list(state.workers) if state else []
    here = programs.here(project, agent=not config_problems)
    has_git = not any(program.name == "git" and program.problem for program in here)
    facts = seen.Facts(
        now=now_unix(),
        programs=here,
        config_problems=config_problems,
        config_advice=() if config_problems else config_advice(project),
        configured=tuple(project.config.workers),
        contained=seen.contained(project.config),
        state=state_facts,
        daemon=daemon_facts(project),
        sessions=_sessions(project, panes),
        tmux_problem=panes.reason if isinstance(panes, Unknown) else "",
        workers=tuple(found for name in names if (found := worker_facts(project, name)) is not None),
        clone_problem=_clone_problem(project) if has_git else "",
        strays=_strays(root, names),
        remembered=() if names else remembered(root),
        canary=canary.last_verdict(root),
        up_auto=project.up_auto(),
    )
    return Sight(project, facts, state)


def open_any(root: Root) -> tuple[Project, tuple[str, ...]]:
    """The project, and the problems of its configuration; with problems, a minimal configuration."""
    try:
        config, problems = check_text(read_text(root.config), root.config.name, root.path)
    except (NotFound, ConfigError) as error:
        return bare_project(root), (" ".join(error.message.split()),)
    if config is None:
        return bare_project(root), tuple(map(str, problems))
    return opened(root, config), ()


def config_advice(project: Project) -> tuple[str, ...]:
    old = complaint(prices.listed(project), date.today())
    return (*advice(project.config), *([old] if old else []))


def _sessions(project: Project, panes: Panes | Unknown) -> tuple[seen.Session, ...] | None:
    """Sessions with an agent in them, without the supervisor's and the user's own."""
    if isinstance(panes, Unknown):
        return None
    found = {}
    for pane in panes.values():
        worker, instance = sessions.launched(pane)
        if instance and worker != OVERSEER and not project.is_overseer(pane.session):
            found[pane.session, instance] = seen.Session(pane.session, pane.attached, instance)
    return tuple(found.values())


def _state(project: Project) -> tuple[State | None, seen.StateFacts]:
    store = project.store
    try:
        state = store.read()
    except NotFound as error:
        return None, seen.StateFacts(seen.StateFile.MISSING, error.message, store.backup_is_good())
    except NewerState as error:
        return None, seen.StateFacts(seen.StateFile.NEWER, error.message)
    except LlmcError as error:
        return None, seen.StateFacts(seen.StateFile.BROKEN, error.message, store.backup_is_good())
    wrong = [
        f"the entry for {r.name} is stored under the name {key}"
        for key, r in state.workers.items()
        if key != r.name
    ]
    return state, seen.StateFacts(misfiled=tuple(wrong), backup_has_workers=store.backup_has_workers())


def _clone_problem(project: Project) -> str:
    try:
        done = git.git(project.root.path, "rev-parse", "--git-dir", check=False)
    except LlmcError as error:
        return error.message
    if not done.ok:
        return " ".join(done.stderr.split())
    if Path(project.root.path, done.stdout.strip()).resolve() != (project.root.path / ".git").resolve():
        return f"{project.root.path / '.git'} is missing"
    return ""


def _strays(root: Root, names: list[str]) -> tuple[seen.Stray, ...]:
    """Directories in .worktrees without a worker, except of workers that are being added or removed now."""
    try:
        there = sorted(entry.name for entry in os.scandir(root.worktrees) if entry.is_dir())
    except OSError:
        return ()
    free = [name for name in there if not locks.is_locked(root.lock(f"worker-{name}"))]
    return tuple(
        seen.Stray(name, (root.worktree(name) / ".git").exists()) for name in free if name not in names
    )


def remembered(root: Root) -> tuple[str, ...]:
    """Workers that were added and not removed, according to the event log."""
    found: dict[str, None] = {}
    with contextlib.suppress(OSError):
        for line in EventLog(str(root.events)).lines_since(0):
            event = json_row(line) if b'"worker_' in line else None
            if event is not None and event.get("action") == "worker_added":
                found[str(event.get("worker"))] = None
            elif event is not None and event.get("action") == "worker_removed":
                found.pop(str(event.get("worker")), None)
    return tuple(found)


def source_dirty(at: Sight) -> tuple[str, ...]:
    """Uncommitted changes to tracked files where the default branch is checked out."""
    source = Path(at.project.source)
    if at.facts.lacking & {"git", "config"} or not source.is_dir():
        return ()
    try:
        place = git.checked_out_at(source, at.project.config.repo.default_branch)
        return uncommitted.tree_state(place).tracked if place is not None else ()
    except LlmcError:
        return ()


def worker_facts(project: Project, name: str, *, ours: bool = False) -> seen.WorkerFacts | None:
    """The facts about one worker, read while nothing changes it. `ours`: the caller holds its lock. None: it is gone."""
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
        return project.store.read().workers.get(WorkerName(name))
    except LlmcError:
        return None


def _worker(project: Project, record: WorkerRecord, busy_with: str) -> seen.WorkerFacts:
    mine = _answer(lambda: project.pane(record))
    if isinstance(mine, Unknown):
        state = seen.PaneState.UNKNOWN
    elif mine is None:
        state = seen.PaneState.NONE
    else:
        state = seen.PaneState.DEAD if mine.dead else seen.PaneState.ALIVE
    return seen.WorkerFacts(
        record=record,
        place=str(project.root.worktree(record.name)),
        pane=state,
        attached=isinstance(mine, Pane) and mine.attached,
        tree=tree_facts(project, record),
        busy_with=busy_with,
        settings_problem=_settings_problem(project, record) if state is seen.PaneState.ALIVE else "",
        found_prompt=_found_prompt(project, record),
        now=now_unix(),
        daemon_runs=project.daemon_runs(),
        start=project.start_command(record),
    )


def _answer(ask: Callable[[], T | Unknown]) -> T | Unknown:
    """What tmux says; Unknown if it is not installed."""
    try:
        return ask()
    except LlmcError as error:
        return Unknown(error.message)


def tree_facts(project: Project, record: WorkerRecord) -> seen.Tree | None:
    """The state of a worktree according to git; None without git."""
    worktree = Path(record.worktree_path)
    try:
        tip = _or_empty(lambda: git.resolve(project.root.path, f"refs/heads/{record.branch}"))
        if not os.path.lexists(worktree):
            return seen.Tree(exists=False, tip=tip)
        if not (worktree / ".git").exists():
            return seen.Tree(problem=".git is missing", foreign=True, tip=tip)
        if not git_dirs.is_worktree_of(worktree, project.root.path):
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
    changes = uncommitted.tree_state(worktree)
    branch = git.git(worktree, "symbolic-ref", "--quiet", "HEAD", check=False)
    age, in_use = _index_lock(worktree)
    operations = uncommitted.operations_in_progress(worktree)
    return seen.Tree(
        branch=branch.stdout.strip().removeprefix("refs/heads/") if branch.ok else "",
        head=git.resolve(worktree, "HEAD") or "",
        tip=tip,
        ahead=git.ahead_of(worktree, project.base, "HEAD"),
        dirty=(*changes.tracked, *changes.untracked),
        rebasing="rebase" in operations,
        operation=next((name for name in operations if name != "rebase"), ""),
        lock_age_s=age,
        lock_in_use=in_use,
    )


def _index_lock(worktree: Path) -> tuple[float | None, bool]:
    """The age of index.lock, and whether a process has it open or a git command runs in the worktree."""
    lock = git.git_paths(worktree, "index.lock")[0]
    try:
        age = age_s(lock.stat().st_mtime, now_unix())
    except FileNotFoundError:
        return None, False
    return age, bool(lock_holders(worktree, lock=lock))


def _settings_problem(project: Project, record: WorkerRecord) -> str:
    path = sessions.settings_file(project, record.name)
    try:
        command = sessions.hook_command(project, record.name)
        same = agent_for(project).has_hooks(read_given(path), command)
    except FileNotFoundError:
        return f"its hook settings in {path} are missing"
    except (OSError, ValueError, LlmcError):
        return f"cannot read its hook settings in {path}"
    return "" if same else f"its hook settings in {path} differ from what this version of llmc writes"


def _found_prompt(project: Project, record: WorkerRecord) -> str:
    """The task from a worker's conversation, if its record has none."""
    if record.status is not Status.WORKING or record.current_prompt or not record.transcript_path:
        return ""
    try:
        transcript = reader_of(record.agent).transcript(record.transcript_path)
        prompt_id, sent = task_of_transcript(transcript)
    except OSError:
        return ""
    return task_of(project, record, prompt_id, sent) if prompt_id else ""
