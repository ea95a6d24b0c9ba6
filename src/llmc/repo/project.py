"""A root with everything a command needs."""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import asdict, replace

from llmc.agents.kinds import agent_named
from llmc.agents.protocol import Agent
from llmc.base import locks, urls
from llmc.base.clock import now_unix
from llmc.base.errors import LlmcError, NotFound
from llmc.base.names import OVERSEER, SessionName
from llmc.base.panes import Pane
from llmc.base.tmux import Tmux, Unknown
from llmc.base.wake import wake
from llmc.config import trust
from llmc.config.load import load_config
from llmc.config.model import Config, Repo
from llmc.config.paths import OverseerRoot, Root, find_root
from llmc.records.items import UP, UP_AUTO, up_auto
from llmc.records.store import Store
from llmc.records.worker import WorkerRecord
from llmc.repo import clone_guard, git

if TYPE_CHECKING:
    from llmc.records.landing_ledger import LandingLedger
    from llmc.repo.rules.fenced_push import Remote


class Place(Protocol):
    """A checkout that llmc provisions: a worker's worktree, given by its record, or a slot."""

    @property
    def name(self) -> str: ...

    @property
    def worktree_path(self) -> str: ...

    @property
    def has_branch(self) -> bool:
        """Whether a worker uses the checkout; otherwise nothing in it has to be kept."""
        ...


class Shared(Struct, frozen=True):
    """What the machines of a fleet share: the remote that they land on, and the ledger of landings."""

    remote: "Remote"
    ledger: "LandingLedger"


class Project(Struct, frozen=True):
    root: Root
    config: Config
    store: Store
    tmux: Tmux
    #: whether this process is the daemon, which must not wake itself: it would never sleep
    in_daemon: bool = False
    #: whether this process is stopping, so that a long command is abandoned; None: never
    stopping: Callable[[], bool] | None = None
    #: the agent that the daemon resolved at its start; None: as configured
    pinned_agent: Agent | None = None
    #: the directory that the client must trust, if not the root (doctor/canary.py)
    trusted_as: Path | None = None
    #: what it shares with the other machines of its fleet; None: it works alone
    shared: Shared | None = None

    def __post_init__(self) -> None:
        # From here on, the guard checks the root before every git call in it.
        clone_guard.stand(self.root, os.path.expanduser(self.config.repo.source), self.base)

    @property
    def base(self) -> str:
        """The remote-tracking branch of the default branch."""
        return f"refs/remotes/origin/{self.config.repo.default_branch}"

    @property
    def source(self) -> str:
        """The repository of the user: a path, or a URL without its password."""
        return urls.split(os.path.expanduser(self.config.repo.source)).address

    @property
    def upstream(self) -> str:
        """Where accepted work lands: the source, or the remote that a fleet shares."""
        return self.shared.remote.address if self.shared else self.source

    @property
    def lands_elsewhere(self) -> bool:
        return self.shared is not None

    def session(self, worker: str) -> SessionName:
        if self.root.is_default:
            return SessionName(f"llmc-{worker}")
        safe = "".join(c if c.isalnum() or c == "-" else "-" for c in self.root.path.name)
        return SessionName(f"llmc-{safe}-{worker}")

    def pane(self, record: WorkerRecord) -> Pane | Unknown | None:
        """The pane of a worker's agent; None if it is gone."""
        return self.tmux.agent(record.name, record.session_id, record.pane_id, record.instance)

    def pane_now(self, record: WorkerRecord) -> Pane | Unknown | None:
        """The pane as it is now, before an action: the daemon may remember one from before a user attached."""
        return self.tmux.agent(record.name, record.session_id, record.pane_id, record.instance, now=True)

    def is_overseer(self, session: SessionName) -> bool:
        """Whether a session is the supervisor's own, which only the supervisor may stop."""
        return session == self.session(OVERSEER)

    @contextmanager
    def worker_lock(self, worker: str, *, timeout_s: float = 60) -> Iterator[None]:
        self.store.refuse_elsewhere()
        try:
            with locks.lock(self.root.lock(f"worker-{worker}"), locks.Rank.WORKER, timeout_s=timeout_s):
                yield
        finally:
            # The daemon could not apply events in the meantime: make it check again.
            if not self.in_daemon:
                self.wake(worker)

    @contextmanager
    def accept_lock(self, worker: str, *, timeout_s: float = 60) -> Iterator[None]:
        """Hold the accept lock, for callers that can wait for a running accept; taken before the worker's own lock."""
        with locks.lock(self._accept_lock(worker), locks.Rank.ACCEPT, timeout_s=timeout_s):
            yield

    def try_accept_lock(self, worker: str) -> AbstractContextManager[bool]:
        return locks.attempt(self._accept_lock(worker), locks.Rank.ACCEPT)

    def others_accept(self, worker: str) -> bool:
        """Whether another process or thread is accepting the worker's work now."""
        return locks.is_locked_by_others(self._accept_lock(worker))

    def _accept_lock(self, worker: str) -> Path:
        return self.root.lock(f"accept-{worker}")

    @contextmanager
    def worker_unlocked(self, worker: str) -> Iterator[None]:
        """Release the worker's lock for a while; the caller holds it and the accept lock.

        Taking the lock back under a ticket cannot block: only an accept of this worker waits for a ticket with it.
        """
        with locks.released(self.root.lock(f"worker-{worker}"), timeout_s=600):
            if not self.in_daemon:
                self.wake(worker)
            yield

    @contextmanager
    def repo_lock(self) -> Iterator[None]:
        with locks.lock(self.root.lock("repo"), locks.Rank.REPO, timeout_s=300):
            yield

    def wake(self, worker: str = "") -> None:
        wake(self.root.wake_socket(), worker)

    def daemon_runs(self) -> bool:
        return locks.is_held(self.root.lock("daemon"))

    def up_auto(self, *, sent: bool = False) -> str:
        """The command that starts auto mode, with the options of its last run.

        While auto mode runs, `up` refuses options, so there are none. `sent`: for a text that is read after
        the run.
        """
        from llmc.records.sight import registration  # few commands need a hint

        if not sent and self.daemon_runs():
            found = registration(self.root.path)
            if found is None or found.auto:
                return UP_AUTO
        try:
            return up_auto(asdict(self.store.read().auto), math.inf if sent else now_unix())
        except LlmcError:
            return UP_AUTO

    def start_command(self, record: WorkerRecord) -> str:
        """The command that starts a worker's agent; the agents of auto workers start only with auto mode."""
        return self.up_auto() if record.auto else UP


def open_project(explicit_root: str | None, tell: Callable[[str], None] | None = None) -> Project:
    root = locate_root(explicit_root, tell)
    return opened(root, load_config(root.config))


def opened(root: Root, config: Config) -> Project:
    """A root with its configuration; in a fleet, its work lands on the fleet's remote."""
    shared = _in_fleet(config) if config.fleet.database else None
    return Project(root, config, Store(root), Tmux(root.tmux_server), shared=shared)


def _in_fleet(config: Config) -> Shared:
    from llmc.fleet.database import open_database  # most roots work alone
    from llmc.fleet.landings import Landings
    from llmc.fleet.nodes import node_name
    from llmc.repo.rules.fenced_push import Remote

    fleet = config.fleet
    address = urls.split(os.path.expanduser(fleet.remote or config.repo.source)).address
    remote = Remote(address, config.repo.default_branch, fleet.fence_ref)
    ledger = Landings(
        open_database(fleet.database), node_name(config), f"{address} {remote.head}", fleet.lease_secs
    )
    return Shared(remote, ledger)


def for_overseer(project: Project) -> Project:
    """The same root for the supervisor's own session, which has its own record, inbox and socket."""
    root = OverseerRoot(project.root.path)
    return replace(project, root=root, store=Store(root), in_daemon=True)


def of_fleet(project: Project) -> Project:
    """The project of the root's workers, also for one from `for_overseer`."""
    if not isinstance(project.root, OverseerRoot):
        return project
    root = Root(project.root.path)
    return replace(project, root=root, store=Store(root))


def bare_project(root: Root) -> Project:
    """A root whose configuration may be broken, only for stopping its processes."""
    return Project(root, Config(repo=Repo(source=str(root.path))), Store(root), Tmux(root.tmux_server))


def locate_root(explicit: str | None, tell: Callable[[str], None] | None = None) -> Root:
    """The root of a command. `tell`: for commands that only read, as in `find_root` (config/paths.py)."""
    try:
        cwd = Path(os.path.realpath("."))
    except FileNotFoundError as error:
        if not (explicit or os.environ.get("LLMC_ROOT")):
            hint = "Change to an existing directory, or specify a root with --root PATH."
            raise NotFound(
                "cannot find the llmc root: the current directory no longer exists", hint=hint
            ) from error
        cwd = Path("/")
    return find_root(
        *(explicit, os.environ, cwd),
        lambda: trust.root_of_repository(str(cwd), os.environ, lambda: git.config_get(cwd, "llmc.root")),
        tell,
    )


def agent_for(project: Project) -> Agent:
    """The configured agent; LLMC_AGENT (`claude`, `scripted` or a path) overrides."""
    if project.pinned_agent is not None:
        return project.pinned_agent
    choice = os.environ.get("LLMC_AGENT") or project.config.defaults.agent
    return agent_named(choice, project.config.defaults.agent_command, project.root.agents)


def subjects(project: Project, commits: list[str]) -> dict[str, str]:
    """The subjects of commits, in one call, without those of missing commits; empty if git fails."""
    if not commits:
        return {}
    options = ["--no-walk=unsorted", "--ignore-missing", "--no-show-signature", "-z", "--format=%H %s"]
    try:
        shown = git.git(project.root.path, "log", *options, *commits, check=False)
    except LlmcError:
        return {}
    return {sha: subject for sha, _, subject in (row.partition(" ") for row in git.rows(shown.stdout))}
