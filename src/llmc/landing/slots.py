"""Slots: checkouts of exactly one commit, unused by agents, so that a check sees only what lands.

A slot is a detached worktree of the root's clone in `.llmc/slots/`. Only the holder of its lock uses it. The lock
ends with the holder's process, and the next holder starts from what was left there.
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
from llmc.repo import git, lfs, provision, submodules, uncommitted
from llmc.repo.dead_locks import git_commands_in
from llmc.repo.project import Project

#: how long a check waits for others; each may take up to `repo.validate_timeout_s`
WAIT_S = 7200.0
#: how often it checks in the meantime whether it must stop
LOOK_S = 0.5
#: set in the environment of everything started in a slot, to find processes that outlive their llmc
MARK = "LLMC_SLOT"
#: left in a slot's git directory by a check or a killed git; checkout does not undo these
_LEFT_IN_GIT = ("index.lock", "HEAD.lock", "config.worktree", "info/sparse-checkout")

#: errors caused by what a check left: from git, from the system, and from Python for invalid text
_NOT_USABLE = (LlmcError, OSError, ValueError)

#: default inputs of `setup` without `repo.setup_inputs`; names without a slash match in every directory
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
    """No slot is usable; the message says why."""


class Slot(Struct, frozen=True):
    """One slot, as a checkout for provision."""

    number: int
    path: Path
    has_branch: bool = False

    @property
    def name(self) -> str:
        """Not a valid worker name."""
        return f"_slot-{self.number}"

    @property
    def worktree_path(self) -> str:
        return str(self.path)

    @property
    def output(self) -> Path:
        """The output of the latest command."""
        return self.path.with_suffix(".log")

    @property
    def base_output(self) -> Path:
        """The output of the check when it failed on the default branch itself."""
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
        """Exists while the slot is in use, and after its holder was killed."""
        return self.path.with_suffix(".in-use")


def slot(root: Root, number: int) -> Slot:
    return Slot(number, root.slots / f"{number:02}")


def every(project: Project) -> list[Slot]:
    """The slots that may be used, whether or not they exist."""
    return [slot(project.root, number) for number in range(1, project.config.repo.validate_slots + 1)]


@contextmanager
def taken(project: Project) -> Iterator[Slot]:
    """Take the first free slot, and stop what an earlier holder left running there."""
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
    """Wait for a slot, for up to WAIT_S or until this process has to stop."""
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
    """Stop commands that outlived a killed llmc: two must not share a slot."""
    found = processes.marked(MARK, str(one.path))
    if one.in_use.exists():  # git may have been started by provisioning, not by a check
        here = map(processes.identify, git_commands_in(one.path))
        found += [process for process in here if process is not None]
    left = processes.end_all(found, grace_s=0) if found else []
    if left:
        raise NoSlot(
            f"{one.path} is in use by processes that cannot be stopped: pid {', '.join(str(process.pid) for process in left)}"
        )


def check_out(project: Project, one: Slot, commit: str, *, from_scratch: bool = False) -> bool:
    """Check out exactly this commit in the slot, provisioned like a worktree; `from_scratch`: remove ignored files too.

    Returns whether the slot was recreated: then nothing known about it holds.
    """
    try:
        if from_scratch:
            _drop_cache(project, one)
        _exactly(project, one, commit, ignored=from_scratch or project.config.repo.validate_clean)
        return False
    except _NOT_USABLE:
        pass  # a check can leave anything there; try a new slot
    try:
        _make(project, one, commit)
        _exactly(project, one, commit, ignored=False)
    except _NOT_USABLE as error:
        raise NoSlot(f"cannot create {one.path}: {error}") from error
    return True


def _exactly(project: Project, one: Slot, commit: str, *, ignored: bool) -> None:
    admin = _own_git(project, one)
    for name in _LEFT_IN_GIT:
        (admin / name).unlink(missing_ok=True)
    if ignored:
        provision.set_up_mark(one).unlink(missing_ok=True)  # the results of `setup` are about to be removed
    _distrust(one)
    _git(one, "checkout", "--quiet", "--force", "--detach", commit)
    submodules.scrub(one.path, ignored=ignored)
    _git(one, "clean", "-ffdqx" if ignored else "-ffdq")
    provision.furnish(project, one)
    left = changes(one)
    if left or not is_at(project, one, commit):
        raise NoSlot(f"{one.path} does not match {commit[:12]} after checkout: {left[:200]}")
    one.stamp.touch(mode=0o600)


def changes(one: Slot) -> str:
    """Changed and untracked files, as git prints them."""
    return _git(one, "status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=none").stdout


def _own_git(project: Project, one: Slot) -> Path:
    """The git directory of exactly this slot: if `.git` pointed elsewhere, git would change another worktree."""
    admin = git.git_dir(one.path)
    booked = Path((admin / "gitdir").read_text().strip())
    if (
        admin.resolve().parent != (project.root.path / ".git/worktrees").resolve()
        or booked != one.path / ".git"
    ):
        raise NoSlot(f"{one.path}/.git points to another worktree or repository")
    return admin


def _distrust(one: Slot) -> None:
    """Remove files from the index that git could wrongly take for unchanged, so that checkout rewrites them.

    `skip-worktree` and `assume-unchanged` survive checkout, reset and clean. A file changed within a second, to the same
    size and with its time restored, looks unchanged to git, but its ctime cannot be restored.
    """
    rows = _git(one, "ls-files", "-v", "-z").stdout.split("\0")
    try:
        since_ns = one.stamp.stat().st_ctime_ns
    except FileNotFoundError:
        since_ns = 0
    doubtful = [row[2:] for row in rows if row and row[0] != "H"]
    doubtful += _changed(f"{one.path}/", [row[2:] for row in rows if row[:1] == "H"], since_ns)
    if doubtful:
        names = git.nul_separated(doubtful)
        _git(one, "update-index", "--force-remove", "-z", "--stdin", input=names)


def _changed(place: str, names: list[str], since_ns: int) -> list[str]:
    """The files that changed since; in one loop, because there may be tens of thousands."""
    lstat, found = os.lstat, []
    for name in names:
        try:
            if lstat(place + name).st_ctime_ns >= since_ns:
                found.append(name)
        except OSError:  # git notices that it is missing
            continue
    return found


def _git(one: Slot, *args: str, input: bytes | None = None) -> Done:
    settings = uncommitted.with_settings(uncommitted.EVERYWHERE)
    return git.git(one.path, *settings, *args, input=input, timeout_s=600, env={MARK: str(one.path)})


def is_at(project: Project, one: Slot, commit: str) -> bool:
    """Whether the slot's HEAD is detached at this commit; False if a check damaged its git directory."""
    try:
        return (_own_git(project, one) / "HEAD").read_text().strip() == commit
    except _NOT_USABLE:
        return False


def _make(project: Project, one: Slot, commit: str) -> None:
    clear_away(project, one)
    root = project.root.path
    with project.repo_lock():
        if lfs.is_used(root, commit):
            lfs.set_up(root)  # before the checkout, so that large files are complete
        add = ["worktree", "add", "--quiet", "--force", "--detach", "--no-checkout", str(one.path), commit]
        git.git(root, *add, timeout_s=600)


def _drop_cache(project: Project, one: Slot) -> None:
    if (cache := project.root.cache(one.path)).is_dir():
        remove_tree(cache)


def clear_away(project: Project, one: Slot) -> None:
    """Remove the checkout and git's entry for it; it contains no work."""
    _drop_cache(project, one)
    if os.path.lexists(one.path):
        remove_tree(one.path)
    for path in (one.memory, one.output, one.base_output, one.stamp, one.in_use):
        path.unlink(missing_ok=True)
    with project.repo_lock():
        git.git(project.root.path, "worktree", "remove", "--force", "--force", str(one.path), check=False)


def setup_inputs(project: Project, commit: str) -> str:
    """A digest of what [repo].setup depends on: the command, and the commit's files that match `repo.setup_inputs`."""
    repo = project.config.repo
    patterns = [
        f":(glob){name if '/' in name else f'**/{name}'}" for name in repo.setup_inputs or SETUP_INPUTS
    ]
    files = "".join(f"{' '.join(file)}\0" for file in git.files_of(project.root.path, commit, *patterns))
    from hashlib import sha256  # 4 ms, not needed without a check

    return sha256(f"{repo.setup}\0{files}".encode("utf-8", "surrogateescape")).hexdigest()


def left_over(project: Project) -> list[Slot]:
    """Slots that the configuration no longer uses, and that are free."""
    repo = project.config.repo
    used = repo.validate_slots if repo.validate_in == "slot" else 0
    try:
        there = sorted(entry.name for entry in os.scandir(project.root.slots) if entry.is_dir())
    except OSError:
        return []
    found = [slot(project.root, int(name)) for name in there if name.isdecimal() and int(name) > used]
    return [one for one in found if not locks.is_locked(lock_of(project.root, one))]


def discard(project: Project, one: Slot) -> None:
    """Remove an unused slot, unless it is taken in the meantime."""
    with locks.lock(lock_of(project.root, one), locks.Rank.SLOT, timeout_s=1):
        end_what_runs(one)
        clear_away(project, one)
