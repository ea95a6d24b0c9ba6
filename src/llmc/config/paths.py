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


class _Place:
    """A path in a root, as an attribute."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __get__(self, root: "Root", kind: object = None) -> Path:
        return root.path / self._place


class Root(Struct, frozen=True):
    """The paths in a root."""

    path: Path

    config = _Place(root_layout.CONFIG)
    state = _Place(root_layout.STATE)
    state_backup = _Place(root_layout.STATE_BACKUP)
    worktrees = _Place(root_layout.WORKTREES)
    logs = _Place(root_layout.LOGS)
    events = _Place(root_layout.EVENTS)
    private = _Place(root_layout.PRIVATE)
    daemon = _Place(root_layout.DAEMON)
    inbox = _Place(root_layout.INBOX)
    locks = _Place(root_layout.LOCKS)
    agents = _Place(root_layout.AGENTS)
    prompts = _Place(root_layout.PROMPTS)
    tasks_ledger = _Place(root_layout.TASKS_LEDGER)
    #: output of the task pool command that is not a task yet
    task_pool = _Place(root_layout.TASK_POOL)
    #: notifications, sent and pending
    incidents = _Place(root_layout.INCIDENTS)
    #: touched when the attention list was last updated from tasks and goals
    listed = _Place(root_layout.LISTED)
    #: when the user last read the digest
    looked = _Place(root_layout.LOOKED)
    heartbeat = _Place(root_layout.HEARTBEAT)
    #: the other nodes of the fleet, as the daemon last saw them
    nodes = _Place(root_layout.NODES)
    #: result of the last canary
    canary = _Place(root_layout.CANARY)
    #: the price list from `llmc prices update`
    prices = _Place(root_layout.PRICES)
    #: scratch roots of canaries
    canaries = _Place(root_layout.CANARIES)
    #: state of the supervisor
    overseer_file = _Place(root_layout.OVERSEER_FILE)
    trash = _Place(root_layout.TRASH)
    trash_ages = _Place(root_layout.TRASH_AGES)
    trash_tasks = _Place(root_layout.TRASH_TASKS)
    bin = _Place(root_layout.BIN)
    #: the homes of contained clients
    homes = _Place(root_layout.HOMES)
    #: the caches of contained programs (repo/containment.py)
    caches = _Place(root_layout.CACHES)
    #: checkouts for validation (landing/slots.py)
    slots = _Place(root_layout.SLOTS)

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

    def cache(self, worktree: Path) -> Path:
        """The cache of one worktree or slot; not shared, so that no agent runs what another left there."""
        return self.caches / worktree.name

    def lock(self, name: str) -> Path:
        return self.locks / f"{name}.lock"

    def wake_socket(self) -> Path:
        """The daemon's wake-up socket, alone in its directory; outside the root if its path there would be too long."""
        return self._socket(self.path / root_layout.WAKE_SOCKET)

    def _socket(self, path: Path, mark: str = "") -> Path:
        if len(os.fsencode(path)) <= root_layout.MAX_SOCKET_PATH:
            return path
        directory = short_runtime_dir() / f"{self.tmux_server[-8:]}{mark}"
        directory.mkdir(mode=0o700, exist_ok=True)
        return directory / path.name


class OverseerRoot(Root, frozen=True):
    """The root for the remediation agent, with its own record, inbox, locks and socket.

    It works even if state.json cannot be read, which may be the failure to fix.
    """

    state = _Place(f"{root_layout.OVERSEER}/session.json")
    state_backup = _Place(f"{root_layout.OVERSEER}/session.json.bak")
    events = _Place(f"{root_layout.OVERSEER}/events.jsonl")
    inbox = _Place(f"{root_layout.OVERSEER}/inbox")
    locks = _Place(f"{root_layout.OVERSEER}/locks")
    own = _Place(root_layout.OVERSEER)

    def log(self, worker: str) -> Path:
        return self.own / f"{worker}.log"

    def wake_socket(self) -> Path:
        return self._socket(self.own / "wake.sock", "-overseer")


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
        raise NotFound(
            f"cannot use {directory} for sockets: it is not a private directory owned by you",
            hint=f"Remove {directory}, then run the command again.",
        )
    return directory


def find_root(
    explicit: str | None,
    environ: Mapping[str, str],
    cwd: Path,
    git_root: Callable[[], str | None],
    tell: Callable[[str], None] | None = None,
) -> Root:
    """The root of a command; see config/trust.py.

    In another project's repository, `~/llmc` is refused; with `tell`, for commands that only read, it only warns.
    """
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
    if chosen.unrelated is not None:
        refusal = _in_another_repository(full, *chosen.unrelated)
        if tell is None:
            raise refusal
        tell(f"using {full}: {refusal.message}")
    return Root(full)


def _in_another_repository(root: Path, repository: str, source: str) -> Refused:
    where = f"{root} works on {source or 'another repository'}"
    return Refused(
        f"the repository {repository} has no llmc root, and {where}",
        hint="Run `llmc init` to create a root for this repository, "
        f"or run the command with `llmc --root {shlex.quote(str(root))}`.",
    )


def _refusal(error: trust.Untrusted) -> Refused:
    if error.owner is not None:
        return Refused(
            f"refusing to use {error.path}: it belongs to user {_user(error.owner)}",
            hint="Run llmc as that user, or pass your own root with --root PATH.",
        )
    return Refused(
        f"refusing to use {error.path}: it is not registered as your root",
        hint=f"If you created this root, register it: llmc --root {shlex.quote(error.path)} up --detach",
    )


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"{uid}"
