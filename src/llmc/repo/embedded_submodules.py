"""Before a worktree gets another git directory: the repositories of its submodules move into their checkouts.

git keeps them in the git directory of the worktree (`modules/`), and each checkout points there. A submodule with its
repository in its own `.git` directory works as well, wherever the worktree belongs.
"""

import contextlib
import os
from pathlib import Path

from llmc.base import inside
from llmc.base.files import explain, remove_tree
from llmc.records.worker import WorkerRecord
from llmc.repo import git, trash
from llmc.repo.project import Project

#: a pointer while its repository moves; after a kill in between it is found by this name
_MOVING = ".git.llmc-moving"
#: longer than any path
_MOST_POINTER = 8192


def embed(project: Project, record: WorkerRecord) -> None:
    """Move all of them; safe to repeat. What no checkout points to goes to the trash. No agent runs in the worktree."""
    worktree = Path(record.worktree_path)
    git_dir = git.git_dir(worktree)
    if not os.path.lexists(git_dir / "modules"):
        return
    try:
        _embed_those_of(worktree, git_dir, checkout="", repository="")
        if any(files for _, _, files in inside.walk(git_dir, "modules")):
            ref = trash.pin_commit(project.root, record.name, "submodules", git.head(worktree))
            trash.take_out(git_dir, ["modules"], trash.folder_of(project.root, ref))
        else:
            remove_tree(git_dir / "modules")
    except OSError as error:
        raise explain(error, f"cannot move the submodules of {record.name}") from error


def _embed_those_of(worktree: Path, git_dir: Path, *, checkout: str, repository: str) -> None:
    """Those of the worktree, or of a submodule in it; the innermost first, while each is where its pointer says."""
    own = f"--git-dir={git_dir / repository}"
    rows = git.listed(worktree, own, "ls-files", "--stage", "-z", timeout_s=300)
    for path in [row.partition("\t")[2] for row in rows if row.startswith("160000 ")]:
        place = os.path.join(checkout, path)
        found = _pointed_to(worktree, git_dir, place)
        if found.startswith(os.path.join(repository, "modules/")) and (git_dir / found / "HEAD").exists():
            _embed_those_of(worktree, git_dir, checkout=place, repository=found)
            _move(worktree, git_dir, place, found)


def _pointed_to(worktree: Path, git_dir: Path, checkout: str) -> str:
    """The repository of a submodule, as a path from the git directory of the worktree; "" if there is none."""
    for name in (".git", _MOVING):
        with contextlib.suppress(OSError, ValueError):
            text = inside.read(worktree, f"{checkout}/{name}", _MOST_POINTER).decode()
            place = os.path.join(worktree, checkout, text.removeprefix("gitdir:").strip())
            return os.path.relpath(os.path.realpath(place), os.path.realpath(git_dir))
    return ""


def _move(worktree: Path, git_dir: Path, checkout: str, repository: str) -> None:
    config = git_dir / repository / "config"
    git.git(git_dir, "config", "--file", str(config), "--unset", "core.worktree", check=False)
    with (
        inside.folder_of(worktree, f"{checkout}/.git") as (folder, last),
        inside.folder_of(git_dir, repository) as (modules, name),
    ):
        with contextlib.suppress(FileNotFoundError):
            os.rename(last, _MOVING, src_dir_fd=folder, dst_dir_fd=folder)
        os.rename(name, last, src_dir_fd=modules, dst_dir_fd=folder)
        os.unlink(_MOVING, dir_fd=folder)
