"""Refuse to change a worker's worktree or land its work unless its agent is idle and everything is committed.

Each refusal names what is in the way; nothing is touched.
"""

from pathlib import Path

from llmc.agents.kinds import tool_children
from llmc.agents.protocol import ClientStatus
from llmc.base.errors import Refused
from llmc.base.panes import Pane
from llmc.base.processes import wait_until
from llmc.base.text import some_files
from llmc.base.tmux import answered
from llmc.landing.accept_journal import WorkChanged
from llmc.records.worker import WorkerRecord
from llmc.repo import git, uncommitted
from llmc.repo.project import Project
from llmc.sessions import leftovers
from llmc.sessions.sessions import is_taken, status_of

#: how long background processes of the agent may take to exit
LEFTOVER_WAIT_S = 2.0
#: how long a client may look busy after its Stop
AFTER_STOP_S = 2.0
#: how long an agent that has just stopped may take to become idle before its work is validated
REST_WAIT_S = 5.0


def refuse_if_disturbed(project: Project, record: WorkerRecord) -> None:
    """Refuse git operations in a worktree while the user or the agent is working in it."""
    pane = answered(project.pane_now(record), record.name)
    taken = is_taken(record, pane)
    if taken:
        raise Refused(taken)
    if isinstance(pane, Pane) and not pane.dead and not _comes_to_rest(record, pane):
        raise Refused(
            f"{record.name}'s agent is still busy",
            hint=f"Wait until the agent is idle (`llmc peek {record.name}` shows its screen), then run the command again.",
        )
    # Hooks are short-lived children of the agent.
    if not wait_until(lambda: not tool_children(record.instance), LEFTOVER_WAIT_S, interval_s=0.05):
        pids = ", ".join(str(process.pid) for process in tool_children(record.instance))
        raise Refused(
            f"{record.name} has background processes (pid {pids}) that may still change files",
            hint=f"Wait for them to exit, or run "
            f"`llmc message {record.name} 'Stop your background processes.'`. "
            "Then run the command again.",
        )


def _comes_to_rest(record: WorkerRecord, pane: Pane) -> bool:
    """Whether the agent is idle within AFTER_STOP_S.

    A client looks busy for a moment after its Stop, and idle for a moment before it takes a queued message.
    """

    def rests() -> bool:
        return status_of(record, pane) is not ClientStatus.BUSY and not leftovers.has_queue(record, pane)

    wait_until(rests, AFTER_STOP_S, interval_s=0.02)
    return rests() and status_of(record, pane) is not ClientStatus.WAITING


def wait(project: Project, record: WorkerRecord) -> None:
    """Wait until the agent is idle, a moment after its Stop; Refused if that takes too long."""

    def rests() -> bool:
        try:
            refuse_if_disturbed(project, record)
        except Refused:
            return False
        return True

    if not wait_until(rests, REST_WAIT_S, interval_s=0.1):
        refuse_if_disturbed(project, record)


def refuse_if_dirty(record: WorkerRecord) -> uncommitted.TreeState:
    """Refuse uncommitted changes; returns the status of the worktree."""
    changes = uncommitted.tree_state(Path(record.worktree_path))
    if not changes.clean:
        raise Refused(
            f"{record.name} has uncommitted changes: {some_files(changes.files)}",
            hint=f"Run `llmc message {record.name} 'Commit or discard your uncommitted changes.'`. "
            "Then run the command again.",
        )
    return changes


def refuse_if_commits_are_elsewhere(record: WorkerRecord, found: uncommitted.TreeState) -> None:
    """Refuse if an agent that changed branches left commits behind: only HEAD lands."""
    if found.branch == record.branch:
        return
    worktree = Path(record.worktree_path)
    tip = git.resolve(worktree, f"refs/heads/{record.branch}")
    if tip is not None and not git.is_ancestor(worktree, tip, "HEAD"):
        raise Refused(
            f"{record.name} is not on its branch {record.branch}, which has commits that would not land",
            hint=f"Run `llmc message {record.name} 'Move all your commits to branch {record.branch}.'`. "
            "Then run the command again.",
        )


# While its work is accepted


def refuse_if_changed(project: Project, record: WorkerRecord) -> None:
    """Refuse unless the worker is still idle and clean."""
    try:
        refuse_if_disturbed(project, record)
    except Refused as taken:
        raise WorkChanged(f"{taken.message}; nothing landed", hint=taken.hint) from taken
    found = uncommitted.tree_state(Path(record.worktree_path))
    if not found.clean:
        raise WorkChanged(
            f"{record.name} changed files while its work was being accepted: {some_files(found.files)}; nothing landed",
            hint=f"Run `llmc message {record.name} 'Commit or discard your uncommitted changes.'`. "
            f"Then run `llmc accept {record.name}` again.",
        )


def refuse_if_committed(record: WorkerRecord, tip: str) -> None:
    if has_committed(record, tip):
        head = git.head(Path(record.worktree_path))
        raise WorkChanged(
            f"{record.name} made commit {head[:12]} while its work was being accepted; nothing landed",
            hint=f"Run `llmc review {record.name}`, then `llmc accept {record.name}` again.",
        )


def has_committed(record: WorkerRecord, tip: str) -> bool:
    """Whether the worker's HEAD has other contents than `tip`, which lands."""
    worktree = Path(record.worktree_path)
    head = git.head(worktree)
    return head != tip and _tree_of(worktree, head) != _tree_of(worktree, tip)


def _tree_of(worktree: Path, commit: str) -> str | None:
    """None if git no longer has it: the worker amended it, and gc removed the old commit."""
    name = f"{commit}^{{tree}}"
    done = git.git(worktree, "rev-parse", "--verify", "--quiet", name, check=False)
    return done.stdout.strip() if done.ok else None
