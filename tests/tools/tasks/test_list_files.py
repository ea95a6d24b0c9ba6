"""A list moves between task files and the fleet's database, and back."""

import contextlib
import json
import os
import threading
from pathlib import Path

import pytest

from llmc.agents.claude.task_files import TaskFiles
from llmc.base.errors import NotFound, Refused
from llmc.base.names import TaskId
from llmc.records.task import Task, TaskStatus
from llmc.records.task_ledger import TaskLedger
from llmc.tasks import list_files
from llmc.tasks.claude_files import ClaudeTasks
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
    added = list_files.take_in(source, files).added
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
    assert list_files.take_in(source, files).added == []
    write(files, 9)
    assert [task.subject for task in list_files.take_in(source, files).added] == ["Do 9", "Do 4"]
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
    assert [task.subject for task in next(following).added] == ["Do 1"]
    write(tmp_path, 2)
    added = next(found.added for found in following if found.added)
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


def changed_long_ago(*paths: Path) -> None:
    for path in paths:
        os.utime(path, (1, 1))


def test_two_lists_in_directories_of_one_name(tmp_path: Path) -> None:
    """Break: a key of the directory's name and the id alone; the second list's task 1 would count as the first's."""
    source = MemoryTasks()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    mine, yours = tmp_path / "a/tasks", tmp_path / "b/tasks"
    write(mine, 1)
    write(yours, 1, subject="Other work")
    write(yours, 2, after=(1,))
    assert [task.id for task in list_files.take_in(source, mine).added] == ["1"]
    added = list_files.take_in(source, yours).added
    assert [(task.subject, task.blocked_by) for task in added] == [("Other work", ()), ("Do 2", ("2",))]
    assert list_files.take_in(source, yours).added == []
    write(mine, 1, status="in_progress", owner="w", metadata={"priority": 1})
    assert list_files.take_in(source, mine).added == [], "the same task in another state"


def test_a_key_of_an_older_llmc_is_known(tmp_path: Path) -> None:
    """Break: compare keys only as they are written now; after an upgrade, the whole list would be added again."""
    source = MemoryTasks()
    source.add(new_task(Draft("Do 1", key="file:mine/1"), TaskId), "import")
    write(tmp_path / "mine", 1)
    write(tmp_path / "mine", 2, after=(1,))
    added = list_files.take_in(source, tmp_path / "mine").added
    assert [(task.subject, task.blocked_by) for task in added] == [("Do 2", ("1",))]


def test_a_landed_task_is_not_taken_in_again(tmp_path: Path) -> None:
    """Break: ask only the files; the client removes those of completed tasks."""
    source = ClaudeTasks(TaskFiles(tmp_path / "list"), TaskLedger(tmp_path / "tasks.jsonl"))
    write(tmp_path / "mine", 1)
    (task,) = list_files.take_in(source, tmp_path / "mine").added
    claim = source.claim(source.key(task.id), "auto-1", task.subject)
    assert claim is not None
    source.finish(claim, "c0ffee")
    source.remove(claim.task, lambda task: True)
    write(tmp_path / "mine", 2, after=(1,))
    added = list_files.take_in(source, tmp_path / "mine").added
    assert [(task.subject, task.blocked_by) for task in added] == [("Do 2", ())]


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    """Break: return only what was added; an import of half a list would look like success."""
    source, files = MemoryTasks(), tmp_path / "mine"
    write(files, 1)
    write(files, 2, metadata={"label": "a b"})
    write(files, 3, after=(2,))
    write(files, 4, after=(3, 9))
    write(files, 5, after=(6,))
    write(files, 6, after=(5,))
    (files / "7.json").write_text("{broken")
    changed_long_ago(files / "2.json", files / "7.json")
    (files / "8.json").write_text("{half")
    found = list_files.take_in(source, files)
    assert [task.subject for task in found.added] == ["Do 1"]
    left = {line.partition(":")[0]: line for line in found.left_out}
    assert left.keys() == {
        *("2.json", "7.json", "8.json"),
        *(f"task {number} depends on tasks that were not imported" for number in (3, 4, 5, 6)),
    }
    assert "label" in left["2.json"]
    assert left["8.json"] == "8.json: the file is being written"
    assert [line.rpartition(": ")[2] for line in found.left_out[3:]] == ["2", "3, 9", "6", "5"]


def test_a_watched_directory_says_once_what_is_left_out(tmp_path: Path) -> None:
    """Break: say it in the first round, when the missing file may be on its way; or in every round."""
    write(tmp_path, 2, after=(1,))
    following = list_files.follow(MemoryTasks(), tmp_path)
    assert next(following).left_out == []
    assert next(following).left_out == ["task 2 depends on tasks that were not imported: 1"]
    assert next(following).left_out == []
    write(tmp_path, 1)
    assert next(found for found in following if len(found.added) == 2).left_out == []
    following.close()


def test_a_watched_file_whose_text_changes_is_one_task(tmp_path: Path) -> None:
    """A client may refine a task that is being done. Break: compare only the texts; both versions would run."""
    source = MemoryTasks()
    source.add(new_task(Draft("Already there"), TaskId), "person")
    write(tmp_path, 1)
    following = list_files.follow(source, tmp_path)
    assert [task.id for task in next(following).added] == ["2"]
    write(tmp_path, 1, description="With more words")
    write(tmp_path, 2, after=(1,))
    found = [next(following) for _ in range(3)]
    write(tmp_path, 1, description="With other words")
    found += [next(following) for _ in range(3)]
    added = [task for one in found for task in one.added]
    assert [(task.subject, task.blocked_by) for task in added] == [("Do 2", ("2",))]
    assert [line for one in found for line in one.left_out] == [
        "1.json: its text changed after it was imported as 2"
    ]
    write(tmp_path, 1)
    assert next(following).added == [], "as it was"
    following.close()
    write(tmp_path, 1, description="Other work")
    assert [task.description for task in list_files.take_in(source, tmp_path).added] == ["Other work"]


def test_a_watched_file_that_was_imported_before_is_one_task(tmp_path: Path) -> None:
    """Break: remember only the files that this watch added."""
    source = MemoryTasks()
    write(tmp_path, 1)
    list_files.take_in(source, tmp_path)
    following = list_files.follow(source, tmp_path)
    assert next(following).added == []
    write(tmp_path, 1, description="With more words")
    assert [next(following).added for _ in range(2)] == [[], []]
    following.close()


def test_a_watched_file_or_task_that_was_removed_is_new_again(tmp_path: Path) -> None:
    """Break: remember names of files that are gone, or tasks that the list no longer has."""
    source = MemoryTasks()
    write(tmp_path, 1)
    following = list_files.follow(source, tmp_path)
    assert [task.id for task in next(following).added] == ["1"]
    (tmp_path / "1.json").unlink()
    assert next(following).added == []
    write(tmp_path, 1, description="Other work")
    assert [task.description for task in next(following).added] == ["Other work"]
    source.remove(source.key("2"), lambda _: True)
    assert [task.description for task in next(following).added] == ["Other work"]
    following.close()
