"""What every task source must do, whatever it is made of: Claude Code's files, PostgreSQL, or memory."""

import os
import select
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from llmc.agents.claude.task_files import TaskFiles
from llmc.base.errors import LlmcError, NotFound
from llmc.base.names import TaskId, TaskKey
from llmc.records.books import MAX_ATTEMPTS
from llmc.records.task import Task, TaskStatus
from llmc.records.task_ledger import TaskLedger
from llmc.tasks.claude_files import ClaudeTasks
from llmc.tasks.queue import TaskQueue
from llmc.tasks.rules import claims
from llmc.tasks.rules.draft import Draft, new_task
from llmc.tasks.source import TaskSource
from llmc.tasks.task_list import overview
from tests.support.memory_tasks import MemoryTasks


def _files(place: Path) -> ClaudeTasks:
    return ClaudeTasks(TaskFiles(place / "plan"), TaskLedger(place / "tasks.jsonl"))


@pytest.fixture(params=["files", "memory", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], TaskSource]:
    """Opens the same source again, as another command does."""
    if request.param == "files":
        return partial(_files, tmp_path)
    if request.param == "postgres":
        return request.getfixturevalue("open_shared")
    memory = MemoryTasks()
    return lambda: memory


@pytest.fixture
def source(opened: Callable[[], TaskSource]) -> TaskSource:
    return opened()


def add(source: TaskSource, subject: str, **fields: tuple[str, ...]) -> TaskKey:
    return source.key(source.add(new_task(Draft(subject, **fields), TaskId), "person").id)


def test_what_is_added_is_listed_in_order_and_known(source: TaskSource) -> None:
    """Break: sort ids as text."""
    keys = [add(source, f"Do {number}") for number in range(1, 11)]
    assert list(source.listing().tasks) == [str(number) for number in range(1, 11)]
    assert [source.one(key).subject for key in keys[:2]] == ["Do 1", "Do 2"]
    assert source.books().created == set(keys)
    assert set(source.changes().tasks) == {key.id for key in keys}
    assert source.changes().tasks == {}, "reported once"
    source.edit(keys[0], lambda task: replace(task, subject="Do it"))
    assert source.listing("elsewhere").tasks == {}


def test_what_a_task_was_made_from_is_in_the_books(source: TaskSource) -> None:
    """Break: leave the key out of the `created` row; a task whose file is gone would be imported again."""
    one = source.key(source.add(new_task(Draft("One", key="markdown:1"), TaskId), "person").id)
    add(source, "Two")
    assert source.books().keys == {one: "markdown:1"}


def test_a_claim_is_whole_or_nothing(source: TaskSource) -> None:
    """Break: write the claim to the books but not to the task; or keep it there when the task is gone."""
    one, two = add(source, "One"), add(source, "Two")
    claim = source.claim(one, "auto-1", "One")
    assert claim is not None
    task = source.one(one)
    assert (task.status, task.owner, task.claim) == (TaskStatus.IN_PROGRESS, "auto-1", claim.id)
    assert source.books().claims == {"auto-1": claim}
    assert source.renew(claim.id)
    assert source.claim(one, "auto-2", "One") is None
    source.edit(two, lambda task: replace(task, status=TaskStatus.IN_PROGRESS, owner="a person"))
    assert source.claim(two, "auto-2", "Two") is None, "the user has it"
    assert source.claim(source.key("99"), "auto-2", "None") is None, "it is gone"
    assert source.books().claims == {"auto-1": claim}
    assert source.one(two).owner == "a person"


def test_two_holders_race(opened: Callable[[], TaskSource]) -> None:
    """Break: check whether a task is free before locking it."""
    first, second = opened(), opened()
    keys = [add(first, f"Do {number}") for number in range(30)]
    start, won = threading.Barrier(2), dict[str, list[TaskKey]]()

    def take_all(source: TaskSource, worker: str) -> None:
        mine = won.setdefault(worker, [])
        for key in keys:
            start.wait(20)
            if source.claim(key, worker, "Do") is not None:
                mine.append(key)

    threads = [
        threading.Thread(target=take_all, args=(s, w)) for s, w in ((first, "auto-1"), (second, "auto-2"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted([*won["auto-1"], *won["auto-2"]]) == sorted(keys)
    for worker, mine in won.items():
        assert {first.one(key).owner for key in mine} <= {worker}


def test_a_claim_ends_once_and_only_for_its_holder(source: TaskSource) -> None:
    """Break: end a claim by the worker's name alone; every root has an auto-1."""
    one = add(source, "One")
    first = source.claim(one, "auto-1", "One")
    assert first is not None
    source.release(first, "stopped")
    assert (source.one(one).status, source.one(one).owner, source.renew(first.id)) == ("pending", "", False)
    again = source.claim(one, "auto-1", "One")
    assert again is not None
    source.release(first, "told twice")
    assert source.renew(again.id), "it is another claim"
    assert source.one(one).claim == again.id
    source.about_to_land(again, "c0ffee")
    assert source.books().landing == {again.id: "c0ffee"}
    source.finish(again, "c0ffee")
    assert source.one(one).status is TaskStatus.COMPLETED
    assert source.books().landed_as("c0ffee") == one
    assert not source.renew(again.id)
    assert source.settle() == [], "nothing was interrupted"


def test_the_end_of_a_task_that_is_gone_is_known(source: TaskSource) -> None:
    one = add(source, "One")
    claim = source.claim(one, "auto-1", "One")
    assert claim is not None
    assert not source.remove(one, lambda task: not task.owner), "a worker has it"
    assert source.remove(one, lambda task: True)
    source.finish(claim, "c0ffee")
    assert source.books().is_completed(one)
    assert add(source, "Another") != one, "its number is not reused"
    assert source.remove(one, lambda task: False), "a missing task is gone"


def test_what_fails_too_often_waits_for_a_person(source: TaskSource) -> None:
    """Break: hold it only in the books; another root on the list has its own."""
    one = add(source, "One")
    for _ in range(MAX_ATTEMPTS):
        claim = source.claim(one, "auto-1", "One")
        assert claim is not None
        source.release(claim, "it fails", cause="task", counts=True)
    assert source.one(one).waits_for_a_person == "quarantined"
    assert source.claim(one, "auto-1", "One") is None
    source.write("requeued", claim)
    source.edit(one, partial(claims.set_by_user, seen=source.one(one)))
    assert source.claim(one, "auto-1", "One") is not None


def test_an_edit_between_a_look_and_a_change_is_seen(source: TaskSource) -> None:
    """Break: give `edit` what was listed before; a change in between would be lost."""
    one = add(source, "One")
    seen = source.one(one)
    source.edit(
        one, lambda task: replace(task, description="by a person", metadata={**task.metadata, "x": 1})
    )
    claim = source.claim(one, "auto-1", "One")
    assert claim is not None
    assert (source.one(one).description, source.one(one).metadata["x"]) == ("by a person", 1)
    assert source.edit(one, partial(claims.set_by_user, seen=seen)).owner == "auto-1", (
        "it has changed since it was seen"
    )
    assert source.edit(one, lambda _: None).owner == "auto-1"


def test_dependencies_hold_until_what_they_wait_for_has_landed(source: TaskSource) -> None:
    """Break: give out a waiting task; or trust an agent that marks its own task as completed."""
    one = add(source, "One")
    two = add(source, "Two", after=(one.id,))
    queue = TaskQueue(source)
    first = queue.take_next("auto-1", ())
    assert first is not None
    assert (first[0].id, queue.take_next("auto-2", ())) == (one.id, None)
    source.edit(one, lambda task: replace(task, status=TaskStatus.COMPLETED, owner=""))
    assert queue.take_next("auto-2", ()) is None
    assert source.one(one).owner == "auto-1", "it is reset"
    source.finish(first[1], "c0ffee")
    second = queue.take_next("auto-2", ())
    assert second is not None
    assert second[0].id == two.id
    assert overview(source).states == {one.id: "completed", two.id: "in_progress"}


@pytest.mark.parametrize(
    "task_id", ["404", "../../x", "/etc/passwd", "..", ".", "", "a/b", "a\0b", "x" * 300]
)
def test_an_id_that_is_no_task(source: TaskSource, tmp_path: Path, task_id: str) -> None:
    """Break: build a path from an id before it is checked."""
    add(source, "One")
    before = sorted(os.walk(tmp_path))
    key = source.key(task_id)
    for act in (source.one, lambda key: source.edit(key, lambda task: task)):
        with pytest.raises(NotFound, match="no task"):
            act(key)
    assert source.remove(key, lambda task: True)
    assert [(place, folders) for place, folders, _ in os.walk(tmp_path)] == [
        (place, folders) for place, folders, _ in before
    ]


def test_another_list_has_its_own_tasks(source: TaskSource) -> None:
    """Break: identify by id alone."""
    one = add(source, "One")
    with pytest.raises(LlmcError):
        source.one(TaskKey("another", one.id))
    assert source.claim(TaskKey("another", one.id), "auto-1", "One") is None
    assert source.one(one).status is TaskStatus.PENDING
    assert source.one(TaskKey("", one.id)) == source.one(one), "from a record of an older llmc"


def test_a_watch_tells_of_what_others_write(opened: Callable[[], TaskSource]) -> None:
    """Break: send no wake-up; or read a watch without applying what it reported."""
    source, other = opened(), opened()
    source.prepare()
    add(other, "Zero")
    watch = source.watch()
    assert set(source.changes().tasks) == {"1"}, "what existed before it started"
    key = add(other, "One")
    assert select.select([watch], [], [], 20)[0]
    assert watch.heard()
    found = source.changes().tasks
    assert isinstance(found[key.id], Task)
    watch.close()
    add(other, "Two")
    assert "3" in source.changes().tasks, "without a watch everything is checked"
