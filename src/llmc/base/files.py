"""Write files atomically (a crash leaves the old or the new content), append to logs, read untrusted files."""

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from llmc.base import given
from llmc.base.errors import LlmcError

#: how long a writer waits for a log that is being renamed
ROTATION_S = 2.0
#: the most to read from an untrusted file: larger than any that llmc, its agents or the client writes
MOST_FILE = 64 << 20
#: errors of file systems without hard links, or that refuse this one (ENOSYS: some FUSE file systems)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV)
#: how much `copy_given` copies at a time
_BLOCK = 1 << 16


#: the process or the system ran out of open files, memory or processes, which passes
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.EAGAIN)


class DiskFull(LlmcError):
    """The disk is full; nothing was changed."""


class Shortage(LlmcError):
    """Out of open files, memory or processes; nothing was changed, and trying again may work."""


def private_dir(path: Path) -> Path:
    """Create a directory if missing, accessible by its owner only."""
    try:
        if not path.is_dir():
            private_dir(path.parent)  # mkdir(parents=True) would use the default mode
            path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise explain(error, f"cannot create {path}") from error
    return path


def write_atomic(
    path: Path, data: bytes, *, mode: int = 0o600, alone: bool = False, temp_name: str = ""
) -> None:
    """Replace a file: temp file in the same directory, fsync, rename.

    `alone`: the caller holds a lock, so the temp name is fixed, and a file left by a killed writer is replaced.
    """
    temp = path.with_name(temp_name or f".{path.name}{'' if alone else unique()}.tmp")
    try:
        if alone or temp_name:
            temp.unlink(missing_ok=True)
        replace_in(path, temp, data, mode)
    except OSError as error:
        raise explain(error, f"cannot write {path}") from error


def rewrite(path: Path, data: bytes) -> None:
    """Like `write_atomic`, for a user's file: a link stays a link, and the file keeps its mode. Raises OSError."""
    target = Path(os.path.realpath(path))
    mode = None if target.exists() else 0o600
    replace_in(target, target.with_name(f".{target.name}{unique()}.tmp"), data, mode)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new file survives a power cut
    finally:
        os.close(folder)


def edit_file(path: Path, edit: Callable[[bytes], bytes]) -> None:
    """Change a user's file, as `rewrite` does. Raises OSError, and then the file is as it was."""
    before = read_whole(path)
    if (after := edit(before)) != before:
        rewrite(path, after)


def unique() -> str:
    """A suffix for a file name that no other thread or process uses."""
    return f".{os.getpid()}.{os.urandom(4).hex()}"


def replace_in(
    path: Path | str, temp: Path | str, data: bytes, mode: int | None, *, folder: int | None = None
) -> None:
    """Write a temp file and rename it; without a mode, keep the old one. `folder`: both paths start there."""
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(temp, flags, 0o600 if mode is None else mode, dir_fd=folder)
        try:
            if mode is None:
                os.fchmod(fd, stat.S_IMODE(os.stat(path, dir_fd=folder).st_mode))
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temp, path, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temp, dir_fd=folder)
        raise


def second_name(path: Path, other: Path) -> None:
    """Hard-link a file to an unused name; if the file system cannot, copy it with mode 600. Raises OSError."""
    try:
        os.link(path, other)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        import shutil  # saves 2 ms in most commands

        shutil.copyfile(path, other)
        other.chmod(0o600)


def read_text(path: Path, most: int = 2 * 1024 * 1024, *, folder: int | None = None) -> str:
    """The beginning of an untrusted text file; "" if it is gone, a link, or not text. `folder`: the path starts there."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        with open(fd, "rb") as file:
            data = file.read(most) or b""
    except OSError:
        return ""
    return "" if b"\0" in data else data.decode("utf-8", "replace")


def read_whole(path: Path, most: int = MOST_FILE) -> bytes:
    """A file that is written back, also through links; empty only if there is none.

    OSError if it cannot be read, or not as a whole: what was not read would be lost.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    with _regular(fd, path) as file:
        return all_of(file, path, most)


def read_given(path: Path, most: int = MOST_FILE) -> bytes:
    """Read an untrusted file; OSError for a link, a FIFO or device, which could block, or more than `most` bytes."""
    with open_given(path) as file:
        return all_of(file, path, most)


def all_of(file: BinaryIO, path: Path, most: int = MOST_FILE) -> bytes:
    """The contents of an open file; OSError if they are too large, instead of their beginning."""
    if os.fstat(file.fileno()).st_size > most or len(data := file.read(most + 1)) > most:
        raise _too_large(path, most)
    return data


def copy_given(source: Path, target: Path, most: int) -> None:
    """Copy an untrusted file; holes take no space in the copy either. OSError if it is larger than `most`."""
    with open_given(source) as file, target.open("wb") as copy:
        found, left = os.fstat(file.fileno()), most
        if found.st_size > most:
            raise _too_large(source, most)
        while block := file.read(_BLOCK):
            left -= len(block)
            if left < 0:
                raise _too_large(source, most)
            if block.count(0) == len(block):
                copy.seek(len(block), os.SEEK_CUR)
            else:
                copy.write(block)
        copy.truncate()
        copy.flush()
        os.utime(copy.fileno(), ns=(found.st_atime_ns, found.st_mtime_ns))


def _too_large(path: Path, most: int) -> OSError:
    return OSError(errno.EFBIG, f"larger than {most >> 20} MB", str(path))


def open_given(path: Path, folder: int | None = None) -> BinaryIO:
    """Open an untrusted file; OSError for a link, FIFO or device. `folder`: the path starts there."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    return _regular(fd, path)


def _regular(fd: int, path: Path) -> BinaryIO:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return open(fd, "rb")


def read_json(path: Path, most: int = MOST_FILE) -> Any:
    """The JSON of an untrusted file; raises OSError or given.BadJson."""
    return given.parse(read_given(path, most))


json_row = given.row


def json_record(path: Path) -> dict[str, Any]:
    """A small file with one JSON object from another llmc process; {} for anything else."""
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def ends_torn(path: Path) -> bool:
    """Whether the last write was cut short (a full disk): the next line must not be appended to it."""
    try:
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except FileNotFoundError:
        return False


def append_line(path: Path, line: bytes, *, durable: bool = False) -> None:
    """Append a line in one write(), so that concurrent appends do not tear it. `durable`: fsync before returning."""
    try:
        fd = lock_to_append(path)
        try:
            data = line.rstrip(b"\n") + b"\n"
            if os.write(fd, data) < len(data):  # a nearly full disk may accept only a part without an error
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise explain(error, f"cannot append to {path}") from error


def lock_to_append(path: Path) -> int:
    """Open a log for appending; it is not rotated until the descriptor is closed (base/rotation.py)."""
    deadline = time.monotonic() + ROTATION_S
    while True:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
        except (BlockingIOError, FileNotFoundError):
            pass  # it is being renamed
        except OSError:
            return fd  # a file system without locks
        if time.monotonic() > deadline:
            return fd  # the renaming process hangs; the line goes to the old file and is not lost
        os.close(fd)
        time.sleep(0.001)


def explain(error: OSError, what: str) -> LlmcError:
    """An operating system error as an error with a hint."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(
            f"{what}: the disk is full",
            hint="Free some space, then run the command again.",
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return LlmcError(
            f"{what}: {error.strerror}",
            hint="Check the owner and permissions of that path, then run the command again.",
        )
    kind = Shortage if is_shortage(error) else LlmcError
    return kind(f"{what}: {error.strerror or error}")


def is_shortage(error: Exception) -> bool:
    """Whether an error is a temporary shortage, which says nothing about the file."""
    return isinstance(error, Shortage) or (isinstance(error, OSError) and error.errno in _SHORTAGES)


def remove_tree(path: Path) -> None:
    """Remove a file, a link or a whole directory, even one that an agent or a check wrote (base/trees.py)."""
    from llmc.base import trees  # most commands remove none

    above = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        trees.remove(path.name, above)
    finally:
        os.close(above)
