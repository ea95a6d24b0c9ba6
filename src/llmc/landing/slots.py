"""Slots: checkouts of exactly one commit, where no agent works, so that a check sees what lands and nothing else.

A slot is a detached worktree of the root's clone in `.llmc/slots/`. Whoever holds its lock may use it; the lock vanishes
with its process, and the next user starts from whatever was left there.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct

from llmc.base import locks, processes
from llmc.base.clock import monotonic
from llmc.base.errors import LlmcError, LockTimeout
from llmc.base.files import private_dir, remove_tree
from llmc.base.proc import Done, ShuttingDown
from llmc.config.paths import Root
from llmc.repo import git, lfs, provision, submodules
from llmc.repo.project import Project

#: how long a check waits for others to be over; each of them may take up to `repo.validate_timeout_s`
WAIT_S = 7200.0
#: how often it looks meanwhile whether it is to end
LOOK_S = 0.5
#: in the environment of everything that is started in a slot: by this it is found when it outlives its llmc
MARK = "LLMC_SLOT"
#: git looks at the files themselves, all of them, whatever the clone's settings say (agents can write those)
_LOOK_CLOSELY = (
    *("core.sparseCheckout=false", "core.fsmonitor=false", "core.untrackedCache=false"),
    *("core.ignoreStat=false", "core.trustctime=true", "core.checkStat=default"),
)
#: what a check, or a git that was killed, can leave in git's own directory of a slot and checkout does not undo
_LEFT_IN_GIT = ("index.lock", "HEAD.lock", "config.worktree", "info/sparse-checkout")

#: what `setup` depends on where `repo.setup_inputs` does not say; a name without a slash is looked for in every directory
SETUP_INPUTS = """
    pyproject.toml setup.py setup.cfg requirements*.txt requirements*.in **/requirements/*.txt constraints*.txt
    uv.lock poetry.lock pdm.lock Pipfile Pipfile.lock .python-version
    package.json package-lock.json npm-shrinkwrap.json pnpm-lock.yaml pnpm-workspace.yaml yarn.lock .yarnrc.yml
    bun.lock .npmrc .nvmrc
    Cargo.toml Cargo.lock rust-toolchain* go.mod go.sum go.work
    pom.xml *.gradle *.gradle.kts gradle.properties gradle.lockfile gradle-wrapper.properties *.versions.toml
    Gemfile Gemfile.lock *.gemspec .ruby-version .tool-versions
""".split()  # noqa: SIM905


class NoSlot(LlmcError):
    """No slot can be used; the message says why."""


class Slot(Struct, frozen=True):
    """One of them, as a place that provision furnishes."""

    number: int
    path: Path
    has_branch: bool = False

    @property
    def name(self) -> str:
        """No worker can have it."""
        return f"_slot-{self.number}"

    @property
    def worktree_path(self) -> str:
        return str(self.path)

    @property
    def output(self) -> Path:
        """What the latest command there printed."""
        return self.path.with_suffix(".log")

    @property
    def base_output(self) -> Path:
        """What the check printed when it failed on the default branch itself."""
        return self.path.with_suffix(".base.log")

    @property
    def memory(self) -> Path:
        return self.path.with_suffix(".json")

    @property
    def stamp(self) -> Path:
        """Written when the latest checkout was complete."""
        return self.path.with_suffix(".stamp")

    @property
    def in_use(self) -> Path:
        """It is there while somebody has the slot, and after they were killed."""
        return self.path.with_suffix(".in-use")


def slot(root: Root, number: int) -> Slot:
    return Slot(number, root.slots / f"{number:02}")


def every(project: Project) -> list[Slot]:
    """Those that may be used, made or not."""
    return [slot(project.root, number) for number in range(1, project.config.repo.validate_slots + 1)]


@contextmanager
def taken(project: Project) -> Iterator[Slot]:
    """The first slot that is free. What an earlier user left running there has ended."""
    ours = {lock_of(project.root, one): one for one in every(project)}
    with ExitStack() as held:
        one = ours[_any_of(project, list(ours), held)]
        private_dir(project.root.slots)
        end_what_runs(one)
        one.in_use.touch(mode=0o600)
        try:
            yield one
        finally:
            one.in_use.unlink(missing_ok=True)


def _any_of(project: Project, paths: list[Path], held: ExitStack) -> Path:
    """Wait for a slot; not longer than this process, or what it does, is wanted."""
    deadline = monotonic() + WAIT_S
    while True:
        try:
            return held.enter_context(locks.any_lock(paths, locks.Rank.SLOT, timeout_s=LOOK_S))
        except LockTimeout:
            if project.stopping is not None and project.stopping():
                raise ShuttingDown from None
            if monotonic() > deadline:
                raise


def lock_of(root: Root, one: Slot) -> Path:
    return root.lock(f"slot-{one.number}")


def end_what_runs(one: Slot) -> None:
    """Commands are processes of their own, and live on when their llmc is killed: two must not share a slot."""
    found = processes.marked(MARK, str(one.path))
    if one.in_use.exists():  # git was not necessarily started by us here, but by what furnishes the slot
        here = [pid for pid in processes.works_in(str(one.path)) if processes.name_of(pid).startswith("git")]
        found += [process for process in map(processes.identify, here) if process is not None]
    left = processes.end_all(found, grace_s=0) if found else []
    if left:
        raise NoSlot(
            f"{one.path} is in use by processes that do not end: {', '.join(str(process.pid) for process in left)}"
        )


def check_out(project: Project, one: Slot, commit: str, *, anew: bool = False) -> bool:
    """The slot is exactly this commit, furnished like a worktree; `anew`: without what git ignores, too.

    Whether it had to be made: then nothing that was known of it is true any more.
    """
    try:
        _exactly(project, one, commit, ignored=anew or project.config.repo.validate_clean)
        return False
    except (LlmcError, OSError):
        pass  # a check can leave anything there; a new one helps, or nothing does
    try:
        _make(project, one, commit)
        _exactly(project, one, commit, ignored=False)
    except (LlmcError, OSError) as error:
        raise NoSlot(f"{one.path} cannot be made: {error}") from error
    return True


def _exactly(project: Project, one: Slot, commit: str, *, ignored: bool) -> None:
    admin = _own_git(project, one)
    for name in _LEFT_IN_GIT:
        (admin / name).unlink(missing_ok=True)
    if ignored:
        provision.set_up_mark(one).unlink(missing_ok=True)  # what `setup` made is about to go
    _distrust(one)
    _git(one, "checkout", "--quiet", "--force", "--detach", commit)
    submodules.scrub(one.path, ignored=ignored)
    _git(one, "clean", "-ffdqx" if ignored else "-ffdq")
    provision.furnish(project, one)
    left = changes(one)
    if left or not is_at(project, one, commit):
        raise NoSlot(f"{one.path} did not become {commit[:12]}: {left[:200]}")
    one.stamp.touch(mode=0o600)


def changes(one: Slot) -> str:
    """What differs from the commit, and what git neither tracks nor ignores; as git prints it."""
    return _git(one, "status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=none").stdout


def _own_git(project: Project, one: Slot) -> Path:
    """Git's directory for this slot and no other: a `.git` that leads elsewhere would change another worktree."""
    admin = git.git_dir(one.path)
    booked = Path((admin / "gitdir").read_text().strip())
    if (
        admin.resolve().parent != (project.root.path / ".git/worktrees").resolve()
        or booked != one.path / ".git"
    ):
        raise NoSlot(f"{one.path} is no worktree of its own")
    return admin


def _distrust(one: Slot) -> None:
    """What git could take for unchanged though it is not leaves the index, so that checkout writes it again.

    `skip-worktree` and `assume-unchanged` survive checkout, reset and clean. And a file that was changed within a second,
    to the same size and with its time put back, looks the same to git; but nobody can put back its ctime.
    """
    rows = _git(one, "ls-files", "-v", "-z").stdout.split("\0")
    try:
        since_ns = one.stamp.stat().st_ctime_ns
    except FileNotFoundError:
        since_ns = 0
    doubtful = [row[2:] for row in rows if row and row[0] != "H"]
    doubtful += _changed(f"{one.path}/", [row[2:] for row in rows if row[:1] == "H"], since_ns)
    if doubtful:
        listed = "".join(f"{name}\0" for name in doubtful).encode("utf-8", "surrogateescape")
        _git(one, "update-index", "--force-remove", "-z", "--stdin", input=listed)


def _changed(place: str, names: list[str], since_ns: int) -> list[str]:
    """Those of the files that changed since; in one loop, for there are ten thousands."""
    lstat, found = os.lstat, []
    for name in names:
        try:
            if lstat(place + name).st_ctime_ns >= since_ns:
                found.append(name)
        except OSError:  # git sees that it is gone
            continue
    return found


def _git(one: Slot, *args: str, input: bytes | None = None) -> Done:
    settings = [word for setting in _LOOK_CLOSELY for word in ("-c", setting)]
    return git.git(one.path, *settings, *args, input=input, timeout_s=600, env={MARK: str(one.path)})


def is_at(project: Project, one: Slot, commit: str) -> bool:
    """Whether the slot's HEAD is detached at this commit; asked of the slot's own git, a check may have removed that."""
    try:
        return (_own_git(project, one) / "HEAD").read_text().strip() == commit
    except (LlmcError, OSError):
        return False


def _make(project: Project, one: Slot, commit: str) -> None:
    clear_away(project, one)
    root = project.root.path
    with project.repo_lock():
        if lfs.is_used(root, commit):
            lfs.set_up(root)  # before files are checked out, so that they come whole
        add = ["worktree", "add", "--quiet", "--force", "--detach", "--no-checkout", str(one.path), commit]
        git.git(root, *add, timeout_s=600)


def clear_away(project: Project, one: Slot) -> None:
    """The checkout goes, with git's entry for it; nothing there is anybody's work."""
    if os.path.lexists(one.path):
        remove_tree(one.path)
    for path in (one.memory, one.output, one.base_output, one.stamp, one.in_use):
        path.unlink(missing_ok=True)
    with project.repo_lock():
        git.git(project.root.path, "worktree", "remove", "--force", "--force", str(one.path), check=False)


def setup_inputs(project: Project, commit: str) -> str:
    """What [repo].setup depends on, as one value: its line, and the files of the commit that `repo.setup_inputs` names."""
    repo = project.config.repo
    patterns = [
        f":(glob){name if '/' in name else f'**/{name}'}" for name in repo.setup_inputs or SETUP_INPUTS
    ]
    files = "".join(f"{' '.join(file)}\0" for file in git.files_of(project.root.path, commit, *patterns))
    from hashlib import sha256  # 4 ms that an accept without a check does not need

    return sha256(f"{repo.setup}\0{files}".encode("utf-8", "surrogateescape")).hexdigest()


def left_over(project: Project) -> list[Slot]:
    """Slots that no check uses any more, by the configuration, and nobody has now."""
    repo = project.config.repo
    used = repo.validate_slots if repo.validate_in == "slot" else 0
    try:
        there = sorted(entry.name for entry in os.scandir(project.root.slots) if entry.is_dir())
    except OSError:
        return []
    found = [slot(project.root, int(name)) for name in there if name.isdecimal() and int(name) > used]
    return [one for one in found if not locks.is_locked(lock_of(project.root, one))]


def discard(project: Project, one: Slot) -> None:
    """A slot that nobody uses goes; who takes it meanwhile keeps it."""
    with locks.lock(lock_of(project.root, one), locks.Rank.SLOT, timeout_s=1):
        end_what_runs(one)
        clear_away(project, one)
