"""Starting a real agent: whatever becomes of its first hook, a running agent does not stay offline."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc.base import processes
from llmc.base.panes import Pane
from llmc.config.edit import set_value
from llmc.records import inbox
from llmc.records.worker import Status
from llmc.repo.project import Project
from llmc.sessions import sessions
from llmc.sessions.rules import decide
from llmc.workers import patrol
from llmc.workers.up_and_down import bring_up, end_every_session
from tests.support.repos import Mold, Repo, add_worker, make_project, project_at
from tests.support.waiting import wait_until

LATE = "LLMC_SCRIPTED_START_DELAY"


def make(place: Path) -> None:
    source = Repo(place / "src")
    source.commit("a.txt")
    project = make_project(str(source.path), place / "root")
    set_value(project.root.config, "defaults.ready_timeout_s", "30")
    add_worker(project)


@pytest.fixture
def project(mold: Mold, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    monkeypatch.setattr(decide, "STARTED_AFTER_S", 0.2)
    made = project_at(mold.place(make) / "root")
    yield made
    end_every_session(made)


def impatient(project: Project, ready_s: str = "0.5") -> Project:
    set_value(project.root.config, "defaults.ready_timeout_s", ready_s)
    return project_at(project.root.path)


def pid_of(project: Project) -> int:
    pane = project.pane_now(project.store.worker("w1"))
    assert isinstance(pane, Pane)
    assert processes.is_alive(pane.pid)
    return pane.pid


def lose_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "hook_command", lambda *_: "true")


def test_an_agent_whose_start_is_lost_is_ready(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: let `wait_ready` rely on the hook alone: the worker is offline, and every `up` fails."""
    lose_hooks(monkeypatch)
    assert bring_up(project, "w1") is None
    pid = pid_of(project)
    assert (project.store.worker("w1").status, project.store.worker("w1").reason) == (Status.IDLE, "ready")
    assert bring_up(project, "w1") is None
    assert pid_of(project) == pid


def test_patrol_sees_a_lost_start(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: no `notice_start` in `finish_interrupted`, or none in `reconcile`."""
    lose_hooks(monkeypatch)
    for look in (patrol.finish_interrupted, sessions.reconcile):
        with project.worker_lock("w1"):
            sessions.start(project, "w1")
            assert not is_live(project)
            wait_until(lambda look=look: (look(project, "w1"), is_live(project))[1])  # type: ignore[misc]
            assert project.store.worker("w1").status is Status.IDLE
            sessions.end(project, "w1", "test")


def is_live(project: Project) -> bool:
    return project.store.worker("w1").status is not Status.OFFLINE


def test_an_agent_that_got_stuck_is_launched_again(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: take over any living pane in `start`: each `up` waits for the same agent, in vain."""
    monkeypatch.setenv(LATE, "300")
    problem = bring_up(impatient(project), "w1")
    assert problem is not None
    assert "was not ready after 0.5 s" in problem
    stuck = pid_of(project)
    monkeypatch.delenv(LATE)
    assert bring_up(project, "w1") is None
    assert pid_of(project) != stuck
    assert not processes.is_alive(stuck)


def test_a_start_while_git_fails_is_not_used_up(
    project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Break: apply a SessionStart without git: the problem is said to be an exit, with a live agent's screen."""
    git = tmp_path / "git"
    git.write_text("#!/bin/sh\necho 'fatal: no memory' >&2; exit 128\n")
    git.chmod(0o755)
    with project.worker_lock("w1"):
        sessions.start(project, "w1")
        wait_until(lambda: inbox.pending_ids(project.root, "w1"))
        with monkeypatch.context() as broken:
            broken.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
            problem = sessions.wait_ready(project, "w1", 0.5)
            assert problem is not None
            assert problem.startswith("the agent is running, but git cannot read its worktree")
            assert project.store.worker("w1").error_reason == problem
            assert inbox.pending_ids(project.root, "w1")
        assert sessions.wait_ready(project, "w1", 30) is None
    assert (project.store.worker("w1").status, project.store.worker("w1").error_reason) == (Status.IDLE, "")
