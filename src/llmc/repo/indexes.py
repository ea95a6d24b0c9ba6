"""Reads and copies a worktree's index up to a maximum size: an agent can write it, and make it huge with holes."""

import errno
import os
from pathlib import Path

from llmc.base.errors import ToolFailed
from llmc.base.files import copy_given, open_given
from llmc.repo import git

#: 500,000 files with paths of 80 characters take 75 MB, so this is enough for a repository three times as large
MOST_BYTES = 256 * 1024 * 1024
#: bytes of an index in memory at once
PIECE = 1 << 20
#: the mode of a gitlink, the mark of a split index, and how far from the end that mark can be
GITLINK, _SPLIT, _END = b"\x00\x00\xe0\x00", b"link", 200_000


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
