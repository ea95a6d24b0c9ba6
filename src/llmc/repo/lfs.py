"""Git LFS: a worktree's large files come from the source's own store, and go there before a commit lands."""

import os
from pathlib import Path

from llmc.base import inside
from llmc.base.files import write_atomic
from llmc.base.text import some_files
from llmc.repo import git, git_dirs, own_objects
from llmc.repo.project import Project

MISSING = "the source repository uses Git LFS, but git-lfs is not installed, so large files remain pointers"
GET_IT = "Install git-lfs (Debian: sudo apt-get install git-lfs), then run `llmc up --detach` again"
NOT_INSTALLED = f"{MISSING}. {GET_IT}"


#: as `git lfs install` writes them
_FILTERS = {
    "clean": "git-lfs clean -- %f",
    "smudge": "git-lfs smudge -- %f",
    "process": "git-lfs filter-process",
}
#: whether a commit uses LFS
_used: dict[str, bool] = {}


def settle(project: Project, worktree: Path, *, thorough: bool) -> list[str]:
    """Fetch the worktree's large files; returns the problem if that fails.

    Unless `thorough`, runs git only if LFS is likely, because git has to read the whole tree.
    """
    likely = os.path.lexists(worktree / ".gitattributes") or (project.root.path / ".git/lfs").exists()
    if not (likely or thorough) or not is_used(worktree, "HEAD"):
        return []
    set_up(project.root.path)
    if not is_installed():
        return [NOT_INSTALLED]
    own = git_dirs.own_repo(worktree)
    if own is not None:
        set_up(own)
    left = _pointers(worktree)
    if left:
        _fetch(project, git.head(worktree))
        git.git(worktree, "lfs", "pull", check=False, timeout_s=3600)
        left = _pointers(worktree)
    own_objects.unshare(
        project.root.path / ".git", below="lfs/objects"
    )  # git-lfs hard-links them to the source's
    if not left:
        return []
    names = some_files(left)
    why = f"{names}: still LFS pointers because the source repository does not have the files"
    return [f"{why}. Run `git lfs pull` in {project.source}, then `llmc up --detach` again"]


def _fetch(project: Project, commit: str) -> None:
    """Fetch a commit's large files into the clone's store, from the URL of the default branch, not of the commit.

    An agent can write `.lfsconfig`, and git-lfs has the user's keys.
    """
    root = project.root.path
    url = git.config_get(root, "lfs.url", "--blob", f"{project.base}:.lfsconfig")
    where = ["-c", f"lfs.url={url}"] if url else []
    fetch = [*where, "lfs", "fetch", "origin", commit]
    git.git(root, *fetch, check=False, timeout_s=3600, asks_for_large_files=True)


def is_installed() -> bool:
    import shutil  # saves 2 ms in most commands

    return shutil.which("git-lfs") is not None


def set_up(repository: Path) -> None:
    """Set the LFS filters in the clone or a worker's repository: empty without git-lfs, since the user's would fail."""
    there = is_installed()
    wanted = {f"filter.lfs.{key}": value if there else "" for key, value in _FILTERS.items()}
    wanted["filter.lfs.required"] = "true" if there else "false"
    if (repository / ".git").is_dir():
        _set(repository, repository / ".git/config", wanted)
        return
    # For an agent that is running, this file is read-only. A new file would not be, so it is written in place.
    copy = git_dirs.kept_apart(repository) / "config"
    before = inside.read_whole(repository, "config")
    write_atomic(copy, before)
    _set(Path("/"), copy, wanted)
    text = copy.read_bytes()
    copy.unlink()
    if text != before:
        with open(os.open(repository / "config", os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "wb") as file:
            file.truncate()
            file.write(text)


def _set(place: Path, file: Path, wanted: dict[str, str]) -> None:
    """Write the filters into a settings file. `place`: where git runs; dead locks are removed only in a root."""
    config = ["config", "--file", str(file)]
    have = git.git(place, *config, "--get", "filter.lfs.process", check=False)
    if have.ok and have.stdout.strip() == wanted["filter.lfs.process"]:
        return
    for key, value in wanted.items():
        git.git(place, *config, key, value)


def send(project: Project, ref: str, to: str) -> None:
    """Copy the large files of a ref to where it lands; without them its checkout would fail."""
    if not (project.root.path / ".git/lfs/objects").is_dir():
        return
    where = f"file://{Path(to).resolve()}" if Path(to).is_dir() else to
    git.git(project.root.path, "lfs", "push", where, ref, timeout_s=3600, asks_for_large_files=True)
    own_objects.unshare(project.root.path / ".git", below="lfs/objects")


def is_used(repo: Path, commit: str) -> bool:
    """Whether the .gitattributes of a commit use LFS; cached per commit."""
    known = git.resolve(repo, commit)
    if known is None:
        return False
    if known not in _used:
        attributes = ["--", ".gitattributes", "*/.gitattributes"]
        _used[known] = git.git(
            repo, "grep", "--quiet", "-I", "-e", "filter=lfs", known, *attributes, check=False
        ).ok
    return _used[known]


def _pointers(worktree: Path) -> list[str]:
    """The files that are still pointers, by `git lfs ls-files`."""
    rows = git.git(worktree, "lfs", "ls-files").stdout.split("\n")  # it has no -z
    return [row.split(" - ", 1)[1] for row in rows if " - " in row and " * " not in row.split(" - ")[0]]
