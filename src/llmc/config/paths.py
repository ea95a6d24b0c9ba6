"""The paths of a root, and how a command finds its root."""

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
    """The paths in a root."""

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
        """Output of the task pool command that is not a task yet."""
        return self.path / root_layout.TASK_POOL

    @property
    def incidents(self) -> Path:
        """Notifications, sent and pending."""
        return self.path / root_layout.INCIDENTS

    @property
    def listed(self) -> Path:
        """Touched when the attention list was last updated from tasks and goals."""
        return self.path / root_layout.LISTED

    @property
    def looked(self) -> Path:
        """When the user last read the digest."""
        return self.path / root_layout.LOOKED

    @property
    def heartbeat(self) -> Path:
        return self.path / root_layout.HEARTBEAT

    @property
    def canary(self) -> Path:
        """Result of the last canary."""
        return self.path / root_layout.CANARY

    @property
    def prices(self) -> Path:
        """The price list from `llmc prices update`."""
        return self.path / root_layout.PRICES

    @property
    def canaries(self) -> Path:
        """Scratch roots of canaries."""
        return self.path / root_layout.CANARIES

    @property
    def overseer_file(self) -> Path:
        """State of the supervisor."""
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
        """Checkouts for validation (landing/slots.py)."""
        return self.path / root_layout.SLOTS

    @property
    def reviews(self) -> Path:
        """Comments on the changes of each worker (reviews/comments.py)."""
        return self.path / root_layout.REVIEWS

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
        """The daemon's wake-up socket: in the root, or in a short directory if that path is too long."""
        path = self.path / root_layout.WAKE_SOCKET
        if len(os.fsencode(path)) <= root_layout.MAX_SOCKET_PATH:
            return path
        return short_runtime_dir() / f"{self.tmux_server[-8:]}.sock"


class OverseerRoot(Root, frozen=True):
    """The root for the remediation agent, with its own record, inbox, locks and socket.

    It works even if state.json cannot be read, which may be the failure to fix.
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


#: parent of the short directory for sockets
SHORT_BASE = "/tmp"


def default_root() -> Path:
    return Path(trust.default_root())


def short_runtime_dir() -> Path:
    """A private directory with a short path, for sockets only."""
    # Not $XDG_RUNTIME_DIR, which is different in cron.
    directory = Path(SHORT_BASE) / f"llmc-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    info = directory.lstat()
    if info.st_uid != os.getuid() or not stat.S_ISDIR(info.st_mode) or info.st_mode & 0o077:
        raise NotFound(f"{directory} is not your private directory", hint=f"Remove {directory}.")
    return directory


def find_root(
    explicit: str | None, environ: Mapping[str, str], cwd: Path, git_root: Callable[[], str | None]
) -> Root:
    """The root of a command; see config/trust.py."""
    try:
        chosen = trust.choose(explicit, environ, str(cwd), git_root)
    except trust.Untrusted as error:
        raise _refusal(error) from error
    full = Path(chosen.path)
    if not (full / root_layout.CONFIG).exists() and not (full / root_layout.PRIVATE).is_dir():
        raise NotFound(
            f"{full} ({chosen.origin}) is not an llmc root",
            hint="Run `llmc init` inside your repository, or pass --root PATH.",
        )
    return Root(full)


def _refusal(error: trust.Untrusted) -> Refused:
    if error.owner is not None:
        return Refused(
            f"refusing to use {error.path}: it belongs to user {_user(error.owner)}",
            hint="Run llmc as that user, or pass your own root with --root PATH.",
        )
    return Refused(
        f"refusing to use {error.path}: it is not registered as your root",
        hint=f"If you created it, register it: llmc --root {shlex.quote(error.path)} up --detach",
    )


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"{uid}"
