"""Trees that an agent or a check left: of any depth, with names of any length, without following links."""

import os
import resource
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llmc.base import inside, trees
from llmc.base.files import remove_tree
from tests.support.deep import nested

#: too deep for Python's recursion; and a path too long to open
TREES = [("d", 1500), ("long" * 60, 40), pytest.param("d", 5_000, marks=pytest.mark.soak)]


@contextmanager
def few_files(more: int = 8) -> Iterator[None]:
    """Let this process open at most `more` new files."""
    highest = max(map(int, os.listdir("/proc/self/fd")))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "tree").mkdir()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").touch()
    yield tmp_path / "kept"
    subprocess.run(["rm", "-rf", str(tmp_path / "tree")], check=True)  # pytest itself cannot


@pytest.mark.parametrize(("name", "depth"), TREES)
@pytest.mark.parametrize("mode", [0o755, 0o400, 0o000])
def test_any_tree_is_removed(tmp_path: Path, kept: Path, name: str, depth: int, mode: int) -> None:
    """Break: `shutil.rmtree` in `files.remove_tree`; keep a descriptor for each level; no `_allow`."""
    nested(tmp_path / "tree", name, depth, mode=mode)
    with few_files():
        remove_tree(tmp_path / "tree")
    assert os.listdir(tmp_path) == ["kept"]
    assert os.listdir(kept) == ["file"]


@pytest.mark.parametrize(("name", "depth"), TREES[:2])
def test_any_tree_is_walked(tmp_path: Path, kept: Path, name: str, depth: int) -> None:
    """Break: `os.fwalk` in `inside.walk`."""
    nested(tmp_path / "tree", name, depth)
    with few_files():
        found = [
            (at.path.count("/"), folders, sorted(names))
            for at, folders, names in inside.walk(tmp_path, "tree")
        ]
    assert found == [*((level, [name], []) for level in range(depth)), (depth, [], ["file", "link"])]


def test_a_walk_sees_each_directory_once(tmp_path: Path) -> None:
    places = {"a", "a/b", "a/b/c", "a/d", "a/d/e", "a/d/e/f", "a/g"}
    for place in places:
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
    assert sorted(at.path for at, _, _ in inside.walk(tmp_path, "a")) == sorted(places)


def test_a_walk_leaves_out_what_its_caller_removes_from_the_list(tmp_path: Path) -> None:
    (tmp_path / "a/.git/objects").mkdir(parents=True)
    (tmp_path / "a/b").mkdir()
    found = []
    for at, folders, _ in inside.walk(tmp_path, "a"):
        found.append(at.path)
        folders[:] = [name for name in folders if name != ".git"]
    assert found == ["a", "a/b"]


@pytest.mark.parametrize("mode", [0o000, 0o400, 0o100])
def test_a_walk_goes_on_beside_a_directory_without_permissions(tmp_path: Path, mode: int) -> None:
    """For an ordinary user. Break: in `up`, always open `..`, which a directory with 0o400 does not allow."""
    for name in ("a/1", "a/2/inner", "a/3"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a/2").chmod(mode)
    found = {at.path for at, _, _ in inside.walk(tmp_path, "a")}
    (tmp_path / "a/2").chmod(0o700)
    assert found >= {"a", "a/1", "a/3"}


def test_a_directory_that_is_moved_meanwhile_leads_nowhere_else(tmp_path: Path) -> None:
    """Break: no `samestat` in `up`: the contents of the new place would be taken as the tree, and removed."""
    (tmp_path / "tree/1/2/3").mkdir(parents=True)
    (tmp_path / "elsewhere/2").mkdir(parents=True)
    start = os.open(tmp_path, os.O_RDONLY)
    try:
        with trees.Spot(start) as at:
            for name in ("tree", "1", "2", "3"):
                at.down(name)
            assert at.up() == "3"
            os.rename(tmp_path / "tree/1/2", tmp_path / "elsewhere/2")
            with pytest.raises(OSError, match="moved in the meantime"):
                at.up()
    finally:
        os.close(start)


def test_what_is_no_directory_is_removed(tmp_path: Path, kept: Path) -> None:
    (tmp_path / "link").symlink_to(kept)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        remove_tree(tmp_path / name)
    assert sorted(os.listdir(tmp_path)) == ["kept", "tree"]
    assert stat.S_ISREG((kept / "file").stat().st_mode)


def test_what_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        remove_tree(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        list(inside.walk(tmp_path, "none"))
