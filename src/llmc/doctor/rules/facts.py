"""The facts that `llmc doctor` collects about a root. Pure data; None means unknown."""

from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from llmc.config.model import Config
from llmc.doctor.rules.canary_verdict import Verdict
from llmc.records.items import UP, UP_AUTO
from llmc.records.worker import WorkerRecord

#: nothing is contained
OFF = "off"


def contained(config: Config) -> str:
    """Which agents and checks are to be contained, in words."""
    by_default = config.defaults.sandbox != OFF
    others = [name for name in config.workers if (config.sandbox_of(name) != OFF) != by_default]
    agents = f"agents (except {', '.join(others)})" if by_default and others else "agents"
    parts = [
        *([agents] if by_default else others),
        *(["checks"] if config.checks != OFF else []),
    ]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts) or OFF


class PaneState(StrEnum):
    """The state of a worker's pane, according to tmux."""

    #: no such pane
    NONE = "none"
    #: a program runs in it
    ALIVE = "alive"
    #: its program exited
    DEAD = "dead"
    #: tmux did not answer: conclude nothing
    UNKNOWN = "unknown"


class Program(Struct, frozen=True):
    """A program llmc needs; `problem` says why it cannot be used."""

    name: str
    version: str = ""
    minimum: tuple[int, ...] = ()
    problem: str = ""
    fix: str = ""


class StateFile(StrEnum):
    """The condition of state.json."""

    VALID = "valid"
    MISSING = "missing"
    BROKEN = "broken"
    #: written by a newer llmc
    NEWER = "newer"


class StateFacts(Struct, frozen=True):
    kind: StateFile = StateFile.VALID
    problem: str = ""
    #: state.json.bak is readable
    backup_good: bool = False
    #: state.json.bak has workers
    backup_has_workers: bool = False
    #: records filed under another worker's name
    misfiled: tuple[str, ...] = ()


class DaemonFacts(Struct, frozen=True):
    runs: bool = False
    #: daemon.json says that every session is ready
    ready: bool = False
    #: time since it took its lock
    age_s: float = 0.0
    #: the process named in the lock
    holder: str = ""
    #: files that only a running daemon has
    files: tuple[str, ...] = ()
    #: the process in daemon.json, if it is not the running daemon
    other_pid: int | None = None
    #: why hooks cannot wake it
    socket_problem: str = ""
    #: time since the last heartbeat; None without auto mode
    heartbeat_age_s: float | None = None


class Session(Struct, frozen=True):
    """A session on the root's own tmux server with an agent in it."""

    name: str
    attached: bool = False
    #: the id of that agent's launch
    instance: str = ""


class Tree(Struct, frozen=True):
    """The state of a worker's worktree, according to git."""

    exists: bool = True
    #: why git cannot read it
    problem: str = ""
    #: not a worktree of this root, so it must be linked to the root's clone again
    foreign: bool = False
    #: the checked-out branch; "" if HEAD is detached
    branch: str = ""
    head: str = ""
    #: the tip of the worker's own branch; "" if it has none
    tip: str = ""
    #: commits that are not on the default branch; None if there is nothing to compare with
    ahead: int | None = 0
    dirty: tuple[str, ...] = ()
    rebasing: bool = False
    #: an unfinished merge, cherry-pick, revert or bisect
    operation: str = ""
    #: age of `index.lock`; None if there is none
    lock_age_s: float | None = None
    lock_in_use: bool = False


class WorkerFacts(Struct, frozen=True):
    record: WorkerRecord
    #: the path where its worktree belongs
    place: str = ""
    pane: PaneState = PaneState.NONE
    attached: bool = False
    tree: Tree | None = field(default_factory=Tree)
    #: who holds the worker's lock; "" if nobody does
    busy_with: str = ""
    #: what is wrong with the hook settings file
    settings_problem: str = ""
    #: the task according to the conversation, if the record has none
    found_prompt: str = ""
    #: when these facts were collected, and whether a daemon was running
    now: float = 0.0
    daemon_runs: bool = False
    #: the command that starts its agent
    start: str = UP


class Stray(Struct, frozen=True):
    """A directory in .worktrees that belongs to no worker; `llmc add` can adopt worktrees only."""

    name: str
    is_worktree: bool = True


class Facts(Struct, frozen=True):
    """Facts that several checks need; `seen` has what each check collected for itself."""

    now: float
    programs: tuple[Program, ...] = ()
    config_problems: tuple[str, ...] = ()
    #: conflicting settings
    config_advice: tuple[str, ...] = ()
    #: names in config.toml
    configured: tuple[str, ...] = ()
    #: which agents and checks are to be contained
    contained: str = OFF
    state: StateFacts = StateFacts()
    daemon: DaemonFacts = DaemonFacts()
    #: None if tmux did not answer; `tmux_problem` says why
    sessions: tuple[Session, ...] | None = ()
    tmux_problem: str = ""
    workers: tuple[WorkerFacts, ...] = ()
    #: why the root's clone cannot be read
    clone_problem: str = ""
    strays: tuple[Stray, ...] = ()
    #: workers in the event log; read only if state.json has none
    remembered: tuple[str, ...] = ()
    #: result of the last canary
    canary: Verdict | None = None
    #: the command that starts auto mode
    up_auto: str = UP_AUTO
    #: uncommitted changes in the source, which block `llmc accept`
    source_dirty: tuple[str, ...] = ()
    #: what each check collected, by its kind
    seen: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    #: why a check could not collect its facts, by its kind
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def lacking(self) -> set[str]:
        """Which prerequisites of checks are missing."""
        missing = {program.name for program in self.programs if program.problem}
        usable = {
            "git": "git" not in missing,
            "tmux": "tmux" not in missing,
            "clone": "git" not in missing and not self.clone_problem,
            "config": not self.config_problems,
            "state": self.state.kind is StateFile.VALID,
        }
        return {name for name, there in usable.items() if not there}
