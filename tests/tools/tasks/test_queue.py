"""The task list as a queue: real files, a real ledger."""

import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from llmc.agents.claude import task_files
from llmc.agents.claude.task_files import TaskFiles
from llmc.base import files as tools
from llmc.base.errors import LockTimeout
from llmc.base.names import TaskId
from llmc.records.books import MAX_ATTEMPTS, Claim
from llmc.records.task import TaskStatus
from llmc.records.task_ledger import TaskLedger
from llmc.repo.project import Project
from llmc.reports import digest
from llmc.tasks.claude_files import ClaudeTasks
from llmc.tasks.queue import BrokenList, TaskQueue, open_queue
from tests.support.repos import Mold, Repo, make_project, project_at


@pytest.fixture
def queue(tmp_path: Path) -> TaskQueue:
    (tmp_path / "list").mkdir()
    source = ClaudeTasks(TaskFiles(tmp_path / "list"), TaskLedger(tmp_path / "tasks.jsonl"))
    source._is_watched = True  # changes are reported here, by `note_changed`
    return TaskQueue(source)


def put(queue: TaskQueue, number: int, **fields: Any) -> Path:
    path = queue.source.files.directory / f"{number}.json"
    body = {"id": str(number), "subject": f"Do {number}", "description": "", "status": "pending"}
    path.write_text(json.dumps({**body, "blocks": [], "blockedBy": [], **fields}))
    return path


def taken(queue: TaskQueue, worker: str = "auto-1", labels: tuple[str, ...] = ()) -> tuple[str, Claim] | None:
    found = queue.take_next(worker, labels)
    return (found[0].id, found[1]) if found else None


@pytest.mark.req("4-043", "4-044")
def test_somebody_else_was_faster(queue: TaskQueue) -> None:
    """Break: give up at the first lost claim, or keep it in the ledger."""
    put(queue, 1)
    put(queue, 2)
    assert queue.count_ready() == 2
    put(queue, 1, status="in_progress", owner="auto-1", metadata={"llmc": {"claim": "of another root"}})
    queue.source._changed = set()  # without a notification
    found = taken(queue)
    assert found is not None
    assert found[0] == "2"
    assert queue.source.books().claims == {"auto-1": found[1]}
    assert queue.source.files.get("1").claim == "of another root"
    assert taken(queue, "auto-2") is None
    # The loser has nothing, not in the ledger either.
    put(queue, 3)
    queue.source.note_changed(None)
    assert queue.count_ready() == 1
    put(queue, 3, status="in_progress", owner="auto-1", metadata={"llmc": {"claim": "of another root"}})
    queue.source._changed = set()
    assert taken(queue, "auto-2") is None
    assert queue.source.books().claims == {"auto-1": found[1]}


@pytest.mark.req("4-044")
def test_the_next_worker_asks_before_the_watch_has_told(queue: TaskQueue, tmp_path: Path) -> None:
    """Break: leave our own claims to the watch; the second worker then claims in vain, in the ledger, too."""
    put(queue, 1)
    assert queue.count_ready() == 1
    queue.source.note_changed([])
    assert taken(queue) is not None
    assert taken(queue, "auto-2") is None
    rows = [json.loads(line) for line in (tmp_path / "tasks.jsonl").read_text().splitlines()]
    assert [(row["action"], row["worker"]) for row in rows] == [("claimed", "auto-1")]


@pytest.mark.req("4-029", "4-044")
def test_threads_that_ask_at_once_get_different_tasks(queue: TaskQueue) -> None:
    """Break: leave the lock out of take_next."""
    for number in range(1, 21):
        put(queue, number)
    won: list[str] = []

    def take(worker: str) -> None:
        while found := taken(queue, worker):
            won.append(found[0])

    threads = [threading.Thread(target=take, args=(f"auto-{n}",)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(won, key=int) == [str(number) for number in range(1, 21)]


def test_what_an_agent_calls_completed_is_put_back(queue: TaskQueue) -> None:
    """Break: trust the file; a dependent task would start before it has landed."""
    put(queue, 1)
    put(queue, 2, blockedBy=["1"])
    found = taken(queue)
    assert found is not None
    claim = found[1]
    queue.source.files.change("1", lambda task: replace(task, status=TaskStatus.COMPLETED, owner=""))
    queue.source.note_changed(None)
    assert taken(queue, "auto-2") is None
    assert (queue.source.files.get("1").status, queue.source.files.get("1").owner) == (
        TaskStatus.IN_PROGRESS,
        "auto-1",
    )
    queue.source.finish(claim, "c0ffee")
    queue.source.note_changed(["1.json"])
    after = taken(queue, "auto-2")
    assert after is not None
    assert after[0] == "2"


def test_what_the_ledger_knows_outlives_the_files(queue: TaskQueue) -> None:
    """The client removes the files of a finished list. Break: look for dependencies only in the files."""
    put(queue, 1)
    found = taken(queue)
    assert found is not None
    queue.source.finish(found[1], "c0ffee")
    (queue.source.files.directory / "1.json").unlink()
    put(queue, 2, blockedBy=["1"])
    queue.source.note_changed(None)
    after = taken(queue)
    assert after is not None
    assert after[0] == "2"
    # A completed task that the user reopened by hand is not started again, and its file is not changed.
    put(queue, 1)
    queue.source.note_changed(None)
    assert taken(queue, "auto-2") is None
    assert queue.source.settle() == []
    assert queue.source.files.get("1").status is TaskStatus.PENDING


@pytest.mark.req("4-065")
def test_files_of_claims_that_ended_are_freed(queue: TaskQueue) -> None:
    """A crash came between the ledger and the file. Break: check only completed tasks."""
    put(queue, 1)
    found = taken(queue)
    assert found is not None
    before = (queue.source.files.directory / "1.json").read_bytes()
    queue.source.release(found[1], "stopped")
    (queue.source.files.directory / "1.json").write_bytes(before)
    assert queue.source.settle() == [queue.source.files.key("1")]
    task = queue.source.files.get("1")
    assert (task.status, task.owner, task.claim) == (TaskStatus.PENDING, "", "")
    queue.source.note_changed(None)
    again = taken(queue)
    assert again is not None
    assert queue.source.settle() == [], "an active claim stays"
    before = (queue.source.files.directory / "1.json").read_bytes()
    queue.source.finish(again[1], "c0ffee")
    (queue.source.files.directory / "1.json").write_bytes(before)
    assert queue.source.settle() == [queue.source.files.key("1")]
    assert queue.source.files.get("1").status is TaskStatus.COMPLETED, "what landed is not done again"


def test_a_task_that_failed_too_often_says_so_in_its_file(queue: TaskQueue) -> None:
    """Another root on the same list has another ledger. Break: record the hold only in ours."""
    put(queue, 1)
    for _ in range(MAX_ATTEMPTS):
        queue.source.note_changed(None)
        found = taken(queue)
        assert found is not None
        queue.source.release(found[1], "it fails", cause="task", counts=True)
    assert queue.source.files.get("1").waits_for_a_person == "quarantined"


@pytest.mark.req("4-041", "4-091")
def test_a_file_that_is_being_written_is_looked_at_again(queue: TaskQueue) -> None:
    """Break: check a changed file only once; a broken one would never be noticed."""
    put(queue, 1)
    assert queue.count_ready() == 1
    path = queue.source.files.directory / "2.json"
    path.write_text('{"id": "2"')
    queue.source.note_changed(["2.json"])
    assert queue.count_ready() == 1
    assert queue.unsettled
    os.utime(path, (1, 1))
    assert queue.count_ready() == 1, "the others continue"
    assert [bad.file for bad in queue.source.files.unreadable] == ["2.json"]
    put(queue, 2)
    queue.source.note_changed(["2.json"])
    assert queue.count_ready() == 2
    assert not queue.unsettled


@pytest.mark.req("4-040")
def test_a_claim_is_written_beside_the_file_synced_and_renamed(
    queue: TaskQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: write into the file itself, or rename before it is on disk."""
    put(queue, 1)
    done: list[str] = []
    sync, rename = os.fsync, os.replace

    def fsync(fd: int) -> None:
        done.append(f"sync {os.path.basename(os.readlink(f'/proc/self/fd/{fd}'))}")
        sync(fd)

    def moved(before: Any, after: Any, **folders: Any) -> None:
        done.append(f"{os.path.basename(before)} -> {os.path.basename(after)}")
        rename(before, after, **folders)

    monkeypatch.setattr(tools.os, "fsync", fsync)
    monkeypatch.setattr(tools.os, "replace", moved)
    queue.source.files.change(TaskId("1"), lambda task: replace(task, owner="auto-1"))
    temp = f"1.json.tmp.{os.getpid()}"
    assert done[:2] == [f"sync {temp}", f"{temp} -> 1.json"]


@pytest.mark.req("4-093")
def test_a_claim_that_cannot_be_written_is_none(queue: TaskQueue) -> None:
    """Break: keep the claim in the ledger when its file could not be written."""
    put(queue, 1)
    (queue.source.files.directory / f"1.json.tmp.{os.getpid()}").mkdir()
    with pytest.raises(Exception, match="cannot write"):
        queue.take_next("auto-1", ())
    assert queue.source.books().claims == {}


@pytest.fixture
def project(mold: Mold) -> Project:
    def make(place: Path) -> None:
        source = Repo(place / "source")
        source.commit("README.md")
        made = make_project(str(source.path), place / "root")
        auto = f'[auto]\ntask_list_id = "plan"\ntasks_root = "{place}/tasks"\n'
        made.root.config.write_text(f'[repo]\nsource = "{source.path}"\n{auto}')
        (place / "tasks/plan").mkdir(parents=True)

    return project_at(mold.place(make) / "root")


@pytest.mark.req("4-023", "4-024", "4-094", "4-095")
def test_what_gets_stuck_while_tasks_are_given_out_holds_nobody_else(project: Project) -> None:
    """An agent may link tasks as it likes.

    Break: raise in `_look` although it is not the start; or hold new cycles at the start.
    """

    def held() -> dict[str, str]:
        found = project.store.read().attention
        return {one.who: one.text.partition(". Other tasks")[0] for one in found.values()}

    queue = open_queue(project)

    def add(number: int, **fields: Any) -> None:
        os.utime(put(queue, number, **fields), (1, number))  # written a while ago, so it is complete

    add(1)
    queue.check()
    add(2, blockedBy=["3"])
    add(3, blocks=["2"], blockedBy=["2"])
    add(4, blockedBy=["4"])
    add(5, blockedBy=["99"])
    add(6, blockedBy=["2"])
    queue.source.note_changed(None)
    first = taken(queue)
    assert first is not None
    assert (first[0], taken(queue, "auto-2")) == ("1", None), "what waits for a cycle waits, too"
    cycle = "dependency cycle: "
    assert held() == {
        "2": f"{cycle}2, 3",
        "4": f"{cycle}4",
        "5": "task 5 depends on task 99, which does not exist",
    }
    # They stay held after a restart; a new one at that point stops it, and the error names them all.
    open_queue(project).check()
    add(7, blockedBy=["8"])
    add(8, blockedBy=["7"])
    with pytest.raises(BrokenList, match=r"cannot use the task list: dependency cycle: 7, 8$"):
        open_queue(project).check()
    (queue.source.files.directory / "7.json").unlink()
    (queue.source.files.directory / "8.json").unlink()
    # The user fixes it while no daemon is running: the next check sees that.
    add(3)
    add(4)
    digest.tell_lists(project)
    assert set(held()) == {"5"}
    open_queue(project).check()


def test_a_look_that_failed_loses_no_task(queue: TaskQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: forget the changes before they are in the index; the task would wait for the next daemon."""
    path = put(queue, 1)
    queue.source.note_changed(None)
    assert taken(queue) is not None
    put(queue, 2)
    body = json.loads(path.read_text())
    path.write_text(json.dumps({**body, "status": "completed"}))  # as agents do; llmc resets it
    queue.source.note_changed({"1.json", "2.json"})
    with monkeypatch.context() as patch:
        patch.setattr(task_files, "LOCK_WAIT_S", 0.01)
        patch.setattr(task_files, "try_lock", lambda fd: False)  # another llmc process is stopped halfway
        for _ in range(2):
            with pytest.raises(LockTimeout):
                queue.count_ready()
    assert queue.unsettled
    assert queue.count_ready() == 1
    found = taken(queue, "auto-2")
    assert found is not None
    assert found[0] == "2"


def test_a_shortage_says_nothing_about_a_file(queue: TaskQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: remember the file as unreadable; it will not change again."""
    os.utime(put(queue, 1), (1, 1))
    queue.source.note_changed(None)
    with monkeypatch.context() as patch:
        patch.setattr(task_files, "read_json", _no_files)
        assert queue.count_ready() == 0
        assert queue.source.unreadable == []
        assert queue.unsettled
    assert queue.count_ready() == 1


def test_a_lock_that_cannot_be_made_is_an_error_of_ours(
    queue: TaskQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: let the system error through; the daemon stopped there, and its agents kept running."""
    put(queue, 1)
    queue.source.note_changed(None)
    found = taken(queue)
    assert found is not None
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(task_files, "_make", lambda path: (_ for _ in ()).throw(full))
    with pytest.raises(tools.DiskFull, match="cannot lock task 1"):
        queue.source.release(found[1], "the daemon was stopped")


def _no_files(*_: object) -> None:
    raise OSError(errno.EMFILE, "Too many open files")
