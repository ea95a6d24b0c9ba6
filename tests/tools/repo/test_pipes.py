"""Pipes and sockets among a worktree's files: git does not wait for them; work is saved without them."""

import os
import shlex
import shutil
import socket
from pathlib import Path

import pytest

from llmc.landing import slots
from llmc.records.worker import WorkerRecord
from llmc.repo import git, provision, trash, uncommitted
from llmc.repo.project import Project
from llmc.workers import nuke
from tests.support.contained import needs_bubblewrap
from tests.support.fleet import in_soak
from tests.support.repos import Mold, Repo, Worktree, add_worker, make_project, project_at, run_git, worker_of

#: far above what it takes, far below git's own limits: without the check, each test here times out
pytestmark = pytest.mark.timeout(50)


def make(place: Path) -> None:
    source = Repo(place / "src")
    source.commit(".gitignore", "*.cache\n")
    source.commit("a.txt", "a\n")
    source.commit("d/e.txt", "e\n")
    add_worker(make_project(str(source.path), place / "root"))


@pytest.fixture
def project(mold: Mold) -> Project:
    return project_at(mold.place(make) / "root")


@pytest.fixture
def linked(project: Project) -> tuple[WorkerRecord, Worktree]:
    return worker_of(project)


@pytest.fixture(params=["linked", pytest.param("contained", marks=needs_bubblewrap)])
def worker(project: Project, request: pytest.FixtureRequest) -> tuple[WorkerRecord, Worktree]:
    record, worktree = worker_of(project)
    provision.settle_repository(project, record, contained=request.param == "contained")
    return record, worktree


def plant(worktree: Path, *names: str) -> None:
    for name in names:
        (worktree / name).parent.mkdir(exist_ok=True)
        (worktree / name).unlink(missing_ok=True)
        os.mkfifo(worktree / name)


def test_git_is_ended_and_the_pipe_is_named(worker: tuple[WorkerRecord, Worktree]) -> None:
    """Break: no `_watched` in `git` (repo/git.py): it waits for a writer until its time limit."""
    _, worktree = worker
    plant(worktree.path, "new/.gitattributes", "new/.gitignore")
    with pytest.raises(git.WaitsForPipe) as raised:
        uncommitted.tree_state(worktree.path)
    path = worktree.path / raised.value.name
    assert raised.value.message == f"git cannot read {path}: it is a pipe"
    assert raised.value.hint == f"Remove it: rm {shlex.quote(str(path))}"
    # A pipe that git does not open is the agent's business.
    for name in ("new/.gitattributes", "new/.gitignore"):
        (worktree.path / name).unlink()
    plant(worktree.path, "new/pipe")
    assert uncommitted.tree_state(worktree.path).clean


def test_a_reset_removes_it_and_keeps_the_work(
    project: Project, worker: tuple[WorkerRecord, Worktree]
) -> None:
    record, worktree = worker
    worktree.write("a.txt", "changed\n")
    plant(worktree.path, ".gitignore", "new/.gitignore")
    ref = provision.reset_in_place(project, record, project.base, "reset")
    assert ref is not None
    assert run_git(project.root.path, "show", f"{ref}:a.txt") == "changed"
    assert (worktree.path / ".gitignore").read_text() == "*.cache\n"
    assert not (worktree.path / "new/.gitignore").exists()


def test_nuke_removes_it_and_keeps_the_work(project: Project, worker: tuple[WorkerRecord, Worktree]) -> None:
    _, worktree = worker
    worktree.write("a.txt", "changed\n")
    plant(worktree.path, ".gitignore")
    removed = nuke.nuke_worker(project, "w1")
    assert removed.ref is not None
    assert run_git(project.root.path, "show", f"{removed.ref}:a.txt") == "changed"


def test_a_slot_with_one_is_made_again(project: Project) -> None:
    """A check may leave it in the slot, where the next one starts."""
    commit = git.out(project.root.path, "rev-parse", project.base)
    with slots.taken(project) as one:
        slots.check_out(project, one, commit)
        plant(one.path, "new/.gitignore")
        assert slots.check_out(project, one, commit), "a new slot"
        assert not slots.changes(one)


@pytest.mark.parametrize("kind", ["pipe", *in_soak("socket")])
@pytest.mark.parametrize("name", ["a.txt", "staged.txt", *in_soak("d")])
@pytest.mark.parametrize("how", ["reset", "nuke"])
def test_a_special_file_where_git_has_a_file_stops_nothing(
    project: Project, linked: tuple[WorkerRecord, Worktree], kind: str, name: str, how: str
) -> None:
    """Break: no `_without_content` in repo/trash.py: `git add` fails,
    and the worker can be neither reset nor removed.
    """
    record, worktree = linked
    worktree.write("b.txt", "changed\n")
    worktree.write("staged.txt", "staged\n")
    run_git(worktree.path, "add", "staged.txt")
    place = worktree.path / name
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    if kind == "pipe":
        os.mkfifo(place)
    else:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(os.path.relpath(place))
    reviewed, _ = trash.files_as_tree(worktree.path, "HEAD")
    assert run_git(project.root.path, "show", f"{reviewed}:b.txt") == "changed"
    if how == "nuke":
        ref = nuke.nuke_worker(project, "w1").ref
    else:
        ref = provision.reset_in_place(project, record, project.base, "reset")
        assert uncommitted.tree_state(worktree.path).clean
        assert (worktree.path / "d/e.txt").read_text() == "e\n"
    assert run_git(project.root.path, "show", f"{ref}:b.txt") == "changed"
