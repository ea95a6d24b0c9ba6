"""The large files (Git LFS) that a contained worker committed: they are in the store of its own repository.

An agent writes that store: no link in it is followed, and a file counts only if its name is the hash of its content.
"""

import os
from contextlib import suppress
from pathlib import Path

from llmc.base import inside
from llmc.base.files import open_given, unique
from llmc.base.text import pattern

_STORE = "lfs/objects"
#: a file is named by its hash
_NAME = pattern(r"[0-9a-f]{64}")
_BLOCK = 1 << 20


def take(clone: Path, own: Path) -> None:
    """Copy what the clone does not have, before a commit is checked out or lands that names it."""
    with suppress(OSError):  # no store, or not a plain one: git-lfs then reports what is missing
        for at, _, names in inside.walk(own, _STORE):
            for name in filter(_NAME.fullmatch, names):
                _take_one(clone / _STORE / name[:2] / name[2:4] / name, name, at.fd)


def _take_one(target: Path, name: str, folder: int) -> None:
    from hashlib import sha256  # takes 5 ms, and few repositories need it

    if target.exists():
        return
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temp = target.with_name(f"tmp_obj_llmc{unique()}")
    found = sha256()
    try:
        with suppress(OSError), open_given(Path(name), folder) as file, temp.open("wb") as copy:
            while block := file.read(_BLOCK):
                found.update(block)
                copy.write(block)
            copy.flush()
            os.fsync(copy.fileno())
        if found.hexdigest() == name:
            os.replace(temp, target)
    finally:
        temp.unlink(missing_ok=True)
