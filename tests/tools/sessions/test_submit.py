"""What is recorded about a finished delivery."""

from pathlib import Path

import pytest

from llmc.base.names import PromptId
from llmc.records.transitions import step
from llmc.records.worker import Delivery, Outcome, Status
from llmc.repo.project import Project
from llmc.sessions import submit
from llmc.sessions.rules.decide import FOUND_COMMITS
from tests.support.repos import Mold, Repo, add_worker, make_project, project_at


def make(place: Path) -> None:
    source = Repo(place / "src")
    source.commit("a.txt")
    add_worker(make_project(str(source.path), place / "root"))


@pytest.fixture
def project(mold: Mold) -> Project:
    return project_at(mold.place(make) / "root")


def delivery(prompt_id: str, outcome: Outcome) -> Delivery:
    return Delivery(prompt_id=PromptId(prompt_id), outcome=outcome, at_unix=1.0, text="Do it")


def test_an_older_delivery_does_not_replace_the_current_one(project: Project) -> None:
    """Break: write it whatever the state has; the newer prompt would count as delivered."""
    current = delivery("message-2", Outcome.PENDING)
    with project.store.transaction() as tx:
        tx.update("w1", delivery=current)
    submit._record(project, "w1", delivery("message-1", Outcome.ACKNOWLEDGED), was_typed=True)
    assert project.store.worker("w1").delivery == current


def test_conflicts_that_were_not_typed_are_still_to_be_sent(project: Project) -> None:
    """Break: forget them with the refusal; the worker would never be told about its conflicts."""
    with project.store.transaction() as tx:
        tx.move("w1", step(Status.NEEDS_REVIEW, FOUND_COMMITS, commit_sha="1" * 40))
        tx.move("w1", step(Status.REBASING, "conflicts"))
        tx.update("w1", delivery=delivery("conflict-1", Outcome.PENDING), conflict_prompt_due=False)
    submit._record(project, "w1", delivery("conflict-1", Outcome.REFUSED), was_typed=False)
    assert project.store.worker("w1").conflict_prompt_due
