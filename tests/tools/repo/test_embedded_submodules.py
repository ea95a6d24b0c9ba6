"""A worktree with submodules moves to its own repository, and back, with all the work in them."""

import os
from pathlib import Path

import pytest

from llmc.records.worker import WorkerRecord
from llmc.repo import git, git_dirs, provision, uncommitted
from llmc.repo.project import Project
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

PLACES = ("", "lib", "lib/deep/inner")


def make(place: Path) -> None:
    source = Repo(place / "src")
    source.commit("a.txt", "a\n")
    make_library(source, place)
    project = make_project(str(source.path), place / "root")
    _, worktree = add_worker(project)
    for name in PLACES[1:]:
        Worktree(worktree.path / name).commit("own.c", f"committed in {name}\n")
        Worktree(worktree.path / name).write("changed.c", f"left in {name}\n")
    worktree.git("-C", "lib", "add", "deep/inner")


@pytest.fixture
def project(mold: Mold) -> Project:
    return project_at(mold.place(make) / "root")


@pytest.fixture
def worker(project: Project) -> tuple[WorkerRecord, Worktree]:
    return worker_of(project)


def seen(worktree: Worktree) -> list[str]:
    """What git reports about the worktree and each submodule: commits, staged and other changes."""
    said = []
    for name in PLACES:
        inside = Worktree(worktree.path / name)
        said += [inside.git("log", "--format=%H %s"), inside.git("status", "--porcelain=v2", "-uall")]
    return said


@pytest.mark.parametrize("ways", [(True,), *in_soak((True, False, True))])
def test_the_work_in_them_goes_along(
    project: Project, worker: tuple[WorkerRecord, Worktree], ways: tuple[bool, ...]
) -> None:
    """Both ways.

    Break: no `embed` in `provision.settle_repository`: it is refused, or git finds no repository there.
    """
    record, worktree = worker
    before = seen(worktree)
    for contained in ways:
        provision.settle_repository(project, record, contained=contained)
        assert (git_dirs.own_repo(worktree.path) is not None) == contained
        assert seen(worktree) == before
    provision.reset_in_place(project, record, provision.refresh_base(project), "test")
    assert uncommitted.tree_state(worktree.path).clean
    assert not (worktree.path / "lib/own.c").exists()
    inside = Worktree(worktree.path / "lib")
    pins = inside.git("for-each-ref", "--format=%(refname)", "refs/llmc/trash").splitlines()
    (kept,) = [ref for ref in pins if ref.endswith("-test")]
    assert inside.git("show", f"{kept}:changed.c") == "left in lib"
    assert inside.git("show", f"{kept}:own.c") == "committed in lib"


def test_killed_while_one_moves(project: Project, worker: tuple[WorkerRecord, Worktree]) -> None:
    """Break: remove the pointer without keeping it under another name."""
    record, worktree = worker
    before = seen(worktree)
    os.rename(worktree.path / "lib/deep/inner/.git", worktree.path / "lib/deep/inner/.git.llmc-moving")
    provision.settle_repository(project, record, contained=True)
    assert seen(worktree) == before


def test_what_no_checkout_uses_is_kept(project: Project, worker: tuple[WorkerRecord, Worktree]) -> None:
    """The repository of a submodule that the branch dropped. Break: remove what is left in `modules`."""
    record, worktree = worker
    old = Repo(git.git_dir(worktree.path) / "modules/gone")
    commit = old.commit("only.c", "only here\n")
    provision.settle_repository(project, record, contained=True)
    (kept,) = project.root.trash.glob("w1-*/modules/gone")
    assert Repo(kept).git("rev-parse", "HEAD") == commit


def test_a_pointer_that_leads_elsewhere_moves_nothing(
    project: Project, worker: tuple[WorkerRecord, Worktree], tmp_path: Path
) -> None:
    record, worktree = worker
    theirs = Repo(tmp_path / "theirs")
    theirs.commit("a.txt", "a\n")
    (worktree.path / "lib/.git").write_text(f"gitdir: {theirs.path}/.git\n")
    provision.settle_repository(project, record, contained=True)
    assert (theirs.path / ".git/HEAD").exists()
    assert list(project.root.trash.glob("w1-*/modules/lib/HEAD"))
