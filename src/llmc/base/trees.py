"""Walk and remove trees that agents and checks wrote: of any depth, with few open files, and without following a link.

Each directory is opened from the one above it (base/inside.py says why). A path to it could be longer than the system
allows, a call for each level deeper than Python allows, and an open file for each level more than a process may have.
So the way back is `..`, and that must be the directory that was left: an agent may have moved this one elsewhere.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Spot:
    """The open directory where a walk is. Holds three files at most."""

    def __init__(self, start: int, place: str = "", *, how: int = _READ) -> None:
        """`start`: an open directory, which its caller closes. `place`: what to call it in `path`. `how`: to open others."""
        self.fd = os.dup(start)
        self._start, self._place, self._how = start, place, how
        #: the one above, until a step further down: what was opened may not let us back
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
        """It may be too long to be opened."""
        return os.path.join(self._place, *self._names)

    def down(self, name: str) -> None:
        """Raises OSError, also for a link."""
        inner = os.open(name, self._how, dir_fd=self.fd)
        self._close_above()
        self._left.append(os.fstat(self.fd))
        self._names.append(name)
        self._above, self.fd = self.fd, inner

    def up(self) -> str:
        """Returns the name of what was left."""
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
        """The names of the directories in it, and those of everything else; a link is not a directory."""
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
    """As os.fwalk: each directory at and below `name`, which is in the open directory `start`, with what it contains.

    The caller may remove names from the list of directories. What cannot be opened is left out, except `name` itself.
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
    """Go down to the first that can be opened; whether there is one."""
    while waiting:
        with contextlib.suppress(OSError):
            at.down(waiting.pop())
            return True
    return False


def remove(name: str, start: int) -> None:
    """Remove what is called so in the open directory `start`; also directories without permissions."""
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
    """Remove an empty directory, by the names on the way to it; with `most` above 1 also those that become empty by it."""
    with Spot(start, how=how) as at:
        for name in names:
            at.down(name)
        for _ in range(most):
            os.rmdir(at.up(), dir_fd=at.fd)


def _only_folders(at: Spot) -> list[str]:
    """Remove everything but the directories; returns these."""
    folders, others = at.listed()
    for name in others:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=at.fd)
    return folders


def _allow(name: str, folder: int) -> None:
    """Let the owner read and change a directory. Without following a link, which Linux can only do by an open file."""
    with contextlib.suppress(PermissionError):  # not ours; it may be readable as it is
        if not hasattr(os, "O_PATH"):
            os.chmod(name, 0o700, dir_fd=folder, follow_symlinks=False)
            return
        fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        try:
            os.chmod(f"/proc/self/fd/{fd}", 0o700)
        finally:
            os.close(fd)
