"""Which workers a command without a name is about."""

from pathlib import Path

import pytest

from llmc.api import roots
from llmc.base import locks
from llmc.base.errors import NotFound
from llmc.records.transitions import step
from llmc.records.worker import Status
from llmc.repo.project import Project
from llmc.repo.setup import ensure_auto_workers
from llmc.workers import start
from tests.support.repos import Repo, add_worker, make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    source = Repo(tmp_path / "source")
    source.commit("a.txt", "a\n")
    return make_project(str(source.path), tmp_path / "root")


def test_auto_workers_of_an_earlier_run_are_not_waited_for(project: Project) -> None:
    """Break: `llmc wait --all-idle` waits for every record; after an auto run it fails at once."""
    add_worker(project, "adam")
    ensure_auto_workers(project, ["auto-1", "auto-2"])
    assert roots.workers_in_use(project) == ["adam"]
    project.root.daemon.write_text('{"pid": 1, "auto": true, "concurrency": 1}')
    assert roots.workers_in_use(project) == ["adam"], "left by a daemon that was killed"
    with locks.lock(project.root.lock("daemon"), locks.Rank.WEB_SERVER):
        assert roots.workers_in_use(project) == ["adam", "auto-1"]


def test_a_worker_on_hold_is_named(project: Project) -> None:
    """Break: say only that no worker is idle, while the status shows an idle one."""
    add_worker(project, "adam")
    with project.store.transaction() as tx:
        tx.move("adam", step(Status.IDLE, "test"))
        tx.update("adam", held=True)
    with pytest.raises(NotFound, match="adam is on hold") as raised:
        start.idle_workers(project, project.store.read())
    assert "llmc release adam" in raised.value.hint
