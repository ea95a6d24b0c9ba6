"""Large files from a contained worker's repository: an agent wrote that store."""

import hashlib
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmc.base.clock import monotonic
from llmc.base.errors import ToolFailed
from llmc.base.proc import Done
from llmc.repo import git, own_large_files
from tests.support.repos import Repo, run_git

SPARSE = 64 << 20


def pointer(name: str, size: int) -> str:
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{name}\nsize {size}\n"


def put(store: Path, content: bytes, name: str = "") -> Path:
    name = name or hashlib.sha256(content).hexdigest()
    path = store / "lfs/objects" / name[:2] / name[2:4] / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


class Store:
    """A worker's repository and a clone, without their worktrees."""

    def __init__(self, place: Path) -> None:
        self.repo, self.root = Repo(place / "own"), place / "root"
        self.own = self.repo.path / ".git"
        self.clone = Repo(self.root).path / ".git"
        self.base = self.repo.commit(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
        run_git(self.root, "fetch", "-q", str(self.own), f"{self.base}:refs/remotes/origin/main")
        (self.own / "lfs/objects").mkdir(parents=True)

    def names(self, *files: Path, sizes: dict[Path, int] | None = None) -> str:
        """A commit with a pointer to each."""
        for path in files:
            size = (sizes or {}).get(path, path.lstat().st_size)
            (self.repo.path / path.name[:9]).write_text(pointer(path.name, size))
        self.repo.git("add", "-A")
        self.repo.git("commit", "-q", "--allow-empty", "-m", "x")
        return self.repo.git("rev-parse", "HEAD")

    def take(self, *commits: str, seconds: float = 60) -> list[Path]:
        """What the clone has afterwards."""
        base = "refs/remotes/origin/main"
        own_large_files.take(self.root, self.own, commits or ["HEAD"], base, monotonic() + seconds)
        return [path for path in (self.clone / "lfs/objects").rglob("*") if path.is_file()]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_only_what_is_named_by_its_content_is_taken(store: Store, tmp_path: Path) -> None:
    """Break: leave out the comparison of the hash, or of the size, or follow links."""
    good, lie = put(store.own, b"large"), put(store.own, b"a lie", "0" * 64)
    private = put(tmp_path / "theirs", b"private")
    link = put(store.own, b"", private.name)
    link.unlink()
    link.symlink_to(private)
    pipe = put(store.own, b"", "1" * 64)
    pipe.unlink()
    os.mkfifo(pipe)
    longer = put(store.own, b"longer than its pointer", hashlib.sha256(b"longer").hexdigest())
    store.names(good, lie, link, pipe, longer, sizes={longer: 6, link: 7})
    (taken,) = store.take()
    assert taken.read_bytes() == b"large"
    before = taken.stat().st_ino
    assert before != good.stat().st_ino, "the agent can still write its own"
    assert [path.stat().st_ino for path in store.take()] == [before]


def test_what_no_commit_names_is_not_even_read(store: Store) -> None:
    """Break: take everything in the store whose name is a hash."""
    named, other = put(store.own, b"named"), put(store.own, b"other")
    commit = store.names(named)
    store.names(other)
    assert [path.read_bytes() for path in store.take(commit)] == [b"named"]


def test_a_pointer_that_is_replaced_by_a_huge_file_is_not_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its size was read, but before its content is. Break: no `most_bytes` for `cat-file --batch`."""
    store.names(named := put(store.own, b"named"))
    blob = store.repo.git("rev-parse", f"HEAD:{named.name[:9]}")
    loose = store.own / "objects" / blob[:2] / blob[2:]
    real, huge = git.git, own_large_files._MOST_READ + 1

    def swap(repo: Path, *args: str, **more: Any) -> Done:
        if "--batch" in args:
            loose.chmod(0o600)
            loose.write_bytes(zlib.compress(f"blob {huge}\0".encode() + bytes(huge)))
        return real(repo, *args, **more)

    monkeypatch.setattr(git, "git", swap)
    with pytest.raises(git.TooMuch):
        store.take()


def test_small_files_of_any_content_are_in_no_way(store: Store) -> None:
    """Break: count NULs as rows in `git` (repo/git.py)."""
    for number in range(2000):
        (store.repo.path / f"{number}.dat").write_bytes(bytes(1000) + b"%d" % number)
    store.names(good := put(store.own, b"large"))
    assert [path.name for path in store.take()] == [good.name]


def test_files_of_earlier_commits_are_taken_too(store: Store) -> None:
    """Even those that came into the store after their commit was taken. Break: check only the last commit."""
    first = put(store.own, b"first")
    store.names(first)
    first.unlink()
    assert store.take() == []
    put(store.own, b"first")
    (store.repo.path / first.name[:9]).unlink()
    second = put(store.own, b"second")
    store.names(second)
    assert {path.read_bytes() for path in store.take()} == {b"first", b"second"}


def test_a_repository_without_large_files_has_none(store: Store) -> None:
    """Break: no `_use_large_files` in `take`."""
    good = put(store.own, b"large")
    (store.repo.path / ".gitattributes").unlink()
    store.names(good)
    assert store.take() == []


@pytest.mark.parametrize("honest", [True, False], ids=["named by its hash", "a lie"])
def test_a_hole_does_not_fill_the_disk(store: Store, honest: bool) -> None:
    """Break: write the blocks of zeros in `_copied`."""
    content = hashlib.sha256(bytes(SPARSE)).hexdigest() if honest else "0" * 64
    path = put(store.own, b"", content)
    os.truncate(path, SPARSE)
    store.names(path)
    taken = store.take()
    assert [one.stat().st_size for one in taken] == [SPARSE] * honest
    assert sum(one.stat().st_blocks for one in taken) * 512 < 1 << 20
    assert not [*store.clone.rglob("tmp_obj_llmc*")]


def test_it_ends_in_time(store: Store) -> None:
    """Break: no `_left` in `_copied`."""
    path = put(store.own, b"", "0" * 64)
    os.truncate(path, 1 << 40)
    store.names(path)
    with pytest.raises(ToolFailed, match="too long"):
        store.take(seconds=0.7)
    assert not [*store.clone.rglob("tmp_obj_llmc*")]


@pytest.mark.parametrize(
    "hide",
    [lambda store: store.rmdir(), lambda store: (store.rmdir(), store.symlink_to("../../elsewhere"))],
    ids=["none", "link"],
)
def test_a_store_that_is_missing_or_a_link_is_none(store: Store, hide: Callable[[Path], object]) -> None:
    theirs = put(store.repo.path / "elsewhere", b"private")
    (store.repo.path / "elsewhere/lfs/objects").rename(store.repo.path / "there")
    (store.repo.path / "elsewhere/lfs").rmdir()
    (store.repo.path / "elsewhere").rmdir()
    (store.repo.path / "there").rename(store.repo.path / "elsewhere")
    hide(store.own / "lfs/objects")
    store.names(store.repo.path / "elsewhere" / theirs.name[:2] / theirs.name[2:4] / theirs.name)
    assert store.take() == []
