"""No file of a root's clone is shared with the source."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from llmc.repo import git, own_objects, provision
from llmc.repo.project import Project
from tests.support.repos import Mold, Repo, Worktree, add_worker, make_project, run_git
from tests.tools.doctor.test_doctor import kinds, repair


def make(place: Path) -> None:
    repo = Repo(place / "source")
    for number in range(5):
        repo.commit(f"{number}.txt", f"{number}\n" * 100)
    repo.git("gc", "-q")
    repo.commit("loose.txt")


@pytest.fixture
def tmp_path(mold: Mold) -> Path:
    """With a source that has packed and loose objects."""
    return mold.place(make)


@pytest.fixture
def source(tmp_path: Path) -> Repo:
    return Worktree(tmp_path / "source")


def files_of(clone: Path) -> list[Path]:
    return [path for path in clone.rglob("*") if path.is_file() and not path.is_symlink()]


def an_old_root(source: Repo, tmp_path: Path) -> Project:
    """Cloned as an older llmc did: with hard links."""
    project = make_project(str(source.path), tmp_path / "root")
    run_git(tmp_path, "clone", "-q", "--local", "--bare", str(source.path), str(tmp_path / "old"))
    objects = project.root.path / ".git/objects"
    shutil.rmtree(objects)
    os.rename(tmp_path / "old/objects", objects)
    assert own_objects.is_shared(project.root.path / ".git")
    return project


def test_a_new_root_shares_nothing(source: Repo, tmp_path: Path) -> None:
    """What an agent overwrites here stays intact there. Break: clone with --local."""
    project = make_project(str(source.path), tmp_path / "root")
    add_worker(project)
    clone = project.root.path / ".git"
    assert not [path for path in files_of(clone) if path.stat().st_nlink > 1]
    for path in files_of(clone / "objects"):
        path.chmod(0o644)
        with path.open("r+b") as file:
            file.write(b"overwritten by an agent")
    source.git("fsck", "--full", "--strict")
    assert source.git("log", "--format=%s").split("\n")[0] == "Add loose.txt"


def test_a_source_that_leans_on_another_repository(source: Repo, tmp_path: Path) -> None:
    """Break: let git copy the file `alternates`."""
    run_git(tmp_path, "clone", "-q", "--shared", str(source.path), str(tmp_path / "leans"))
    project = make_project(str(tmp_path / "leans"), tmp_path / "root")
    assert own_objects.alternates(project.root.path / ".git") is None
    shutil.rmtree(source.path)
    run_git(project.root.path, "fsck", "--full")


def test_doctor_gives_an_old_root_files_of_its_own(source: Repo, tmp_path: Path) -> None:
    """Break: leave the loose ones, or those of a submodule; or remove what only the root has."""
    project = an_old_root(source, tmp_path)
    record, tree = add_worker(project)
    commit = tree.commit("work.txt")
    assert "shared_objects" in kinds(project)
    repair(project)
    assert kinds(project) == []
    clone = project.root.path / ".git"
    assert not [path for path in files_of(clone) if path.stat().st_nlink > 1]
    run_git(clone.parent, "fsck", "--full")
    assert git.resolve(clone.parent, f"refs/heads/{record.branch}") == commit
    assert not list(clone.rglob("tmp_obj_llmc*"))


@pytest.mark.parametrize("when", ["before:kill:1", "after:kill:1", "before:kill:3"])
def test_a_kill_on_the_way_loses_nothing(source: Repo, tmp_path: Path, when: str) -> None:
    """Break: remove the old file before its copy exists."""
    project = an_old_root(source, tmp_path)
    program = (
        "import sys; from llmc.repo.project import open_project; from llmc.repo import own_objects; "
        "own_objects.make_own(open_project(sys.argv[1]))"
    )
    env = {**os.environ, "LLMC_FAULT": f"unshare.copy:{when}"}
    argv = [sys.executable, "-c", program, str(project.root.path)]
    assert subprocess.run(argv, env=env, capture_output=True).returncode == -9
    run_git(project.root.path, "fsck", "--full")
    source.git("fsck", "--full")
    own_objects.make_own(project)
    assert not own_objects.is_shared(project.root.path / ".git")
    run_git(project.root.path, "fsck", "--full")


def test_doctor_takes_in_what_an_old_root_leans_on(source: Repo, tmp_path: Path) -> None:
    """Two steps away, too. Break: remove `alternates` before the objects are here."""
    project = make_project(str(source.path), tmp_path / "root")
    objects = project.root.path / ".git/objects"
    run_git(tmp_path, "clone", "-q", "--shared", "--bare", str(source.path), str(tmp_path / "between"))
    shutil.rmtree(objects)
    (objects / "info").mkdir(parents=True)
    (objects / "info/alternates").write_text(f"# ours\n{tmp_path / 'between/objects'}\n")
    assert "shared_objects" in kinds(project)
    repair(project)
    assert kinds(project) == []
    shutil.rmtree(tmp_path / "between")
    shutil.rmtree(source.path / ".git/objects")
    run_git(project.root.path, "fsck", "--full")


def test_alternates_whose_objects_are_gone_stay(source: Repo, tmp_path: Path) -> None:
    """Break: remove the file although objects are missing without it."""
    project = make_project(str(source.path), tmp_path / "root")
    objects = project.root.path / ".git/objects"
    shutil.rmtree(objects)
    (objects / "info").mkdir(parents=True)
    (objects / "info/alternates").write_text(f"{tmp_path / 'unmounted'}\n")
    with pytest.raises(Exception, match="some objects are available only through"):
        own_objects.make_own(project)
    assert (objects / "info/alternates").exists()


@pytest.mark.skipif(shutil.which("git-lfs") is None, reason="git-lfs is not installed")
def test_large_files_are_not_shared_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """git-lfs links from a local source, and into it. Break: unshare only when worktrees are created."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    source = Repo(tmp_path / "source")
    source.git("lfs", "install", "--local")
    source.git("lfs", "track", "*.bin")
    source.git("add", ".gitattributes")
    source.commit("a.bin", "large\n" * 1000)
    project = make_project(str(source.path), tmp_path / "root")
    record, tree = add_worker(project)
    clone = project.root.path / ".git"
    assert (tree.path / "a.bin").read_text() == "large\n" * 1000
    assert files_of(clone / "lfs/objects")
    assert not own_objects.is_shared(clone)
    from llmc.landing import default_branch

    commit = tree.commit("b.bin", "other\n" * 1000)
    default_branch.land(project, record.name, commit, provision.refresh_base(project))
    assert (source.path / "b.bin").read_text() == "other\n" * 1000
    assert not own_objects.is_shared(clone)
