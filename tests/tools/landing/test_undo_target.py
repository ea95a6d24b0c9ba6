"""Which accept an undo reverts, while another one has landed but has not finished."""

from pathlib import Path

import pytest

from llmc.base.errors import Refused
from llmc.landing import undo
from llmc.records.transitions import step
from llmc.records.worker import AcceptJournal, Status
from llmc.repo import provision
from llmc.repo.project import Project
from tests.support.repos import Mold, Repo, add_worker, make_project, project_at


def make(place: Path) -> None:
    source = Repo(place / "src")
    source.commit("a.txt")
    project = make_project(str(source.path), place / "root")
    for name in ("adam", "bob"):
        add_worker(project, name)


@pytest.fixture
def project(mold: Mold) -> Project:
    return project_at(mold.place(make) / "root")


def landed(project: Project, name: str) -> str:
    return Repo(Path(project.source)).commit(f"{name}.txt", message=name)


def finished(project: Project, worker: str, name: str) -> str:
    """An accept that has landed and finished."""
    commit = landed(project, name)
    with project.store.transaction() as tx:
        tx.emit("accepted", worker=worker, commit=commit, prompt=name)
    return commit


def stopped(project: Project, worker: str, at: str, commit: str, tip: str) -> None:
    """An accept that was stopped before this step."""
    provision.refresh_base(project)
    journal = AcceptJournal(step=at, started_unix=1.0, tip=tip, squash=commit)
    with project.store.transaction() as tx:
        tx.move(worker, step(Status.NEEDS_REVIEW, "done", commit_sha=tip))
        tx.update(worker, accept=journal)


@pytest.mark.parametrize("at", ["land", "verify", "complete", "reset", "finish"])
def test_an_accept_that_has_landed_but_not_finished_is_not_passed_over(project: Project, at: str) -> None:
    """Break: take the newest `accepted` event for the newest landing: an older change would be reverted."""
    one = finished(project, "adam", "One")
    two = landed(project, "Two")
    stopped(project, "adam", at, two, two)
    for act in (lambda: undo.target(project), lambda: undo.undo(project, one, lambda *_: "")):
        with pytest.raises(
            Refused, match=f"{two[:12]} from adam has landed, but its accept has not"
        ) as error:
            act()
        assert "Run `llmc accept adam` to finish the accept" in (error.value.hint or "")
        assert f"`git revert {one[:12]}`" in (error.value.hint or "")
    assert Repo(Path(project.source)).head() == two
    assert project.store.read().undo is None


def test_the_first_accept_has_not_finished(project: Project) -> None:
    """Break: look for unfinished accepts only if there was an earlier one."""
    two = landed(project, "Two")
    stopped(project, "adam", "reset", two, two)
    with pytest.raises(Refused, match="has landed, but its accept has not finished"):
        undo.target(project)


def test_an_unfinished_accept_is_in_the_way_only_of_older_ones(project: Project) -> None:
    """Break: refuse while any accept is unfinished; one that did not land, or landed earlier, does not matter."""
    one = landed(project, "One")
    stopped(project, "adam", "reset", one, one)
    two = finished(project, "bob", "Two")
    worktree = Repo(project.root.worktree("bob"))
    stopped(project, "bob", "land", worktree.commit("b.txt"), worktree.head())
    assert undo.target(project).commit == two
