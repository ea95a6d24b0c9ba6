"""The root: where a project's llmc files are, and how a command finds them."""

import os
import pwd
import shlex
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from llmc.base.errors import NotFound, Refused
from llmc.config import root_layout, trust


class Root(Struct, frozen=True):
    """Every path below one root, by name."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / root_layout.CONFIG

    @property
    def state(self) -> Path:
        return self.path / root_layout.STATE

    @property
    def state_backup(self) -> Path:
        return self.path / root_layout.STATE_BACKUP

    @property
    def worktrees(self) -> Path:
        return self.path / root_layout.WORKTREES

    @property
    def logs(self) -> Path:
        return self.path / root_layout.LOGS

    @property
    def events(self) -> Path:
        return self.path / root_layout.EVENTS

    @property
    def private(self) -> Path:
        return self.path / root_layout.PRIVATE

    @property
    def daemon(self) -> Path:
        return self.path / root_layout.DAEMON

    @property
    def inbox(self) -> Path:
        return self.path / root_layout.INBOX

    @property
    def locks(self) -> Path:
        return self.path / root_layout.LOCKS

    @property
    def agents(self) -> Path:
        return self.path / root_layout.AGENTS

    @property
    def prompts(self) -> Path:
        return self.path / root_layout.PROMPTS

    @property
    def tasks_ledger(self) -> Path:
        return self.path / root_layout.TASKS_LEDGER

    @property
    def task_pool(self) -> Path:
        """Answers of the task pool command that no task was made of yet."""
        return self.path / root_layout.TASK_POOL

    @property
    def incidents(self) -> Path:
        """What a person was told of, or is about to be."""
        return self.path / root_layout.INCIDENTS

    @property
    def listed(self) -> Path:
        """Touched when the attention list was last brought up to date with tasks and goals."""
        return self.path / root_layout.LISTED

    @property
    def looked(self) -> Path:
        """When a person last read the digest."""
        return self.path / root_layout.LOOKED

    @property
    def heartbeat(self) -> Path:
        return self.path / root_layout.HEARTBEAT

    @property
    def canary(self) -> Path:
        """What the last probe of the client found."""
        return self.path / root_layout.CANARY

    @property
    def prices(self) -> Path:
        """The list of prices that `llmc prices update` brought, over the one that is installed."""
        return self.path / root_layout.PRICES

    @property
    def canaries(self) -> Path:
        """Scratch roots of probes."""
        return self.path / root_layout.CANARIES

    @property
    def overseer_file(self) -> Path:
        """What the supervisor says of itself."""
        return self.path / root_layout.OVERSEER_FILE

    @property
    def trash(self) -> Path:
        return self.path / root_layout.TRASH

    @property
    def trash_ages(self) -> Path:
        return self.path / root_layout.TRASH_AGES

    @property
    def bin(self) -> Path:
        return self.path / root_layout.BIN

    @property
    def slots(self) -> Path:
        """Checkouts in which what lands is validated (landing/slots.py)."""
        return self.path / root_layout.SLOTS

    @property
    def tmux_server(self) -> str:
        return root_layout.tmux_server(str(self.path))

    @property
    def is_default(self) -> bool:
        return self.path == Path(os.path.realpath(default_root()))

    def worktree(self, worker: str) -> Path:
        return self.worktrees / worker

    def log(self, worker: str) -> Path:
        return self.logs / f"{worker}.log"

    def lock(self, name: str) -> Path:
        return self.locks / f"{name}.lock"

    def wake_socket(self) -> Path:
        """The daemon's wake-up socket: in the root, or in a short directory when that path is too long."""
        path = self.path / root_layout.WAKE_SOCKET
        if len(os.fsencode(path)) <= root_layout.MAX_SOCKET_PATH:
            return path
        return short_runtime_dir() / f"{self.tmux_server[-8:]}.sock"


class OverseerRoot(Root, frozen=True):
    """The root as the supervisor's own session has it: record, inbox, locks and socket apart from the fleet's.

    So it disturbs nobody, and works while state.json cannot be read: that may be what it has to mend.
    """

    @property
    def own(self) -> Path:
        return self.path / root_layout.OVERSEER

    @property
    def state(self) -> Path:
        return self.own / "session.json"

    @property
    def state_backup(self) -> Path:
        return self.own / "session.json.bak"

    @property
    def events(self) -> Path:
        return self.own / "events.jsonl"

    @property
    def inbox(self) -> Path:
        return self.own / "inbox"

    @property
    def locks(self) -> Path:
        return self.own / "locks"

    def log(self, worker: str) -> Path:
        return self.own / f"{worker}.log"

    def wake_socket(self) -> Path:
        path = self.own / "wake.sock"
        if len(os.fsencode(path)) <= root_layout.MAX_SOCKET_PATH:
            return path
        return short_runtime_dir() / f"{self.tmux_server[-8:]}-overseer.sock"


#: where a short path is always possible
SHORT_BASE = "/tmp"


def default_root() -> Path:
    return Path(trust.default_root())


def short_runtime_dir() -> Path:
    """A private directory with a short path, for sockets only."""
    # Not $XDG_RUNTIME_DIR: the daemon and a command from cron must mean the same place.
    directory = Path(SHORT_BASE) / f"llmc-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    info = directory.lstat()
    if info.st_uid != os.getuid() or not stat.S_ISDIR(info.st_mode) or info.st_mode & 0o077:
        raise NotFound(f"{directory} is not a private directory of yours", hint=f"Remove {directory}.")
    return directory


def find_root(
    explicit: str | None, environ: Mapping[str, str], cwd: Path, git_root: Callable[[], str | None]
) -> Root:
    """The root a command means, by the rule of config/trust.py."""
    try:
        chosen = trust.choose(explicit, environ, str(cwd), git_root)
    except trust.Untrusted as error:
        raise _refusal(error) from error
    full = Path(chosen.path)
    if not (full / root_layout.CONFIG).exists() and not (full / root_layout.PRIVATE).is_dir():
        raise NotFound(
            f"{full} ({chosen.origin}) is not an llmc root",
            hint="Run `llmc init` inside your repository, or name a root with --root.",
        )
    return Root(full)


def _refusal(error: trust.Untrusted) -> Refused:
    if error.owner is not None:
        return Refused(
            f"{error.path} looks like an llmc root, but belongs to {_user(error.owner)}: nothing in it was read",
            hint="Run llmc as that user, or name a root of yours with --root.",
        )
    return Refused(
        f"{error.path} looks like an llmc root, but is not registered as one of yours: nothing in it was read",
        hint=f"If you made it, register it once: llmc --root {shlex.quote(error.path)} up",
    )


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
