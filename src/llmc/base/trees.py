"""Walk and remove trees that agents and checks wrote: of any depth, with few open files, without following links.

Each directory is opened from its parent (base/inside.py says why). In a deep tree, a path could be longer than
the system allows, recursion deeper than Python allows, and one open file per level more than a process may have.
So the way back is `..`, which must be where we came from: an agent may have moved the current directory.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

#: opens even what may not be read, and no link's target
_ANY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC


class Spot:
    """The current directory of a walk. Holds at most three open files."""

    def __init__(self, start: int, place: str = "", *, how: int = _READ) -> None:
        """`start`: an open directory; the caller closes it. `place`: its name in `path`. `how`: flags for `open`."""
        self.fd = os.dup(start)
        self._start, self._place, self._how = start, place, how
        #: the parent, kept open until the next step down: the directory may not let us open its `..`
        self._above: int | None = None
        self._names: list[str] = []
        self._left: list[os.stat_result] = []

    def __enter__(self) -> "Spot":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
        self._close_above()

    @property
    def path(self) -> str:
        """The path of the current directory; it may be too long to open."""
        return os.path.join(self._place, *self._names)

    def down(self, name: str) -> None:
        """Enter a directory; raises OSError, also for a link."""
        inner = os.open(name, self._how, dir_fd=self.fd)
        self._close_above()
        self._left.append(os.fstat(self.fd))
        self._names.append(name)
        self._above, self.fd = self.fd, inner

    def up(self) -> str:
        """Go back to the parent; returns the name of the directory that was left."""
        above = self._open_above()
        os.close(self.fd)
        self._above, self.fd = None, above
        if not os.path.samestat(os.fstat(above), self._left.pop()):
            raise OSError(errno.ESTALE, "moved in the meantime", self._names[-1])
        return self._names.pop()

    def _open_above(self) -> int:
        if self._above is not None:
            return self._above
        if len(self._names) == 1:
            return os.dup(self._start)
        return os.open("..", self._how, dir_fd=self.fd)

    def listed(self) -> tuple[list[str], list[str]]:
        """The names of the directories here, and of everything else; a link is not a directory."""
        folders: list[str] = []
        others: list[str] = []
        with os.scandir(self.fd) as entries:
            for entry in entries:
                (folders if entry.is_dir(follow_symlinks=False) else others).append(entry.name)
        return folders, others

    def _close_above(self) -> None:
        if self._above is not None:
            os.close(self._above)
            self._above = None


def walk(name: str, start: int, place: str = "") -> Iterator[tuple[Spot, list[str], list[str]]]:
    """Like os.fwalk, from `name` in the open directory `start` down: yields each directory and its contents.

    The caller may remove names from the list of directories. One that cannot be opened is skipped, except `name`.
    """
    with Spot(start, place) as at:
        at.down(name)
        waiting: list[list[str]] = []
        while True:
            folders, others = at.listed()
            yield at, folders, others
            waiting.append(folders[::-1])
            while not _next(at, waiting[-1]):
                waiting.pop()
                if not waiting:
                    return
                at.up()


def _next(at: Spot, waiting: list[str]) -> bool:
    """Enter the next directory that can be opened; whether there is one."""
    while waiting:
        with contextlib.suppress(OSError):
            at.down(waiting.pop())
            return True
    return False


def remove(name: str, start: int) -> None:
    """Remove `name` in the open directory `start`, even if directories in it lack permissions."""
    if not stat.S_ISDIR(os.lstat(name, dir_fd=start).st_mode):
        os.unlink(name, dir_fd=start)
        return
    with Spot(start) as at:
        waiting = [[name]]
        while True:
            if waiting[-1]:
                _allow(waiting[-1][-1], at.fd)
                at.down(waiting[-1].pop())
                waiting.append(_only_folders(at))
                continue
            waiting.pop()
            if not waiting:
                return
            os.rmdir(at.up(), dir_fd=at.fd)


def remove_empty(names: list[str], start: int, *, most: int, how: int) -> None:
    """Remove the empty directory at the path `names`, then its parents, `most` in all; OSError if one is not empty."""
    with Spot(start, how=how) as at:
        for name in names:
            at.down(name)
        for _ in range(most):
            os.rmdir(at.up(), dir_fd=at.fd)


def _only_folders(at: Spot) -> list[str]:
    """Remove everything but the directories, and return their names."""
    folders, others = at.listed()
    for name in others:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=at.fd)
    return folders


def _allow(name: str, folder: int) -> None:
    """Let the owner read and change a directory, without following a link: on Linux that takes an open file."""
    with contextlib.suppress(PermissionError):  # not ours; it may be readable as it is
        if not hasattr(os, "O_PATH"):
            os.chmod(name, 0o700, dir_fd=folder, follow_symlinks=False)
            return
        fd = os.open(name, _ANY | os.O_DIRECTORY, dir_fd=folder)
        try:
            add_mode(fd, stat.S_IRWXU)
        finally:
            os.close(fd)


def add_mode(fd: int, bits: int) -> bool:
    """Add permission bits to an open file or directory, which may be open as a path only; whether it lacked any."""
    mode = stat.S_IMODE(os.fstat(fd).st_mode)
    if mode & bits == bits:
        return False
    os.chmod(f"/proc/self/fd/{fd}" if hasattr(os, "O_PATH") else fd, mode | bits)
    return True


def allow_below(start: int) -> bool:
    """Let the owner change each directory and read each file in an open directory; whether one was not allowed."""
    changed = False
    with Spot(start) as at:
        waiting: list[list[str]] = []
        while True:
            folders, others = at.listed()
            for name in (*folders, *others):
                changed |= _allow_one(name, at.fd)
            waiting.append(folders)
            while not _next(at, waiting[-1]):
                waiting.pop()
                if not waiting:
                    return changed
                at.up()


def _allow_one(name: str, folder: int) -> bool:
    with contextlib.suppress(OSError):  # gone, or not ours
        mode = os.lstat(name, dir_fd=folder).st_mode
        bits = {stat.S_IFDIR: stat.S_IRWXU, stat.S_IFREG: stat.S_IRUSR}.get(stat.S_IFMT(mode), 0)
        if mode & bits != bits and hasattr(os, "O_PATH"):
            fd = os.open(name, _ANY, dir_fd=folder)
            try:
                return not stat.S_ISLNK(os.fstat(fd).st_mode) and add_mode(fd, bits)
            finally:
                os.close(fd)
    return False
