"""Read, write, move and remove files below a directory that an agent can write to, without following links.

Checking the path first is not enough: before the change, the agent may replace a directory with a link, and the change
would happen elsewhere. So each directory is opened from its parent; a change in an open directory stays in it.
"""

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from llmc.base import files

if TYPE_CHECKING:
    from llmc.base import trees

#: without O_PATH a directory must be readable too
_OPEN = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC

#: bytes of a file in memory at once
_PIECE = 1 << 20


@contextmanager
def folder_of(top: Path, name: str, *, make: bool = False, allow: bool = False) -> Iterator[tuple[int, str]]:
    """Open the directory of `name` below `top`; yields it and the last part of `name`. `make`: create directories.

    `allow`: let the owner change the directory, and enter those above. No agent can replace `top` itself. Raises OSError, also if a link is in the way.
    """
    *folders, last = _parts(name)
    at = os.open(top, _OPEN)
    try:
        for part in folders:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=at)
            if allow:
                _allow(at)
            above, at = at, os.open(part, _OPEN | os.O_NOFOLLOW, dir_fd=at)
            os.close(above)
        if allow:
            _allow(at)
        yield at, last
    finally:
        os.close(at)


def _allow(folder: int) -> None:
    """Let the owner change an open directory."""
    from llmc.base import trees  # most commands need it not

    with contextlib.suppress(PermissionError):  # not ours: it may be allowed as it is
        trees.add_mode(folder, stat.S_IRWXU)


def allow_below(top: Path) -> bool:
    """Let the owner change each directory and read each file; whether one was not allowed."""
    from llmc.base import trees

    with folder_of(top, "any", allow=True) as (folder, _):
        readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return trees.allow_below(readable)
    finally:
        os.close(readable)


def _parts(name: str) -> list[str]:
    parts = name.rstrip("/").split("/")
    if {"", ".", ".."} & {*parts}:
        raise OSError(errno.EINVAL, "not a plain path", name)
    return parts


def remove(top: Path, name: str) -> None:
    """Remove a file, or a link itself."""
    with folder_of(top, name, allow=True) as (folder, last):
        os.unlink(last, dir_fd=folder)


def remove_empty(top: Path, place: str, name: str) -> None:
    """Remove an empty directory below `place`, and parents that become empty; `place` itself stays."""
    from llmc.base import trees  # most commands remove none

    names = _parts(name)
    with folder_of(top, "any") as (start, _):
        way = [*(_parts(place) if place != "." else ()), *names]
        trees.remove_empty(way, start, most=len(names), how=_OPEN | os.O_NOFOLLOW)


def move(top: Path, name: str, to: Path, new_name: str) -> None:
    """Move a file or directory to `new_name` below `to`; if that name is taken, it gets a number."""
    with folder_of(top, name, allow=True) as (old, last), folder_of(to, new_name, make=True) as (new, wanted):
        if stat.S_ISDIR(os.lstat(last, dir_fd=old).st_mode):  # its `..` changes
            with folder_of(top, f"{name.rstrip('/')}/any", allow=True):
                pass
        os.rename(last, _free(wanted, new), src_dir_fd=old, dst_dir_fd=new)


def copy(top: Path, name: str, to: Path, new_name: str) -> None:
    """Copy a regular file to `new_name` below `to`, onto the disk; if that name is taken, it gets a number."""
    with (
        folder_of(top, name) as (old, last),
        folder_of(to, new_name, make=True) as (new, wanted),
        files.open_given(Path(last), old) as file,
    ):
        mode = os.fstat(file.fileno()).st_mode & 0o777
        how = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with open(os.open(_free(wanted, new), how, mode, dir_fd=new), "wb") as made:
            while piece := file.read(_PIECE):
                made.write(piece)
            made.flush()
            os.fsync(made.fileno())


def _free(wanted: str, folder: int) -> str:
    names = (wanted + f".{n}" * bool(n) for n in itertools.count())
    return next(free for free in names if not _is_there(free, folder))


def _is_there(name: str, folder: int) -> bool:
    try:
        os.lstat(name, dir_fd=folder)
    except FileNotFoundError:
        return False
    return True


def read(top: Path, name: str, most: int) -> bytes:
    """The beginning of a regular file."""
    with folder_of(top, name) as (folder, last), files.open_given(Path(last), folder) as file:
        return file.read(most)


def read_whole(top: Path, name: str) -> bytes:
    """A regular file that is written back; OSError if it is too large to be read as a whole."""
    with folder_of(top, name) as (folder, last), files.open_given(Path(last), folder) as file:
        return files.all_of(file, Path(name))


def read_text(top: Path, name: str) -> str:
    """The beginning of a text file; "" if it is gone, behind a link, or not text."""
    with contextlib.suppress(OSError), folder_of(top, name) as (folder, last):
        return files.read_text(Path(last), folder=folder)
    return ""


def write(top: Path, name: str, data: bytes) -> None:
    """Replace a file, or create it with its directories: a crash leaves the old or the new content."""
    with folder_of(top, name, make=True) as (folder, last):
        files.replace_in(last, f".{last}{files.unique()}.tmp", data, 0o600, folder=folder)


def walk(top: Path, name: str = ".") -> "Iterator[tuple[trees.Spot, list[str], list[str]]]":
    """Like os.fwalk, from `name` down: yields each directory, open and with its path below `top`, and its contents."""
    from llmc.base import trees  # most commands walk through none

    if name == ".":  # `top` itself
        with folder_of(top, "any") as (above, _):
            yield from trees.walk(name, above)
        return
    with folder_of(top, name) as (above, last):
        yield from trees.walk(last, above, os.path.dirname(name))
