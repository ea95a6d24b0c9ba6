"""llmc does not read, copy or list huge amounts that a contained agent can fake: it refuses that worker."""

import os
import subprocess
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc.base import proc
from llmc.base.errors import ToolFailed
from llmc.landing import default_branch, review
from llmc.repo import clone_guard, git, indexes, own_repos, provision, submodules, trash, uncommitted
from llmc.repo.project import Project
from llmc.workers import nuke, reset
from tests.support.contained import needs_bubblewrap
from tests.support.fleet import in_soak
from tests.support.repos import (
    Mold,
    Repo,
    Worktree,
    add_worker,
    make_library,
    make_project,
    project_at,
    worker_of,
)

pytestmark = needs_bubblewrap

MIB = 1 << 20


def make(place: Path) -> None:
    source = Repo(place / "source")
    source.commit("a.txt", "a\n")
    project = make_project(str(source.path), place / "root")
    for name in ("w1", "w2"):
        record, worktree = add_worker(project, name)
        provision.settle_repository(project, record, contained=True)
        worktree.commit(f"{name}.txt")


@pytest.fixture
def project(mold: Mold) -> Project:
    place = mold.place(make)
    git.guards.clear()  # it knows what was there before
    return project_at(place / "root")


@pytest.fixture
def worktree(project: Project) -> Worktree:
    """For w1, whose agent is hostile."""
    return worker_of(project)[1]


@pytest.fixture
def own(project: Project) -> Path:
    return own_repos.path_of(project.root.path, "w1")


def swell(index: Path, size: int) -> None:
    """Give an index this size, with extensions that git skips: holes, which take no space."""
    data, step = index.read_bytes()[:-20], 1 << 30
    with index.open("wb") as file:
        file.write(data)
        while (left := size - file.tell() - 28) > 0:
            part = min(left, step)
            file.write(b"ZZZZ" + part.to_bytes(4, "big"))
            file.seek(part, os.SEEK_CUR)
        file.write(b"\0" * 20)
    assert index.stat().st_blocks * 512 < MIB


def plant_bomb(worktree: Worktree, levels: int = 4) -> str:
    """A few objects that name ten to the power of `levels` files."""

    def run(*args: str, given: str) -> str:
        words = ["git", "-C", str(worktree.path), *args]
        return subprocess.run(words, input=given, capture_output=True, text=True, check=True).stdout.strip()

    kind, entry = "100644 blob", run("hash-object", "-w", "--stdin", given="x\n")
    for _ in range(levels):
        rows = "".join(f"{kind} {entry}\t{'n' * 30}{number}\n" for number in range(10))
        kind, entry = "040000 tree", run("mktree", given=rows)
    commit = worktree.git("commit-tree", entry, "-p", "HEAD", "-m", "bomb")
    worktree.git("update-ref", "HEAD", commit)
    return commit


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git, "MOST_LISTED", MIB)
    monkeypatch.setattr(git, "MOST_OUTPUT", MIB)
    monkeypatch.setattr(git, "MOST_DIFF", MIB)


class Peak:
    """The peak memory of Python's objects."""

    def __enter__(self) -> "Peak":
        tracemalloc.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()


def refuses_and_goes_on(project: Project) -> None:
    """What w1's agent did is w1's refusal, and w2 works."""
    with pytest.raises(ToolFailed) as raised:
        uncommitted.tree_state(worker_of(project)[1].path)
    assert raised.value.message.startswith("cannot read w1's repository: ")
    assert "`llmc reset w1`" in raised.value.hint
    record, other = worker_of(project, "w2")
    tip = other.commit("b.txt")
    assert review.look(project, record).head == tip
    assert uncommitted.tree_state(other.path).clean


def resets(project: Project) -> None:
    reset.reset_worker(project, "w1")
    assert uncommitted.tree_state(worker_of(project)[1].path).clean
    assert not {"refused:w1", "worktree:w1"} & {*project.store.read().attention}


def test_a_large_index_is_not_copied(project: Project, worktree: Worktree, own: Path) -> None:
    """3 GiB that take no space. Break: no `is_too_large` in `_problem` (repo/own_repos.py)."""
    worktree.write("a.txt", "changed\n")
    swell(own / "index", 3 << 30)
    with pytest.raises(ToolFailed, match=r"cannot read w1's repository: .*index has more than 256 MiB"):
        trash.pin(project.root, worktree.path, "w1", "reset")
    refuses_and_goes_on(project)
    assert project.store.read().attention["refused:w1"].next == "llmc reset w1"
    resets(project)
    (kept,) = project.root.trash.glob("w1-*/w1/index")
    assert kept.stat().st_blocks * 512 < MIB


def test_a_copy_of_an_index_has_its_holes(
    project: Project, worktree: Worktree, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even below the limit. Break: copy with shutil in `_tree_of_index` (repo/trash.py)."""
    worktree.write("staged.txt", "staged\n")
    worktree.git("add", "staged.txt")
    swell(own / "index", 100 * MIB)
    sizes: list[int] = []
    real = proc.run

    def look(argv: list[str], **more: object) -> proc.Done:
        copies = own.parent.glob(".w1.llmc/for-git/llmc-staged*")
        sizes.extend(path.stat().st_blocks * 512 for path in copies)
        return real(argv, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(proc, "run", look)
    ref = trash.pin(project.root, worktree.path, "w1", "test")
    assert git.file_text(project.root.path, ref, "staged.txt") == "staged\n"
    assert sizes
    assert max(sizes) < MIB


def test_an_index_that_grows_meanwhile_is_not_copied(
    project: Project, worktree: Worktree, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: no limit on the copy itself."""
    monkeypatch.setattr(own_repos, "refuse_odd_files", lambda *_: None)  # it has already checked
    worktree.write("a.txt", "changed\n")
    swell(own / "index", indexes.MOST_BYTES + MIB)
    with pytest.raises(ToolFailed, match="index has more than 256 MiB"):
        trash.pin(project.root, worktree.path, "w1", "test")


def test_an_index_is_searched_in_pieces(tmp_path: Path, worktree: Worktree, own: Path) -> None:
    """Break: read all of it in `_paths_of_gitlinks` (repo/clone_guard.py)."""
    swell(own / "index", indexes.MOST_BYTES - 1)
    with Peak() as peak:
        found = clone_guard._paths_of_gitlinks(str(worktree.path), str(own / "index"))
    assert found == ()
    assert peak.bytes < 8 * MIB


@pytest.mark.parametrize("off", range(-4, 1))
def test_a_submodule_at_the_end_of_a_piece_is_found(worktree: Worktree, own: Path, off: int) -> None:
    """Break: no overlap between the pieces."""
    head = worktree.git("rev-parse", "HEAD")
    worktree.git("update-index", "--add", "--cacheinfo", f"160000,{head},sub")
    listed = worktree.path.parent / "index"
    piece = indexes.PIECE
    listed.write_bytes(b"\1" * (piece + off) + indexes.GITLINK + b"\1" * 300_000)
    assert clone_guard._paths_of_gitlinks(str(worktree.path), str(listed)) == ("sub",)


def test_a_few_objects_that_name_many_files_are_not_listed(
    project: Project, worktree: Worktree, small_limits: None
) -> None:
    """Break: no `most_bytes` by default in `git` (repo/git.py)."""
    plant_bomb(worktree)
    with Peak() as peak, pytest.raises(git.TooMuch):
        uncommitted.tree_state(worktree.path)
    assert peak.bytes < 4 * MIB
    refuses_and_goes_on(project)
    resets(project)


def test_a_review_of_many_files_lists_none(project: Project, worktree: Worktree, small_limits: None) -> None:
    """Its status is clean: by its index, these files need not exist. Break: no limit in `changed_files`."""
    commit = plant_bomb(worktree)
    worktree.git("read-tree", commit)
    names = worktree.git("ls-files").split()
    for at in range(0, len(names), 1000):
        worktree.git("update-index", "--skip-worktree", *names[at : at + 1000])
    for name in ("a.txt", "w1.txt"):
        (worktree.path / name).unlink()
    shown = review.look(project, worker_of(project)[0])
    assert (shown.head, shown.files, shown.too_large) == (commit, (), True)
    assert "cannot list the changed files: `git` " in shown.warnings[-1]
    with Peak() as peak, pytest.raises(git.TooMuch):
        review.changed_files(project.root.path, shown.base, shown.result)
    assert peak.bytes < 4 * MIB
    review.remember(project, shown)
    assert project.store.worker("w1").reviewed_patch is None


def test_the_default_limit_is_for_every_call_in_a_root(
    project: Project, worktree: Worktree, small_limits: None
) -> None:
    """Break: no `most_bytes` by default in `git` (repo/git.py), or one for repositories outside roots."""
    plant_bomb(worktree)
    for place in (worktree.path, own_repos.path_of(project.root.path, "w1"), project.root.path):
        with pytest.raises(git.TooMuch):
            git.git(place, "ls-tree", "-r", "refs/heads/llmc/w1", check=False)
    source = Path(project.source)
    subprocess.run(
        ["git", "-C", source, "fetch", "-q", project.root.path, "refs/heads/llmc/w1:bomb"], check=True
    )
    assert len(git.git(source, "ls-tree", "-r", "bomb").stdout) > MIB


def test_short_names_count_for_more_than_their_bytes(
    worktree: Worktree, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As objects in memory they are larger. Break: do not count the rows in `listed` (repo/git.py)."""
    for number in range(100):
        worktree.write(str(number), "x\n")
    monkeypatch.setattr(git, "MOST_LISTED", 6000)
    with pytest.raises(git.TooMuch, match="cannot read w1's repository"):
        uncommitted.untracked_files(worktree.path)
    monkeypatch.setattr(git, "MOST_LISTED", 7000)
    assert len(uncommitted.untracked_files(worktree.path)) == 100


@pytest.mark.parametrize("how", [reset.reset_worker, nuke.nuke_worker])
def test_what_cannot_be_listed_is_reset_and_removed(
    project: Project, worktree: Worktree, own: Path, small_limits: None, how: object
) -> None:
    """An index of many missing files. Break: no `TooMuch` in `_pin` of workers/nuke.py."""
    commit = plant_bomb(worktree)
    worktree.git("read-tree", commit)
    worktree.git("update-ref", "HEAD", f"{commit}^")
    worktree.write("new.txt", "new\n")
    refuses_and_goes_on(project)
    if how is reset.reset_worker:
        resets(project)
        (ref,) = [name for (name,) in git.refs(project.root.path, f"{trash.PREFIX}w1/*-reset", "refname")]
        assert git.file_text(project.root.path, ref, "new.txt") == "new\n"
        return
    removed = nuke.nuke_worker(project, "w1")
    assert removed.directory is not None
    assert (removed.directory / "new.txt").exists()
    assert not own.exists()


def test_no_index_of_many_files_is_written(
    project: Project, worktree: Worktree, own: Path, small_limits: None
) -> None:
    """An index that names a directory instead of its files takes no space. Break: no `_refuse_too_many` in repo/trash.py."""
    commit = plant_bomb(worktree)
    with pytest.raises(git.TooMuch):
        trash.files_as_tree(worktree.path, commit)
    with pytest.raises(git.TooMuch), indexes.own_index(worktree.path) as index:
        trash._tree_of_files(indexes.Files(worktree.path, index), commit, [], ())
    worktree.git("update-ref", "HEAD", f"{commit}^")
    worktree.git("read-tree", commit)
    with pytest.raises(git.TooMuch):
        trash._tree_of_index(worktree.path)
    assert [*own.parent.glob(".w1.llmc/for-git/*")] == []


def test_a_worker_that_is_not_contained_can_be_removed(project: Project, small_limits: None) -> None:
    """Break: no `TooMuch` in `_pin` of workers/nuke.py, or another hint in `worker_at` (repo/git.py)."""
    _, worktree = add_worker(project, "w3")
    plant_bomb(worktree)
    with pytest.raises(git.TooMuch) as raised:
        uncommitted.tree_state(worktree.path)
    assert "`llmc nuke w3`" in raised.value.hint
    removed = nuke.nuke_worker(project, "w3")
    assert removed.directory is not None
    assert (removed.directory / "a.txt").exists()


@pytest.mark.parametrize("how", ["index", *in_soak("objects")])
def test_a_submodule_that_cannot_be_listed_goes_to_the_trash(
    tmp_path: Path, small_limits: None, how: str
) -> None:
    """Break: no `unreadable` in `pin_changes` (repo/submodules.py); or raise in `_paths_of_gitlinks` (repo/clone_guard.py)."""
    source = Repo(tmp_path / "source")
    source.commit("a.txt", "a\n")
    make_library(source, tmp_path)
    project = make_project(str(source.path), tmp_path / "root")
    record, worktree = add_worker(project)
    provision.settle_repository(project, record, contained=True)
    library = Worktree(worktree.path / "lib")
    library.write("lib.c", "changed\n")
    if how == "index":
        swell(Path(library.git("rev-parse", "--absolute-git-dir")) / "index", 3 << 30)
    else:
        inner = library.git("ls-files", "--stage", "deep/inner")
        library.git("read-tree", plant_bomb(library))
        library.git("update-index", "--add", "--cacheinfo", ",".join([*inner.split()[:2], "deep/inner"]))
    reset.reset_worker(project, "w1")
    assert uncommitted.tree_state(worktree.path).clean
    assert (library.path / "lib.c").read_text() == "1\n"
    (kept,) = project.root.trash.glob("w1-*/lib/lib.c")
    assert kept.read_text() == "changed\n"


def large_index(worktree: Worktree, count: int) -> None:
    blob = worktree.git("hash-object", "-w", "a.txt")

    def rows() -> Iterator[str]:
        for number in range(count):
            yield f"100644 {blob}\t{number % 1000:03}/{number:06}-{'x' * 68}.c\0"

    given = "".join(rows()).encode()
    words = ["git", "-C", str(worktree.path), "update-index", "-z", "--index-info"]
    subprocess.run(words, input=given, check=True)


@pytest.mark.parametrize("count", [5_000, *in_soak(500_000)])
def test_a_large_repository_is_listed(
    project: Project, worktree: Worktree, own: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """500,000 files with paths of 80 characters, all of them changed; or a fraction of both files and limits.

    Break: use a lower limit.
    """
    for place, name in ((git, "MOST_OUTPUT"), (git, "MOST_LISTED"), (indexes, "MOST_BYTES")):
        monkeypatch.setattr(place, name, getattr(place, name) * count // 500_000)
    large_index(worktree, count)
    assert (own / "index").stat().st_size < indexes.MOST_BYTES
    state = uncommitted.tree_state(worktree.path)
    assert len(state.tracked) == count
    assert len(state.tracked[9]) == 81
    assert uncommitted.hidden_files(worktree.path) == []
    worktree.git("update-index", "--add", "--cacheinfo", f"160000,{state.head},sub")
    assert clone_guard._paths_of_gitlinks(str(worktree.path), str(own / "index")) == ("sub",)
    submodules.embed(project, worker_of(project)[0])


def test_files_that_land_are_read_in_the_clone(project: Project, worktree: Worktree, tmp_path: Path) -> None:
    """A forged tree names any path, and a refusal would tell whether it exists.

    Break: read the worktree's repository in `added_files` (landing/default_branch.py).
    """
    place, base = tmp_path / "place", project.base
    place.mkdir()
    (tmp_path / "private").touch()
    assert default_branch.added_files(project, worktree.path) == ["w1.txt"]
    blob = worktree.git("rev-parse", "HEAD:a.txt")
    words = ["git", "-C", str(worktree.path), "hash-object", "-t", "tree", "--literally", "-w", "--stdin"]
    inner = subprocess.run(
        words, input=b"100644 private\0" + bytes.fromhex(blob), capture_output=True, check=True
    ).stdout
    outer = b"40000 ..\0" + bytes.fromhex(inner.decode().strip())
    tree = subprocess.run(words, input=outer, capture_output=True, check=True).stdout.decode().strip()
    worktree.git("update-ref", "HEAD", worktree.git("commit-tree", tree, "-p", base, "-m", "forged"))
    assert default_branch.added_files(project, worktree.path) == []
    assert default_branch.in_the_way(place, ["../private", "./x", "a//b"]) == []
