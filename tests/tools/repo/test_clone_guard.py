"""The guard of the clone: real git, real files, and everything an agent may put in their place."""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from llmc.base import proc
from llmc.base.errors import LlmcError
from llmc.base.files import remove_tree
from llmc.config.model import Config
from llmc.landing import default_branch
from llmc.records.worker import WorkerRecord
from llmc.repo import dead_locks, git, git_config, provision, uncommitted
from llmc.repo.clone_guard import CloneGuard
from llmc.repo.project import Project
from llmc.repo.setup import new_project
from tests.support.planted import Planted
from tests.support.repos import Mold, Repo, Worktree, add_worker, make_project, project_at, run_git
from tests.support.waiting import wait_until


def make(place: Path) -> None:
    repo = Repo(place / "source")
    repo.git("config", "user.name", "Sam")
    repo.git("config", "user.email", "sam@example.com")
    repo.commit("a.txt")
    make_project(str(repo.path), place / "root")


@pytest.fixture
def tmp_path(mold: Mold) -> Path:
    """With a source and a root in it."""
    return mold.place(make)


@pytest.fixture
def source(tmp_path: Path) -> Repo:
    return Worktree(tmp_path / "source")


@pytest.fixture
def project(source: Repo, tmp_path: Path) -> Project:
    return project_at(tmp_path / "root")


@pytest.fixture
def worker(project: Project) -> tuple[WorkerRecord, Worktree]:
    return add_worker(project)


@pytest.fixture
def planted(tmp_path: Path) -> Planted:
    return Planted(tmp_path / "evil")


@pytest.fixture(autouse=True)
def _no_guard_stays() -> Iterator[None]:
    yield
    git.guards.clear()


def config_of(project: Project) -> Path:
    return project.root.path / ".git/config"


def told(project: Project) -> list[str]:
    return [item.text for item in project.store.read().attention.values()]


def settle(*paths: Path) -> None:
    """As if the files had been written a while ago."""
    limit = max(os.lstat(path).st_ctime_ns for path in paths) + 30_000_000
    wait_until(lambda: time.time_ns() > limit)


GARBAGE: dict[str, Callable[[Path], Any]] = {
    "syntax": lambda path: path.write_text("[core\nbare = no\n"),
    "bytes": lambda path: path.write_bytes(os.urandom(300)),
    "zeros": lambda path: path.write_bytes(b"\0" * 300),
    "word": lambda path: path.write_text("garbage"),
    "another": lambda path: path.write_text("[user]\n\tname = Adam\n"),
    "empty": lambda path: path.write_text(""),
    "gone": lambda path: path.unlink(),
    "link": lambda path: (path.rename(path.with_name("moved")), path.symlink_to("moved")),
    "dangling": lambda path: (path.unlink(), path.symlink_to("/nowhere/config")),
    "directory": lambda path: (path.unlink(), path.mkdir(), (path / "x").write_text("")),
    "fifo": lambda path: (path.unlink(), os.mkfifo(path)),
    "huge": lambda path: os.truncate(path, 5 * 1024 * 1024),
}


@pytest.mark.parametrize("damage", GARBAGE)
def test_a_config_that_cannot_be_used_is_made_again(
    project: Project, worker: tuple[WorkerRecord, Worktree], damage: str
) -> None:
    """From what is known without it; the broken one is kept. Break: leave it to git, which then refuses."""
    path, tree = config_of(project), worker[1]
    GARBAGE[damage](path)
    assert uncommitted.tree_state(tree.path).clean
    assert provision.refresh_base(project)
    assert run_git(project.root.path, "config", "remote.origin.url") == project.source
    assert run_git(project.root.path, "config", "remote.origin.pushurl") == "llmc-workers-do-not-push"
    assert run_git(project.root.path, "rev-parse", "--is-bare-repository") == "true"
    assert not path.is_symlink()
    assert len(told(project)) == 1
    kept = list((project.root.path / ".llmc/set-aside").glob("config-*"))
    assert len(kept) == (0 if damage == "gone" else 1)
    assert run_git(project.root.path, "config", "--local", "user.name") == "Sam"


def test_a_config_of_a_repository_with_long_ids_is_made_again(tmp_path: Path) -> None:
    """Break: write format 0: git would not understand a single object."""
    (tmp_path / "long").mkdir()
    run_git(tmp_path / "long", "init", "-q", "-b", "main", "--object-format=sha256")
    source = Worktree(tmp_path / "long")
    source.commit("a.txt")
    project = make_project(str(source.path), tmp_path / "long-root")
    _, tree = add_worker(project)
    config_of(project).write_text("garbage")
    assert uncommitted.tree_state(tree.path).head == source.head()


@pytest.mark.parametrize("damage", ["syntax", "link", "directory", "fifo"])
def test_a_worktrees_own_settings_that_cannot_be_used_go_aside(
    project: Project, worker: tuple[WorkerRecord, Worktree], damage: str
) -> None:
    own = git.git_dir(worker[1].path) / "config.worktree"
    own.write_text("[core]\n\tsparseCheckout = false\n")
    GARBAGE[damage](own)
    assert uncommitted.tree_state(worker[1].path).clean
    assert len(told(project)) == 1
    assert "w1 may have changed it" in told(project)[0]


def test_nothing_is_run_while_nothing_changed(
    project: Project, worker: tuple[WorkerRecord, Worktree], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even by a process that checks for the first time. Break: ask git for a plain file's settings."""
    _, tree = worker
    run_git(tree.path, "config", "user.name", "Adam")
    guard = CloneGuard(str(project.root.path), project.source, project.base)
    ran: list[Any] = []
    monkeypatch.setattr(proc, "run", lambda *args, **rest: ran.append(args))
    guard.look(str(tree.path))
    settle(config_of(project))
    read: list[Any] = []
    real = git_config.read_plainly
    monkeypatch.setattr(git_config, "read_plainly", lambda path: read.append(path) or real(path))
    guard.look(str(tree.path))
    read.clear()
    guard.look(str(tree.path))
    assert ran == []
    assert [path for path in read if path.name.startswith("config")] == []


def test_a_change_within_one_tick_of_the_clock_is_seen(
    project: Project, worker: tuple[WorkerRecord, Worktree]
) -> None:
    """Same size, same file, same time. Break: remember a file that was written just now."""
    path = config_of(project)
    with path.open("a") as file:
        file.write("[color]\n\tui = true\n[core]\n\taskpassX = /tmp/evil\n")
    found = os.stat(path)
    uncommitted.tree_state(worker[1].path)
    path.write_bytes(path.read_bytes().replace(b"askpassX", b"askpass "))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    uncommitted.tree_state(worker[1].path)
    assert b"/tmp/evil" not in path.read_bytes()


def lead_to_another_repository(project: Project, tree: Worktree, evil: Path) -> None:
    (tree.path / ".git").write_text(f"gitdir: {evil}/.git\n")


def lead_to_another_worker(project: Project, tree: Worktree, evil: Path) -> None:
    (tree.path / ".git").write_text(f"gitdir: {project.root.path}/.git/worktrees/w2\n")


def other_common_directory(project: Project, tree: Worktree, evil: Path) -> None:
    (project.root.path / ".git/worktrees/w1/commondir").write_text(f"{evil}/.git\n")


def by_a_link(project: Project, tree: Worktree, evil: Path) -> None:
    (tree.path / ".git").unlink()
    (tree.path / ".git").symlink_to(evil / ".git")


def other_way_back(project: Project, tree: Worktree, evil: Path) -> None:
    (project.root.path / ".git/worktrees/w1/gitdir").write_text("/nowhere/.git\n")


@pytest.mark.parametrize(
    "redirect",
    [lead_to_another_repository, lead_to_another_worker, other_common_directory, by_a_link, other_way_back],
)
def test_a_worktree_leads_to_its_own_part_of_the_clone(
    project: Project,
    worker: tuple[WorkerRecord, Worktree],
    planted: Planted,
    tmp_path: Path,
    redirect: Callable[[Project, Worktree, Path], None],
) -> None:
    """Break: check only the clone's settings, wherever the worktree leads."""
    _, tree = worker
    add_worker(project, "w2")
    head = tree.commit("work.txt")
    evil = Repo(tmp_path / "other")
    evil.commit("x.txt")
    planted.write(evil.path / ".git/config", {"core.fsmonitor": "{run}"})
    redirect(project, tree, evil.path)
    assert uncommitted.tree_state(tree.path).head == head
    assert planted.ran() == []
    assert run_git(tree.path, "rev-parse", "--git-dir") == f"{project.root.path}/.git/worktrees/w1"
    assert len(told(project)) == 1
    assert "w1 may have changed it" in told(project)[0]
    uncommitted.tree_state(tree.path)
    assert len(project.store.read().attention) == 1


def test_a_repository_inside_a_worktree_runs_nothing(
    project: Project, worker: tuple[WorkerRecord, Worktree], planted: Planted
) -> None:
    """git enters each one that the index names. Break: check only worktrees."""
    _, tree = worker
    inner = Repo(tree.path / "inner")
    inner.commit("x.txt")
    tree.git("add", "inner")
    tree.git("commit", "-qm", "Inner")
    planted.write(inner.path / ".git/config", {"core.fsmonitor": "{run}", "filter.evil.clean": "{run}"})
    (inner.path / ".git/info/attributes").write_text("* filter=evil\n")
    inner.write("x.txt", "changed\n")
    assert uncommitted.tree_state(tree.path).tracked == ("inner",)
    assert planted.ran() == []
    assert len(told(project)) == 2


@pytest.mark.soak
def test_repositories_in_each_other_are_all_looked_at(
    project: Project, worker: tuple[WorkerRecord, Worktree], planted: Planted
) -> None:
    """Too many for Python's recursion. Break: let `_repositories_in` call itself."""
    _, tree = worker
    inner = Repo(tree.path / "i")
    inner.commit("x.txt")
    index = inner.path / ".git/index"
    inner.git("update-index", "--add", "--cacheinfo", f"160000,{inner.head()},i")
    tree.git("update-index", "--add", "--cacheinfo", f"160000,{inner.head()},i")
    place = inner.path
    for _ in range(1050):
        place = place / "i"
        for name in ("objects", "refs"):
            os.makedirs(place / ".git" / name)
        (place / ".git/HEAD").write_text("ref: refs/heads/main\n")
        (place / ".git/config").write_text("[core]\nrepositoryformatversion = 0\n")
        shutil.copyfile(index, place / ".git/index")
    planted.write(place / ".git/config", {"core.fsmonitor": "{run}"})
    try:
        git.git(tree.path, "rev-parse", "HEAD")
        assert "fsmonitor" not in (place / ".git/config").read_text()
    finally:
        remove_tree(inner.path)  # pytest itself cannot


def test_one_that_leads_out_of_the_root_is_not_entered_and_not_changed(
    project: Project, source: Repo, worker: tuple[WorkerRecord, Worktree], planted: Planted
) -> None:
    """The user's own repository may be there. Break: undo settings outside the root."""
    _, tree = worker
    inner = Repo(tree.path / "inner")
    inner.commit("x.txt")
    tree.git("add", "inner")
    tree.git("commit", "-qm", "Inner")
    planted.write(source.path / ".git/config", {"core.fsmonitor": "{run}"})
    before = (source.path / ".git/config").read_bytes()
    shutil.rmtree(inner.path / ".git")
    (inner.path / ".git").write_text(f"gitdir: {source.path}/.git\n")
    uncommitted.tree_state(tree.path)
    assert planted.ran() == []
    assert (source.path / ".git/config").read_bytes() == before
    assert not (inner.path / ".git").exists()
    assert list((project.root.path / ".llmc/set-aside").iterdir())


def test_another_origin_stops_no_landing(
    project: Project, source: Repo, worker: tuple[WorkerRecord, Worktree], tmp_path: Path
) -> None:
    """Break: fetch from `origin`, whatever it is."""
    record, tree = worker
    Repo(tmp_path / "decoy").commit("decoy.txt")
    commit = tree.commit("work.txt")
    run_git(tree.path, "remote", "set-url", "origin", str(tmp_path / "decoy"))
    base = provision.refresh_base(project)
    default_branch.land(project, record.name, commit, base)
    assert default_branch.is_landed(project, commit)
    assert source.head("main") == commit
    assert run_git(tree.path, "remote", "get-url", "origin") == str(source.path)
    assert "remote.origin.url was" in told(project)[0]


def test_a_source_that_a_person_moves_is_no_plot(
    project: Project, source: Repo, worker: tuple[WorkerRecord, Worktree], tmp_path: Path
) -> None:
    """Break: blame an agent for `llmc config set repo.source`."""
    settle(config_of(project))
    moved = tmp_path / "elsewhere"
    os.rename(source.path, moved)
    text = project.root.config.read_text().replace(str(source.path), str(moved))
    project.root.config.write_text(text)
    fresh = new_project(project.root)
    assert provision.refresh_base(fresh)
    assert run_git(project.root.path, "remote", "get-url", "origin") == str(moved)
    assert told(project) == []


def test_a_configuration_that_cannot_be_read_restores_no_origin(project: Project) -> None:
    """Break: treat the root as its own source, as a bare project does."""
    from llmc.repo.project import bare_project

    bare_project(project.root)
    run_git(project.root.path, "config", "core.fsmonitor", "/evil")
    git.git(project.root.path, "rev-parse", "HEAD", check=False)
    assert run_git(project.root.path, "remote", "get-url", "origin") == project.source
    assert "fsmonitor" not in config_of(project).read_text()
    assert isinstance(project.config, Config)


def test_the_settings_of_a_submodule_run_nothing(tmp_path: Path, planted: Planted, monkeypatch: Any) -> None:
    """Neither its settings nor its hooks; its files' path stays. Break: leave out what is below modules/."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    lib = Repo(tmp_path / "lib")
    lib.commit("lib.txt")
    source = Repo(tmp_path / "with-lib")
    source.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(lib.path), "lib")
    source.git("commit", "-qm", "With a submodule")
    project = make_project(str(source.path), tmp_path / "lib-root")
    record, tree = add_worker(project)
    modules = project.root.path / ".git/worktrees/w1/modules/lib"
    where = run_git(modules, "config", "core.worktree")
    planted.write(modules / "config", {"core.fsmonitor": "{run}", "filter.evil.clean": "{run}"})
    planted.write(modules / "config", {"core.worktree": "/nowhere"})
    (modules / "hooks").mkdir(exist_ok=True)
    for name in ("post-checkout", "post-index-change", "reference-transaction"):
        shutil.copy(planted.hooks / name, modules / "hooks" / name)
    (tree.path / "lib/lib.txt").write_text("changed\n")
    assert uncommitted.tree_state(tree.path).tracked == ("lib",)
    lib.commit("more.txt")
    run_git(source.path / "lib", "pull", "-q")
    source.git("commit", "-qam", "Moved on")
    commit = provision.refresh_base(project)
    provision.reset_in_place(project, record, commit, "test")
    assert (tree.path / "lib/more.txt").exists()
    assert planted.ran() == []
    assert run_git(modules, "config", "core.worktree") == where
    inodes = {path.stat().st_ino for path in (source.path / ".git/modules/lib/objects").rglob("*")}
    own = [path for path in (modules / "objects").rglob("*") if path.is_file()]
    assert own
    assert not [path for path in own if path.stat().st_ino in inodes or path.stat().st_nlink > 1]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_while_it_is_undone(
    project: Project, worker: tuple[WorkerRecord, Worktree], when: str, tmp_path: Path
) -> None:
    """It was reported, and the next process undoes it. Break: undo first and report afterwards."""
    run_git(project.root.path, "config", "core.pager", "/evil")
    program = (
        "import sys; from pathlib import Path; from llmc.repo.project import open_project; "
        "from llmc.repo import git; p = open_project(sys.argv[1]); git.head(p.root.path); "
        "git.out(p.root.path, 'for-each-ref')"
    )
    env = {**os.environ, "LLMC_FAULT": f"guard.undo:{when}:kill"}
    argv = [sys.executable, "-c", program, str(project.root.path)]
    assert subprocess.run(argv, env=env, capture_output=True).returncode == -9
    assert len(told(project)) == 1
    git.out(project.root.path, "for-each-ref")
    assert "evil" not in config_of(project).read_text()
    assert len(told(project)) == 1


def test_a_lock_that_a_killed_process_left(
    project: Project, worker: tuple[WorkerRecord, Worktree], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: wait for it forever; or remove one that is held."""
    monkeypatch.setattr(git_config, "LOCK_S", 0.2)
    lock = config_of(project).with_name("config.lock")
    run_git(project.root.path, "config", "core.pager", "/evil")
    with lock.open("w"), pytest.raises(LlmcError, match=r"has held .*config\.lock"):
        git.out(project.root.path, "for-each-ref")
    assert lock.exists()
    git.out(project.root.path, "for-each-ref")
    assert not lock.exists()
    assert "evil" not in config_of(project).read_text()


class _Clock:
    """Time passes only in `sleep`, and things happen in it."""

    def __init__(self, events: dict[float, Callable[[], object]]) -> None:
        self._now, self._events = 100.0, {100.0 + at: event for at, event in events.items()}

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds
        for at in [at for at in self._events if at <= self._now]:
            self._events.pop(at)()


def test_a_lock_that_another_process_has_taken_over(
    project: Project, worker: tuple[WorkerRecord, Worktree], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: no stamps: a git that has just begun would be in the way, because of the dead one before it."""
    config = config_of(project)
    lock = config.with_name("config.lock")
    held: list[int] = []

    def take_over() -> None:
        lock.unlink()
        held.append(os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL))

    def release() -> None:
        lock.unlink()
        os.close(held.pop())

    clock = _Clock({git_config.LOCK_S * 0.6: take_over, git_config.LOCK_S * 1.4: release})
    monkeypatch.setattr(git_config, "time", clock)
    lock.touch()
    with git_config.locked(project.root.path, config):
        assert not held
    assert not lock.exists()


def test_a_lock_that_is_gone_at_the_first_look(
    project: Project, worker: tuple[WorkerRecord, Worktree], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: take one that is gone for one that was seen: the next holder's is in its place."""
    config = config_of(project)
    lock = config.with_name("config.lock")
    lock.touch()
    held: list[int] = []
    look = git_config.stamp

    def released_and_taken(path: str) -> git_config.Stamp | None:
        monkeypatch.setattr(git_config, "stamp", look)
        lock.unlink()
        held.append(os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        return None

    def release() -> None:
        lock.unlink()
        os.close(held.pop())

    monkeypatch.setattr(git_config, "stamp", released_and_taken)
    monkeypatch.setattr(git_config, "time", _Clock({git_config.LOCK_S / 2: release}))
    with git_config.locked(project.root.path, config):
        assert not held


def test_a_dead_lock_that_another_process_removes_first(
    project: Project, worker: tuple[WorkerRecord, Worktree], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: remove what is there without its turn: it may be the new lock of the one who was first."""
    config = config_of(project)
    lock = config.with_name("config.lock")
    lock.touch()
    turn = dead_locks.turn

    @contextmanager
    def after_another(root: Path) -> Iterator[None]:
        with turn(root):
            lock.unlink()
            lock.write_text("its own")
            yield

    left: list[str] = []

    def release() -> None:
        left.append(lock.read_text())
        lock.unlink()

    monkeypatch.setattr(dead_locks, "turn", after_another)
    monkeypatch.setattr(git_config, "time", _Clock({git_config.LOCK_S * 1.4: release}))
    with git_config.locked(project.root.path, config):
        assert left == ["its own"]


def test_what_an_agent_adds_meanwhile_is_not_lost(
    project: Project, worker: tuple[WorkerRecord, Worktree]
) -> None:
    """Under git's own lock. Break: replace the file without it."""
    _, tree = worker
    stop = threading.Event()
    added: list[str] = []

    def agent() -> None:
        while not stop.is_set():
            name = f"branch.b{len(added)}.description"
            done = subprocess.run(["git", "config", name, "x"], cwd=tree.path, capture_output=True)
            if done.returncode == 0:
                added.append(name)

    thread = threading.Thread(target=agent)
    thread.start()
    try:
        for _ in range(10):
            subprocess.run(["git", "config", "core.pager", "/evil"], cwd=tree.path, capture_output=True)
            git.out(tree.path, "for-each-ref")
    finally:
        stop.set()
        thread.join()
    git.out(tree.path, "for-each-ref")
    keys = run_git(tree.path, "config", "--list", "--name-only").split("\n")
    assert "core.pager" not in keys
    assert set(added) <= set(keys)
    assert added


def test_the_clone_itself_replaced_is_refused(project: Project, tmp_path: Path) -> None:
    """Break: follow the link; then any repository's settings could be changed."""
    other = Repo(tmp_path / "other")
    os.rename(project.root.path / ".git", tmp_path / "kept")
    (project.root.path / ".git").symlink_to(other.path / ".git")
    before = (other.path / ".git/config").read_bytes()
    with pytest.raises(LlmcError, match="not the clone"):
        git.out(project.root.path, "for-each-ref")
    assert (other.path / ".git/config").read_bytes() == before


def test_an_object_that_was_replaced_does_not_pass_for_the_real_one(
    project: Project, worker: tuple[WorkerRecord, Worktree]
) -> None:
    """What a review shows is what lands. Break: let git follow refs/replace or info/grafts of the clone."""
    _, tree = worker
    base = tree.head()
    real = tree.commit("bad.txt", "evil\n", "Bad")
    shown = tree.git("commit-tree", f"{base}^{{tree}}", "-p", base, "-m", "Nothing to see")
    tree.git("replace", real, shown)
    assert git.out(tree.path, "show", "-s", "--format=%s", real) == "Bad"
    assert "bad.txt" in git.diff(tree.path, base, real)
    tree.git("replace", "-d", real)
    (project.root.path / ".git/info").mkdir(exist_ok=True)
    (project.root.path / ".git/info/grafts").write_text(f"{real}\n")
    assert git.divergence(tree.path, base, real) == git.Divergence(1, 0)


def test_what_cannot_be_told_now_is_told_later(
    project: Project, worker: tuple[WorkerRecord, Worktree], planted: Planted
) -> None:
    """It is undone anyway, and the report survives the process. Break: keep it in memory."""
    run_git(project.root.path, "config", "core.pager", "/evil")
    good = project.root.state.read_bytes()
    project.root.state.write_text("{")
    git.out(project.root.path, "for-each-ref")
    assert "evil" not in config_of(project).read_text()
    project.root.state.write_bytes(good)
    git.guards.clear()
    fresh = new_project(project.root)
    git.out(fresh.root.path, "for-each-ref")
    assert len(told(fresh)) == 1
    assert (project.root.path / ".llmc/unsaid.jsonl").read_bytes() == b""
