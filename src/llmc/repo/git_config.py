"""Read and change git's settings files without trusting their contents."""

import contextlib
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from llmc.base import proc, processes
from llmc.base.errors import LlmcError, LockTimeout
from llmc.base.files import explain, remove_tree, write_atomic
from llmc.repo.rules.clone_config import Change, Row, parse_plain

#: settings files have a few hundred bytes; larger ones are not genuine
MOST_BYTES = 4 * 1024 * 1024
#: a file that changed this recently may change again within the same tick of the file system's clock
RACY_NS = 20_000_000
#: how long a git command may hold `config.lock`
LOCK_S = 5.0

#: identifies a version of a file
Stamp = tuple[int, int, int, int, int]


class Broken(Struct, frozen=True):
    """A settings file that git cannot or must not read."""

    why: str


#: the stamp of a path that cannot be a git file: too long, behind a loop of links, or with a NUL
ODD: Stamp = (0, 0, 0, 0, 0)


def stamp(path: str) -> Stamp | None:
    """The stamp of a file; None: no file. Never raises: agents may choose the path. Programs cannot set back ctime."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        return ODD
    return (found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def is_settled(found: Stamp | None) -> bool:
    return found is None or time.time_ns() - found[4] > RACY_NS


class Seen:
    """Remembers which version of each file was fine."""

    def __init__(self) -> None:
        self._fine: dict[str, Stamp | None] = {}

    def is_fine(self, path: str) -> bool:
        return path in self._fine and self._fine[path] == stamp(path)

    def remember(self, path: str, found: Stamp | None) -> None:
        if is_settled(found):
            self._fine[path] = found


def read_plainly(path: Path) -> bytes | Broken:
    """The contents of a regular file; b"" if it is missing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    except BlockingIOError as error:  # leased, and so unchanged
        raise LlmcError(
            f"cannot read {path}: another process holds a lease on it",
            hint="Run the command again. If it still fails, stop the process that holds the lease.",
        ) from error
    except (OSError, ValueError) as error:
        why = f"cannot be read: {getattr(error, 'strerror', error)}"
        return Broken("a symbolic link" if os.path.islink(path) else why)
    info = os.fstat(fd)
    if not stat.S_ISREG(info.st_mode):
        os.close(fd)
        return Broken("not a regular file")
    with open(fd, "rb") as file:
        return file.read() if info.st_size <= MOST_BYTES else Broken("too large")


def rows_of(data: bytes) -> list[Row] | Broken:
    """The settings in a text, without includes. Runs git only if the text is not plain."""
    rows = parse_plain(data)
    if rows is not None:
        return rows
    listed = proc.run(_config_of("-", "--no-includes", "--list", "-z"), input=data, check=False)
    if not listed.ok:
        return Broken(" ".join(listed.stderr.split()) or "not readable by git")
    pairs = [row.partition("\n") for row in listed.stdout.split("\0") if row]
    if any("." not in key for key, _, _ in pairs):
        return Broken("settings outside a section")
    return [(key, value if newline else None) for key, newline, value in pairs]


def change(root: Path, path: Path, wanted: Sequence[Change]) -> None:
    """Change keys of a file as git does: under its lock, atomically, leaving all other bytes unchanged."""
    with locked(root, path):
        data = read_plainly(path)
        if isinstance(data, Broken):
            return  # broken since the check: the next check finds that
        temp = path.with_name(f"{path.name}.llmc")
        write_atomic(temp, data, mode=0o600)
        try:
            for one in wanted:
                flags = (
                    ["--unset-all", one.key] if one.wanted is None else ["--replace-all", one.key, one.wanted]
                )
                proc.run(_config_of(str(temp), *flags), check=one.wanted is not None)
            os.replace(temp, path)
        except OSError as error:
            raise explain(error, f"cannot write {path}") from error
        finally:
            temp.unlink(missing_ok=True)


def write_new(root: Path, path: Path, rows: Sequence[tuple[str, str]]) -> None:
    """Write a file with exactly these settings."""
    with locked(root, path):
        temp = path.with_name(f"{path.name}.llmc")
        write_atomic(temp, b"", mode=0o600)
        for key, value in rows:
            proc.run(_config_of(str(temp), "--add", key, value))
        os.replace(temp, path)


def move_aside(path: Path, folder: Path) -> Path:
    """Move whatever is at the path into the folder, unread."""
    kept = folder / f"{path.name}-{time.strftime('%Y%m%dT%H%M%S')}-{os.urandom(2).hex()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.rename(path, kept)
    except OSError as error:
        raise explain(error, f"cannot move {path} away") from error
    return kept


@contextmanager
def locked(root: Path, path: Path) -> Iterator[None]:
    """Hold git's own lock of a settings file; removes one left by a killed process."""
    lock = path.with_name(f"{path.name}.lock")
    seen: Stamp | None = None
    deadline = 0.0
    while True:
        try:
            held = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            break
        except FileExistsError:
            found = stamp(str(lock))
            if found != seen:  # another holder, or the lock is gone
                seen, deadline = found, time.monotonic() + LOCK_S
            elif found is not None and time.monotonic() > deadline:
                _drop_stale(root, lock, found)
            time.sleep(0.01)
        except OSError as error:
            raise explain(error, f"cannot lock {path}") from error
    try:
        yield  # keep the lock open, so that others see that its holder is alive
    finally:
        with contextlib.suppress(OSError):
            lock.unlink()
        os.close(held)


def _drop_stale(root: Path, lock: Path, seen: Stamp) -> None:
    """Remove a stale lock, even if it is a directory, unless another process was first."""
    from llmc.repo import dead_locks  # rarely needed

    with contextlib.suppress(LockTimeout), dead_locks.turn(root):
        holders = processes.works_in(os.path.realpath(lock))
        if stamp(str(lock)) != seen:
            return
        if holders:
            raise LlmcError(
                f"cannot repair the git config: a running process has held {lock} for {LOCK_S:g} s",
                hint="Stop that process, then run the command again.",
            )
        try:
            remove_tree(lock)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise explain(error, f"cannot remove {lock}") from error


def _config_of(file: str, *args: str) -> list[str]:
    """The command that runs git for one file, outside any repository, so that git does not obey the settings in it."""
    return ["git", "-C", "/", "config", "--file", file, *args]
