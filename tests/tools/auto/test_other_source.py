"""Auto mode with tasks that are in no file: assigned, landed and released through the source alone."""

import pytest

from llmc.auto import attend as auto
from llmc.auto import landing
from llmc.base.clock import now_unix
from llmc.base.names import TaskId
from llmc.repo.project import open_project
from llmc.tasks import source as sources
from llmc.tasks import task_list
from llmc.tasks.rules.draft import Draft
from llmc.workers.patrol import finish_interrupted
from llmc.workers.rules import Clock
from tests.support.auto import commit, set_up, task_dir
from tests.support.fleet import Fleet
from tests.support.memory_tasks import MemoryTasks
from tests.support.waiting import wait_until
from tests.tools.auto.test_attend import run_of


def test_tasks_in_memory_are_given_out_landed_and_released(
    scripted: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: open the task files by name anywhere between `attend` and the end of an accept."""
    fleet = set_up(scripted)
    fleet.up("--auto", "--concurrency", "1")
    wait_until(lambda: fleet.status("auto-1")["status"] == "idle")
    fleet.kill_daemon()
    project = open_project(str(fleet.root))
    memory = MemoryTasks()
    monkeypatch.setitem(sources.SOURCES, "files", lambda _: memory)
    one = task_list.add(memory, Draft("One", commit(1)))
    two = task_list.add(
        memory, Draft("Two", "@sh llmc report done --no-changes 'it is there'", after=(one.id,))
    )
    three = task_list.add(memory, Draft("Three", "@hang", after=(two.id,)))
    run, clock = run_of(project, "auto-1"), Clock(now_unix())

    def look() -> str:
        """As its lane does; returns its task afterwards."""
        with project.worker_lock("auto-1"):
            finish_interrupted(project, "auto-1")
            auto.attend(run, project, "auto-1", clock)
        task = project.store.worker("auto-1").assignment
        return task.task_id if task else ""

    assert look() == one.id
    assert memory.one(memory.key(one.id)).owner == "auto-1"
    wait_until(lambda: look() == three.id)
    books = memory.books()
    assert books.completed_in("plan") == {one.id, two.id}
    assert books.landed_as(fleet.git("rev-parse", "HEAD").strip()) == memory.key(one.id), (
        "what landed last is its commit"
    )
    with project.worker_lock("auto-1"):
        landing.release(run, project, "auto-1")
    assert [memory.one(memory.key(task.id)).status for task in (one, two, three)] == [
        "completed",
        "completed",
        "pending",
    ]
    assert (memory.books().claims, project.store.worker("auto-1").assignment) == ({}, None)
    assert run.queue.take_next("auto-2", ()) is not None, "any worker can continue it"
    assert list(task_dir(fleet).glob("*.json")) == [], "and no task was ever in a file"
    assert not project.root.tasks_ledger.exists()
    assert [row["task_id"] for row in fleet.events("task_completed")] == [one.id, two.id]
    assert TaskId(three.id) in memory.listing().tasks
