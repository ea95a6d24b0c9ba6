"""Replace a configuration file atomically."""

import contextlib
import errno
import os
import tempfile
from pathlib import Path

from llmc.base.errors import ConfigError, UsageError


def write_atomically(path: Path, text: str) -> None:
    """Write a temporary file, fsync, rename."""
    target = Path(os.path.realpath(path))
    try:
        data = text.encode()
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with open(descriptor, "wb") as file:
                os.fchmod(file.fileno(), target.stat().st_mode & 0o7777)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        _sync_directory(target.parent)
    except UnicodeEncodeError:
        raise UsageError("the value is not valid UTF-8") from None
    except OSError as error:
        hint = (
            "Free some space" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "Check its owner and mode"
        )
        raise ConfigError(
            f"cannot write {path}: {error.strerror}", hint=f"{hint}, then try again."
        ) from error


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
