"""A rebase in a real worktree: what git remembers, and what it cannot abort."""

from pathlib import Path

import pytest

from llmc.base.errors import LlmcError
from llmc.landing import rebase
from llmc.records.transitions import step
from llmc.records.worker import Status
from llmc.repo import provision
from llmc.repo.project import Project
from llmc.sessions.rules.decide import FOUND_COMMITS
from tests.support.repos import Mold, Repo, Worktree, add_worker, make_project, project_at


def make(place: Path) -> None:
    source = Repo(place / "src")
    source.commit("a.txt", "a\n")
    source.commit("b.txt", "b\n")
    make_project(str(source.path), place / "root")


class Scene:
    """A worker in review, whose two commits each conflict with the default branch."""

    def __init__(self, place: Path) -> None:
        source = Worktree(place / "src")
        self.project: Project = project_at(place / "root")
        _, self.worktree = add_worker(self.project)
        for name in ("a.txt", "b.txt"):
            self.commit = self.worktree.commit(name, "worker\n")
            source.commit(name, "source\n")
        self.base = provision.refresh_base(self.project)
        with self.project.store.transaction() as tx:
            tx.move("w1", step(Status.NEEDS_REVIEW, FOUND_COMMITS, commit_sha=self.commit))

    def rebase_by_hand(self) -> None:
        self.worktree.git("rebase", self.base, check=False)
        for name in ("a.txt", "b.txt"):
            self.worktree.write(name, "both\n")
            self.worktree.git("add", name)
            self.worktree.git("-c", "core.editor=:", "rebase", "--continue", check=False)


@pytest.fixture
def scene(mold: Mold) -> Scene:
    return Scene(mold.place(make))


def test_every_conflict_that_git_remembers_is_resolved(scene: Scene) -> None:
    """Break: continue only once; the second commit would be reported as a git failure."""
    scene.rebase_by_hand()
    resolved = scene.worktree.git("rev-parse", "HEAD^{tree}")
    scene.worktree.git("reset", "--hard", scene.commit)
    with scene.project.worker_lock("w1"):
        done = rebase.onto_base(scene.project, "w1")
    assert scene.worktree.git("rev-parse", "HEAD^{tree}") == resolved
    assert (done.base, done.head, done.moved) == (scene.base, scene.worktree.head(), True)


def test_a_rebase_that_cannot_be_aborted_stays_known_as_ours(scene: Scene) -> None:
    """Break: forget it although it is still open; the next check would treat it as the worker's own."""
    scene.worktree.git("rebase", scene.base, check=False)
    place = Path(scene.worktree.git("rev-parse", "--absolute-git-dir")) / "rebase-merge/head-name"
    place.unlink()
    with scene.project.store.transaction() as tx:
        tx.update("w1", pre_rebase_sha=scene.commit, rebase_base=scene.base)
    with scene.project.worker_lock("w1"), pytest.raises(LlmcError, match="could not be aborted") as failed:
        rebase._restore(scene.project, "w1", scene.worktree.path, scene.commit, "it failed")
    assert scene.commit[:12] in failed.value.hint
    assert scene.project.store.worker("w1").pre_rebase_sha == scene.commit
