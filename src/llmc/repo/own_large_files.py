"""Takes the large files (Git LFS) that a contained worker committed from the store of its own repository.

An agent can write that store. So a file is taken only if a commit has a pointer to it, its size matches the pointer,
and its name is the hash of its content. Links are not followed, and holes in a file stay holes.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from llmc.base import inside
from llmc.base.clock import monotonic
from llmc.base.errors import ToolFailed
from llmc.base.files import open_given, unique
from llmc.base.text import pattern
from llmc.repo import git

_STORE = "lfs/objects"
#: most bytes of a pointer: git-lfs treats no larger file as one
_MOST_POINTER = 1024
_POINTER = pattern(r"version [^\n]+\n(?:ext-[^\n]+\n)*oid sha256:([0-9a-f]{64})\nsize ([0-9]{1,15})\n")
_ATTRIBUTES = ("--", ".gitattributes", "*/.gitattributes")
#: blobs that are read at once
_AT_ONCE = 10_000
#: most bytes of these blobs with their header lines: an agent may replace a pack after their sizes were read
_MOST_READ = _AT_ONCE * (_MOST_POINTER + 100)
_BLOCK = 1 << 20


def take(root: Path, own: Path, commits: Sequence[str], base: str, until: float) -> None:
    """Copy the large files of these commits that the clone lacks, before the clone has the commits.

    Missing or wrong files stay out: git-lfs reports them. Raises ToolFailed, also if it takes longer than `until`.
    """
    if not os.path.isdir(own / _STORE) or not _use_large_files(own, commits, until):
        return
    known = git.resolve(root, base) if base else None
    for name, size in sorted(set(_pointers(own, commits, known, until))):
        target = root / ".git" / _STORE / name[:2] / name[2:4] / name
        if not target.exists():
            _take_one(target, own, name, size, until)


def _use_large_files(own: Path, commits: Sequence[str], until: float) -> bool:
    """Whether the commits use LFS, like `is_used` in repo/lfs.py but not cached: an agent may forge its objects."""
    wanted = ["grep", "--quiet", "-I", "-e", "filter=lfs", *commits, *_ATTRIBUTES]
    return git.git(own, *wanted, check=False, timeout_s=_left(own, until)).ok


def _pointers(
    own: Path, commits: Sequence[str], known: str | None, until: float
) -> Iterator[tuple[str, int]]:
    """Hash and size of the large files that these commits have and `known` does not."""
    fewer = ["--no-object-names", f"--filter=blob:limit={_MOST_POINTER + 1}"]
    walk = ["rev-list", "--objects", *fewer, *commits, *([f"^{known}"] if known else [])]
    ids = git.git(own, *walk, timeout_s=_left(own, until)).stdout
    kinds = ["cat-file", "--batch-check=%(objecttype):%(objectname)"]
    words = git.git(own, *kinds, input=ids.encode(), timeout_s=_left(own, until)).stdout.split()
    blobs = [word.removeprefix("blob:") for word in words if word.startswith("blob:")]
    for at in range(0, len(blobs), _AT_ONCE):
        some = "\n".join(blobs[at : at + _AT_ONCE]).encode()
        text = git.git(
            *(own, "cat-file", "--batch"), input=some, timeout_s=_left(own, until), most_bytes=_MOST_READ
        ).stdout
        for found in _POINTER.finditer(text):
            yield found[1], int(found[2])


def _take_one(target: Path, own: Path, name: str, size: int, until: float) -> None:
    file = _opened(own, f"{_STORE}/{name[:2]}/{name[2:4]}/{name}")
    if file is None:
        return
    with file:
        if os.fstat(file.fileno()).st_size != size:
            return
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temp = target.with_name(f"tmp_obj_llmc{unique()}")
        try:
            if _copied(file, temp, own, size, until) == name:
                os.replace(temp, target)
        finally:
            temp.unlink(missing_ok=True)


def _opened(own: Path, name: str) -> BinaryIO | None:
    with suppress(OSError), inside.folder_of(own, name) as (folder, last):
        return open_given(Path(last), folder)
    return None


def _copied(file: BinaryIO, temp: Path, own: Path, size: int, until: float) -> str:
    """Copy `size` bytes; returns their hash. Zeros become holes: a file of nothing but holes must not fill the disk."""
    from hashlib import sha256  # takes 5 ms, and few repositories need it

    found, left = sha256(), size
    with temp.open("wb") as copy:
        while left and (block := file.read(min(left, _BLOCK))):
            _left(own, until)
            found.update(block)
            left -= len(block)
            if block.count(0) == len(block):
                copy.seek(len(block), os.SEEK_CUR)
            else:
                copy.write(block)
        copy.truncate(size)
        copy.flush()
        os.fsync(copy.fileno())
    return found.hexdigest()


def _left(own: Path, until: float) -> float:
    """The seconds left until the deadline; raises ToolFailed if there are none."""
    left = until - monotonic()
    if left <= 0:
        words = ["git", "-C", str(own), "lfs"]
        raise ToolFailed(words, None, "", message="its large files take too long to copy")
    return left
