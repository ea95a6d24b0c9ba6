"""The clone's objects are files of its own: no hard link, and no alternates, leads to a person's repository.

Roots of an older llmc were cloned with hard links, and Git LFS still makes them: an agent that overwrites such a file in the
root overwrites it in the source as well.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from llmc.base.errors import LlmcError
from llmc.base.faults import step as fault_step
from llmc.base.files import explain
from llmc.repo import git
from llmc.repo.project import Project

#: what has no objects below it
_NONE_IN = ("refs", "logs", "hooks", "rr-cache")


def shared(clone: Path, *, below: str = "") -> Iterator[Path]:
    """Files of a clone's objects that have another name somewhere else."""
    for place, folders, names in os.walk(clone / below):
        if place == str(clone):
            folders[:] = [name for name in folders if name not in _NONE_IN]
        if "/objects" not in f"{place}/":
            continue
        for entry in (Path(place, name) for name in names):
            with contextlib.suppress(OSError):
                info = entry.lstat()
                if info.st_nlink > 1 and not entry.is_symlink():
                    yield entry


def alternates(clone: Path) -> Path | None:
    """The file that names objects of another repository, if this one leans on any."""
    path = clone / "objects/info/alternates"
    try:
        return path if path.read_bytes().strip() else None
    except OSError:
        return None


def is_shared(clone: Path) -> bool:
    return alternates(clone) is not None or next(shared(clone), None) is not None


def unshare(clone: Path, *, below: str = "") -> int:
    """Each file that has a second name becomes a copy; how many there were. Safe to stop and to repeat at any point."""
    import shutil  # 2 ms that hardly any command needs

    count = 0
    for path in list(shared(clone, below=below)):
        temp = path.with_name(f"tmp_obj_llmc_{os.getpid()}")  # git removes such files when it cleans up
        try:
            shutil.copyfile(path, temp)
            shutil.copystat(path, temp)
            _sync(temp)
            with fault_step("unshare.copy"):
                os.replace(temp, path)
            count += 1
        except FileNotFoundError:
            continue  # git packed it meanwhile
        except OSError as error:
            raise explain(error, f"cannot copy {path}") from error
        finally:
            temp.unlink(missing_ok=True)
    return count


def take_in(clone: Path) -> None:
    """The objects of the repositories that this one leans on come into it; then it leans on none."""
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
            f"objects are missing without {listed}: {' '.join(done.stderr.split())[:300]}",
            hint="It was put back. Look at the repository that it names.",
        )
    aside.unlink()


def make_own(project: Project) -> str:
    """Both, for a root of an older llmc."""
    clone = project.root.path / ".git"
    with project.repo_lock():
        take_in(clone)
        count = unshare(clone)
    return f"copied {count} files" if count else "the objects are in the root now"


def _stores(listed: Path) -> list[Path]:
    """Those that a file names, and those that they lean on in turn."""
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
    import shutil  # 2 ms that hardly any command needs

    packs = [path for suffix in ("*.pack", "*.idx") for path in (store / "pack").glob(suffix)]
    loose = (path for folder in store.glob("[0-9a-f][0-9a-f]") for path in folder.iterdir())
    for path in (*packs, *loose):
        target = own / path.relative_to(store)
        if target.exists():
            continue
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temp = target.with_name(f"tmp_obj_llmc_{os.getpid()}")
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
