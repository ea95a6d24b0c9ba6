"""What `llmc doctor` saw of a root. Pure data; None where something could not be seen."""

from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from llmc.doctor.rules.canary_verdict import Verdict
from llmc.records.worker import WorkerRecord


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
    #: when this was seen, and whether a daemon ran then
    now: float = 0.0
    daemon_runs: bool = False


class Stray(Struct, frozen=True):
    """A directory in .worktrees that belongs to no worker; `llmc add` can take in a worktree only."""

    name: str
    is_worktree: bool = True


class Facts(Struct, frozen=True):
    """What several checks need, and in `seen` what each of them saw for itself."""

    now: float
    programs: tuple[Program, ...] = ()
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
    strays: tuple[Stray, ...] = ()
    #: workers that the event log knows; looked for where state.json has none
    remembered: tuple[str, ...] = ()
    #: what the last try of the client found
    canary: Verdict | None = None
    #: uncommitted changes in the source: nothing lands there while they are
    source_dirty: tuple[str, ...] = ()
    #: by the kind of the check
    seen: dict[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def lacking(self) -> set[str]:
        """What cannot be used, of what a check may need."""
        missing = {program.name for program in self.programs if program.problem}
        usable = {
            "git": "git" not in missing,
            "tmux": "tmux" not in missing,
            "clone": "git" not in missing and not self.clone_problem,
            "config": not self.config_problems,
            "state": self.state.kind is StateFile.VALID,
        }
        return {name for name, there in usable.items() if not there}
