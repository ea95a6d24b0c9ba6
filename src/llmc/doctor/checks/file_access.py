"""Checks of files: permissions, unreadable rows, disk space."""

import os
import shlex
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from llmc.attention.rules import DISK_FLOOR_BYTES
from llmc.base.files import explain
from llmc.doctor.check import Check, Finding, Sight, Turn, fixable
from llmc.doctor.rules.facts import Facts
from llmc.repo.project import Project
from llmc.reports import bad_rows
from llmc.workers import restore

TRASH_CEILING_BYTES = 5 * 1024 * 1024 * 1024


class Mode(Struct, frozen=True):
    """The permissions of a file or directory of llmc."""

    path: str
    mode: int
    owned: bool = True
    #: mode bits that the owner needs, and bits that others must not have
    wanted: int = 0
    closed: int = 0


def _modes(at: Sight) -> Iterator[Mode]:
    root = at.project.root
    private = (root.private, root.logs, root.inbox, root.locks, root.agents, root.trash)
    folders = (root.path, *private, root.worktrees, root.bin)
    files = (root.config, root.state, root.events, root.daemon, root.tasks_ledger, root.logs / "daemon.jsonl")
    yield from _mode((root.path, root.config), closed=0o022)
    yield from _mode([path for path in private if path.is_dir()], closed=0o077)
    yield from _mode(folders, wanted=0o700)
    yield from _mode(files, wanted=0o600)


def _mode(paths: list[Path] | tuple[Path, ...], *, wanted: int = 0, closed: int = 0) -> Iterator[Mode]:
    for path in paths:
        try:
            info = path.stat()
        except OSError:
            continue  # gone, or below a directory that is reported itself
        yield Mode(str(path), stat.S_IMODE(info.st_mode), info.st_uid == os.getuid(), wanted, closed)


def _permissions(_: Facts, seen: tuple[Mode, ...]) -> Iterator[Finding]:
    for found in seen:
        path = found.path
        if found.mode & found.closed and found.closed == 0o022:
            text = f"{path} is writable by other users, who could make llmc run any program"
            yield fixable(text, subject=path)
        elif found.mode & found.closed:
            yield fixable(f"{path} is accessible to other users", subject=path)
        elif found.wanted and not found.owned:
            yield Finding(
                f"{path} belongs to another user",
                f"run `sudo chown -R $(id -u) {shlex.quote(path)}`",
                subject=path,
            )
        elif found.mode & found.wanted != found.wanted:
            shut = fixable(f"llmc cannot use {path}: its mode is {found.mode:04o}", subject=path)
            yield replace(shut, blocks=True)


def _make_private(_: Project, path: str) -> str:
    try:
        os.chmod(path, 0o700 if os.path.isdir(path) else 0o600)
    except OSError as error:
        raise explain(error, f"cannot change the permissions of {path}") from error
    return "made private"


def _bad_rows(at: Sight) -> Iterator[tuple[str, str]]:
    for path, rows in bad_rows.by_file(at.project.root).items():
        yield str(path), bad_rows.words(path, rows)


def _skipped(_: Facts, seen: tuple[tuple[str, str], ...]) -> Iterator[Finding]:
    for path, text in seen:
        yield fixable(text, ", which moves unreadable rows to logs/bad-rows.log", subject=path)


def _put_rows_aside(project: Project, path: str) -> str:
    bad_rows.put_aside(project.root, Path(path))
    bad_rows.tell(project)
    return "moved to logs/bad-rows.log"


def _disk(_: Facts, seen: tuple[int, ...]) -> Iterator[Finding]:
    for free in seen:
        if free < DISK_FLOOR_BYTES:
            text = f"only {free // 2**20} MB free on the disk that holds the root"
            yield Finding(text, "free some space, for example with `llmc trash prune`")


def _trash(_: Facts, seen: tuple[int, ...]) -> Iterator[Finding]:
    for size in seen:
        if size > TRASH_CEILING_BYTES:
            text = f"the trash holds {size / 2**30:.1f} GB, not counting git objects"
            yield Finding(text, "run `llmc trash list`, then `llmc trash prune --older-than DAYS`")


# fmt: off
CHECKS = (
    Check("permissions", "files",
        "a file or directory has the wrong owner or permissions",
        look=_modes, judge=_permissions, fix=_make_private),
    Check("bad_rows", "files", "tasks.jsonl or events.jsonl has unreadable rows, which are skipped",
        look=_bad_rows, judge=_skipped, fix=_put_rows_aside, turn=Turn.TASKS),
    Check("disk", "files", "the disk is nearly full",
        look=lambda at: [shutil.disk_usage(at.project.root.path).free], judge=_disk),
    Check("trash", "files", "the trash is large", look=lambda at: [restore.size_of(at.project.root.trash)],
        judge=_trash),
)
# fmt: on
