"""Indexes: the one of a worktree, read and copied up to a maximum size, and separate ones for all of its files.

An agent can write the index of its worktree, make it huge with holes, and hide changes with it.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from llmc.base.errors import LlmcError, ToolFailed
from llmc.base.files import copy_given, open_given, remove_tree, unique
from llmc.base.text import some_files
from llmc.repo import git, uncommitted

#: 500,000 files with paths of 80 characters take 75 MB, so this is enough for a repository three times as large
MOST_BYTES = 256 * 1024 * 1024
#: bytes of an index in memory at once
PIECE = 1 << 20
#: the mode of a gitlink, the mark of a split index, and how far from the end that mark can be
GITLINK, _SPLIT, _END = b"\x00\x00\xe0\x00", b"link", 200_000

#: write pinned objects to disk before anything is removed; git's default leaves that to the kernel
DURABLE = ["-c", "core.fsync=committed", "-c", "core.fsyncMethod=batch"]
#: settings for an index of everything: whatever a sparse checkout or the clone's settings let git skip
_COMPLETE = [*DURABLE, *uncommitted.with_settings(("core.safecrlf=false", *uncommitted.EVERYWHERE))]
#: attempts to add files that are missing in it
_TRIES = 3


class TooLarge(ToolFailed):
    """An index is larger than any repository needs."""

    def __init__(self, worktree: Path, index: Path) -> None:
        name, hint = git.worker_at(worktree)
        what = f"cannot read {name}'s repository: {problem(index)}"
        super().__init__(["git", "-C", str(worktree)], None, "", message=what, hint=hint)


def is_too_large(index: Path) -> bool:
    try:
        return os.lstat(index).st_size > MOST_BYTES
    except OSError:
        return False


def problem(index: Path) -> str:
    return f"{index} has more than {MOST_BYTES >> 20} MiB"


def copy(worktree: Path, index: Path, target: Path) -> None:
    """Copy the index of a worktree; holes in it stay holes. Raises FileNotFoundError or TooLarge."""
    try:
        copy_given(index, target, MOST_BYTES)
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        raise TooLarge(worktree, index) from None


def may_name_repositories(index: Path) -> bool:
    """Whether an index may have gitlinks; False also if it is too large. OSError if it cannot be read."""
    with open_given(index) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MOST_BYTES:
            return False
        before, at = b"", 0
        while at <= MOST_BYTES and (piece := file.read(PIECE)):
            text, at = before + piece, at + len(piece)
            if GITLINK in text or _SPLIT in text[max(0, size - _END - at + len(text)) :]:
                return True
            before = text[-len(_SPLIT) + 1 :]
    return False


def compare_again(worktree: Path, names: Iterable[str]) -> None:
    """Make git compare the contents of these files: one whose size is not that in the index counts as changed.

    The size there is an old one after a move with an index of our own that wrote other line ends.
    """
    wanted = {*names}
    rows = [
        row for row in git.listed(worktree, "ls-files", "--stage", "-z") if row.partition("\t")[2] in wanted
    ]
    given = git.nul_separated(rows)
    git.git(worktree, "update-index", "-z", "--index-info", check=False, input=given, timeout_s=300)
    git.git(worktree, "update-index", "-q", "--refresh", check=False, timeout_s=300)


@contextmanager
def own_index(worktree: Path) -> Iterator[Path]:
    """The path of an index of our own, removed at the end."""
    index = git.llmc_file(worktree, f"llmc-pin{unique()}")
    try:
        yield index
    finally:
        drop(index)


class Files(Struct, frozen=True):
    """A separate index for the files of a worktree."""

    worktree: Path
    path: Path

    def git(self, *args: str, names: Iterable[str] = ()) -> None:
        given = git.nul_separated(names)
        git.git(self.worktree, *_COMPLETE, *args, env=self._env(), input=given, timeout_s=300)

    def listed(self, *args: str) -> list[str]:
        return git.listed(self.worktree, *_COMPLETE, *args, env=self._env(), timeout_s=300)

    def write_tree(self) -> str:
        return git.git(self.worktree, *_COMPLETE, "write-tree", env=self._env()).stdout.strip()

    def require_all(self, head: str | None, left_out: Sequence[str], unfit: Sequence[str]) -> None:
        """Add files that `git add` skipped, and raise if one is still missing: bits and settings can hide them."""
        missing: list[str] = []
        for _ in range(_TRIES):
            back = [name for name in left_out if os.path.lexists(self.worktree / name)]
            if back:
                self.git("update-index", "--no-skip-worktree", "-z", "--stdin", names=back)
            missing = self._missing(unfit)
            if not missing:
                return
            self.git("update-index", "--add", "--remove", "--replace", "-z", "--stdin", names=missing)
        saved = {name for name, _, _ in self.changed(head)}  # and changed again in the meantime
        if lost := [name for name in missing if name not in saved]:
            raise LlmcError(
                f"git did not save {some_files(lost)} of {self.worktree.name}; nothing was removed",
                hint="Stop what writes these files, then run the command again.",
            )

    def _missing(self, unfit: Iterable[str]) -> list[str]:
        """The files that differ from those in the index."""
        known = tuple(f"{name.rstrip('/')}/" for name in unfit)
        kinds = ["--others", "--modified", "--deleted", "--exclude-standard"]
        found = dict.fromkeys(self.listed("ls-files", *kinds, "-z"))
        return [name for name in found if not f"{name.rstrip('/')}/".startswith(known)]

    def changed(self, head: str | None) -> list[tuple[str, str, str]]:
        """Path, mode and object of each file that is not in the commit."""
        kinds = ["--cached", "--raw", "--full-index", "--no-renames", "--diff-filter=d", "-z"]
        fields = self.listed("diff-index", *kinds, head or no_tree(self.worktree))
        rows = [(meta.split(" "), path) for meta, path in zip(fields[::2], fields[1::2], strict=True)]
        return [(path, mode, blob) for (_, mode, _, blob, _), path in rows]

    def inexact(self, head: str | None) -> list[str]:
        """The changed files that git would not restore byte for byte: it converts line ends, `$Id$` and encodings."""
        blobs = {name: blob for name, mode, blob in self.changed(head) if mode.startswith("100")}
        here = [name for name in blobs if _is_regular(self.worktree / name)]
        given = "".join(f"{_quoted(name)}\n" for name in here).encode("utf-8", "surrogateescape")
        ids = ["hash-object", "--no-filters", "--stdin-paths"]
        done = git.git(self.worktree, *ids, check=False, input=given, timeout_s=300)
        raw = dict(zip(here, done.stdout.split(), strict=False))  # shorter if a file is gone
        converted = [name for name in here if raw.get(name) != blobs[name]]
        if not converted:
            return []
        again = self.path.with_name(f"{self.path.name}.again")
        again.mkdir()
        try:
            restore = ["checkout-index", "--force", "--quiet", f"--prefix={again}/", "-z", "--stdin"]
            given = git.nul_separated(converted)
            git.git(self.worktree, *restore, check=False, env=self._env(), input=given, timeout_s=300)
            return [name for name in converted if not _is_same(self.worktree / name, again / name)]
        finally:
            remove_tree(again)

    def _env(self) -> dict[str, str]:
        return {"GIT_INDEX_FILE": str(self.path)}


def _quoted(name: str) -> str:
    """A name for `--stdin-paths`, which has no -z."""
    if not name.startswith('"') and not {"\n", "\r"} & {*name}:
        return name
    for char, code in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        name = name.replace(char, code)
    return f'"{name}"'


def _is_regular(path: Path) -> bool:
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def _is_same(path: Path, other: Path) -> bool:
    """Whether two files have the same bytes."""
    with contextlib.suppress(OSError), open_given(path) as one, open_given(other) as two:
        while (piece := one.read(PIECE)) == two.read(PIECE):
            if not piece:
                return True
    return False


def left_out(worktree: Path, head: str) -> list[str]:
    """The files of a commit that a sparse checkout left out: absent, but not deleted."""
    absent = {name for name in uncommitted.hidden_files(worktree) if not os.path.lexists(worktree / name)}
    if not absent:
        return []
    names = git.listed(worktree, "ls-tree", "-r", "--name-only", "-z", head, timeout_s=300)
    return [name for name in names if name in absent]


def no_tree(worktree: Path) -> str:
    """The empty tree, to compare with where there is no commit."""
    return git.out(worktree, "hash-object", "-t", "tree", "/dev/null")


def drop(index: Path) -> None:
    """Remove a temporary index and the lock file that a killed git may have left."""
    for path in (index, index.with_name(f"{index.name}.lock")):
        path.unlink(missing_ok=True)
