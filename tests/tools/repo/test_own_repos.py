"""A contained worker's repository, while others change the clone."""

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmc.base.errors import LlmcError
from llmc.records.worker import WorkerRecord
from llmc.repo import apart, git, git_dirs, own_repos, provision, trash, uncommitted
from llmc.repo.project import Project
from llmc.sandbox import probe
from tests.support.contained import needs_bubblewrap
from tests.support.repos import Repo, Worktree, add_worker, make_project, run_git

pytestmark = needs_bubblewrap


def contained(place: Path) -> tuple[Project, WorkerRecord, Worktree]:
    """A root with one contained worker."""
    source = Repo(place / "source")
    source.commit("a.txt", "a\n")
    project = make_project(str(source.path), place / "root")
    record, worktree = add_worker(project)
    provision.settle_repository(project, record, contained=True)
    return project, record, worktree


def test_work_is_taken_while_a_worktree_of_another_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: do not wait for the lock in `fetch`: git refuses valid commits while another worker's HEAD is
    missing.
    """
    project, record, worktree = contained(tmp_path)
    tip = worktree.commit("b.txt", "b\n")
    half = tmp_path / "root/.git/worktrees/-eve.link"
    made, waited, real = threading.Event(), threading.Event(), own_repos.wait_until

    def other() -> None:
        with project.repo_lock():
            half.mkdir(parents=True)
            (half / "HEAD").write_text("0" * 40 + "\n")
            (half / "commondir").write_text("../..\n")
            (half / "gitdir").write_text(f"{tmp_path}/eve/.git\n")
            made.set()
            waited.wait(3)
            for path in half.iterdir():
                path.unlink()
            half.rmdir()

    def wait(condition: Callable[[], bool], timeout_s: float, *, interval_s: float) -> bool:
        waited.set()
        return real(condition, timeout_s, interval_s=interval_s)

    monkeypatch.setattr(own_repos, "wait_until", wait)
    thread = threading.Thread(target=other)
    thread.start()
    assert made.wait(20)
    assert git.resolve(project.root.path, own_repos.branch_of(record.name)) == tip
    thread.join()
    assert project.store.read().attention == {}


def test_two_processes_take_the_same_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: report git's refusal; the attention list says "blocked" and suggests a reset, for a moment."""
    project, record, worktree = contained(tmp_path)
    tip = worktree.commit("b.txt", "b\n")
    real, met = own_repos._fetch, []

    def other_was_faster(root: Path, own: Path, *moves: str, until: float) -> str:
        refusal = real(root, own, *moves, until=until)
        met.append(refusal)
        ref = moves[0].rpartition(":")[2]
        said = f"error: cannot lock ref '{ref}': is at {tip} but expected {'0' * 40}"
        return said if len(met) == 1 else refusal

    monkeypatch.setattr(own_repos, "_fetch", other_was_faster)
    monkeypatch.delitem(git.guards, str(project.root.path))  # it would take the work first
    assert own_repos.take(project.root.path, record.name) == ""
    assert git.resolve(project.root.path, own_repos.TAKEN + record.name) == tip
    assert met


def test_leftovers_of_a_killed_process_do_not_hinder_the_next_one(tmp_path: Path) -> None:
    """Break: make a repository, or move one away, without first removing what a killed process left there."""
    project, record, worktree = contained(tmp_path)
    place = own_repos.path_of(project.root.path, record.name).parent
    aside = place / f".{record.name}.aside"
    aside.mkdir()
    (aside / "kept").write_text("of the agent\n")
    provision.settle_repository(project, record, contained=False)
    # killed between `git init --separate-git-dir` and the removal of the directory beside it
    beside = place / f".{record.name}.tree"
    beside.mkdir()
    (beside / ".git").write_text(f"gitdir: {place}/.{record.name}.new\n")
    provision.settle_repository(project, record, contained=True)
    assert worktree.git("status", "--porcelain") == ""
    assert {aside.name, beside.name}.isdisjoint(os.listdir(place))
    assert [path.read_text() for path in project.root.trash.rglob("kept")] == ["of the agent\n"]


def test_without_bubblewrap_a_worktree_starts_at_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: link the worktree to the clone at the branch, whose commits git cannot read. They are kept."""
    project, record, worktree = contained(tmp_path)
    tip = worktree.commit("b.txt", "b\n")
    assert git.resolve(project.root.path, own_repos.branch_of(record.name)) == tip
    monkeypatch.setattr(probe, "bubblewrap", lambda: None)
    provision.start_over(project, record, at_base=True)
    assert worktree.head() == git.resolve(project.root.path, project.base)
    kept = git.out(project.root.path, "for-each-ref", "--format=%(objectname)", "refs/llmc/trash")
    assert tip in kept
    assert (worktree.path / "b.txt").read_text() == "b\n"


def test_an_interrupted_move_keeps_what_is_staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worktree that was contained before has an entry with another name.

    Break: `worktree.name` in `entry_of` (repo/git_dirs.py): the next command would start with an empty index.
    """
    project, record, worktree = contained(tmp_path)
    provision.settle_repository(project, record, contained=False)
    assert [entry.name for entry in git_dirs.entries(project.root.path)] != ["w1"]
    worktree.write("staged.txt", "staged\n")
    worktree.git("add", "staged.txt")
    (worktree.path / "staged.txt").unlink()
    with monkeypatch.context() as broken:
        broken.setenv("LLMC_FAULT", "contain.move:before:fail")
        with pytest.raises(LlmcError):
            provision.settle_repository(project, record, contained=True)
    provision.provision(project, record)
    assert worktree.git("show", ":staged.txt") == "staged"
    provision.settle_repository(project, record, contained=True)
    assert git_dirs.own_repo(worktree.path)
    assert worktree.git("show", ":staged.txt") == "staged"


def stage(worktree: Worktree) -> None:
    """A staged file, one that is gone since, and a commit on no branch."""
    worktree.write("kept.txt", "first\n")
    worktree.write("gone.txt", "staged\n")
    worktree.git("add", "-A")
    worktree.write("kept.txt", "later\n")
    (worktree.path / "gone.txt").unlink()


def test_a_lost_link_leaves_the_index_as_it_is(tmp_path: Path) -> None:
    """As after a kill between the two steps of a move. Break: reset the index of a repository that is still there."""
    project, record, worktree = contained(tmp_path)
    stage(worktree)
    before = worktree.git("status", "--porcelain")
    (worktree.path / ".git").unlink()
    provision.provision(project, record)
    assert worktree.git("status", "--porcelain") == before


def test_what_only_the_repository_has_of_a_lost_worktree_is_in_the_trash(tmp_path: Path) -> None:
    """Break: check the files out again, and pin nothing first."""
    project, record, worktree = contained(tmp_path)
    stage(worktree)
    worktree.git("checkout", "-q", "--detach")
    tip = worktree.git("commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "Loose")
    worktree.git("update-ref", "--no-deref", "HEAD", tip)
    shutil.rmtree(worktree.path)
    provision.provision(project, record)
    assert (worktree.path / "a.txt").read_text() == "a\n"
    (ref,) = run_git(project.root.path, "for-each-ref", "--format=%(refname)", "refs/llmc/trash").split()
    assert run_git(project.root.path, "show", f"{ref}:gone.txt") == "staged"
    assert run_git(project.root.path, "show", f"{ref}:kept.txt") == "first"
    assert git.is_ancestor(project.root.path, tip, ref)


def test_a_lost_worktree_whose_repository_cannot_be_read(tmp_path: Path) -> None:
    """Break: fail with git's error; no reset would ever work again."""
    project, record, worktree = contained(tmp_path)
    own = own_repos.path_of(project.root.path, record.name)
    (own / "index").write_text("not an index")
    shutil.rmtree(worktree.path)
    provision.provision(project, record)
    assert uncommitted.tree_state(worktree.path).clean
    assert [path.read_text() for path in project.root.trash.glob("*/w1/index")] == ["not an index"]


def test_a_first_checkout_that_was_killed_is_completed_in_its_own_repository(tmp_path: Path) -> None:
    """Break: no mark; all files of the new worker count as deleted."""
    project, record, worktree = contained(tmp_path)
    own = own_repos.path_of(project.root.path, record.name)
    git_dirs.checkout_mark(own).touch()
    (own / "index").rename(own / "index.lock")
    (worktree.path / "a.txt").unlink()
    provision.provision(project, record)
    assert uncommitted.tree_state(worktree.path).clean
    assert (worktree.path / "a.txt").exists()
    assert not git_dirs.checkout_mark(own).exists()


class Killed(BaseException):
    """Ends a step as kill -9 does: no `except` for errors handles it."""


def kill(*_: object, **__: object) -> None:
    raise Killed


def kill_at(at: str, patch: pytest.MonkeyPatch) -> None:
    pin, run = trash.pin_entry, git.git
    match at:
        case "pointed":
            patch.setattr(apart, "_save_index", kill)
        case "pinned":
            patch.setattr(trash, "pin_entry", lambda *args, **more: kill(pin(*args, **more)))
        case "cleared":
            patch.setattr(apart, "_check_out_once", kill)
        case "replaced":
            patch.setattr(own_repos, "make", kill)
        case _:

            def checkout(*args: Any, **more: Any) -> Any:
                done = run(*args, **more)
                return kill() if "--hard" in args else done

            patch.setattr(git, "git", checkout)


@pytest.mark.parametrize("at", ["pointed", "pinned", "cleared", "replaced", "checked out"])
def test_a_kill_while_a_lost_worktree_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """Break: do not set the mark first, or pin only if there is no `.git` either."""
    project, record, worktree = contained(tmp_path)
    own = own_repos.path_of(project.root.path, record.name)
    stage(worktree)
    if at == "replaced":
        (own / "index").write_text("not an index")
    shutil.rmtree(worktree.path)
    with monkeypatch.context() as broken:
        kill_at(at, broken)
        with pytest.raises(Killed):
            provision.provision(project, record)
    if at == "checked out":
        worktree.write("a.txt", "by the user\n")
    provision.provision(project, record)
    assert uncommitted.tree_state(worktree.path).tracked == (("a.txt",) if at == "checked out" else ())
    assert (worktree.path / "a.txt").read_text() == ("by the user\n" if at == "checked out" else "a\n")
    if at == "replaced":  # without a repository, and with containment off, it is linked to the clone
        assert "not an index" in [path.read_text() for path in project.root.trash.glob("*/w1/index")]
        return
    assert not git_dirs.checkout_mark(own).exists()
    refs = run_git(project.root.path, "for-each-ref", "--format=%(refname)", "refs/llmc/trash").split()
    assert run_git(project.root.path, "show", f"{refs[0]}:gone.txt") == "staged"


def test_a_lost_worktree_beside_a_half_made_one(tmp_path: Path) -> None:
    """git refuses a fetch while another HEAD is missing. Break: wait for the repo lock that this thread holds, or take
    the refusal for a repository that cannot be read.
    """
    project, record, worktree = contained(tmp_path)
    _, other = add_worker(project, "w2")
    head = git_dirs.entries(project.root.path)[0] / "HEAD"
    stage(worktree)
    shutil.rmtree(worktree.path)
    before = head.read_text()
    head.write_text("0" * 40 + "\n")
    started = time.monotonic()
    with pytest.raises(LlmcError, match="nothing was removed"):
        provision.provision(project, record)
    assert time.monotonic() - started < own_repos.UNFINISHED_S / 2
    head.write_text(before)
    provision.provision(project, record)
    assert uncommitted.tree_state(worktree.path).clean
    assert uncommitted.tree_state(other.path).clean
    refs = run_git(project.root.path, "for-each-ref", "--format=%(refname)", "refs/llmc/trash").split()
    assert "staged" in [run_git(project.root.path, "show", f"{ref}:gone.txt", check=False) for ref in refs]
