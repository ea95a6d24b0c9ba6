"""Uninstall: remove a root and everything llmc created for it. Work that exists nowhere else is listed and saved by default.

Entries outside the root go first, so that an interrupted uninstall can be resumed with `llmc --root ROOT uninstall`.
"""

import contextlib
import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from llmc.agents.protocol import Trust
from llmc.api import web_process
from llmc.base.errors import LlmcError, Refused
from llmc.base.faults import step as fault_step
from llmc.base.files import explain, remove_tree, unique
from llmc.base.text import counted
from llmc.base.tmux import answered
from llmc.config import trust
from llmc.daemon import control
from llmc.doctor import canary
from llmc.goals.goals import open_store
from llmc.landing import slots
from llmc.landing.pick import CAN_PICK
from llmc.records.worker import WorkerRecord
from llmc.repo import git, git_dirs, provision, trash, uncommitted
from llmc.repo.project import Project, agent_for
from llmc.supervisor import supervisor_record
from llmc.supervisor.remediation import main_directory
from llmc.tasks.source import source_of
from llmc.workers import reset
from llmc.workers.nuke import nuke_worker
from llmc.workers.restore import Entry, entries
from llmc.workers.up_and_down import close_server, of_people, told_of

#: what makes a directory a root, and its new name in saved work
_KEPT_NAMES = {"config.toml": "was.config.toml", ".llmc": "was.llmc"}
#: useless without a daemon
_DISPOSABLE = ("slots", "inbox", "agents", "locks", "bin", "canary", "attributes")


class Work(Struct, frozen=True):
    """Work that exists only in the root."""

    what: str
    #: the command that saves it
    save: str


class Done(Struct, frozen=True):
    """What was removed, and where work was saved."""

    removed: tuple[str, ...]
    kept: Path | None
    #: the root that commands in the source use from now on
    next_root: Path | None = None


def work_in(project: Project) -> list[Work]:
    """All unlanded work, which would be lost with the root."""
    with contextlib.suppress(LlmcError):  # if the source is unreachable, some landed work is listed too
        provision.refresh_base(project)
    workers = project.store.read().workers
    found = [work for record in workers.values() for work in _of_worker(project, record)]
    found += [work for entry in entries(project, sizes=False) for work in _of_trash(project, entry)]
    own = {f"refs/heads/{record.branch}" for record in workers.values()}
    return [*found, *_of_branches(project, own), *_of_goals(project)]


def _of_worker(project: Project, record: WorkerRecord) -> Iterator[Work]:
    worktree, branch = Path(record.worktree_path), f"refs/heads/{record.branch}"
    tips = {git.resolve(project.root.path, branch)}
    changed: tuple[str, ...] = ()
    if git_dirs.is_worktree_of(worktree, project.root.path):
        state = uncommitted.tree_state(worktree)
        tips.add(state.head)
        changed = (*state.tracked, *state.untracked)
    elif worktree.exists():
        changed = (str(worktree),)
    parts = [counted(len(changed), "uncommitted file")] if changed else []
    if any(tip and _is_unlanded(project, tip) for tip in tips):
        parts.append("unlanded commits")
    if record.assignment is not None or record.accept is not None:
        parts.append("an unfinished task")
    if parts:
        yield Work(f"{record.name}: {', '.join(parts)}", _save_worker(record, bool(changed)))


def _save_worker(record: WorkerRecord, uncommitted: bool) -> str:
    """The first command that saves its work; a reset works in every status, and saves uncommitted files too."""
    if record.accept is not None:
        return f"llmc accept {record.name}"
    if uncommitted or record.assignment is not None or record.status not in CAN_PICK:
        return f"llmc reset {record.name} (moves the work to the trash), then llmc uninstall --dry-run"
    return f"llmc pick {record.name}"


def _has_unlanded(project: Project, entry: Entry) -> bool:
    if entry.commit is None:
        return False
    # The commits landed as one; but a pin by llmc on top holds uncommitted files.
    landed = entry.why == trash.ACCEPTED and not trash.is_pin(project.root.path, entry.commit)
    return not landed and _is_unlanded(project, entry.commit)


def _of_trash(project: Project, entry: Entry) -> Iterator[Work]:
    if entry.ref and _has_unlanded(project, entry):
        # If the source is a URL, a branch in the clone is not safe.
        is_local = Path(project.source).is_dir()
        save = f"llmc trash restore {entry.name}" if is_local else _push(project, entry.ref)
        yield Work(f"trash: {entry.name}: unlanded commits", save)
    if entry.directory is not None:
        yield Work(f"trash: {entry.name}: files", f"llmc trash restore {entry.name} --to PATH")


def _of_branches(project: Project, own: set[str]) -> Iterator[Work]:
    for pattern in ("refs/heads", "refs/stash"):
        for ref, commit in git.refs(project.root.path, pattern, "refname", "objectname"):
            if ref not in own and _is_unlanded(project, commit):
                yield Work(f"{ref} in the root's clone", _push(project, ref))


def _push(project: Project, ref: str) -> str:
    where = shlex.quote(str(project.root.path))
    return f"git -C {where} push {shlex.quote(project.source)} {shlex.quote(ref)}:refs/heads/NAME"


def _of_goals(project: Project) -> Iterator[Work]:
    store = open_store(project)
    if not store.is_in(project.root.path) or not store.exists():
        return
    try:
        with store.reading() as found:
            goals = [view.goal for view in found.views()]
    except LlmcError:
        yield Work(f"goals that cannot be read: {store.name}", "llmc doctor")
        return
    for goal in goals:
        if goal.status.goes_on:
            yield Work(f"goal: {goal.title} ({goal.status})", f"llmc goal handoff {goal.goal_id}")


def _is_unlanded(project: Project, commit: str) -> bool:
    """Whether it is on no branch of the source: not landed, restored, picked or pushed."""
    root, source = project.root.path, Path(project.source)
    picked = [ref for (ref,) in git.refs(root, "refs/llmc/pick", "objectname")]
    base = git.resolve(root, project.base)
    safe = [base] if base else []
    if source.is_dir():
        if _has_branch_with(source, commit):
            return False
        safe += [tip for tip in picked if _has_branch_with(source, tip)]
    return not any(
        git.is_ancestor(root, commit, tip) or git.merging_changes_nothing(root, commit, tip) for tip in safe
    )


def _has_branch_with(source: Path, commit: str) -> bool:
    """Whether a branch or tag holds the commit."""
    ask = ["for-each-ref", "--count=1", f"--contains={commit}", "--format=%(refname)"]
    found = git.git(source, *ask, "refs/heads", "refs/tags", check=False)
    return found.ok and bool(found.stdout.strip())


def refuse_in_use(project: Project) -> None:
    """Refuse while the user, an accept or a supervisor uses the root."""
    if supervisor_record.runs(project.root):
        raise Refused(
            f"cannot uninstall: a supervisor is running ({supervisor_record.name_of(project.root)})",
            hint="Press Ctrl-C in the supervisor's terminal, then run `llmc uninstall` again.",
        )
    panes = answered(project.tmux.panes())
    if theirs := of_people(panes):
        raise Refused(
            f"cannot uninstall: {told_of(project, theirs)}",
            hint="Close these panes, then run `llmc uninstall` again.",
        )
    for record in project.store.read().workers.values():
        reset.free_pane(project, record)


def take_back(project: Project, *, keep: bool, discard: bool) -> Done:
    """Stop everything, remove entries outside the root, then the root.

    With `keep`, saves the work in it. Also saves work that an agent created in the meantime, unless `discard`.
    """
    refuse_in_use(project)
    control.stop(project, force=False)
    pid = web_process.pid_of(project)
    stopped = [f"the web server (pid {pid})"] if web_process.stop(project) else []
    with fault_step("uninstall.workers"):
        for name in project.store.read().workers:
            with project.worker_lock(name):
                nuke_worker(project, name)
    keep = keep or (
        not discard and any(_has_unlanded(project, entry) for entry in entries(project, sizes=False))
    )
    with fault_step("uninstall.end"):
        canary.repair_leftovers(project.root)
        for one in slots.every(project):
            slots.discard(project, one)
        close_server(project)
        project.tmux.kill_server()  # with the supervisor's session
    other = next_root(project)
    with fault_step("uninstall.outside"):
        outside = _take_back_outside(project)
    with fault_step("uninstall.root"):
        kept = _keep(project) if keep else None
        if kept is None:
            _remove(project.root.path)
    return Done((*stopped, *outside, str(project.root.path)), kept, other)


def next_root(project: Project) -> Path | None:
    """The root that commands in a local source use without this one: as its git config says, else its newest other."""
    source = Path(project.source)
    if not source.is_dir():
        return None
    named = git.config_get(source, "llmc.root")
    if named is not None and not _names(source, project.root.path):
        return Path(trust.real(named))
    others = [
        path
        for path in trust.registered()
        if path != str(project.root.path) and trust.real(trust.source_of(path)) == trust.real(project.source)
    ]
    return Path(others[-1]) if others else None


def _take_back_outside(project: Project) -> list[str]:
    root, done = project.root.path, []
    source, other = Path(project.source), next_root(project)
    with contextlib.suppress(LlmcError):
        if trusted := agent_for(project).trust(_environment(project)):
            done += trusted.remove(root, main_directory(project)[0] if _is_last(project) else None)
    if source.is_dir() and _names(source, root):  # last, because the steps above depend on it
        if other is not None:
            git.git(source, "config", "--replace-all", "llmc.root", str(other))
        else:
            git.git(source, "config", "--unset-all", "llmc.root")
            done.append(f"llmc.root in the git config of {source}")
    with contextlib.suppress(LlmcError, OSError):
        socket = project.root.wake_socket()
        socket.unlink(missing_ok=True)
        socket.parent.rmdir()
    if trust.forget(str(root)):
        done.append(f"the root's entry in {trust.registry()}")
    return done


def _names(source: Path, root: Path) -> bool:
    """Whether the git config of the repository names this root, and not a later one."""
    named = git.config_get(source, "llmc.root")
    return named is not None and trust.real(named) == str(root)


def _is_last(project: Project) -> bool:
    """Whether no other root of the source needs the client's trust in its checkout."""
    source = Path(project.source)
    return source.is_dir() and _names(source, project.root.path) and next_root(project) is None


def _environment(project: Project) -> dict[str, str]:
    return {**os.environ, **project.config.defaults.env}


def left_alone(project: Project) -> list[str]:
    """What is not removed, because it belongs to the client or the user."""
    found = []
    with contextlib.suppress(LlmcError):
        directory = Path(source_of(project).where())
        if directory.is_dir() and not directory.is_relative_to(project.root.path):
            found.append(f"the task list: {directory}")
    with contextlib.suppress(LlmcError):
        agent, environment = agent_for(project), _environment(project)
        if trusted := agent.trust(environment):
            found += _trusted(project, trusted)
            found.append(f"the agents' conversations: {agent.conversations(environment)}")
    return found


def _trusted(project: Project, trusted: Trust) -> list[str]:
    """The trust entry of the checkout, if the client keeps more there, or another root needs it."""
    place = main_directory(project)[0]
    if place == project.root.path:
        return []
    left = trusted.left(place, is_ours=_is_last(project))
    return [left] if left else []


def place_to_keep(project: Project) -> Path:
    root = project.root.path
    return root.with_name(f"{root.name}-saved-{time.strftime('%Y%m%dT%H%M%S')}")


def _keep(project: Project) -> Path:
    """Keep the clone, the trash, goals and logs as a plain directory next to the root."""
    root, place = project.root.path, place_to_keep(project)
    try:
        for name in _DISPOSABLE:
            path = project.root.private / name
            if os.path.lexists(path):
                remove_tree(path)
        os.rename(root, place)
        for name, kept in _KEPT_NAMES.items():
            os.rename(place / name, place / kept)
    except OSError as error:
        raise explain(error, f"cannot move {root} to {place}") from error
    return place


def _remove(root: Path) -> None:
    """Rename it first, so that no command finds half a root."""
    aside = root.with_name(f".{root.name}.uninstall{unique()}")
    try:
        os.rename(root, aside)
        remove_tree(aside)
    except OSError as error:
        raise explain(error, f"cannot remove {root}") from error
