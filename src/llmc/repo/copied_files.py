"""Files that are copied into each worktree, and git's exclude list there.

`[repo].copy` and the source's `.worktreeinclude` select the files, in .gitignore syntax that git itself reads. Only
files that the source ignores are copied, no tracked file is overwritten, and nothing is written outside the worktree.
"""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from llmc.base import inside
from llmc.base.errors import LlmcError, ToolFailed
from llmc.base.files import DiskFull, Shortage, explain, json_record, open_given, read_whole, write_atomic
from llmc.config import root_layout
from llmc.repo import git, trash, uncommitted
from llmc.repo.project import Place, Project


def exclude(project: Project, names: Sequence[str]) -> None:
    """Ignore these files in every worktree of the root (git has one exclude list for all worktrees of a repository)."""
    if not names:
        return
    places = [project.root.path / ".git", *(project.root.path / root_layout.REPOS).glob("[!.]*")]
    with project.repo_lock():
        for place in places:
            _add_lines(place / "info/exclude", names)


def _add_lines(path: Path, names: Sequence[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    try:
        have = read_whole(path)
    except OSError as error:
        raise explain(error, f"cannot read {path}") from error
    lines = [literal_pattern(name).encode("utf-8", "surrogateescape") for name in names]
    missing = [line for line in lines if line not in have.splitlines()]
    if missing:
        start = have if not have or have.endswith(b"\n") else have + b"\n"
        write_atomic(path, start + b"\n".join(missing) + b"\n")


def literal_pattern(name: str) -> str:
    """The .gitignore pattern for exactly one path."""
    escaped = re.sub(r"([\\*?\[\]!# ])", r"\\\1", name)
    return f"/{escaped}"


INCLUDE_FILE = ".worktreeinclude"

#: size and mtime_ns of a source file when it was copied, by name
Copied = dict[str, list[int]]


def copy_files(project: Project, place: Place, worktree: Path) -> list[str]:
    """Copy files that are missing or outdated in the worktree; returns problems. Pins an agent's changes first."""
    source = Path(project.source)
    try:
        names = _wanted(project, source)
    except ToolFailed as error:
        return [f"no files were copied from {source}: {error}"]
    if not names:
        return []
    manifest = git.llmc_file(worktree, "llmc-copied")
    before = _read(manifest)
    tracked = set(git.listed(worktree, "ls-files", "-z"))
    problems, stale = [], []
    for name in names:
        here = worktree / name
        # In a slot, a changed copy is not worth keeping.
        spoilt = not place.has_branch and _changed_here(here, before.get(name))
        if name in tracked or not (spoilt or _is_stale(source / name, here)):
            continue
        if problem := _in_the_way(worktree, name) or _unreadable(source / name):
            problems.append(f"{name} was not copied: {problem}")
        else:
            stale.append(name)
    if not stale:
        return problems
    _exclude_what_the_worktree_shows(project, worktree, stale)
    changed = [name for name in stale if _changed_here(worktree / name, before.get(name))]
    if changed and place.has_branch:
        ref = trash.pin(project.root, worktree, place.name, "copy", ignored=changed, move_out=False)
        with project.store.transaction() as tx:
            tx.emit("work_pinned", worker=place.name, reason="copy", ref=ref)
    for name in stale:
        try:
            before[name] = _copy(source, worktree, name, aside=manifest.with_name("llmc-copying"))
        except (DiskFull, Shortage):
            raise  # it passes, and then the next try copies the file
        except LlmcError as error:
            problems.append(f"{name} was not copied: {error}")
    write_atomic(manifest, json.dumps(before).encode())
    return problems


def _wanted(project: Project, source: Path) -> list[str]:
    """The source's ignored files that match the patterns; none for a bare or remote source."""
    patterns = project.config.repo.copy
    include = source / INCLUDE_FILE
    if not (source / ".git").exists() or not (patterns or include.is_file()):
        return []
    flags = [f"--exclude={pattern}" for pattern in patterns]
    if include.is_file():
        flags.append(f"--exclude-from={include}")
    done = git.git(source, "ls-files", "-z", "--others", "--ignored", *flags, timeout_s=300)
    matching = git.rows(done.stdout)
    ignored = uncommitted.ignored_of(source, matching) if matching else []
    return [name for name in ignored if not name.endswith("/")]  # a slash: a repository inside the source


def _is_stale(source: Path, target: Path) -> bool:
    """Whether a copy is missing or older than its source; a copy keeps the time of its source."""
    try:
        have = target.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    try:
        want = source.lstat()
    except OSError:
        return True  # `_unreadable` says why
    return want.st_mtime_ns > have.st_mtime_ns


def _unreadable(source: Path) -> str | None:
    """Why a file of the source cannot be copied now; None if it can. The agent's copy stays then, and is not pinned."""
    try:
        if not source.is_symlink():  # a link itself is copied
            open_given(source).close()
    except OSError as error:
        return f"cannot read {source}: {error.strerror}"
    return None


def _in_the_way(worktree: Path, name: str) -> str | None:
    """Why a file cannot be written without touching something else; None if it can."""
    target = worktree / name
    if target.is_dir() and not target.is_symlink():
        return "a directory with this name exists"
    for parent in list(target.relative_to(worktree).parents)[:-1]:
        place = worktree / parent
        if place.is_symlink():
            return f"{parent} is a symbolic link that could point outside the worktree"
        if os.path.lexists(place) and not place.is_dir():
            return f"{parent} is a file"
    return None


def _changed_here(target: Path, copied: list[int] | None) -> bool:
    """Whether the file differs from the one llmc copied."""
    return os.path.lexists(target) and copied != _stamp(target)


def _copy(source: Path, worktree: Path, name: str, aside: Path) -> list[int]:
    """Copy a file, or a link itself, with its modification time, atomically."""
    import shutil  # saves 2 ms in most commands

    try:
        aside.unlink(missing_ok=True)
        shutil.copy2(source / name, aside, follow_symlinks=False)
        stamp = _stamp(aside)
        with inside.folder_of(worktree, name, make=True) as (folder, last):
            os.replace(aside, last, dst_dir_fd=folder)
    except OSError as error:
        raise explain(error, f"cannot copy {source / name} to {worktree / name}") from error
    return stamp


def _stamp(path: Path) -> list[int]:
    stat = path.lstat()
    return [stat.st_size, stat.st_mtime_ns]


def _exclude_what_the_worktree_shows(project: Project, worktree: Path, names: list[str]) -> None:
    """Add files that only the source's own settings ignore to the exclude list: the clone lacks those settings."""
    exclude(project, sorted(set(names) - set(uncommitted.ignored_of(worktree, names))))


def _read(manifest: Path) -> Copied:
    return json_record(manifest)
