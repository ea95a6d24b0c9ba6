"""Real git repositories and llmc roots in temporary directories."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from llmc.agents.scripted.client import Scripted
from llmc.base.names import WorkerName
from llmc.config.edit import set_value
from llmc.config.model import Worker
from llmc.records.worker import WorkerRecord
from llmc.repo import setup
from llmc.repo.project import Project, open_project

needs_lfs = pytest.mark.skipif(
    shutil.which("git-lfs") is None,
    reason="git-lfs IS NOT INSTALLED: that LFS files move was NOT checked; scripts/setup --client installs it",
)
_IDENTITY = ["-c", "user.name=Person", "-c", "user.email=person@example.com"]


class Repo:
    """A repository that a user works in."""

    def __init__(self, path: Path, *, bare: bool = False) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main", *(["--bare"] if bare else []))

    def git(self, *args: str, check: bool = True) -> str:
        return run_git(self.path, *args, check=check)

    def write(self, name: str, text: str = "text\n") -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def commit(self, name: str, text: str = "text\n", message: str = "") -> str:
        self.write(name, text)
        self.git("add", "-f", "--", name)
        self.git("commit", "-q", "-m", message or f"Add {name}")
        return self.head()

    def head(self, ref: str = "HEAD") -> str:
        return self.git("rev-parse", ref)


class Worktree(Repo):
    """A directory that already is a working tree."""

    def __init__(self, path: Path) -> None:
        self.path = path


def run_git(cwd: Path, *args: str, check: bool = True) -> str:
    done = subprocess.run(
        ["git", *_IDENTITY, *args], cwd=cwd, capture_output=True, text=True, errors="surrogateescape"
    )
    assert not check or done.returncode == 0, f"git {args}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


class Mold:
    """Folders that are created once for the tests of a file, and restored for each of them.

    All at the same place, because a root contains absolute paths: copying one costs a tenth of creating it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._place = folder, folder / "place"
        self._kept: dict[Callable[[Path], object], Path] = {}

    def place(self, make: Callable[[Path], object]) -> Path:
        """The folder as this function creates it, whatever the previous test has done to it."""
        if self._place.exists():
            shutil.rmtree(self._place)
        if make in self._kept:
            shutil.copytree(self._kept[make], self._place, symlinks=True)
        else:
            self._place.mkdir()
            make(self._place)
            kept = self._folder / f"kept{len(self._kept)}"
            self._kept[make] = shutil.copytree(self._place, kept, symlinks=True)
        return self._place


def make_project(source: str, root: Path) -> Project:
    """A root on a source (path or URL), like `llmc init`; not contained, unless a test is about that."""
    found = setup.find_source(source, Path("/"))
    made = setup.create_root(found, root, Scripted.name)
    set_value(made.config, "defaults.sandbox", "off")
    return setup.new_project(made)


def project_at(root: Path) -> Project:
    """A root that already exists."""
    return open_project(str(root))


def add_worker(project: Project, name: str = "w1") -> tuple[WorkerRecord, Worktree]:
    record = setup.add_worker(project, name, Worker())
    return record, Worktree(Path(record.worktree_path))


def worker_of(project: Project, name: str = "w1") -> tuple[WorkerRecord, Worktree]:
    """One that was added before."""
    record = project.store.read().workers[WorkerName(name)]
    return record, Worktree(Path(record.worktree_path))


def tree(worktree: Path, commit: str) -> dict[str, str]:
    """The files of a commit, with their modes: `100755 text`."""
    names = run_git(worktree, "ls-tree", "-r", "--name-only", "-z", commit).split("\0")
    return {name: run_git(worktree, "show", f"{commit}:{name}") for name in names if name}


def snapshot(directory: Path) -> dict[str, tuple[int, bytes | str]]:
    """Everything in a working tree except `.git`: what a user would notice if it changed."""
    found: dict[str, tuple[int, bytes | str]] = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if name == ".git" or name.startswith(".git/"):
            continue
        mode = path.lstat().st_mode
        if path.is_symlink():
            found[name] = (mode, os.readlink(path))
        elif path.is_file():
            found[name] = (mode, path.read_bytes())
        else:
            found[name] = (mode, "")
    return found


def lfs_source(source: Repo) -> None:
    source.git("lfs", "install", "--local")
    source.git("lfs", "track", "*.bin")
    source.git("add", ".gitattributes")
    source.write("a.bin", "large\n")
    source.git("add", "a.bin")
    source.git("commit", "-q", "-m", "Large")


def make_library(source: Repo, tmp_path: Path) -> Repo:
    """A submodule `lib` of the source, with its own submodule."""
    inner = Repo(tmp_path / "inner")
    inner.commit("inner.c", "1\n")
    made = Repo(tmp_path / "lib")
    made.commit("lib.c", "1\n")
    allow = ["-c", "protocol.file.allow=always", "submodule"]
    made.git(*allow, "add", "-q", str(inner.path), "deep/inner")
    made.git("commit", "-q", "-m", "Inner")
    source.git(*allow, "add", "-q", str(made.path), "lib")
    source.git("commit", "-q", "-m", "Submodule")
    source.git(*allow, "update", "-q", "--init", "--recursive")
    return made


def advance(source: Repo, library: Repo, text: str) -> str:
    """The source moves its submodule to a new commit."""
    tip = library.commit("lib.c", text)
    run_git(source.path / "lib", "fetch", "-q", "origin")
    run_git(source.path / "lib", "checkout", "-q", tip)
    source.git("add", "lib")
    source.git("commit", "-q", "-m", f"lib at {text}")
    return tip
