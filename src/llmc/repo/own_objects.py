"""Separate the clone's objects from the user's repository: no hard links and no alternates.

Older versions of llmc cloned with hard links, and Git LFS still makes them: an agent that overwrites such a file in the
root overwrites it in the source too.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from llmc.base import inside
from llmc.base.errors import LlmcError
from llmc.base.faults import step as fault_step
from llmc.base.files import explain, unique
from llmc.base.text import counted
from llmc.repo import git
from llmc.repo.project import Project

#: directories without objects
_NONE_IN = ("refs", "logs", "hooks", "rr-cache")


def shared(clone: Path, *, below: str = "") -> Iterator[Path]:
    """Object files of a clone that are hard-linked elsewhere."""
    start = clone / below
    with contextlib.suppress(OSError):  # the directory does not exist
        for at, folders, names in inside.walk(start):
            place = start / at.path
            if place == clone:
                folders[:] = [name for name in folders if name not in _NONE_IN]
            if "/objects" in f"{place}/":
                yield from (place / name for name in names if _is_shared(name, at.fd))


def _is_shared(name: str, folder: int) -> bool:
    with contextlib.suppress(OSError):
        info = os.lstat(name, dir_fd=folder)
        return info.st_nlink > 1 and not stat.S_ISLNK(info.st_mode)
    return False


def alternates(clone: Path) -> Path | None:
    """The alternates file, if this repository uses one."""
    path = clone / "objects/info/alternates"
    try:
        return path if path.read_bytes().strip() else None
    except OSError:
        return None


def is_shared(clone: Path) -> bool:
    return alternates(clone) is not None or next(shared(clone), None) is not None


def unshare(clone: Path, *, below: str = "") -> int:
    """Replace each hard-linked file by a copy; returns how many. Safe to stop and repeat at any point."""
    import shutil  # saves 2 ms in most commands

    count = 0
    for path in list(shared(clone, below=below)):
        temp = path.with_name(f"tmp_obj_llmc{unique()}")  # git removes such files on cleanup
        try:
            shutil.copyfile(path, temp)
            shutil.copystat(path, temp)
            _sync(temp)
            with fault_step("unshare.copy"):
                os.replace(temp, path)
            count += 1
        except FileNotFoundError:
            continue  # git packed it in the meantime
        except OSError as error:
            raise explain(error, f"cannot copy {path}") from error
        finally:
            temp.unlink(missing_ok=True)
    return count


def take_in(clone: Path) -> None:
    """Copy the objects from all alternates into this repository, then remove the alternates."""
    listed = alternates(clone)
    if listed is None:
        return
    own = clone / "objects"
    for store in _stores(listed):
        _copy_objects(store, own)
    aside = listed.with_name("alternates.llmc")
    os.replace(listed, aside)
    done = git.git(clone.parent, "rev-list", "--objects", "--all", "--quiet", check=False, timeout_s=3600)
    if not done.ok:
        os.replace(aside, listed)
        raise LlmcError(
            f"cannot copy all git objects into the root: some objects are available only through {listed}: {' '.join(done.stderr.split())[:300]}",
            hint=f"Check the repositories listed in {listed}, then run the command again.",
        )
    aside.unlink()


def make_own(project: Project) -> str:
    """Take in and unshare all objects of a root from an older llmc; returns what was done."""
    clone = project.root.path / ".git"
    with project.repo_lock():
        take_in(clone)
        count = unshare(clone)
    return (
        f"copied {counted(count, 'file')} into the root"
        if count
        else "copied all borrowed objects into the root"
    )


def _stores(listed: Path) -> list[Path]:
    """The alternates in a file, and their own alternates."""
    found: list[Path] = []
    waiting = [listed]
    while waiting:
        file = waiting.pop()
        lines = file.read_bytes().split(b"\n") if file.is_file() else []
        for name in (os.fsdecode(line) for line in lines if line and not line.startswith(b"#")):
            store = Path(os.path.normpath(file.parent.parent / name))
            if store.is_dir() and store not in found:
                found.append(store)
                waiting.append(store / "info/alternates")
    return found


def _copy_objects(store: Path, own: Path) -> None:
    import shutil  # saves 2 ms in most commands

    packs = [path for suffix in ("*.pack", "*.idx") for path in (store / "pack").glob(suffix)]
    loose = (path for folder in store.glob("[0-9a-f][0-9a-f]") for path in folder.iterdir())
    for path in (*packs, *loose):
        target = own / path.relative_to(store)
        if target.exists():
            continue
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temp = target.with_name(f"tmp_obj_llmc{unique()}")
        shutil.copyfile(path, temp)
        temp.chmod(0o444)
        _sync(temp)
        os.replace(temp, target)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
