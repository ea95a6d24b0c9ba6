"""A run that has begun as many tasks as it may retries those whose agents crashed, before it ends."""

import time
from pathlib import Path

import psycopg
import pytest

from llmc.auto import attend
from llmc.auto.auto_run import Run
from llmc.auto.usage import Spending
from llmc.base.names import TaskId, TaskKey
from llmc.config.edit import set_value
from llmc.repo.project import Project
from llmc.tasks.queue import Queue, TaskQueue
from llmc.tasks.rules.draft import Draft, new_task
from llmc.tasks.shared_queue import SharedQueue
from llmc.tasks.source import TaskSource
from tests.support.memory_tasks import MemoryTasks
from tests.support.repos import Mold, Repo, add_worker, make_project, project_at
from tests.support.shared_tasks import OpenShared

WORKER = "w1"
BACKOFF_S = 30.0


@pytest.fixture
def project(mold: Mold) -> Project:
    def make(place: Path) -> None:
        source = Repo(place / "src")
        source.commit("README.md")
        made = make_project(str(source.path), place / "root")
        set_value(made.root.config, "auto.crash_backoff_secs", str(BACKOFF_S))
        add_worker(made, WORKER)

    return project_at(mold.place(make) / "root")


def full_run(queue: Queue, waits: list[float]) -> Run:
    return Run(
        queue=queue,
        workers=(WORKER,),
        on_change=lambda: None,
        look_again=lambda _, wait_s: waits.append(wait_s),
        say=lambda _: None,
        spending=Spending(),
        max_tasks=1,
    )


def add(source: TaskSource) -> TaskKey:
    return source.key(source.add(new_task(Draft("Do it"), TaskId), "person").id)


def crash(source: TaskSource, key: TaskKey) -> None:
    claim = source.claim(key, WORKER)
    assert claim is not None
    source.release(claim, "the agent exited", cause="crash", counts=True)


def assign(run: Run, project: Project) -> bool:
    with project.worker_lock(WORKER):
        return attend._assign(run, project, project.store.worker(WORKER))


@pytest.mark.parametrize("wrong_s", [0, 600, -600])
def test_a_crashed_task_of_a_fleet_is_retried_when_the_database_says(
    open_shared: OpenShared,
    database: str,
    project: Project,
    wrong_s: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Break: measure the wait with the node's clock; or end the run when the claim finds nothing."""
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + wrong_s)
    source, waits = open_shared(backoff_s=BACKOFF_S), list[float]()
    run = full_run(SharedQueue(source, project), waits)
    key = add(source)
    run.begin(key)
    crash(source, key)
    assert not assign(run, project)
    assert (run.draining, len(waits)) == ("", 1)
    assert BACKOFF_S - 5 < waits[0] <= BACKOFF_S
    with psycopg.connect(database) as db:
        db.execute("update llmc.task set not_before = now() - interval '1 second'")
    assert assign(run, project)
    assignment = project.store.worker(WORKER).assignment
    assert assignment is not None
    assert assignment.task == key
    source.finish(next(iter(source.books().claims.values())), "")
    with project.store.transaction() as tx:
        tx.update(WORKER, assignment=None)
    assert not assign(run, project)
    assert run.draining == "--max-tasks 1 reached"


def test_a_task_that_is_locked_for_a_moment_does_not_end_the_run(
    open_shared: OpenShared, database: str, project: Project
) -> None:
    """A claim skips rows that another transaction has. Break: take that for a task that cannot be retried."""
    source, waits = open_shared(), list[float]()
    run = full_run(SharedQueue(source, project), waits)
    key = add(source)
    run.begin(key)
    with psycopg.connect(database) as db:
        db.execute("select from llmc.task for update")
        assert not assign(run, project)
    assert run.draining == ""
    assert len(waits) == 1
    assert 0 < waits[0] < 1
    assert assign(run, project)


@pytest.mark.parametrize("kind", ["fleet", "alone"])
def test_a_task_of_another_run_that_waits_does_not_keep_a_full_run(
    open_shared: OpenShared, project: Project, kind: str
) -> None:
    """Break: wait for any task that crashed."""
    queue: Queue
    if kind == "fleet":
        queue = SharedQueue(open_shared(backoff_s=BACKOFF_S), project)
    else:
        queue = TaskQueue(MemoryTasks())
    waits = list[float]()
    run, source = full_run(queue, waits), queue.source
    own, other = add(source), add(source)
    run.begin(own)
    crash(source, own)
    crash(source, other)
    assert not assign(run, project)
    assert (run.draining, len(waits)) == ("", 1), "its own is retried"
    assert BACKOFF_S - 5 < waits[0] <= BACKOFF_S
    assert source.remove(own, lambda _: True)
    assert not assign(run, project)
    assert (run.draining, len(waits)) == ("--max-tasks 1 reached", 1)
