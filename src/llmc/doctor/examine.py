"""Looks at a root for `llmc doctor`: everything it can see, as facts. Changes nothing, and needs nothing to work."""

import contextlib
import os
import shlex
import shutil
from datetime import date
from pathlib import Path
from typing import Any

from llmc.auto import prices
from llmc.auto.rules.costs import complaint
from llmc.base import locks
from llmc.base.clock import age_s, now_unix
from llmc.base.errors import ConfigError, LlmcError, NotFound
from llmc.base.names import OVERSEER
from llmc.base.panes import Panes
from llmc.base.proc import ToolMissing
from llmc.base.tmux import Tmux, Unknown
from llmc.config.load import advice, check_text, read_text
from llmc.config.paths import Root
from llmc.doctor import canary, examine_unattended, programs
from llmc.doctor.examine_worker import ahead_of, panes_of, worker_facts
from llmc.doctor.rules import facts as seen
from llmc.landing import slots, undo
from llmc.notifications import notify
from llmc.records import sight
from llmc.records.items import Registration
from llmc.records.state import State
from llmc.records.store import NewerState, Store
from llmc.repo import clone_guard, git, git_locks, own_objects
from llmc.repo.project import Project, agent_for, bare_project
from llmc.repo.rules.clone_config import CLONE_SETTINGS
from llmc.reports import bad_rows
from llmc.sessions.sessions import launched
from llmc.workers import restore

SOURCE_TIMEOUT_S = 20.0
#: the launch spec of an agent that never started; it is read and removed at once otherwise
STALE_SPEC_S = 60.0


def open_any(root: Root) -> tuple[Project, tuple[str, ...]]:
    """The project, and what is wrong with its configuration: then only enough of it to look around."""
    try:
        config, problems = check_text(read_text(root.config), root.config.name)
    except (NotFound, ConfigError) as error:
        return bare_project(root), (" ".join(error.message.split()),)
    if config is None:
        return bare_project(root), tuple(map(str, problems))
    return Project(root, config, Store(root), Tmux(root.tmux_server)), ()


def examine(root: Root) -> seen.Facts:
    """Everything that can be seen of a root now."""
    project, config_problems = open_any(root)
    # Sessions first: a worker that is added meanwhile has none yet, one that is removed has none any more.
    panes = panes_of(project)
    state, state_facts = _state(project)
    names: list[str] = list(state.workers) if state else []
    here = _programs(project, agent=not config_problems)
    has_git = not any(program.name == "git" and program.problem for program in here)
    clone_problem = _clone_problem(project) if has_git else ""
    has_clone = has_git and not clone_problem
    source_problem, source_fix = ("", "") if config_problems else _source(project)
    return seen.Facts(
        now=now_unix(),
        programs=here,
        launcher_problem=_launcher_problem(root),
        trust_problem="" if config_problems else _trust_problem(project),
        config_problems=config_problems,
        config_advice=() if config_problems else _advice(project),
        configured=tuple(project.config.workers),
        state=state_facts,
        daemon=_daemon(project),
        sessions=_sessions(project, panes),
        tmux_problem=panes.reason if isinstance(panes, Unknown) else "",
        workers=tuple(found for name in names if (found := worker_facts(project, name)) is not None),
        clone_problem=clone_problem,
        settings=_settings(root.path) if has_clone else (),
        branches=_branches(project) if has_clone and not config_problems else (),
        strays=_strays(root, names),
        pruned=_pruned(project, state) if has_clone else (),
        left_slots=() if config_problems else tuple(str(one.path) for one in slots.left_over(project)),
        stopped_undo=undo.stopped(project) if state else "",
        source_problem=source_problem,
        source_fix=source_fix,
        open_directories=_open_directories(root),
        notify_problems=tuple(notify.problems(project)),
        disk_free_bytes=shutil.disk_usage(root.path).free,
        trash_bytes=restore.size_of(root.trash),
        canary=canary.last_verdict(root),
        canary_leftovers=tuple(map(str, canary.leftovers(root))) if has_tmux(here) else (),
        git_locks=git_locks.git_locks(project, state) if has_clone else (),
        unusable=examine_unattended.unusable(root),
        claims=examine_unattended.claims(project),
        task_problems=() if config_problems else examine_unattended.task_problems(project),
        unowned_tasks=() if config_problems else examine_unattended.unowned_tasks(project),
        goal_problems=examine_unattended.goal_problems(project),
        manual_notes=examine_unattended.manual_notes(root),
        dead_overseer=examine_unattended.dead_overseer(root),
        remembered=() if names else examine_unattended.remembered(root),
        source_dirty=_source_dirty(project) if has_git and not config_problems and not source_problem else (),
        objects_shared=has_clone and own_objects.is_shared(root.path / ".git"),
        writable_by_others=_writable_by_others(root),
        bad_rows=tuple(
            (str(path), bad_rows.words(path, rows)) for path, rows in bad_rows.by_file(root).items()
        ),
        undone=_undone(project),  # last: git above may have found something
    )


def _advice(project: Project) -> tuple[str, ...]:
    old = complaint(prices.listed(project), date.today())
    return (*advice(project.config), *([old] if old else []))


def has_tmux(found: tuple[seen.Program, ...]) -> bool:
    return not any(program.name == "tmux" and program.problem for program in found)


def _sessions(project: Project, panes: Panes | Unknown) -> tuple[seen.Session, ...] | None:
    """Those with an agent in them; not the supervisor's own, and none in which only a person has something."""
    if isinstance(panes, Unknown):
        return None
    found = {}
    for pane in panes.values():
        worker, instance = launched(pane)
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
    wrong = [f"{r.name} is filed under {key}" for key, r in state.workers.items() if key != r.name]
    return state, seen.StateFacts(misfiled=tuple(wrong), backup_has_workers=store.backup_has_workers())


def _daemon(project: Project) -> seen.DaemonFacts:
    root = project.root
    lock = root.lock("daemon")
    runs = project.daemon_runs()
    found = sight.registration(root.path)
    return seen.DaemonFacts(
        runs=runs,
        registered=found is not None,
        ready=found is not None and found.ready,
        age_s=age_s(lock.stat().st_mtime, now_unix()) if runs else 0.0,
        holder=locks.holder(lock) if runs else "",
        files=() if runs else tuple(str(path) for path in daemon_files(root)),
        **(_running(root, found) if runs and found is not None else {}),
    )


def _running(root: Root, registration: Registration) -> dict[str, Any]:
    return {
        "other_pid": examine_unattended.other_pid(root, registration),
        "socket_problem": examine_unattended.socket_problem(root),
        "heartbeat_age_s": examine_unattended.heartbeat_age_s(root, registration),
    }


def daemon_files(root: Root) -> list[Path]:
    """What only a running daemon has, and launch specs that no agent came to read (they hold its environment)."""
    now = now_unix()
    # An ordered end leaves the heartbeat, too: it says nothing by itself.
    beat = [root.heartbeat] if root.daemon.exists() else []
    places = [root.daemon, *_socket(root), *beat]
    specs = [p for p in root.agents.glob("*.launch.json") if age_s(p.stat().st_mtime, now) > STALE_SPEC_S]
    return [path for path in (*places, *specs) if os.path.lexists(path)]


def _socket(root: Root) -> list[Path]:
    try:
        return [root.wake_socket()]
    except LlmcError:  # its directory is somebody else's; whoever needs it says so
        return []


def _programs(project: Project, *, agent: bool) -> tuple[seen.Program, ...]:
    client = [programs.client(project)] if agent else []
    return (*programs.essential(), programs.python(), *client)


def _trust_problem(project: Project) -> str:
    try:
        agent = agent_for(project)
        environment = {**os.environ, **project.config.defaults.env}
        return agent.setup_problem(project.root.path, environment) or ""
    except LlmcError:
        return ""  # said of the program itself


def _launcher_problem(root: Root) -> str:
    """The interpreter it names may be gone: a virtual environment that was moved or removed."""
    path = root.bin / "llmc"
    try:
        words = shlex.split(path.read_text().splitlines()[-1])
        python = words[words.index("exec") + 1]
    except FileNotFoundError:
        return f"{path}, llmc as the agents call it, is gone"
    except (OSError, ValueError, IndexError):
        return f"{path}, llmc as the agents call it, cannot be read"
    if not os.access(python, os.X_OK) or not os.access(path, os.X_OK):
        return f"{path}, llmc as the agents call it, cannot run: {python} is gone"
    return ""


def _clone_problem(project: Project) -> str:
    try:
        done = git.git(project.root.path, "rev-parse", "--git-dir", check=False)
    except LlmcError as error:
        return error.message
    if not done.ok:
        return " ".join(done.stderr.split())
    if Path(project.root.path, done.stdout.strip()).resolve() != (project.root.path / ".git").resolve():
        return f"{project.root.path / '.git'} is gone"
    return ""


def _settings(clone: Path) -> tuple[seen.Setting, ...]:
    def value(*where: str) -> str | None:
        done = git.git(clone, "config", *where, check=False)
        return done.stdout.strip() if done.ok else None

    found = [seen.Setting(key, want, value("--local", "--get", key)) for key, want in CLONE_SETTINGS.items()]
    bare = seen.Setting("core.bare of the root alone", "true", value("--worktree", "--get", "core.bare"))
    if found[0].found == "true":  # before, both files are one
        found += [bare, seen.Setting("core.bare", None, value("--local", "--get", "core.bare"))]
    return tuple(found)


def _branches(project: Project) -> tuple[seen.Branch, ...]:
    clone = project.root.path
    names = [name for (name,) in git.refs(clone, "refs/heads/llmc", "refname:lstrip=2")]
    return tuple(
        seen.Branch(
            name=name,
            worker=name.removeprefix("llmc/"),
            ahead=ahead_of(clone, project.base, f"refs/heads/{name}"),
            checked_out=git.checked_out_at(clone, name) is not None,
        )
        # What `llmc trash restore` made is a person's; a branch of a worker that is being added has its lock.
        for name in names
        if not name.startswith("llmc/restored/") and not _is_being_added(project, name)
    )


def _is_being_added(project: Project, branch: str) -> bool:
    return locks.is_locked(project.root.lock(f"worker-{branch.removeprefix('llmc/')}"))


def _strays(root: Root, names: list[str]) -> tuple[seen.Stray, ...]:
    """Without those of workers that are being added or removed just now."""
    try:
        there = sorted(entry.name for entry in os.scandir(root.worktrees) if entry.is_dir())
    except OSError:
        return ()
    free = [name for name in there if not locks.is_locked(root.lock(f"worker-{name}"))]
    return tuple(
        seen.Stray(name, (root.worktree(name) / ".git").exists()) for name in free if name not in names
    )


def _pruned(project: Project, state: State | None) -> tuple[str, ...]:
    """Worktrees whose directory is gone, but for those of workers: these are made again."""
    owned = {record.worktree_path for record in state.workers.values()} if state else set()
    gone = git.worktrees(project.root.path, gone=True)
    # A slot is made again by its next user.
    return tuple(path for path, _ in gone if path not in owned and Path(path).parent != project.root.slots)


def _source(project: Project) -> tuple[str, str]:
    """Why work cannot land, and the fix."""
    source, branch = project.source, project.config.repo.default_branch
    set_source = "`llmc config set repo.source PATH` names where it is now"
    if not branch:
        return "repo.default_branch is not set", "`llmc config set repo.default_branch main`"
    try:
        if "://" in source or source.startswith("git@"):
            asked = ["ls-remote", "--exit-code", "--heads", source, f"refs/heads/{branch}"]
            done = git.git(project.root.path, *asked, check=False, timeout_s=SOURCE_TIMEOUT_S)
            has_branch = done.ok
            if not done.ok and done.returncode != 2:
                return f"the source {source} cannot be reached: {' '.join(done.stderr.split())}", set_source
        elif not Path(source).is_dir():
            return f"the source {source} is gone", set_source
        elif not git.git(Path(source), "rev-parse", "--git-dir", check=False).ok:
            return f"the source {source} is not a git repository", set_source
        else:
            has_branch = git.resolve(Path(source), f"refs/heads/{branch}") is not None
    except ToolMissing:
        return "", ""  # said of git itself
    except LlmcError as error:
        return f"the source {source} cannot be reached: {error.message}", "try again"
    fix = "`llmc config set repo.default_branch BRANCH` names the branch work lands on"
    return ("", "") if has_branch else (f"the source has no branch {branch!r}", fix)


def _source_dirty(project: Project) -> tuple[str, ...]:
    """Tracked changes where the default branch is checked out."""
    source = Path(project.source)
    try:
        place = git.checked_out_at(source, project.config.repo.default_branch) if source.is_dir() else None
        return git.tree_state(place).tracked if place is not None else ()
    except LlmcError:
        return ()


def _writable_by_others(root: Root) -> tuple[str, ...]:
    places = (root.path, root.config)
    return tuple(str(path) for path in places if path.exists() and path.stat().st_mode & 0o022)


def _undone(project: Project) -> tuple[tuple[str, str], ...]:
    """What the attention list has, and what could not be written there yet."""
    root = str(project.root.path)
    with clone_guard.rows_unsaid(root) as rows:
        found = {clone_guard.key_of(root, row): f"{row.path}: {row.text}" for row in rows}
    with contextlib.suppress(LlmcError):
        items = project.store.read().attention.items()
        found |= {key: item.text for key, item in items if item.kind == "git_config"}
    return tuple(found.items())


def _open_directories(root: Root) -> tuple[str, ...]:
    private = (root.private, root.logs, root.inbox, root.locks, root.agents, root.trash)
    return tuple(str(path) for path in private if path.is_dir() and path.stat().st_mode & 0o077)
