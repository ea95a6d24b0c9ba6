"""A list moves between task files and the fleet's database, and back."""

import contextlib
import json
import threading
from pathlib import Path

import pytest

from llmc.agents.claude.task_files import TaskFiles
from llmc.base.errors import NotFound, Refused
from llmc.base.names import TaskId
from llmc.records.task import Task, TaskStatus
from llmc.tasks import list_files
from llmc.tasks.rules.draft import Draft, new_task
from tests.support.memory_tasks import MemoryTasks
from tests.support.shared_tasks import OpenShared


def write(
    directory: Path, number: int, *, status: str = "pending", after: tuple[int, ...] = (), **more: object
) -> None:
    directory.mkdir(exist_ok=True)
    task = {"id": str(number), "subject": f"Do {number}", "description": "", "status": status}
    row = {**task, "blocks": [], "blockedBy": [str(other) for other in after], **more}
    (directory / f"{number}.json").write_text(json.dumps(row))


def test_a_list_of_files_goes_into_the_database_once(open_shared: OpenShared, tmp_path: Path) -> None:
    """Break: forget which file a task came from, and add it again."""
    source, files = open_shared(), tmp_path / "mine"
    source.add(new_task(Draft("Already there"), TaskId), "person")
    write(files, 1, status="completed")
    write(files, 2, after=(1, 3))
    write(
        files,
        3,
        metadata={"priority": 1, "label": "db", "llmc": {"verify": "make test", "claim": "x"}},
        owner="w",
        status="in_progress",
    )
    write(files, 4, after=(9,))
    added = list_files.take_in(source, files)
    assert [(task.id, task.subject, task.blocked_by) for task in added] == [
        ("2", "Do 3", ()),
        ("3", "Do 2", ("2",)),
    ]
    three = source.one(source.key("2"))
    assert (three.status, three.owner, three.priority, three.label, three.verify, three.claim) == (
        TaskStatus.PENDING,
        "",
        1,
        "db",
        "make test",
        "",
    )
    assert list_files.take_in(source, files) == []
    write(files, 9)
    assert [task.subject for task in list_files.take_in(source, files)] == ["Do 9", "Do 4"]
    with pytest.raises(NotFound):
        list_files.take_in(source, tmp_path / "none")


def test_two_that_watch_one_directory_add_a_file_once(open_shared: OpenShared, tmp_path: Path) -> None:
    """Break: leave out the unique index."""
    sources = [open_shared(f"n{number}") for number in range(2)]
    for number in range(20):
        write(tmp_path, number + 1)

    def take(source: object) -> None:
        with contextlib.suppress(Refused):  # the other was faster
            list_files.take_in(source, tmp_path)  # type: ignore[arg-type]

    threads = [threading.Thread(target=take, args=(source,)) for source in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    list_files.take_in(sources[0], tmp_path)
    subjects = [task.subject for task in sources[0].listing().tasks.values()]
    assert sorted(subjects) == sorted({f"Do {number + 1}" for number in range(20)})


def test_files_are_taken_in_as_they_appear(tmp_path: Path) -> None:
    source = MemoryTasks()
    write(tmp_path, 1)
    following = list_files.follow(source, tmp_path)
    assert [task.subject for task in next(following)] == ["Do 1"]
    write(tmp_path, 2)
    added = next(found for found in following if found)
    assert [task.subject for task in added] == ["Do 2"]
    following.close()


def test_an_exported_list_is_the_same_one(open_shared: OpenShared, tmp_path: Path) -> None:
    """Break: leave out the dependencies, or include a claim."""
    source = open_shared()
    one = source.add(new_task(Draft("One", "text", label="db", verify="make"), TaskId), "person")
    source.add(new_task(Draft("Two", after=(one.id,)), TaskId), "person")
    assert source.take_next("auto-1", ()) is not None
    list_files.export(source, tmp_path / "out")
    found = TaskFiles(tmp_path / "out").listing()
    assert found.unreadable == []
    assert [(t.id, t.status, t.owner, t.claim, t.blocked_by) for t in found.tasks.values()] == [
        ("1", "pending", "", "", ()),
        ("2", "pending", "", "", ("1",)),
    ]
    assert found.tasks[TaskId("1")].verify == "make"
    with pytest.raises(Refused, match="is not empty"):
        list_files.export(source, tmp_path / "out")
    again = MemoryTasks()
    list_files.take_in(again, tmp_path / "out")
    assert [task.subject for task in again.listing().tasks.values()] == ["One", "Two"]
    assert isinstance(again.one(again.key("2")), Task)
