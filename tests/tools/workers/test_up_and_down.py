"""What is recorded about a worker that could not be started."""

import os
from pathlib import Path

import pytest

from llmc.records.transitions import step
from llmc.records.worker import Cause, Status
from llmc.repo.project import Project
from llmc.workers.up_and_down import bring_up
from tests.support.repos import Mold, Repo, add_worker, make_project, project_at

QUESTION = "Which database: staging or prod?"


def make(place: Path) -> None:
    source = Repo(place / "src")
    source.commit("a.txt")
    add_worker(make_project(str(source.path), place / "root"))


@pytest.fixture
def project(mold: Mold, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Project:
    """A root whose tmux does not answer."""
    tmux = tmp_path / "tmux"
    tmux.write_text("#!/bin/sh\nexit 1\n")
    tmux.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return project_at(mold.place(make) / "root")


def test_a_failed_start_keeps_the_question_of_a_live_worker(project: Project) -> None:
    """Break: write `error_reason` in any status: `answer` would show the failed start as the question."""
    with project.store.transaction() as tx:
        tx.move("w1", step(Status.IDLE))
        tx.move("w1", step(Status.WORKING))
        tx.move("w1", step(Status.NEEDS_INPUT, "blocked", error_reason=QUESTION))
    problem = bring_up(project, "w1")
    assert problem is not None
    assert "tmux did not answer" in problem
    record = project.store.worker("w1")
    assert (record.error_reason, record.cause) == (QUESTION, "")


def test_a_failed_start_of_a_worker_that_is_offline_has_a_cause(project: Project) -> None:
    """Break: no cause: the worker is on no list of things that need the user."""
    problem = bring_up(project, "w1")
    record = project.store.worker("w1")
    assert (record.status, record.error_reason, record.cause) == (Status.OFFLINE, problem, Cause.CONFIG)
