"""A worktree that lost its link to the clone, or was left locked by a killed git,
works again, with its files.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc.base.errors import Refused
from llmc.records.event_log import EventLog
from llmc.records.worker import WorkerRecord
from llmc.repo import dead_locks, git, provision, uncommitted, worktrees
from llmc.repo.project import Project
from llmc.workers import nuke
from tests.support.repos import (
    Mold,
    Repo,
    Worktree,
    add_worker,
    make_project,
    project_at,
    run_git,
    snapshot,
    worker_of,
)
from tests.support.waiting import wait_until


def make(place: Path) -> None:
    source = Repo(place / "src")
    source.commit(".gitignore", "*.cache\n")
    source.commit("a.txt", "a\n")
    add_worker(make_project(str(source.path), place / ROOT))


ROOT = "ro\tot \u2028"


@pytest.fixture
def project(mold: Mold) -> Project:
    return project_at(mold.place(make) / ROOT)


@pytest.fixture
def worker(project: Project) -> tuple[WorkerRecord, Worktree]:
    return worker_of(project)


def reset(project: Project, record: WorkerRecord) -> str | None:
    return provision.reset_in_place(project, record, provision.refresh_base(project), "test")


def admin(project: Project) -> Path:
    return project.root.path / ".git/worktrees/w1"


def make_work(worktree: Worktree) -> dict[str, str]:
    """A commit, a changed, a staged, a new and an ignored file; name -> text."""
    worktree.commit("work.txt", "committed\n")
    worktree.write("a.txt", "changed\n")
    worktree.write("staged.txt", "staged\n")
    worktree.git("add", "staged.txt")
    worktree.write("staged.txt", "changed later\n")
    worktree.write("new.txt", "new\n")
    worktree.write("x.cache", "warm\n")
    return {"work.txt": "committed", "a.txt": "changed", "staged.txt": "changed later", "new.txt": "new"}


def damage(project: Project, worktree: Worktree, how: str) -> None:
    pointer = worktree.path / ".git"
    match how:
        case "no .git":
            pointer.unlink()
        case "no entry":
            shutil.rmtree(admin(project))
        case "neither":
            pointer.unlink()
            shutil.rmtree(admin(project))
        case "half an entry":
            (admin(project) / "HEAD").unlink()
        case "pointer to nowhere":
            pointer.write_text("gitdir: /nowhere\n")
        case "a directory in its place":
            pointer.unlink()
            pointer.mkdir()
        case "a repository of its own":
            pointer.unlink()
            worktree.git("init", "-q", "-b", "mine")
            worktree.git("commit", "-q", "--allow-empty", "-m", "In a repository of its own")
        case _:
            raise AssertionError(how)


DAMAGES = ["no .git", "no entry", "neither", "half an entry", "pointer to nowhere"]
DAMAGES += ["a directory in its place", "a repository of its own"]


@pytest.mark.parametrize("how", DAMAGES)
def test_files_stay_when_the_link_is_made_again(
    project: Project, worker: tuple[WorkerRecord, Worktree], how: str
) -> None:
    """As `up` does it. Break: `worktree add` where the link is gone, which git refuses over files."""
    record, worktree = worker
    make_work(worktree)
    tip, inode = worktree.head(), worktree.path.stat().st_ino
    before = snapshot(worktree.path)
    damage(project, worktree, how)
    provision.provision(project, record)
    assert snapshot(worktree.path) == before
    assert worktree.path.stat().st_ino == inode
    assert worktree.head() == tip
    assert worktree.git("symbolic-ref", "HEAD") == "refs/heads/llmc/w1"
    assert set(uncommitted.tree_state(worktree.path).untracked) >= {"new.txt"}
    assert uncommitted.tree_state(worktree.path, untracked=False).tracked[0] == "a.txt"
    assert not [path for path in worktree.path.parent.iterdir() if path.name != "w1"]


@pytest.mark.parametrize("how", DAMAGES)
def test_a_reset_keeps_the_files_and_makes_it_right(
    project: Project, worker: tuple[WorkerRecord, Worktree], how: str
) -> None:
    """Break: reset only what has a `.git`; the worker can then be neither reset nor used."""
    record, worktree = worker
    wanted = make_work(worktree)
    damage(project, worktree, how)
    ref = reset(project, record)
    assert ref
    assert {name: worktree.git("show", f"{ref}:{name}") for name in wanted} == wanted
    if how == "no .git":
        assert worktree.git("show", f"{ref}^2:staged.txt") == "staged", "git's own entry was still there"
    assert (worktree.path / "x.cache").read_text() == "warm\n"
    assert uncommitted.tree_state(worktree.path).clean
    assert worktree.head() == worktree.head(project.base)
    if how == "a repository of its own":
        (kept,) = project.root.trash.glob("w1-*/.git")
        assert run_git(kept, "log", "--format=%s") == "In a repository of its own"


def test_a_branch_that_is_gone_too(project: Project, worker: tuple[WorkerRecord, Worktree]) -> None:
    record, worktree = worker
    worktree.write("new.txt", "new\n")
    damage(project, worktree, "neither")
    run_git(project.root.path, "update-ref", "-d", "refs/heads/llmc/w1")
    ref = reset(project, record)
    assert ref
    assert worktree.git("show", f"{ref}:new.txt") == "new"
    assert worktree.head("refs/heads/llmc/w1") == worktree.head(project.base)


@pytest.mark.parametrize("head", ["ref: refs/heads/llmc/w1\n", "0" * 40 + "\n"], ids=["checkout", "before"])
def test_a_first_checkout_that_was_killed_is_completed(
    project: Project, worker: tuple[WorkerRecord, Worktree], head: str
) -> None:
    """As `git worktree add` leaves it. Break: take every linked worktree for complete; `add` says "added", and all
    files count as deleted.
    """
    record, worktree = worker
    (worktree.path / "a.txt").unlink()
    (admin(project) / "index").unlink()
    (admin(project) / "index.lock").touch()
    (admin(project) / "locked").write_text("initializing\n")
    (admin(project) / "HEAD").write_text(head)
    provision.provision(project, record)
    assert uncommitted.tree_state(worktree.path).clean
    assert (worktree.path / "a.txt").read_text() == "a\n"
    assert not (admin(project) / "locked").exists()


def test_a_worktree_whose_index_is_gone_keeps_its_files(
    project: Project, worker: tuple[WorkerRecord, Worktree]
) -> None:
    """Break: take every worktree without an index for one whose checkout was killed."""
    record, worktree = worker
    worktree.write("a.txt", "changed\n")
    (admin(project) / "index").unlink()
    provision.provision(project, record)
    assert (worktree.path / "a.txt").read_text() == "changed\n"


def test_a_half_made_worktree_that_is_gone_is_made_again(
    project: Project, worker: tuple[WorkerRecord, Worktree]
) -> None:
    """Break: respect the lock that `git worktree add` left; git refuses a "missing but locked worktree"."""
    record, worktree = worker
    (admin(project) / "locked").write_text("initializing\n")
    shutil.rmtree(worktree.path)
    provision.provision(project, record)
    assert uncommitted.tree_state(worktree.path).clean


def test_killed_while_the_link_is_made(project: Project, worker: tuple[WorkerRecord, Worktree]) -> None:
    """Also before git removed its own lock. Break: do not check what an earlier try left; git refuses to use the
    branch in two places.
    """
    record, worktree = worker
    worktree.write("new.txt", "new\n")
    damage(project, worktree, "neither")
    aside = worktree.path.with_name(".w1.link")
    run_git(project.root.path, "worktree", "prune")
    run_git(project.root.path, "worktree", "add", "-q", "--no-checkout", str(aside), "llmc/w1")
    (project.root.path / ".git/worktrees/-w1.link/locked").write_text("initializing\n")
    provision.provision(project, record)
    assert (worktree.path / "new.txt").read_text() == "new\n"
    assert not aside.exists()
    assert uncommitted.tree_state(worktree.path).untracked == ("new.txt",)


def test_work_for_other_workers_forgets_no_worktree_without_its_pointer(
    project: Project, worker: tuple[WorkerRecord, Worktree]
) -> None:
    """Break: only `git worktree prune`, which removes its entry, with its index and its HEAD."""
    record, worktree = worker
    worktree.git("checkout", "-q", "--detach")
    tip = worktree.commit("work.txt")
    worktree.write("staged.txt", "only staged\n")
    worktree.git("add", "staged.txt")
    (worktree.path / "staged.txt").unlink()
    (worktree.path / ".git").unlink()
    add_worker(project, "w2")
    nuke.nuke_worker(project, "w2")
    ref = reset(project, record)
    assert ref
    assert git.is_ancestor(worktree.path, tip, ref)
    assert worktree.git("show", f"{ref}^2:staged.txt") == "only staged"


def test_work_for_other_workers_leaves_a_missing_worktree_alone(
    project: Project, worker: tuple[WorkerRecord, Worktree], tmp_path: Path
) -> None:
    """Its disk may not be mounted. Break: `git worktree prune`."""
    record, worktree = worker
    worktree.write("staged.txt", "staged\n")
    worktree.git("add", "staged.txt")
    worktree.write("staged.txt", "changed later\n")
    before = snapshot(worktree.path)
    worktree.path.rename(tmp_path / "away")
    add_worker(project, "w2")
    nuke.nuke_worker(project, "w2")
    (tmp_path / "away").rename(worktree.path)
    provision.provision(project, record)
    assert snapshot(worktree.path) == before
    assert worktree.git("show", ":staged.txt") == "staged"


@pytest.mark.parametrize("by", ["up", "nuke"])
def test_what_only_gits_entry_has_of_a_lost_worktree(
    project: Project, worker: tuple[WorkerRecord, Worktree], by: str
) -> None:
    """Staged changes, and a commit that only a rebase in progress names. Break: `git worktree prune`."""
    record, worktree = worker
    worktree.write("staged.txt", "staged\n")
    worktree.git("add", "staged.txt")
    stash = run_git(project.root.path, "commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "Stashed")
    worktree.git("update-ref", "refs/worktree/mine", stash)
    shutil.rmtree(worktree.path)
    if by == "up":
        provision.provision(project, record)
    else:
        nuke.nuke_worker(project, "w1")
    pins = [ref for (ref,) in git.refs(project.root.path, "refs/llmc/trash/w1", "refname")]
    (ref,) = [ref for ref in pins if ref.endswith("-worktree")]
    assert run_git(project.root.path, "show", f"{ref}:staged.txt") == "staged"
    assert git.is_ancestor(project.root.path, stash, ref)
    assert admin(project).exists() is (by == "up")


@pytest.mark.parametrize("by", ["up", "nuke"])
def test_a_lost_worktree_in_the_middle_of_a_conflict(
    project: Project, worker: tuple[WorkerRecord, Worktree], by: str
) -> None:
    """Commits off the branch, an autostash, what was staged. Break: `--force-remove` in `_tree_of_index`, which
    needs a worktree.
    """
    record, worktree = worker
    worktree.git("checkout", "-q", "--detach")
    other = worktree.commit("a.txt", "other\n")
    worktree.git("checkout", "-q", "HEAD^")
    tip = worktree.commit("a.txt", "mine\n")
    stash = run_git(project.root.path, "commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "Stashed")
    worktree.git("merge", "--no-edit", other, check=False)
    assert worktree.git("ls-files", "--unmerged")
    worktree.write("b.txt", "b\n")
    worktree.git("add", "b.txt")
    worktree.git("update-ref", "MERGE_AUTOSTASH", stash)
    shutil.rmtree(worktree.path)
    if by == "up":
        provision.provision(project, record)
    else:
        nuke.nuke_worker(project, "w1")
    pins = [ref for (ref,) in git.refs(project.root.path, "refs/llmc/trash/w1", "refname")]
    for commit in (tip, stash, other):
        assert any(git.is_ancestor(project.root.path, commit, ref) for ref in pins), commit
    assert any("b.txt" in run_git(project.root.path, "ls-tree", "--name-only", ref) for ref in pins)


@pytest.mark.parametrize("head", [b"", b"x", b"ref: ", b"0" * 7])
def test_an_entry_that_git_does_not_take_for_one_goes_to_the_trash(
    project: Project, worker: tuple[WorkerRecord, Worktree], head: bytes
) -> None:
    """As after a power cut. git reads the clone around it instead. Break: look only for a file named HEAD."""
    record, worktree = worker
    worktree.git("checkout", "-q", "--detach")
    tip = worktree.commit("work.txt")
    worktree.write("staged.txt", "staged\n")
    worktree.git("add", "staged.txt")
    index = (admin(project) / "index").read_bytes()
    (admin(project) / "HEAD").write_bytes(head)
    shutil.rmtree(worktree.path)
    provision.provision(project, record)
    pins = [ref for (ref,) in git.refs(project.root.path, "refs/llmc/trash/w1", "refname")]
    assert any(git.is_ancestor(project.root.path, tip, ref) for ref in pins)
    assert [file.read_bytes() for file in project.root.trash.glob("*/w1/index")] == [index]
    assert uncommitted.tree_state(worktree.path).clean


def test_a_lost_worktree_without_work_leaves_nothing_in_the_trash(
    project: Project, worker: tuple[WorkerRecord, Worktree]
) -> None:
    """Break: no `loose` in `pin_entry` (repo/trash.py)."""
    record, worktree = worker
    shutil.rmtree(worktree.path)
    provision.provision(project, record)
    assert git.refs(project.root.path, "refs/llmc/trash", "refname") == []
    assert not project.root.trash.exists()
    assert uncommitted.tree_state(worktree.path).clean


@pytest.mark.parametrize("how", ["no .git", "a repository of its own"])
def test_nuke_keeps_what_only_gits_entry_has(
    project: Project, worker: tuple[WorkerRecord, Worktree], how: str
) -> None:
    """Break: treat a worktree without its pointer as a plain directory;
    `worktree prune` drops its HEAD and index.
    """
    _, worktree = worker
    worktree.git("checkout", "-q", "--detach")
    tip = worktree.commit("work.txt")
    worktree.write("new.txt", "new\n")
    damage(project, worktree, how)
    removed = nuke.nuke_worker(project, "w1")
    assert removed.ref
    assert git.is_ancestor(project.root.path, tip, removed.ref)
    assert run_git(project.root.path, "show", f"{removed.ref}:new.txt") == "new"
    assert removed.directory
    assert (removed.directory / "new.txt").exists()


@pytest.mark.parametrize(
    ("broken", "data"),
    [
        (".git/worktrees/w1/index", b""),
        (".git/worktrees/w1/index", b"DIRC garbage"),
        (".git/worktrees/w1/HEAD", b""),
        (".git/worktrees/w1/HEAD", bytes(22)),
        (".git/refs/heads/llmc/w1", b""),
        (".worktrees/w1/.gitmodules", b"<<<<<<< HEAD\n"),
    ],
)
def test_nuke_does_not_depend_on_what_is_broken(
    project: Project, worker: tuple[WorkerRecord, Worktree], broken: str, data: bytes
) -> None:
    """Break: let an error of git out of the pin, or let `worktree prune` delete git's entry.

    A commit that only a reflog names is pinned, too, and the name is free for a new worker.
    """
    _, worktree = worker
    root = project.root.path
    amended = worktree.commit("amended.txt")
    worktree.git("reset", "-q", "--hard", "HEAD^")
    tip = worktree.commit("work.txt")
    worktree.write("new.txt", "new\n")
    if broken.endswith(".gitmodules"):  # git reads it only if there is a submodule
        worktree.git("update-index", "--add", "--cacheinfo", f"160000,{tip},lib")
    (root / broken).write_bytes(data)
    removed = nuke.nuke_worker(project, "w1")
    pinned = run_git(root, "for-each-ref", "--format=%(refname)", "refs/llmc/trash").split()
    for commit in (amended, tip):
        assert any(git.is_ancestor(root, commit, ref) for ref in pinned)
    assert removed.directory
    assert (removed.directory / "new.txt").read_text() == "new\n"
    index = removed.directory / ".llmc-git/index"
    saved = removed.ref and "new.txt" in run_git(root, "ls-tree", "--name-only", removed.ref)
    assert removed.problem if index.exists() else saved
    assert not (root / ".git/worktrees/w1").exists()
    assert run_git(root, "for-each-ref", "refs/heads/llmc") == ""
    again, _ = add_worker(project, "w1")
    assert uncommitted.tree_state(Path(again.worktree_path)).clean


@pytest.mark.parametrize("moved", [False, True])
def test_nuke_deletes_no_branch_that_is_not_in_the_trash(
    project: Project, worker: tuple[WorkerRecord, Worktree], monkeypatch: pytest.MonkeyPatch, moved: bool
) -> None:
    """A commit between the pin and the removal. Break: delete the branch without checking the pin."""
    _, worktree = worker
    late: list[str] = []

    def move(path: Path, folder: Path | None) -> None:
        if moved:
            late.append(worktree.commit("late.txt"))
        real(path, folder)

    real = nuke.move_into_trash
    with monkeypatch.context() as patched:
        patched.setattr(nuke, "move_into_trash", move)
        if not moved:
            nuke.nuke_worker(project, "w1")
            assert run_git(project.root.path, "for-each-ref", "refs/heads/llmc") == ""
            return
        with pytest.raises(Refused, match="is not in the trash"):
            nuke.nuke_worker(project, "w1")
    assert run_git(project.root.path, "rev-parse", "refs/heads/llmc/w1") == late[0]
    removed = nuke.nuke_worker(project, "w1")
    assert removed.ref
    assert git.is_ancestor(project.root.path, late[0], removed.ref), "and the next try saves it"


def test_nuke_keeps_commits_that_only_an_operation_names(
    project: Project, worker: tuple[WorkerRecord, Worktree]
) -> None:
    """An autostash of a rebase in progress, and the worktree's own ref. Break: check only the reflogs."""
    _, worktree = worker
    worktree.commit("a.txt", "ours\n")
    other = run_git(project.root.path, "commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "of its own")
    worktree.git("update-ref", "refs/worktree/mine", other)
    Repo(Path(project.source)).commit("a.txt", "theirs\n")
    provision.refresh_base(project)
    worktree.write(".gitignore", "stashed away\n")
    worktree.git("rebase", "--autostash", "origin/main", check=False)
    (stash,) = git.git_paths(worktree.path, "rebase-merge/autostash")
    removed = nuke.nuke_worker(project, "w1")
    assert removed.ref
    assert git.is_ancestor(project.root.path, other, removed.ref)
    kept = run_git(project.root.path, "log", "-p", "-m", "--format=", removed.ref)
    assert "stashed away" in kept
    assert not stash.exists()


def test_nuke_waits_for_no_pipe_of_an_agent(worker: tuple[WorkerRecord, Worktree]) -> None:
    """Break: `path.read_text()` in `unfinished`: it never returns."""
    _, worktree = worker
    before = worktrees.unfinished(worktree.path)
    (pipe,) = git.git_paths(worktree.path, "rebase-merge/autostash")
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    assert worktrees.unfinished(worktree.path) == before


# Locks.


def locks(project: Project) -> list[Path]:
    own = admin(project)
    return [own / "index.lock", own / "HEAD.lock", project.root.path / ".git/refs/heads/llmc/w1.lock"]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_the_lock_of_a_killed_git_stops_no_reset(
    project: Project, worker: tuple[WorkerRecord, Worktree], which: int
) -> None:
    """Break: leave the lock; accept, reset and start fail forever with git's own message."""
    record, worktree = worker
    worktree.commit("work.txt")
    locks(project)[which].write_bytes(b"")
    assert reset(project, record)
    assert not locks(project)[which].exists()
    assert worktree.head() == worktree.head(project.base)
    removed = [row["paths"] for row in EventLog(str(project.root.events)).newest(b'"lock_removed"')]
    assert removed == [[str(locks(project)[which])]]


@contextlib.contextmanager
def committing(worktree: Worktree) -> Iterator[int]:
    """A real `git commit -a` that waits for its editor while it holds index.lock."""
    worktree.write("a.txt", "changed\n")
    env = {**os.environ, "GIT_EDITOR": "sleep 600 #"}
    argv = ["git", "-c", "user.name=A", "-c", "user.email=a@example.com", "commit", "-q", "-a"]
    process = subprocess.Popen(argv, cwd=worktree.path, env=env, start_new_session=True)
    try:
        wait_until((Path(git.git_dir(worktree.path)) / "index.lock").exists)
        yield process.pid
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_the_lock_of_a_git_at_work_is_left_alone(
    project: Project, worker: tuple[WorkerRecord, Worktree], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: remove every lock that is two seconds old; a commit waiting for its editor would lose its index."""
    monkeypatch.setattr(dead_locks, "WATCH_S", 0.2)
    monkeypatch.setattr(dead_locks, "READER_S", 0.2)
    record, worktree = worker
    with committing(worktree) as pid:
        with pytest.raises(Refused, match=str(pid)):
            reset(project, record)
        assert locks(project)[0].exists()
        assert (worktree.path / "a.txt").read_text() == "changed\n"
        (item,) = project.store.read().attention.values()
        assert (item.kind, item.who, item.next) == ("worktree", "w1", "llmc reset w1")
        assert "a git command in w1's worktree" in item.text
    assert locks(project)[0].exists(), "it was killed, and its lock stayed"
    ref = reset(project, record)
    assert ref
    assert worktree.git("show", f"{ref}:a.txt") == "changed"
    assert project.store.read().attention == {}
