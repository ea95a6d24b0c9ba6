"""One contained worker's unreadable or slow repository blocks neither the others nor its own reset."""

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmc.base.clock import monotonic
from llmc.base.errors import ToolFailed
from llmc.landing import review
from llmc.repo import git, git_config, own_repos, provision, taking_in, uncommitted
from llmc.repo.project import Project
from llmc.workers import nuke, reset
from tests.support.contained import needs_bubblewrap
from tests.support.fleet import in_soak
from tests.support.repos import Mold, Repo, add_worker, make_project, project_at, worker_of

pytestmark = needs_bubblewrap


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
def own(project: Project) -> Path:
    """The repository of w1, whose agent is hostile."""
    return own_repos.path_of(project.root.path, "w1")


def replace(path: Path, put: Callable[[Path], object]) -> None:
    """Replace a file or directory with something else."""
    path.parent.mkdir(exist_ok=True)
    if path.is_dir():
        shutil.move(path, path.with_name("moved"))
    path.unlink(missing_ok=True)
    put(path)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def file(path: Path) -> None:
    path.write_text("x\n")


#: what an agent may do to its repository to make parts of it unreadable
UNREADABLE: dict[str, Callable[[Path], Any]] = {
    "long": lambda own: (own / "HEAD").write_text(f"ref: refs/heads/{'a' * 300}\n"),
    "nul": lambda own: (own / "HEAD").write_bytes(b"ref: refs/heads/a\0b\n"),
    "loop": lambda own: replace(own / "refs", loop),
    "index": lambda own: (own / "index").write_bytes(b"DIRC" * 99),
    "bytes": lambda own: (
        (own / "HEAD").write_text("ref: refs/heads/\x1b\n"),
        (own / "refs/heads/\x1b").mkdir(),
    ),
    "loop of heads": lambda own: replace(own / "refs/heads/llmc", loop),
    "no refs": lambda own: replace(own / "refs", file),
    "loop of remotes": lambda own: replace(own / "refs/remotes", loop),
}
#: and to make it unwritable
UNWRITABLE: dict[str, Callable[[Path], Any]] = {
    "logs": lambda own: replace(own / "logs", file),
    "heads": lambda own: replace(own / "refs/heads", file),
    "lock": lambda own: (own / "index.lock").mkdir(),
}


@pytest.mark.parametrize("case", ["long", "nul", "loop", *in_soak(*[*UNREADABLE][3:])])
def test_a_repository_that_cannot_be_read_is_its_worker_s_refusal(
    project: Project, own: Path, case: str
) -> None:
    """Break: catch only missing files in `stamp` (repo/git_config.py), and nothing in `look` of repo/taking_in.py."""
    UNREADABLE[case](own)
    record, worktree = worker_of(project, "w2")
    tip = worktree.commit("b.txt")
    review.look(project, record)
    assert git.resolve(project.root.path, own_repos.branch_of("w2")) == tip
    item = project.store.read().attention.get("refused:w1")
    if case not in ("index", "loop of remotes"):  # there its commits can be fetched
        assert item is not None
        assert item.next == "llmc reset w1"
        assert item.text.isprintable()
    provision.reset_in_place(project, worker_of(project)[0], provision.refresh_base(project), "test")
    assert uncommitted.tree_state(worker_of(project)[1].path).clean
    assert git.tree_of(project.root.path, project.base)
    assert "refused:w1" not in project.store.read().attention
    assert len([*project.root.trash.glob("w1-*/w1")]) == 1


@pytest.mark.parametrize("path", ["a" * 300, "a\0b", "loop/a"], ids=["long", "nul", "loop"])
def test_any_path_has_a_stamp(tmp_path: Path, path: str) -> None:
    """Break: catch only missing files in `stamp` (repo/git_config.py)."""
    loop(tmp_path / "loop")
    assert git_config.stamp(f"{tmp_path}/{path}") == git_config.ODD
    assert isinstance(git_config.read_plainly(tmp_path / path), git_config.Broken)


@pytest.mark.parametrize("failing", ["odd_file", "watched"])
@pytest.mark.parametrize("error", [RecursionError(), ValueError("odd"), MemoryError()], ids=repr)
def test_whatever_fails_is_the_refusal_of_one(
    project: Project, monkeypatch: pytest.MonkeyPatch, failing: str, error: Exception
) -> None:
    """Break: catch only what is known, in `take` (repo/own_repos.py) or in `look` (repo/taking_in.py)."""
    real = getattr(own_repos, failing)

    def fails(root: Path, name: str) -> object:
        if name == "w1":
            raise error
        return real(root, name)

    monkeypatch.setattr(own_repos, failing, fails)
    tip = worker_of(project, "w2")[1].commit("b.txt")
    assert git.resolve(project.root.path, own_repos.branch_of("w2")) == tip
    assert project.store.read().attention["refused:w1"].next == "llmc reset w1"
    if failing == "odd_file":
        assert own_repos.take(project.root.path, "w1").startswith("its repository cannot be read: ")


@pytest.mark.parametrize("case", ["logs", *in_soak("heads", "lock")])
def test_a_repository_that_cannot_be_written_is_replaced_by_a_reset(
    project: Project, own: Path, case: str
) -> None:
    """Break: no second attempt in `_reset_tree` of workers/reset.py."""
    UNWRITABLE[case](own)
    worker_of(project)[1].write("a.txt", "changed\n")
    done = reset.reset_worker(project, "w1")
    assert done.pinned
    assert uncommitted.tree_state(worker_of(project)[1].path).clean
    assert "worktree:w1" not in project.store.read().attention
    assert len([*project.root.trash.glob("w1-*/w1")]) == 1


def test_a_worker_whose_repository_cannot_be_read_is_removed(project: Project, own: Path) -> None:
    """Break: no `needs_new_repository` in `_pin` of workers/nuke.py."""
    UNREADABLE["loop"](own)
    removed = nuke.nuke_worker(project, "w1")
    assert removed.directory
    assert (removed.directory / "w1.txt").exists()
    assert not own.exists()


def test_what_a_refusal_says_can_be_printed(project: Project, own: Path) -> None:
    """Break: no `in_line` in `take` (repo/own_repos.py) and `_tell` (repo/taking_in.py)."""
    UNREADABLE["bytes"](own)
    assert git.tree_of(project.root.path, project.base)
    item = project.store.read().attention["refused:w1"]
    assert item.text.endswith("refs/heads/^[ is not a regular file")
    with pytest.raises(ToolFailed, match="is not a regular file") as raised:
        uncommitted.tree_state(worker_of(project)[1].path)
    assert raised.value.message.isprintable()


def test_directories_within_directories_are_looked_through(tmp_path: Path) -> None:
    """Break: walk directories by recursion in `odd_in` (repo/own_repos.py)."""
    deep = "import os\nfor _ in range(1000): os.mkdir('d'); os.chdir('d')\nos.mkfifo('pipe')"
    subprocess.run([sys.executable, "-c", deep], cwd=tmp_path, check=True)
    try:
        assert own_repos.odd_in(tmp_path).endswith("/d/d/pipe")
    finally:
        subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)


class Slow:
    """A fetch of w1 that does not finish until it may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        #: the limit of each, in seconds
        self.fetches: list[float] = []
        self._real = own_repos._fetch
        monkeypatch.setattr(own_repos, "_fetch", self._fetch)

    def _fetch(self, root: Path, own: Path, *moves: str, until: float) -> str:
        if own.name != "w1":
            return self._real(root, own, *moves, until=until)
        self.fetches.append(until - monotonic())
        self.begun.set()
        if not self.may_end.wait(max(0.0, min(20.0, until - monotonic()))):
            return "timed out"
        return self._real(root, own, *moves, until=until)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    made = Slow(monkeypatch)
    monkeypatch.setattr(taking_in, "OTHERS_S", 0.2)
    yield made
    made.may_end.set()


@pytest.fixture
def ask(slow: Slow) -> Iterator[Callable[..., threading.Thread]]:
    """Call in a separate thread."""
    threads: list[threading.Thread] = []

    def begin(act: Callable[[], object]) -> threading.Thread:
        threads.append(threading.Thread(target=act))
        threads[-1].start()
        return threads[-1]

    yield begin
    slow.may_end.set()
    for thread in threads:
        thread.join(20)


def test_a_slow_worker_holds_up_no_other(
    project: Project, slow: Slow, ask: Callable[..., threading.Thread]
) -> None:
    """While one thread fetches w1's commits for a call about w1, git calls for others continue.

    Break: use one lock for all in `look` (repo/clone_guard.py), or no limit for others in repo/taking_in.py.
    """
    root = project.root.path
    found: list[str | None] = []
    tip = worker_of(project)[1].commit("slow.txt")
    ask(lambda: found.append(git.resolve(root, own_repos.branch_of("w1"))))
    assert slow.begun.wait(20)
    record, worktree = worker_of(project, "w2")
    assert uncommitted.tree_state(worktree.path).clean
    mine = worktree.commit("b.txt")
    assert git.resolve(root, own_repos.branch_of("w2")) == mine
    assert review.look(project, record)
    assert len(slow.fetches) == 1, "one at a time"
    assert not found
    slow.may_end.set()
    ask(lambda: None).join(20)
    assert git.resolve(root, own_repos.branch_of("w1")) == tip
    assert "refused:w1" not in project.store.read().attention


def test_others_try_a_slow_worker_seldom_and_refuse_nothing(project: Project, slow: Slow) -> None:
    """Break: no pause in `_attend` of repo/taking_in.py: each git call for others waits again."""
    root = project.root.path
    tip = worker_of(project)[1].commit("slow.txt")
    for _ in range(5):
        assert git.tree_of(root, project.base)
    assert len(slow.fetches) == 1
    assert "refused:w1" not in project.store.read().attention
    slow.may_end.set()
    assert git.tree_of(root, tip), "requested by its id: git must have it"


def test_what_the_clone_has_is_not_waited_for(project: Project, own: Path, slow: Slow) -> None:
    """An agent names commits of others in its refs.

    Break: no `has_commit` in `_is_about` (repo/taking_in.py).
    """
    root = project.root.path
    other = git.resolve(root, own_repos.branch_of("w2"))
    assert other
    slow.may_end.set()
    assert git.tree_of(root, other)
    slow.may_end.clear()
    worker_of(project)[1].commit("slow.txt")
    (own / "packed-refs").write_text(f"{other} refs/heads/theirs\n")
    for _ in range(3):
        assert git.tree_of(root, other)
    (limit,) = slow.fetches
    assert limit <= taking_in.OTHERS_S


def test_a_fetch_that_is_ended_leaves_nothing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: no `_drop_unfinished_packs` in `_fetch` (repo/own_repos.py):
    the clone would grow with each attempt.
    """
    packs = project.root.path / ".git/objects/pack"
    worker_of(project)[1].commit("c.txt")
    with (packs / "tmp_pack_other").open("w"):
        (packs / "tmp_pack_ours").write_text("half of it")
        monkeypatch.setattr(own_repos, "MOST_S", 0.0)
        assert "timed out" in own_repos.fetch(
            project.root.path, own_repos.path_of(project.root.path, "w1"), "HEAD:refs/x", limit_s=0.0
        )
    assert [path.name for path in packs.glob("tmp_pack_*")] == ["tmp_pack_other"]


@pytest.mark.parametrize(
    ("words", "about"),
    [
        (["rev-parse", "refs/heads/llmc/w1"], True),
        (["log", "main..llmc/w1"], True),
        (["rev-parse", "refs/llmc/in/w1^{commit}"], True),
        (["update-ref", "refs/llmc/trash/w1/x"], True),
        (["worktree", "remove", "/r/.worktrees/w1"], True),
        (["rev-parse", "refs/heads/llmc/w10"], False),
        (["rev-parse", "refs/heads/llmc/w1-b"], False),
        (["rev-parse", "refs/remotes/origin/w1"], False),
        (["status"], False),
    ],
)
def test_a_call_is_about_a_worker_that_it_names(words: list[str], about: bool) -> None:
    assert taking_in.names_worker(words, "w1") is about
