"""Keeps worktrees usable: linked to the root's clone, and without stale git locks."""

import contextlib
import os
from pathlib import Path

from llmc.base.errors import LlmcError, Refused
from llmc.base.files import explain, read_text, remove_tree
from llmc.base.text import pattern
from llmc.records.worker import WorkerRecord
from llmc.repo import git, git_dirs, lfs, trash
from llmc.repo.project import Project

#: `git log` without what a configuration may add
PLAIN_LOG = ("-z", "--no-show-signature")
_IDS = pattern(r"\b[0-9a-f]{40}(?:[0-9a-f]{24})?\b")


def ensure(project: Project, record: WorkerRecord, base: str) -> None:
    """Create the worktree or link it to the clone again; existing files stay unchanged. Safe to repeat."""
    root, worktree = project.root.path, Path(record.worktree_path)
    if git_dirs.is_worktree_of(worktree, root):
        return
    with project.repo_lock():
        if is_empty(worktree):
            _add(project, record, worktree, base)
        else:
            link_again(project, record, worktree, base)


def is_half_made(root: Path, worktree: Path) -> bool:
    """Whether `git worktree add` was killed before its checkout was complete, so that no agent has worked there."""
    entry = git_dirs.entry_of(root, worktree)
    return entry is not None and _is_being_made(entry) and not os.path.lexists(entry / "index")


def _is_being_made(entry: Path) -> bool:
    """Whether the entry has the lock that `git worktree add` itself sets, and removes at its end."""
    return read_text(entry / "locked").strip() == "initializing"


def finish(project: Project, record: WorkerRecord) -> None:
    """Complete the checkout of a half-made worktree."""
    root, worktree = project.root.path, Path(record.worktree_path)
    with project.repo_lock():
        if not is_half_made(root, worktree):
            return  # another process has just completed it
        drop_dead_locks(project, record)
        git.git(worktree, "symbolic-ref", "HEAD", f"refs/heads/{record.branch}")
        git.git(worktree, "reset", "--quiet", "--hard", timeout_s=600)
        git.git(root, "worktree", "unlock", str(worktree))


def is_empty(worktree: Path) -> bool:
    """Whether there is nothing at this path, or an empty directory."""
    return not os.path.lexists(worktree) or (worktree.is_dir() and not os.listdir(worktree))


def prune(project: Project, worktree: Path, worker: str, *, saved: str | None = None) -> None:
    """Forget a worktree whose directory is gone. The caller holds the repo lock.

    A worktree that lost only its `.git` file is linked again instead. All other entries of git stay: a directory may be
    missing for a moment, such as one on a disk that is not mounted. `saved`: as in `discard`.
    """
    for place in (worktree, _aside(worktree)):
        entry = git_dirs.entry_of(project.root.path, place)
        if entry is None or _is_linked(entry):
            continue
        if os.path.lexists(place):
            git.git(project.root.path, "worktree", "repair", check=False)
        is_locked = os.path.lexists(entry / "locked") and not _is_being_made(entry)
        if not (os.path.lexists(place / ".git") or is_locked):
            discard(project, entry, worker, saved=saved)


def discard(project: Project, entry: Path, worker: str, *, saved: str | None = None) -> None:
    """Remove git's entry of a worktree; what only the entry has is pinned first, unless `saved`, a ref, has it.

    It goes to the trash if it has repositories of submodules, or cannot be read.
    """
    root, ref, is_read = project.root, None, False
    with contextlib.suppress(LlmcError, OSError):
        if os.path.samefile(git.git_dir(entry), entry):  # else git would read the clone around it
            ref = trash.pin_entry(root, entry, worker, "worktree", tips=unfinished(entry), saved=saved)
            is_read = True
    if not is_read:
        ref = _pin_named(project, entry, worker)
    if not is_read or os.path.lexists(entry / "modules"):
        _take_out(project, entry, ref or trash.pin_commit(root, worker, "worktree", _some_commit(project)))
    else:
        remove_tree(entry)


def _pin_named(project: Project, entry: Path, worker: str) -> str | None:
    """Pin the commits that the files of an entry name, which git cannot read as a whole; the last ref, if any."""
    ref = None
    with contextlib.suppress(LlmcError):
        for commit in tips_beyond(project.root.path, named_in_files(entry), [_some_commit(project)]):
            ref = trash.pin_commit(project.root, worker, "worktree", commit)
    return ref


def named_in_files(entry: Path) -> list[str]:
    """The commits that the files of git's entry name: HEAD, its log, and what is in progress."""
    names = ("HEAD", "logs/HEAD", "rebase-merge/autostash", "rebase-apply/autostash", *PSEUDO)
    return [commit for name in names for commit in ids_in(entry / name)]


def ids_in(file: Path) -> list[str]:
    return [commit for commit in _IDS.findall(read_text(file)) if commit.strip("0")]


def tips_beyond(repo: Path, commits: list[str], kept: list[str]) -> list[str]:
    """The commits that are in no other, and not in those that are kept anyway."""
    if not commits:
        return []
    listed = "".join(f"{line}\n" for line in [*dict.fromkeys(commits), *(f"^{commit}" for commit in kept)])
    command = ["log", *PLAIN_LOG, "--format=%H %P", "--ignore-missing", "--stdin"]
    done = git.git(repo, *command, input=listed.encode(), timeout_s=300)
    return tips_of([row.split() for row in git.rows(done.stdout)])


def tips_of(commits: list[list[str]]) -> list[str]:
    """The commits that are not a parent of another."""
    parents = {parent for _, *of in commits for parent in of}
    return [commit for commit, *_ in commits if commit not in parents]


def _take_out(project: Project, entry: Path, ref: str) -> None:
    from llmc.repo import submodules  # rarely needed

    folder = trash.folder_of(project.root, ref)
    trash.take_out(entry.parent, [entry.name], folder)
    submodules.make_readable(folder, f"{entry.name}/modules")


def _some_commit(project: Project) -> str:
    return git.out(project.root.path, "rev-parse", "--verify", f"{project.base}^{{commit}}")


def _is_linked(entry: Path) -> bool:
    """Whether an entry and its worktree point to each other, so that git would neither repair nor prune it."""
    try:
        pointer = Path((entry / "gitdir").read_text().removesuffix("\n"))
        there = pointer.read_text().removesuffix("\n").removeprefix("gitdir: ")
        return (entry / "HEAD").exists() and os.path.samefile(pointer.parent / there, entry)
    except (OSError, ValueError):
        return False


#: temporary names that git gives to commits
PSEUDO = ("ORIG_HEAD", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD", "MERGE_AUTOSTASH")


def unfinished(place: Path) -> list[str]:
    """Commits named only by a merge, rebase or bisect in progress, in a worktree or in git's entry for it."""
    own = [ref for (ref,) in git.refs(place, "refs/worktree", "objectname")]
    own += [ref for (ref,) in git.refs(place, "refs/bisect", "objectname")]
    named = [git.git(place, "rev-parse", "--verify", "--quiet", name, check=False) for name in PSEUDO]
    own += [done.stdout.strip() for done in named if done.ok]
    for path in git.git_paths(place, "rebase-merge/autostash", "rebase-apply/autostash"):
        own.append(read_text(path).strip())
    return [commit for commit in own if commit and git.resolve(place, commit)]


def drop_dead_locks(project: Project, record: WorkerRecord) -> list[str]:
    """Remove stale git locks, which would make every later command fail. Refuses while a git command may use one."""
    worktree = Path(record.worktree_path)
    own = git.git_dir(worktree)
    refs = own if git_dirs.own_repo(worktree) else project.root.path / ".git"
    places = [(own, "index.lock"), (own, "HEAD.lock"), (refs, f"refs/heads/{record.branch}.lock")]
    dropped = [
        str(top / lock)
        for top, lock in places
        if os.path.lexists(top / lock) and _drop(project, record.name, top / lock)
    ]
    if dropped:
        with project.store.transaction() as tx:
            tx.emit("lock_removed", worker=record.name, paths=dropped)
    return dropped


def _drop(project: Project, name: str, lock: Path) -> bool:
    """Remove a stale lock; returns whether there was one."""
    from llmc.repo import dead_locks  # rarely needed

    try:
        return dead_locks.drop(project.root.path, lock)
    except dead_locks.InUse as error:
        raise Refused(
            f"{lock} is held by a git command in {name}'s worktree; pid {error}",
            hint="Wait for that command to finish, or stop it, then run this command again.",
        ) from None
    except OSError as error:
        raise explain(error, f"cannot remove {lock}") from error


def _add(project: Project, record: WorkerRecord, worktree: Path, base: str) -> None:
    root = project.root.path
    worktree.parent.mkdir(mode=0o700, exist_ok=True)
    prune(project, worktree, record.name)
    if lfs.is_used(root, base):
        lfs.set_up(root)  # before the checkout, so that large files are complete
    git.git(root, "worktree", "add", "--quiet", *_where(root, record, worktree, base), timeout_s=600)


def _where(root: Path, record: WorkerRecord, place: Path, base: str) -> list[str]:
    exists = git.resolve(root, f"refs/heads/{record.branch}") is not None
    return [str(place), record.branch] if exists else ["-b", record.branch, str(place), base]


def link_again(project: Project, record: WorkerRecord, worktree: Path, base: str) -> None:
    """Make a directory with files the worktree again. Its `.git`, perhaps a whole repository, goes to the trash."""
    root = project.root.path
    if not worktree.is_dir():
        raise LlmcError(
            f"cannot use {worktree} as a worktree: it is not a directory",
            hint=f"Move it aside, then run `llmc reset {record.name}`.",
        )
    halves = _half_entries(root, worktree)
    has_pointer = os.path.lexists(worktree / ".git")
    ref = None
    if has_pointer or halves:
        tip = git.resolve(root, f"refs/heads/{record.branch}") or base
        ref = trash.pin_commit(project.root, record.name, "relink", tip)
        trash.take_out(root / ".git/worktrees", halves, trash.folder_of(project.root, ref))
        trash.take_out(worktree, [".git"] if has_pointer else [], trash.folder_of(project.root, ref))
    prune(project, worktree, record.name)
    if not git_dirs.is_worktree_of(worktree, root):
        _link_to_new_entry(project, record, worktree, base)
    if not git_dirs.is_worktree_of(worktree, root):
        raise LlmcError(
            f"cannot link the worktree {worktree} to {root}", hint="Run `llmc doctor` to find out why."
        )
    with project.store.transaction() as tx:
        tx.emit("worktree_linked", worker=record.name, ref=ref)


def _half_entries(root: Path, worktree: Path) -> list[str]:
    """Unusable git entries for this worktree: `worktree repair` would link the worktree to one again."""
    found = []
    for entry in git_dirs.entries(root):
        with contextlib.suppress(OSError, ValueError):
            named = (entry / "gitdir").read_text().strip()
            if named == str(worktree / ".git") and not (entry / "HEAD").exists():
                found.append(entry.name)
    return found


def _aside(worktree: Path) -> Path:
    """Where a new entry for a worktree is made."""
    return worktree.with_name(f".{worktree.name}.link")


def _link_to_new_entry(project: Project, record: WorkerRecord, worktree: Path, base: str) -> None:
    """Replace a lost git entry: add a worktree without files beside this one, and move its `.git` here."""
    root, aside = project.root.path, _aside(worktree)
    # Left by a killed process; twice also if git had not removed its own lock yet.
    git.git(root, "worktree", "remove", "--force", "--force", str(aside), check=False)
    where = _where(root, record, aside, base)
    git.git(root, "worktree", "add", "--quiet", "--no-checkout", *where, timeout_s=600)
    os.rename(aside / ".git", worktree / ".git")
    os.rmdir(aside)
    git.git(root, "worktree", "repair", str(worktree))
    git.git(worktree, "reset", "--quiet", timeout_s=300)  # only the index: files that differ show as changes
