"""What a finding is: one problem, in words, with its fix. Pure."""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

REPAIR = "fixable with --repair"


class Kind(StrEnum):
    """What can be wrong; the name is stable, scripts may match it."""

    #: a program is missing or too old
    PROGRAM = "program"
    #: `llmc`, as the agents call it, is gone or cannot run
    LAUNCHER = "launcher"
    #: the client would stop in a dialog
    TRUST = "trust"
    #: llmc could not drive the client when it last tried to
    CANARY = "canary"
    #: a try of the client was killed, and its session still runs
    CANARY_LEFT = "canary_left"
    #: config.toml cannot be used
    CONFIG = "config"
    #: state.json is missing, broken or of a newer llmc
    STATE = "state"
    #: a worker's record contradicts itself, git or the clock
    RECORD = "record"
    #: a daemon that is gone left its files
    DAEMON_CRASHED = "daemon_crashed"
    #: the daemon runs, but has not become ready
    DAEMON_NOT_READY = "daemon_not_ready"
    #: daemon.json names another process than the one that runs
    DAEMON_OTHER = "daemon_other"
    #: hooks cannot wake the daemon
    DAEMON_SOCKET = "daemon_socket"
    #: the daemon runs, and gives no sign of life
    DAEMON_STALLED = "daemon_stalled"
    #: a remediation asked for a person
    MANUAL_INTERVENTION = "manual_intervention"
    #: a supervisor that is gone left its file
    OVERSEER_CRASHED = "overseer_crashed"
    #: the task list cannot be used
    TASK_LIST = "task_list"
    #: a task is claimed by a worker that is not at it
    CLAIM = "claim"
    #: a task is in progress by its file, and nobody has it
    UNOWNED_TASK = "unowned_task"
    #: the goals' store is damaged, was set aside, or holds what cannot be read
    GOALS = "goals"
    #: tmux gave no answer
    TMUX = "tmux"
    #: a tmux session belongs to no worker
    SESSION_WITHOUT_WORKER = "session_without_worker"
    #: a worker that is not offline has no session
    SESSION_MISSING = "session_missing"
    #: a worker that is not offline has an agent that has ended
    SESSION_DEAD = "session_dead"
    #: an agent runs that llmc does not know
    SESSION_UNKNOWN = "session_unknown"
    #: the file that registers an agent's hooks is gone or another one
    HOOKS = "hooks"
    #: a worker is in error
    WORKER_ERROR = "worker_error"
    #: an accept stopped, and nobody goes on with it
    ACCEPT_STOPPED = "accept_stopped"
    #: an undo stopped, and nobody goes on with it
    UNDO_STOPPED = "undo_stopped"
    #: a prompt is pending, but no daemon is running
    DELIVERY_STOPPED = "delivery_stopped"
    #: a worker of config.toml was never added
    NOT_ADDED = "not_added"
    #: a worktree is gone
    WORKTREE_MISSING = "worktree_missing"
    #: git cannot use a worktree
    WORKTREE_BROKEN = "worktree_broken"
    #: the worktree of a worker at rest is not on the worker's branch
    WORKTREE_OFF_BRANCH = "worktree_off_branch"
    #: an idle worker has uncommitted changes
    WORKTREE_DIRTY = "worktree_dirty"
    #: a directory in .worktrees belongs to no worker
    WORKTREE_STRAY = "worktree_stray"
    #: git remembers a worktree that is gone
    WORKTREE_PRUNED = "worktree_pruned"
    #: a slot that no check uses any more
    SLOT = "slot"
    #: a git command that is gone left its lock
    INDEX_LOCK = "index_lock"
    #: a rebase is in progress, and nobody is at it
    REBASE = "rebase"
    #: the root's clone cannot be read
    CLONE = "clone"
    #: a git setting that `init` made is another one
    SETTING = "setting"
    #: files of the root's clone are the source's own files too
    SHARED_OBJECTS = "shared_objects"
    #: settings in the root's clone ran or redirected a program, and were undone
    GIT_CONFIG = "git_config"
    #: a git command that is gone left a lock in the root's clone or in the source
    GIT_LOCK = "git_lock"
    #: a branch `llmc/...` belongs to no worker
    BRANCH = "branch"
    #: work cannot land: the source, or its branch, is not there
    SOURCE = "source"
    #: a person may not hear of what happens
    NOTIFY = "notify"
    #: other people may look into a private directory or write to the root, or llmc cannot use a directory
    PERMISSIONS = "permissions"
    #: rows of the ledger or of the event log cannot be used, and are skipped
    BAD_ROWS = "bad_rows"
    #: the disk is nearly full
    DISK = "disk"
    #: the trash is large
    TRASH = "trash"


#: the parts of a report in their order, with the kinds of finding in each
GROUPS: dict[str, tuple[Kind, ...]] = {
    "programs": (Kind.PROGRAM, Kind.LAUNCHER, Kind.TRUST, Kind.CANARY, Kind.CANARY_LEFT),
    "configuration": (Kind.CONFIG, Kind.NOT_ADDED, Kind.NOTIFY),
    "state": (Kind.STATE, Kind.RECORD),
    "daemon": (
        Kind.DAEMON_CRASHED,
        Kind.DAEMON_NOT_READY,
        Kind.DAEMON_OTHER,
        Kind.DAEMON_SOCKET,
        Kind.DAEMON_STALLED,
    ),
    "supervisor": (Kind.MANUAL_INTERVENTION, Kind.OVERSEER_CRASHED),
    "sessions": (
        Kind.TMUX,
        Kind.SESSION_WITHOUT_WORKER,
        Kind.SESSION_MISSING,
        Kind.SESSION_DEAD,
        Kind.SESSION_UNKNOWN,
        Kind.HOOKS,
    ),
    "workers": (Kind.WORKER_ERROR, Kind.ACCEPT_STOPPED, Kind.UNDO_STOPPED, Kind.DELIVERY_STOPPED),
    "tasks": (Kind.TASK_LIST, Kind.CLAIM, Kind.UNOWNED_TASK, Kind.GOALS),
    "worktrees": (
        Kind.WORKTREE_MISSING,
        Kind.WORKTREE_BROKEN,
        Kind.WORKTREE_OFF_BRANCH,
        Kind.WORKTREE_DIRTY,
        Kind.WORKTREE_STRAY,
        Kind.WORKTREE_PRUNED,
        Kind.SLOT,
        Kind.INDEX_LOCK,
        Kind.REBASE,
    ),
    "git": (
        Kind.CLONE,
        Kind.SETTING,
        Kind.SHARED_OBJECTS,
        Kind.GIT_CONFIG,
        Kind.GIT_LOCK,
        Kind.BRANCH,
    ),
    "source": (Kind.SOURCE,),
    "files": (Kind.PERMISSIONS, Kind.BAD_ROWS, Kind.DISK, Kind.TRASH),
}


class Finding(Struct, frozen=True):
    """One problem. `subject` is the session, branch or path it is about, where that is not the worker."""

    kind: Kind
    text: str
    fix: str
    worker: str = ""
    subject: str = ""
    repairable: bool = False

    @property
    def group(self) -> str:
        return next(name for name, kinds in GROUPS.items() if self.kind in kinds)

    @property
    def what(self) -> str:
        return f"{self.worker}: {self.text}" if self.worker else self.text

    @property
    def line(self) -> str:
        return f"{self.what} -> {self.fix}"

    def same_as(self, other: "Finding") -> bool:
        """Whether both are about the same thing; the words may differ."""
        return (self.kind, self.worker, self.subject) == (other.kind, other.worker, other.subject)


def in_order(found: Iterable[Finding]) -> list[Finding]:
    """As they are shown: by group, then by kind; stable otherwise."""
    place = {kind: place for place, kind in enumerate(kind for kinds in GROUPS.values() for kind in kinds)}
    return sorted(found, key=lambda finding: place[finding.kind])


def summary(found: Iterable[Finding]) -> str:
    """The last line of a report."""
    every = list(found)
    if not every:
        return "no problems"
    mended = sum(finding.repairable for finding in every)
    return f"{len(every)} problem{'s' if len(every) > 1 else ''}, {mended} fixable with --repair"
