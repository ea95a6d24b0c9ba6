"""A user's command on a task that changes at the same moment: it is done completely, or not at all."""

from collections.abc import Callable
from pathlib import Path

import pytest

from llmc.base.errors import Refused
from llmc.base.names import TaskKey
from llmc.records.books import MAX_ATTEMPTS
from llmc.records.task import Task, TaskStatus
from llmc.repo.project import Project, open_project
from llmc.tasks import task_orders
from llmc.tasks.rules.draft import Draft
from llmc.tasks.source import TaskSource, source_of
from llmc.tasks.task_list import add
from tests.support.fleet import Fleet


@pytest.fixture
def project(scripted: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "client"))
    scripted.set_up(config={"auto.task_list_id": "plan"})
    return open_project(str(scripted.root))


def failed(source: TaskSource, key: TaskKey, times: int) -> None:
    for _ in range(times):
        claim = source.claim(key, "auto-9", "One")
        assert claim is not None
        source.release(claim, "the check failed", cause="task", counts=True)


@pytest.mark.parametrize(("order", "failures"), [(task_orders.done, 0), (task_orders.requeue, 1)])
def test_a_refused_order_changes_nothing(
    project: Project,
    order: Callable[[Project, str], Task],
    failures: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker claims the task after the command has seen it as ready.

    Break: write the ledger row of `done` or `requeue` before the task's file is locked and compared.
    """
    source = source_of(project)
    key = source.key(add(source, Draft("One", "Do one")).id)
    failed(source, key, failures)
    real = task_orders.overview

    def claimed_meanwhile(source: TaskSource) -> task_orders.Overview:
        found = real(source)
        assert source.claim(key, "auto-1", "One") is not None
        return found

    monkeypatch.setattr(task_orders, "overview", claimed_meanwhile)
    with pytest.raises(Refused, match="changed in the meantime"):
        order(project, key.id)
    books = source.books()
    assert (books.is_completed(key), books.attempts(key)) == (False, failures)
    assert source.one(key).owner == "auto-1", "it continues"


def test_an_accepted_order_is_in_the_ledger_and_in_the_file(project: Project) -> None:
    """Break: leave out the ledger row; a dependent whose file says otherwise would wait forever."""
    source = source_of(project)
    key = source.key(add(source, Draft("One", "Do one")).id)
    failed(source, key, MAX_ATTEMPTS)
    task_orders.requeue(project, key.id)
    assert (source.books().attempts(key), source.one(key).waits_for_a_person) == (0, "")
    task_orders.done(project, key.id)
    assert (source.books().is_completed(key), source.one(key).status) == (True, TaskStatus.COMPLETED)
