"""Provision a worker's worktree. Safe to repeat."""

import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from llmc.base import inside
from llmc.base.clock import Aside
from llmc.base.errors import LlmcError, ToolFailed
from llmc.base.faults import step as fault_step
from llmc.base.files import append_line, write_atomic
from llmc.base.proc import Done
from llmc.base.text import some_files
from llmc.config import root_layout
from llmc.records.worker import WorkerRecord
from llmc.repo import (
    copied_files,
    git,
    git_dirs,
    indexes,
    lfs,
    submodules,
    trash,
    uncommitted,
    user_commands,
    worktrees,
)
from llmc.repo.project import Place, Project

SETUP_TIMEOUT_S = 1800
#: what git prints when it refuses to move before it has changed a file
_TOUCHED_NOTHING = (
    "not uptodate",
    "would be overwritten",
    "would be removed",
    "would lose untracked",
    "overlaps with",
)
#: most attempts to read a worktree without a commit in between
_LOOKS = 5


def provision(project: Project, record: WorkerRecord) -> list[str]:
    """Create the worktree on its branch, with its files and setup; returns what is missing."""
    worktree = Path(record.worktree_path)
    link(project, record)
    missing = furnish(project, record, thorough=True)
    ran = set_up(
        record,
        lambda: user_commands.run_command(
            project, record.name, project.config.repo.setup, cwd=worktree, timeout_s=SETUP_TIMEOUT_S
        ),
    )
    if ran is not None and not ran.ok:
        raise user_commands.failure(project, record.name, ran, what="repo.setup")
    return missing


def set_up(place: Place, run: Callable[[], Done], *, inputs: str = "") -> Done | None:
    """Run [repo].setup, unless it succeeded here with the same inputs; None: nothing ran."""
    done = set_up_mark(place)
    if done.exists() and done.read_text() == inputs:
        return None
    done.unlink(missing_ok=True)
    ran = run()
    if ran.ok:
        write_atomic(done, inputs.encode())
    return ran


def set_up_mark(place: Place) -> Path:
    """The file that marks a successful setup, so that a failed one runs again; removed with the git directory."""
    return git.llmc_file(Path(place.worktree_path), "llmc-provisioned")


def link(project: Project, record: WorkerRecord) -> None:
    """Make the worktree usable for git, without changing its files."""
    worktree, root = Path(record.worktree_path), project.root.path
    own = root / root_layout.REPOS / record.name
    if git_dirs.is_worktree_of(worktree, root):
        is_apart = git_dirs.own_repo(worktree) is not None
        if not is_apart and worktrees.is_half_made(root, worktree):
            worktrees.finish(project, record)
        if is_apart and not is_contained(project, record):
            from llmc.sandbox import probe  # most workers are not contained

            if probe.bubblewrap() is None:  # git cannot run there any more
                start_over(project, record)
                return
        if not is_apart or not git_dirs.checkout_mark(own).exists():
            return
    base = refresh_base(project)
    if own.is_dir() or is_contained(project, record):
        from llmc.repo import apart  # most workers are not contained

        apart.ensure(project, record, base)
    else:
        worktrees.ensure(project, record, base)


def is_contained(project: Project, record: WorkerRecord) -> bool:
    """Whether the worker's agent should be contained; the supervisor's and the canary's should not."""
    wanted = project.config.sandbox_of(record.name) if record.has_branch else "off"
    if wanted == "off":
        return False
    from llmc.sandbox import probe  # most agents are not contained

    return probe.is_contained(wanted)


def needs_new_repository(project: Project, record: WorkerRecord) -> bool:
    """Whether a contained worker has commits that git refuses to fetch, or a repository that git cannot read."""
    worktree = Path(record.worktree_path)
    if git_dirs.own_repo(worktree) is None:
        return False
    from llmc.repo import own_repos  # most workers are not contained

    if own_repos.take(project.root.path, record.name):
        return True
    try:
        git.git(worktree, "ls-files", "--unmerged")
    except git.WaitsForPipe:
        return False  # it is in the worktree, not in the repository
    except (ToolFailed, OSError, ValueError, RecursionError):
        return True
    return False


def start_over(project: Project, record: WorkerRecord, *, at_base: bool = False) -> None:
    """Give a contained worker a new repository; the old one goes to the trash as it is. No agent may be running in it.

    `at_base`: leave out the worker's commits even if they are in the clone; those are pinned.
    """
    from llmc.repo import apart, submodules  # most workers are not contained

    # Submodules that cannot be read go to the trash with the repository.
    with contextlib.suppress(LlmcError, OSError, ValueError, RecursionError):
        submodules.embed(project, record)
    apart.start_over(project, record, refresh_base(project), at_base=at_base)


def settle_repository(project: Project, record: WorkerRecord, *, contained: bool) -> None:
    """Prepare the repository for a launch: a contained agent needs its own, any other shares the clone."""
    worktree = Path(record.worktree_path)
    is_apart = git_dirs.own_repo(worktree) is not None
    if is_apart == contained or not git_dirs.is_worktree_of(worktree, project.root.path):
        return
    from llmc.repo import apart, submodules  # most workers are not contained

    submodules.embed(project, record)
    move = apart.move_apart if contained else apart.move_back
    move(project, record, refresh_base(project))


def furnish(project: Project, place: Place, *, thorough: bool = False) -> list[str]:
    """Provide what a checkout needs besides its commit; each problem is reported once.

    `thorough`: the worktree may have work in progress, and nothing may be known about it.
    """
    worktree = Path(place.worktree_path)
    worker = place.name if place.has_branch else ""
    missing = submodules.update(project, worktree, worker, leave_work=thorough)
    missing += lfs.settle(project, worktree, thorough=thorough)
    missing += copied_files.copy_files(project, place, worktree)
    if project.config.repo.serena:
        from llmc.repo import serena  # most repositories do not use it

        missing += serena.settle(project, place, worktree)
    return _say_once(project, place, worktree, missing)


def _say_once(project: Project, place: Place, worktree: Path, missing: list[str]) -> list[str]:
    """Report only new problems: a worktree is provisioned many times."""
    if not missing:
        return []
    said = git.llmc_file(worktree, "llmc-said")
    # Names of files may be no UTF-8.
    before = said.read_text(errors="surrogateescape").split("\n") if said.exists() else []
    news = [text for text in missing if text not in before]
    if news:
        with project.store.transaction() as tx:
            for text in news:
                tx.emit("provision_incomplete", worker=place.name if place.has_branch else None, reason=text)
        for text in news:
            append_line(said, text.replace("\n", " ").encode(errors="surrogateescape"))
    return news


def refresh_base(project: Project) -> str:
    """Fetch the default branch; returns its commit."""
    commit = git.resolve(project.root.path, project.base)
    if commit is not None and commit == known_tip(project):
        return commit  # much cheaper than a fetch without changes
    with project.repo_lock():
        fetch_base(project)
    return git.out(project.root.path, "rev-parse", "--verify", f"{project.base}^{{commit}}")


def fetch_base(project: Project) -> None:
    """Fetch the default branch from where work lands; the caller holds the repo lock."""
    shared = project.shared
    if shared is None:
        from llmc.repo import sources  # a fetch is rare where the source is local

        sources.fetch(project)
        return
    from llmc.repo import fence  # most roots work alone

    fence.fetch_seen(project.root.path, shared.remote)


def known_tip(project: Project) -> str | None:
    """The current commit of the default branch where work lands; None if only a fetch can tell."""
    return None if project.lands_elsewhere else source_tip(project)


def source_tip(project: Project) -> str | None:
    """The current commit of a local source's default branch; None if only a fetch can tell."""
    source, branch = Path(project.source), project.config.repo.default_branch
    try:
        return git.resolve(source, f"refs/heads/{branch}") if source.is_dir() else None
    except ToolFailed:
        return None  # not a repository: the fetch will say so


def reset_in_place(project: Project, record: WorkerRecord, commit: str, why: str) -> str | None:
    """Reset the worktree to a commit; its work is pinned first. The directory itself stays the same.

    Returns the trash ref, None if nothing had to be pinned. Ignored files (build caches) stay.
    """
    key = f"worktree:{record.name}"
    worktree, saved = Path(record.worktree_path), _Saved()
    try:
        try:
            _past_pipes(project, record, commit, why, saved)
        except (LlmcError, OSError):
            # An agent can leave files that even their owner may not read, or change.
            if not os.path.lexists(worktree / ".git") or not inside.allow_below(worktree):
                raise
            _past_pipes(project, record, commit, why, saved)
    except LlmcError as error:
        with contextlib.suppress(LlmcError), project.store.transaction() as tx:
            again = f"llmc accept {record.name}" if record.accept else f"llmc reset {record.name}"
            text = f"could not reset the worktree: {error.message}"
            tx.raise_item(key, kind="worktree", severity="blocked", who=record.name, text=text, next=again)
        raise
    if key in project.store.read().attention:
        with project.store.transaction() as tx:
            tx.clear_item(key)
    return saved.ref


class _Saved(Struct):
    """The trash entry of a reset. Files that were changed after its first try have entries of their own."""

    ref: str | None = None
    #: git has changed files, perhaps only some of them
    moved: bool = False

    def add(self, pinned: str | None) -> None:
        self.ref = self.ref if self.ref and self.moved else pinned or self.ref


def _past_pipes(project: Project, record: WorkerRecord, commit: str, why: str, saved: _Saved) -> None:
    try:
        _reset(project, record, commit, why, saved)
    except git.WaitsForPipe:
        from llmc.repo import pipes  # few agents make one

        pipes.past(Path(record.worktree_path), lambda: _reset(project, record, commit, why, saved))


def _reset(project: Project, record: WorkerRecord, commit: str, why: str, saved: _Saved) -> None:
    worktree = Path(record.worktree_path)
    link(project, record)
    if needs_new_repository(project, record):
        start_over(project, record)
    worktrees.drop_dead_locks(project, record)
    for _ in range(_LOOKS):
        modules = submodules.pin_changes(project, record, worktree, commit, why)
        operations = uncommitted.operations_in_progress(worktree)
        found, overwritten = _seen_before(worktree, commit)
        on_branch, head = found.branch == record.branch, found.head
        at_rest = found.clean and on_branch and not operations
        if at_rest and not modules and git.same_commit(worktree, "HEAD", commit):
            furnish(project, record)
            return
        # The agent may have left its branch, or be rebasing it: then its commits are not in HEAD.
        tip = head if on_branch else git.resolve(worktree, f"refs/heads/{record.branch}")
        overwritten -= {*modules}  # git does not touch submodules
        has_work = bool(overwritten) or not found.clean or not _are_in(worktree, {head, tip}, commit)
        with indexes.own_index(worktree) as index:
            pinned = None
            if has_work or "rebase" in operations:
                pinned = trash.pin(
                    *(project.root, worktree, record.name, why),
                    branch=record.branch,
                    ignored=sorted(overwritten),
                    known=found,
                    index=index,
                )
            saved.add(pinned)
            before, saved.moved = saved.moved, True  # also if git fails halfway
            with fault_step("provision.reset"):
                if at_rest and head and not index.exists():
                    done = _move(worktree, "reset", "--quiet", "--keep", commit)
                else:
                    start = pinned or head or indexes.no_tree(worktree)
                    done = _move_files(worktree, start, commit, index)
                    if done:
                        _check_out(worktree, record.branch, commit, operations, on_branch=on_branch)
        if not done:
            saved.moved = before
            continue
        # This commit's ignore rules may differ from the agent's.
        with fault_step("provision.clean"):
            saved.ref = trash.remove_untracked(project.root, worktree, record.name, why, saved.ref)
        submodules.clean(project, record, worktree, modules, why)
        furnish(project, record)
        left = uncommitted.tree_state(worktree)
        if left.tracked:
            _restore_missing(worktree, left.tracked)
            indexes.compare_again(worktree, left.tracked)
            left = uncommitted.tree_state(worktree)
        if left.clean:
            return
        if left.files == found.files:
            raise _not_clean(record, left)
    raise _changes(worktree)


def _not_clean(record: WorkerRecord, left: uncommitted.TreeState) -> LlmcError:
    hint = ""
    if left.tracked:  # line endings that .gitattributes does not allow, or names that differ by case only
        hint = "If a fresh clone also shows these files as changed, run `git add --renormalize .` in the source repository and commit."
    return LlmcError(
        f"{record.name}'s worktree is not clean after a reset ({some_files(left.files)})", hint=hint
    )


def _changes(worktree: Path) -> LlmcError:
    names = some_files(uncommitted.tree_state(worktree).files)
    return LlmcError(
        f"files changed during the reset ({names})", hint="Run the command again; the changes were kept."
    )


def _seen_before(worktree: Path, commit: str) -> tuple[uncommitted.TreeState, set[str]]:
    """The state of a worktree, and the files in it that are in the way of a commit's files."""
    for _ in range(_LOOKS):
        head = git.resolve(worktree, "HEAD")
        with Aside(lambda: uncommitted.tree_state(worktree)) as look:
            hidden = uncommitted.show_hidden_changes(worktree)
            blocked = trash.in_the_way(worktree, head, commit)
        found = uncommitted.tree_state(worktree) if hidden else look.result()
        if found.head == head:  # no commit was made in the meantime
            return found, blocked | trash.of_another_kind(worktree, found.tracked)
    raise LlmcError(f"HEAD keeps changing in {worktree.name}'s worktree", hint="Run the command again.")


def _move(worktree: Path, *command: str, index: Path | None = None) -> bool:
    """Check out another commit; False if git refused because a file differs from the index, which says what was saved.

    Raises ToolFailed if git may have changed some of the files. `index`: another than the worktree's own.
    """
    env = {"GIT_INDEX_FILE": str(index)} if index else {}
    settings = uncommitted.with_settings(uncommitted.LOOK_CLOSELY)
    move = [*settings, *command]
    done = git.git(worktree, *move, check=False, timeout_s=300, env=env)
    if done.ok:
        return True
    if not any(text in done.stderr for text in _TOUCHED_NOTHING):
        raise ToolFailed(done.argv, done.returncode, done.stderr)
    changed = ["diff-files", "--quiet", "--ignore-submodules"]
    # This also finds out which files were only touched, and have the same content.
    git.git(worktree, *settings, "update-index", "-q", "--refresh", check=False, timeout_s=300, env=env)
    if git.git(worktree, *settings, *changed, check=False, timeout_s=300, env=env).ok:
        git.git(worktree, *move, timeout_s=300, env=env)
        return True
    return False


def _move_files(worktree: Path, saved: str, commit: str, index: Path) -> bool:
    """Change the files from what was saved to a commit; False if one differs from what was saved.

    `index`: has what was saved; if it does not exist, that is HEAD, and the worktree's own index has it.
    """
    move = ["read-tree", "-m", "-u", saved, commit]
    return _move(worktree, *move, index=index if index.exists() else None)


def _check_out(
    worktree: Path, branch: str, commit: str, operations: Sequence[str], *, on_branch: bool
) -> None:
    """Put the worktree on its branch at the commit, whose files it has; end any git operation.

    An operation in progress would resume in the next task.
    """
    if "rebase" in operations and not git.git(worktree, "rebase", "--quit", check=False).ok:
        # An `am`, which needs an identity even to quit.
        git.git(worktree, *["-c", "user.name=llmc", "-c", "user.email=llmc@localhost"], "am", "--quit")
    if "cherry-pick" in operations or "revert" in operations:
        git.git(worktree, "cherry-pick", "--quit", check=False)
    if not on_branch:  # do not move another branch
        git.git(worktree, "update-ref", "--no-deref", "-m", "llmc: reset", "HEAD", commit)
    git.git(worktree, "reset", "--quiet", "--mixed", commit, timeout_s=300)
    if not on_branch:
        git.git(worktree, "checkout", "--quiet", "-B", branch, timeout_s=300)
    if "bisect" in operations:
        git.git(worktree, "bisect", "reset", "HEAD", check=False)


def pin_unfinished(project: Project, record: WorkerRecord, why: str) -> str | None:
    """Save a worktree's work beyond the base under a trash ref, without removing it; None if there is none."""
    worktree = Path(record.worktree_path)
    found = uncommitted.tree_state(worktree)
    tip = git.resolve(worktree, f"refs/heads/{record.branch}")
    if found.clean and _are_in(worktree, {found.head, tip}, project.base):
        return None
    return trash.pin(project.root, worktree, record.name, why, branch=record.branch, move_out=False)


def pin_in_the_way(project: Project, record: WorkerRecord, commit: str, why: str) -> str | None:
    """Save ignored files that a rebase onto or back to a commit would overwrite, under a trash ref."""
    worktree = Path(record.worktree_path)
    head = git.resolve(worktree, "HEAD")
    blocked = trash.in_the_way(worktree, head, commit)
    # A commit of the worker may add what a later one removes: the rebase applies all of them.
    between = ["--format=", "--name-only", "--no-renames", "--diff-filter=A", "-z", f"{commit}..HEAD", "--"]
    passed = set(git.listed(worktree, "log", *between, timeout_s=300)) if head else set()
    if passed:
        passed -= set(git.listed(worktree, "ls-files", "-z"))
        blocked |= trash.obstacles(worktree, passed)
    if not blocked:
        return None
    root, name = project.root, record.name
    return trash.pin(root, worktree, name, why, branch=record.branch, ignored=sorted(blocked), move_out=False)


def _restore_missing(worktree: Path, names: Sequence[str]) -> None:
    """Write the files that are missing, and overwrite none."""
    missing = [name for name in names if not os.path.lexists(worktree / name)]
    if missing:
        index = ["checkout-index", "--index", "--quiet", "-z", "--stdin"]
        git.git(worktree, *index, input=git.nul_separated(missing), check=False, timeout_s=300)


def _are_in(worktree: Path, tips: set[str | None], commit: str) -> bool:
    return all(git.is_ancestor(worktree, tip, commit) for tip in tips if tip)
