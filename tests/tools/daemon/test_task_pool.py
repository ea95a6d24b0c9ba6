"""The daemon asks the task pool command for tasks; an obstacle that passes must not end the run."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llmc.agents.claude import task_files
from llmc.auto.auto_run import HardFailure
from llmc.daemon.auto import TaskPool
from llmc.repo.project import open_project
from llmc.tasks import pool_command, queue, task_orders
from llmc.tasks.rules.draft import Draft
from llmc.tasks.source import source_of
from llmc.tasks.task_list import add
from tests.support import on_postgres
from tests.support.fleet import Fleet


@on_postgres.TASK_FILES
def test_a_locked_list_is_waited_for(
    scripted: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fleet's database that is gone for a moment is the same error (`LockTimeout`, `Unreachable`).

    Break: end the run; or forget the saved answer, so that its task is lost.
    """
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "client"))
    monkeypatch.setattr(task_files, "LOCK_WAIT_S", 0.05)
    command = f"test ! -e {tmp_path}/asked && touch {tmp_path}/asked && echo 'Do it'"
    scripted.set_up(config={"auto.task_list_id": "plan", "auto.task_pool_command": command})
    project, ended = open_project(str(scripted.root)), list[HardFailure]()
    tasks = queue.open_queue(project)
    locked = tmp_path / "client/tasks/plan/.lock.lock"
    with ThreadPoolExecutor(1) as threads:
        pool = TaskPool(tasks, threads, ended.append, lambda _: None)
        locked.mkdir(parents=True)
        pool._ask(project)
        assert ended == []
        assert not tasks.source.listing().tasks
        locked.rmdir()
        pool._ask(project)
    assert [task.subject for task in tasks.source.listing().tasks.values()] == ["Do it"], "asked only once"
    assert ended == []


@on_postgres.TASK_FILES
@pytest.mark.parametrize("crashed", [True, False])
def test_a_key_is_given_again_when_its_task_is_completed(
    scripted: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crashed: bool
) -> None:
    """After a crash, the completed task may be the one that was saved; after a failed turn it cannot be.

    Break: look for the key among all tasks, or among open ones only.
    """
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "client"))
    scripted.set_up(config={"auto.task_list_id": "plan", "auto.task_pool_command": "true"})
    project = open_project(str(scripted.root))
    source = source_of(project)
    first = add(source, Draft("Tonight", key="nightly"))
    task_orders.done(project, first.id)
    project.root.task_pool.mkdir(parents=True, exist_ok=True)
    (project.root.task_pool / "answer-1.txt").write_text('{"subject": "Tonight", "key": "nightly"}')
    pool_command.take_up(project, source, crashed=crashed)
    assert len(source.listing().tasks) == (1 if crashed else 2)


@on_postgres.TASK_FILES
def test_an_answer_that_comes_too_late_is_added_without_its_order(
    scripted: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer names a task in `before` that a worker has begun.

    Break: refuse it, as for the user; a pool that is a moment too late would end the night.
    """
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "client"))
    command = "printf -- '---\\nbefore: 1, 2\\n---\\n# Three\\n'"
    scripted.set_up(config={"auto.task_list_id": "plan", "auto.task_pool_command": command})
    project = open_project(str(scripted.root))
    source = source_of(project)
    one, _ = add(source, Draft("One")), add(source, Draft("Two"))
    assert source.claim(source.key(one.id), "auto-1", "One") is not None
    three = pool_command.take_in(project, source)
    assert three is not None
    assert (three.subject, three.blocks) == ("Three", ("2",))
