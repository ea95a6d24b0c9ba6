"""What `llmc doctor` saw of a root. Pure data; None where something could not be seen."""

from enum import StrEnum

from msgspec import Struct, field

from llmc.doctor.rules.canary import Verdict
from llmc.records.worker import WorkerRecord
from llmc.repo.rules.git_lock import GitLock


class PaneState(StrEnum):
    """What tmux says of a worker's session."""

    #: there is no such session
    NONE = "none"
    #: a program runs in it
    ALIVE = "alive"
    #: its program has ended
    DEAD = "dead"
    #: tmux gave no answer: nobody may conclude anything
    UNKNOWN = "unknown"


class Program(Struct, frozen=True):
    """A program llmc needs; `problem` says why it cannot be used."""

    name: str
    version: str = ""
    minimum: tuple[int, ...] = ()
    problem: str = ""
    fix: str = ""


class StateFile(StrEnum):
    """What state.json is worth."""

    VALID = "valid"
    MISSING = "missing"
    BROKEN = "broken"
    #: a newer llmc wrote it
    NEWER = "newer"


class StateFacts(Struct, frozen=True):
    kind: StateFile = StateFile.VALID
    problem: str = ""
    #: the version before it can be read
    backup_good: bool = False
    #: and it has workers
    backup_has_workers: bool = False
    #: records that are filed under another worker's name
    misfiled: tuple[str, ...] = ()


class DaemonFacts(Struct, frozen=True):
    runs: bool = False
    #: it wrote daemon.json, and said there that every session is ready
    registered: bool = False
    ready: bool = False
    #: since it took its lock
    age_s: float = 0.0
    #: who signed the lock
    holder: str = ""
    #: what only a running daemon has
    files: tuple[str, ...] = ()
    #: the process that daemon.json names, where it is another one than runs
    other_pid: int | None = None
    #: why hooks cannot wake it
    socket_problem: str = ""
    #: since its last sign of life; None without auto mode
    heartbeat_age_s: float | None = None


class Session(Struct, frozen=True):
    """A session on the root's own tmux server with an agent in it."""

    name: str
    attached: bool = False
    #: the launch of that agent
    instance: str = ""


class Tree(Struct, frozen=True):
    """What git says of a worker's worktree."""

    exists: bool = True
    #: why git cannot read it
    problem: str = ""
    #: it is no worktree of this root at all, so that a new one is the only way
    foreign: bool = False
    #: the branch that is checked out; "" for none
    branch: str = ""
    head: str = ""
    #: the tip of the worker's own branch; "" when there is none
    tip: str = ""
    #: commits that the default branch does not have; None when there is nothing to compare with
    ahead: int | None = 0
    dirty: tuple[str, ...] = ()
    rebasing: bool = False
    #: a merge, cherry-pick, revert or bisect that was not ended
    operation: str = ""
    #: the age of `index.lock`; None when there is none
    lock_age_s: float | None = None
    lock_in_use: bool = False


class WorkerFacts(Struct, frozen=True):
    record: WorkerRecord
    #: where its worktree belongs
    place: str = ""
    pane: PaneState = PaneState.NONE
    attached: bool = False
    tree: Tree | None = field(default_factory=Tree)
    #: who holds the worker's lock; "" for nobody
    busy_with: str = ""
    #: what is wrong with the file that registers the hooks
    settings_problem: str = ""
    #: the task as the conversation has it, where the record has none
    found_prompt: str = ""


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


class Stray(Struct, frozen=True):
    """A directory in .worktrees that belongs to no worker; `llmc add` can take in a worktree only."""

    name: str
    is_worktree: bool = True


class Unusable(Struct, frozen=True):
    """A file or directory of llmc's that llmc may not use."""

    path: str
    mode: int
    owned: bool = True


class LeftClaim(Struct, frozen=True):
    """A claim on a task that the ledger holds open."""

    id: str
    task: str
    worker: str


class ManualNote(Struct, frozen=True):
    """`manual_intervention_needed_*.txt`, and where it can be put away."""

    path: str
    first_line: str
    away: str


class Facts(Struct, frozen=True):
    """Everything, as one value."""

    now: float
    programs: tuple[Program, ...] = ()
    #: `llmc` as the agents call it
    launcher_problem: str = ""
    trust_problem: str = ""
    config_problems: tuple[str, ...] = ()
    #: settings that do not go well together
    config_advice: tuple[str, ...] = ()
    #: names in config.toml
    configured: tuple[str, ...] = ()
    state: StateFacts = StateFacts()
    daemon: DaemonFacts = DaemonFacts()
    #: None when tmux gave no answer; then `tmux_problem` says why
    sessions: tuple[Session, ...] | None = ()
    tmux_problem: str = ""
    workers: tuple[WorkerFacts, ...] = ()
    #: why the root's own clone cannot be read
    clone_problem: str = ""
    settings: tuple[Setting, ...] = ()
    branches: tuple[Branch, ...] = ()
    strays: tuple[Stray, ...] = ()
    #: worktrees in git's books whose directory is gone
    pruned: tuple[str, ...] = ()
    #: slots that no check uses any more
    left_slots: tuple[str, ...] = ()
    #: the commit whose undo was interrupted, where nobody is at it
    stopped_undo: str = ""
    source_problem: str = ""
    source_fix: str = ""
    #: directories others may look into
    open_directories: tuple[str, ...] = ()
    #: why a person may not hear of something
    notify_problems: tuple[str, ...] = ()
    disk_free_bytes: int | None = None
    trash_bytes: int = 0
    #: what the last try of the client found, and scratch sessions of tries that were killed
    canary: Verdict | None = None
    canary_leftovers: tuple[str, ...] = ()
    git_locks: tuple[GitLock, ...] = ()
    unusable: tuple[Unusable, ...] = ()
    claims: tuple[LeftClaim, ...] = ()
    task_problems: tuple[str, ...] = ()
    #: tasks that are in progress by their files, and that nobody has
    unowned_tasks: tuple[str, ...] = ()
    #: of the goals' store, each with its fix
    goal_problems: tuple[tuple[str, str], ...] = ()
    manual_notes: tuple[ManualNote, ...] = ()
    #: `overseer.json` of a supervisor that is gone
    dead_overseer: str = ""
    #: workers that the event log knows; looked for where state.json has none
    remembered: tuple[str, ...] = ()
    #: uncommitted changes in the source: nothing lands there while they are
    source_dirty: tuple[str, ...] = ()
    #: the clone's objects are a person's files too, or another repository's
    objects_shared: bool = False
    #: key and text of settings in the clone that were undone
    undone: tuple[tuple[str, str], ...] = ()
    #: files with rows that cannot be used, and what is said of those
    bad_rows: tuple[tuple[str, str], ...] = ()
    #: of the root, what other people may write to
    writable_by_others: tuple[str, ...] = ()
