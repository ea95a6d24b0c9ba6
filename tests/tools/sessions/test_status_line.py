"""The status line of a root's sessions, on a real tmux server."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llmc.base.names import SessionName, WorkerName
from llmc.base.tmux import Tmux, exact
from llmc.config.model import Config, Repo
from llmc.config.paths import Root
from llmc.records.store import Store
from llmc.records.worker import Status, WorkerRecord
from llmc.repo.project import Project
from llmc.sessions import status_line
from llmc.sessions.status_line import StatusLine
from tests.support.waiting import wait_until

SESSION = SessionName("llmc-adam")


@pytest.fixture
def project() -> Iterator[Project]:
    with tempfile.TemporaryDirectory(prefix="llmc-x-", ignore_cleanup_errors=True) as directory:
        root, tmux = Root(Path(directory)), Tmux(f"llmc-test-{Path(directory).name}")
        store = Store(root)
        store.create()
        tmux.launch(SESSION, "/", ["sleep", "300"], ["true"], instance="i", worker="adam")
        yield Project(root, Config(repo=Repo(source=directory)), store, tmux)
        tmux.kill_server()


def adam(task: str) -> WorkerRecord:
    return WorkerRecord(
        name=WorkerName("adam"),
        worktree_path="/",
        branch="llmc/adam",
        session_id=SESSION,
        created_at_unix=1.0,
        status=Status.WORKING,
        current_prompt=task,
    )


def shown(project: Project) -> str:
    return project.tmux.run(
        "show-options", "-v", "-t", exact(SESSION), "@llmc_line", check=False
    ).stdout.strip()


@contextmanager
def attached(project: Project) -> Iterator[None]:
    argv = project.tmux.argv("-C", "attach-session", "-t", exact(SESSION))
    env = {"PATH": os.environ["PATH"], "TERM": "dumb"}
    with subprocess.Popen(argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as client:
        wait_until(project.tmux.is_watched)
        yield
        assert client.stdin is not None
        client.stdin.close()  # it detaches
    wait_until(lambda: not project.tmux.is_watched())


def test_it_is_set_only_while_a_terminal_is_attached(project: Project) -> None:
    """Break: set it in any case, which costs each task of a night two programs."""
    line = StatusLine()
    line.show(project, [adam("Parse dates")], [])
    assert shown(project) == ""
    with attached(project):
        line.show(project, [adam("Parse dates")], [])
        assert shown(project) == "adam · Parse dates · working"


def test_what_was_set_before_a_user_left_is_not_trusted(project: Project) -> None:
    """Break: keep `_shown` when they leave: the line that `attach` has set would stay."""
    line = StatusLine()
    with attached(project):
        line.show(project, [adam("Parse dates")], [])
    line.show(project, [adam("Format dates")], [])
    with project.store.transaction() as tx:
        tx.put(adam("Format dates"))
    status_line.prepare(project, SESSION, "C-b", nested=False)
    assert shown(project) == "adam · Format dates · working"
    with attached(project):
        line.show(project, [adam("Parse dates")], [])
        assert shown(project) == "adam · Parse dates · working"
