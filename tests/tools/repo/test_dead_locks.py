"""The lock files of a killed git, anywhere in a root's own git directories, stop no later command."""

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from llmc.base import locks
from llmc.base.errors import ToolFailed
from llmc.records.event_log import EventLog
from llmc.repo import dead_locks, git, own_repos, provision
from llmc.repo.project import Project
from tests.support.contained import needs_bubblewrap
from tests.support.repos import Mold, Repo, add_worker, make_project, project_at, worker_of
from tests.support.waiting import wait_until


def make(place: Path) -> None:
    source = Repo(place / "src")
    source.commit("a.txt", "a\n")
    add_worker(make_project(str(source.path), place / "root"))


@pytest.fixture
def project(mold: Mold) -> Project:
    return project_at(mold.place(make) / "root")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_locks, "WATCH_S", 0.2)
    monkeypatch.setattr(dead_locks, "READER_S", 0.2)


#: a lock in the clone, and a command that needs it; `@`: in the worktree
NEEDED = {
    "refs/llmc/land/w1.lock": "update-ref refs/llmc/land/w1 HEAD",
    "packed-refs.lock": "pack-refs --all",
    "config.lock": "config branch.main.description words",
    "HEAD.lock": "symbolic-ref HEAD refs/heads/other",
    "worktrees/w1/index.lock": "@ rm -q a.txt",
    "worktrees/w1/HEAD.lock": "@ checkout -q --detach",
    "refs/heads/llmc/w1.lock": "@ update-ref refs/heads/llmc/w1 origin/main",
}


@pytest.mark.parametrize("name", NEEDED)
def test_a_lock_in_the_clone(project: Project, name: str) -> None:
    """Break: retry only for the locks of `drop_dead_locks`; auto mode fails until a person runs doctor."""
    lock = project.root.path / ".git" / name
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    words = NEEDED[name].split()
    place = worker_of(project)[1].path if words[0] == "@" else project.root.path
    git.git(place, *[word for word in words if word != "@"])
    assert not lock.exists()
    assert removed(project) == [[str(lock)]]


def removed(project: Project) -> list[list[str]]:
    return [row["paths"] for row in EventLog(str(project.root.events)).newest(b'"lock_removed"')]


def test_a_lock_on_the_branch_that_is_fetched(project: Project) -> None:
    """Break: no retry in `git`; no task starts any more."""
    Repo(Path(project.source)).commit("b.txt", "b\n")
    lock = project.root.path / ".git/refs/remotes/origin/main.lock"
    lock.touch()
    assert provision.refresh_base(project) == provision.source_tip(project)
    assert not lock.exists()


@needs_bubblewrap
@pytest.mark.parametrize("name", ["refs/remotes/origin/main.lock", "refs/tags/v1.lock"])
def test_a_lock_in_the_repository_of_a_contained_worker(project: Project, name: str) -> None:
    """Its git ends with the daemon, at any moment. Break: look for locks in the clone only."""
    record = worker_of(project)[0]
    provision.settle_repository(project, record, contained=True)
    source = Repo(Path(project.source))
    source.commit("b.txt", "b\n")
    tip = provision.refresh_base(project)
    git.git(project.root.path, "update-ref", "refs/tags/v1", tip)
    own = own_repos.path_of(project.root.path, record.name)
    (own / name).parent.mkdir(parents=True, exist_ok=True)
    (own / name).touch()
    own_repos.give(project.root.path, record.name, project.base)
    assert git.resolve(own, project.base) == tip
    assert not (own / name).exists()


@contextlib.contextmanager
def updating(
    repo: Path, ref: str, cwd: Path | None = None, words: Sequence[str] = ()
) -> Iterator["subprocess.Popen[bytes]"]:
    """A real git that holds the lock of a ref; killed in the end."""
    argv = ["git", *words, "update-ref", "--stdin"]
    process = subprocess.Popen(argv, cwd=cwd or repo, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        assert process.stdin is not None
        process.stdin.write(f"start\nupdate {ref} origin/main\nprepare\n".encode())
        process.stdin.flush()
        wait_until((repo / ".git" / f"{ref}.lock").exists)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_lock_of_a_git_that_works(project: Project) -> None:
    """Break: do not look for its process, or only for one that has the lock open: git has closed it."""
    root = project.root.path
    with updating(root, "refs/llmc/one"):
        with pytest.raises(ToolFailed, match=r"one\.lock': File exists"):
            git.git(root, "update-ref", "refs/llmc/one", "HEAD")
        assert (root / ".git/refs/llmc/one.lock").exists()
    assert (root / ".git/refs/llmc/one.lock").exists(), "it was killed"
    git.git(root, "update-ref", "refs/llmc/one", "HEAD")
    assert git.resolve(root, "refs/llmc/one")


def test_a_git_that_began_later_keeps_no_lock(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a fleet some git is always at work. Break: wait until none is; or compare clocks."""
    root, lock = project.root.path, project.root.path / ".git/refs/llmc/one.lock"
    lock.parent.mkdir(exist_ok=True)
    lock.touch()
    hour_ahead = time.time() + 3600  # the clock of a file server
    os.utime(lock, (hour_ahead, hour_ahead))
    monkeypatch.setattr(dead_locks, "WATCH_S", 2.0)
    others = ExitStack()
    timer = threading.Timer(0.7, lambda: others.enter_context(updating(root, "refs/llmc/two")))
    timer.start()
    git.git(root, "update-ref", "refs/llmc/one", "HEAD")
    timer.join()
    others.close()
    assert not lock.exists()


def works_beside(root: Path, tmp_path: Path) -> tuple[Path, list[str]]:
    """A worktree that an agent made elsewhere: it shares the clone's refs."""
    place = tmp_path / "beside"
    subprocess.run(["git", "-C", root, "worktree", "add", "-q", "--detach", place, "origin/main"], check=True)
    return place, []


def names_the_clone(root: Path, tmp_path: Path) -> tuple[Path, list[str]]:
    return tmp_path, [f"--git-dir={root}/.git"]


@pytest.mark.parametrize("elsewhere", [works_beside, names_the_clone])
def test_a_git_that_works_elsewhere(
    project: Project,
    tmp_path: Path,
    elsewhere: Callable[[Path, Path], tuple[Path, list[str]]],
) -> None:
    """Break: look for git commands in the root only."""
    root = project.root.path
    cwd, words = elsewhere(root, tmp_path)
    with updating(root, "refs/llmc/one", cwd, words):
        with pytest.raises(ToolFailed, match=r"one\.lock': File exists"):
            git.git(root, "update-ref", "refs/llmc/one", "HEAD")
        assert (root / ".git/refs/llmc/one.lock").exists()


def test_two_that_meet_the_same_dead_lock(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: compare the inode alone, or do not take turns; the second removes the new lock of the first."""
    root, ref = project.root.path, "refs/llmc/one"
    lock = root / f".git/{ref}.lock"
    lock.parent.mkdir(exist_ok=True)
    lock.touch()
    second, others = threading.Event(), ExitStack()
    real = locks.lock

    def first_wins(path: Path, rank: locks.Rank, *, timeout_s: float = 30.0) -> AbstractContextManager[None]:
        """Another process was faster: it removed the lock, and its git made a new one, with the same inode."""
        if rank is locks.Rank.GIT_LOCKS and not second.is_set():
            second.set()
            lock.unlink()
            others.enter_context(updating(root, ref))
        return real(path, rank, timeout_s=timeout_s)

    monkeypatch.setattr(locks, "lock", first_wins)
    with others:
        assert not dead_locks.drop(root, lock)
        assert lock.exists()
    assert second.is_set()


def test_processes_that_meet_the_same_dead_lock(project: Project) -> None:
    """Each succeeds. Break: try once more only."""
    root = project.root.path
    (root / ".git/packed-refs.lock").touch()
    with ThreadPoolExecutor(6) as pool:
        done = list(pool.map(lambda _: git.git(root, "pack-refs", "--all", check=False), range(6)))
    assert [one.stderr for one in done if not one.ok] == []
    assert not (root / ".git/packed-refs.lock").exists()


def test_a_lock_that_its_git_releases_in_time(project: Project) -> None:
    """Break: fail at once; the commands of an agent and of llmc meet."""
    root = project.root.path
    with updating(root, "refs/llmc/one") as process:
        assert process.stdin is not None
        process.stdin.write(b"commit\n")
        process.stdin.close()
        process.stdin = None
        git.git(root, "update-ref", "refs/llmc/one", "HEAD")
    assert removed(project) == []


def test_locks_elsewhere_are_not_llmcs(project: Project, tmp_path: Path) -> None:
    """Break: remove what git names, wherever it is; a server or an agent can put words into git's mouth."""
    source = Path(project.source)
    lock = source / ".git/refs/heads/main.lock"
    lock.touch()
    with pytest.raises(ToolFailed):
        git.git(source, "update-ref", "refs/heads/main", "HEAD~0")
    (project.root.path / ".llmc/locks").mkdir(exist_ok=True)
    others = [tmp_path / "x.lock", project.root.path / ".llmc/locks/state.lock"]
    others.append(project.root.path / ".git/../.llmc/locks/daemon.lock")
    guard = git.guards[str(project.root.path)]
    for other in others:
        other.touch()
        said = f"error: Unable to create '{other}': File exists."
        assert not guard.free(said, project.root.path)
        assert other.exists()
    assert lock.exists()
