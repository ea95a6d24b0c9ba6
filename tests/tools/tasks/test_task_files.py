"""The client's task list: its locks, its numbers, and everything in a file that llmc does not know."""

import json
import multiprocessing
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from llmc.agents.claude import task_files
from llmc.agents.claude.layout import list_name
from llmc.agents.claude.task_files import TaskFiles, file_name
from llmc.base.errors import LlmcError, LockTimeout, NotFound
from llmc.base.flocks import try_lock
from llmc.base.names import TaskId
from llmc.records.task import Task, TaskStatus

if TYPE_CHECKING:
    from multiprocessing.queues import Queue
    from multiprocessing.synchronize import Barrier

ADDED = Task(TaskId(""), "S", "D", TaskStatus.PENDING)
NEW: dict[str, Any] = {"subject": "S", "description": "D", "status": "pending", "blocks": [], "blockedBy": []}


@pytest.fixture
def files(tmp_path: Path) -> TaskFiles:
    return TaskFiles(tmp_path / "list")


def put(files: TaskFiles, task_id: str, text: str | None = None, *, age_s: float = 60, **fields: Any) -> Path:
    """A file written by another program, a while ago."""
    files.directory.mkdir(exist_ok=True)
    path = files.directory / f"{task_id}.json"
    path.write_text(json.dumps({**NEW, "id": task_id, **fields}) if text is None else text)
    then = time.time() - age_s
    os.utime(path, (then, then))
    return path


def done(task: Task) -> Task:
    return replace(task, status=TaskStatus.COMPLETED)


def test_the_directory_of_a_list() -> None:
    assert list_name("demo list/1") == "demo-list-1"


def test_numbers_go_on_after_files_and_after_what_the_client_removed(files: TaskFiles) -> None:
    """Break: check only the files; a number is reused after the client wiped the list."""
    assert files.listing().tasks == {}
    assert files.create(ADDED).id == "1"
    put(files, "12")
    put(files, "notes")
    assert files.create(ADDED).id == "13"
    (files.directory / ".highwatermark").write_text("40")
    assert files.create(ADDED).id == "41"
    assert json.loads((files.directory / "41.json").read_text()) == {"id": "41", **NEW, "metadata": {}}
    assert not [name for name in os.listdir(files.directory) if "tmp" in name or name.endswith(".lock.lock")]


def test_a_highest_number_that_cannot_be_read_gives_no_old_number(files: TaskFiles) -> None:
    """Break: take it for 0 after any OSError: a new task gets a number that the client gave to another."""
    put(files, "1")
    mark = files.directory / ".highwatermark"
    mark.mkdir()
    with pytest.raises(LlmcError, match=r"cannot read .*highwatermark"):
        files.create(ADDED)
    mark.rmdir()
    assert files.create(ADDED).id == "2"


def test_two_llmc_exclude_each_other_without_the_clients_lock(
    files: TaskFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: take llmc's own lock shared; the client's lock would hide it, until a client steals a stale one."""
    monkeypatch.setattr(task_files, "_make", lambda _: True)
    put(files, "1")
    inside, go, blocked = threading.Event(), threading.Event(), threading.Event()
    order: list[str] = []

    def watched(fd: int) -> bool:
        got = try_lock(fd)
        if not got:
            blocked.set()
        return got

    def slow(task: Task) -> Task:
        inside.set()
        go.wait(10)
        order.append("slow")
        return task

    def quick(task: Task) -> Task:
        order.append("quick")
        blocked.set()
        return task

    monkeypatch.setattr(task_files, "try_lock", watched)
    threads = [threading.Thread(target=files.change, args=("1", edit)) for edit in (slow, quick)]
    threads[0].start()
    assert inside.wait(10)
    threads[1].start()
    assert blocked.wait(10)
    go.set()
    for thread in threads:
        thread.join()
    assert order == ["slow", "quick"]


@pytest.mark.req("4-008")
def test_what_llmc_does_not_know_survives(files: TaskFiles) -> None:
    """Break: write only the fields of Task."""
    path = put(
        files, "3", activeForm="Doing", future={"a": [1]}, metadata={"other": 1, "llmc": {"verify": "x"}}
    )
    assert files.change("3", done).status is TaskStatus.COMPLETED
    raw = json.loads(path.read_text())
    assert raw["future"] == {"a": [1]}
    assert raw["activeForm"] == "Doing"
    assert raw["metadata"] == {"other": 1, "llmc": {"verify": "x"}}


def test_an_edit_that_makes_no_task_changes_nothing(files: TaskFiles) -> None:
    path = put(files, "3")
    before = path.read_text()
    with pytest.raises(LlmcError, match=r"`metadata\.label` is 'a b'"):
        files.change("3", lambda task: replace(task, metadata={"label": "a b"}))
    files.change("3", lambda _: None)
    assert path.read_text() == before
    assert not (files.directory / "3.json.lock").exists()
    with pytest.raises(NotFound):
        files.change("4", done)


def test_the_clients_lock_is_waited_for(files: TaskFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: write without the client's lock; its update of the same moment is lost."""
    put(files, "3")
    lock = files.directory / "3.json.lock"
    lock.mkdir()
    changed = threading.Thread(target=files.change, args=("3", done))
    changed.start()
    assert files.get("3").status is TaskStatus.PENDING
    raw = json.loads((files.directory / "3.json").read_text())
    (files.directory / "3.json").write_text(json.dumps({**raw, "subject": "by the client"}))
    lock.rmdir()
    changed.join(10)
    found = files.get("3")
    assert (found.status, found.subject) == (TaskStatus.COMPLETED, "by the client")
    monkeypatch.setattr(task_files, "LOCK_WAIT_S", 0.1)
    lock.mkdir()
    with pytest.raises(LockTimeout, match="task 3 has been locked by Claude Code"):
        files.change("3", done)
    assert lock.exists()


def test_a_lock_left_behind_is_taken_over(files: TaskFiles) -> None:
    put(files, "3")
    lock = files.directory / "3.json.lock"
    lock.mkdir()
    then = time.time() - task_files.STALE_S - 1
    os.utime(lock, (then, then))
    assert files.change("3", done).status is TaskStatus.COMPLETED
    assert sorted(os.listdir(files.directory)) == [".llmc.lock", "3.json"]


def test_only_what_changed_is_read_again(files: TaskFiles) -> None:
    """Break: leave the stamp out of `_read_changed`."""
    for number in range(1, 30):
        put(files, str(number))
    first = files.listing().tasks
    assert list(first) == [str(number) for number in range(1, 30)]
    put(files, "7", subject="new")
    (files.directory / "8.json").unlink()
    second = files.listing().tasks
    assert second.keys() == first.keys() - {"8"}
    assert [task_id for task_id, task in second.items() if task is not first[task_id]] == ["7"]
    put(files, "9", subject="newer", age_s=50)
    (files.directory / "10.json").unlink()
    third = files.listing(["9.json", "10.json", "9.json.lock"]).tasks
    assert third.keys() == second.keys() - {"10"}
    assert [task_id for task_id, task in third.items() if task is not second[task_id]] == ["9"]


@pytest.mark.req("4-020", "4-041")
def test_changes_are_told_once_whoever_looked(files: TaskFiles) -> None:
    """Break: report only what `changes` itself found; a listing in between would hide it."""
    put(files, "1")
    put(files, "2")
    assert set(files.changes().tasks) == {"1", "2"}
    assert files.changes().tasks == {}
    put(files, "1", age_s=30, status="completed")
    (files.directory / "2.json").unlink()
    files.listing()
    found = files.changes([]).tasks
    assert found[TaskId("2")] is None
    assert found[TaskId("1")] == files.get("1")
    assert files.changes(["1.json"]).tasks == {}


def test_a_file_that_is_no_task_is_said_once_it_has_settled(files: TaskFiles) -> None:
    """Break: report a file that is being written as unreadable."""
    put(files, "1")
    put(files, "2", '{"id": "2", "sub', age_s=0)
    (files.directory / ".hidden.json").write_text("{")
    (files.directory / "notes.txt").write_text("{")
    assert files.listing().unreadable == []
    put(files, "2", '{"id": "2", "sub')
    found = files.listing()
    assert [(bad.file, "invalid JSON" in bad.problem) for bad in found.unreadable] == [("2.json", True)]
    assert list(found.tasks) == ["1"]
    put(files, "2", age_s=30)
    assert files.listing().unreadable == []


def test_half_a_write_does_not_hide_the_task(files: TaskFiles) -> None:
    put(files, "2")
    before = files.listing().tasks
    put(files, "2", '{"id": "2", "sub', age_s=0)
    assert files.listing().tasks == before


ROUNDS = 250


def claim_all(directory: Path, name: str, meet: "Barrier", won: "Queue[tuple[str, list[str]]]") -> None:
    """Claim one task after another, each at the same moment as the other process; returns the ids won."""
    files = TaskFiles(directory)
    mine = []
    for number in range(1, ROUNDS + 1):
        meet.wait(30)

        def take(task: Task) -> Task | None:
            return None if task.owner else replace(task.with_ours(claim=name), owner="auto-1")

        if files.change(str(number), take).claim == name:
            mine.append(str(number))
    won.put((name, mine))


@pytest.mark.req("4-042", "4-044")
def test_two_processes_never_both_win(files: TaskFiles) -> None:
    """Break: leave `_ours` out and treat the client's locks as stale immediately."""
    for number in range(1, ROUNDS + 1):
        put(files, str(number))
    spawn = multiprocessing.get_context("spawn")
    meet, results = spawn.Barrier(2), spawn.Queue()
    claimers = [spawn.Process(target=claim_all, args=(files.directory, name, meet, results)) for name in "ab"]
    for claimer in claimers:
        claimer.start()
    won = dict(results.get(timeout=60) for _ in claimers)
    for claimer in claimers:
        claimer.join()
    assert sorted(won["a"] + won["b"], key=int) == [str(number) for number in range(1, ROUNDS + 1)]
    assert all(won.values())
    assert {files.get(task_id).claim for task_id in won["a"]} == {"a"}
    assert not list(files.directory.glob("*.json.lock"))


@pytest.mark.parametrize(
    "task_id", ["../../x", "/etc/x", "..", ".", "", "a/b", "a\0b", "\x1b[2J", "x" * 300, "\udcff", ".lock"]
)
def test_an_id_that_can_be_no_file_of_the_list(files: TaskFiles, tmp_path: Path, task_id: str) -> None:
    """Break: build a path from an id before it is checked: a lock elsewhere would look stale."""
    files = TaskFiles(tmp_path / "lists/list")
    files.directory.parent.mkdir()
    put(files, "1")
    (tmp_path / "x.json.lock").mkdir()
    os.utime(tmp_path / "x.json.lock", (1, 1))
    for act in (files.get, lambda i: files.change(i, done), file_name):
        with pytest.raises(NotFound, match="no task"):
            act(task_id)
    assert files.remove(task_id, lambda task: True), "a missing task is gone"
    assert sorted(os.listdir(tmp_path)) == ["lists", "x.json.lock"]
    assert set(os.listdir(files.directory)) <= {"1.json", ".llmc.lock"}


def test_files_that_are_no_tasks_are_named_and_the_others_are_read(files: TaskFiles) -> None:
    """Break: read with json.loads alone, open what blocks, or leave out files with odd names."""
    put(files, "1")
    os.mkfifo(files.directory / "2.json")
    (files.directory / "3.json").mkdir()
    (files.directory / "4.json").symlink_to("/dev/zero")
    (files.directory / "41.json").symlink_to("nowhere")
    with (files.directory / "5.json").open("wb") as file:
        file.truncate(1 << 30)
    put(files, "6", "[" * 10_000)
    put(files, "7", json.dumps({**NEW, "id": "7", "metadata": {"priority": float("nan")}}))
    put(files, "8", blockedBy=["../../etc/passwd"])
    put(files, "9", metadata={"llmc": {"verify": "true\0; rm -rf /"}})
    put(files, "\x1b[2J")
    put(files, "9" * 20, subject="long")
    for path in files.directory.iterdir():
        os.utime(path, (1, 1), follow_symlinks=False)
    found = files.listing()
    assert set(found.tasks) == {"1", "9" * 20}
    assert {bad.file: bad.problem.partition(":")[0] for bad in found.unreadable} == {
        "2.json": "not a regular file",
        "3.json": "not a regular file",
        "4.json": "Too many levels of symbolic links",
        "41.json": "Too many levels of symbolic links",
        "5.json": "larger than 8 MB",
        "6.json": "nested too deeply",
        "7.json": "NaN is not valid in JSON",
        "8.json": "`blockedBy` contains '../../etc/passwd', which is not a valid task ID",
        "9.json": "`metadata.llmc.verify` contains a control character",
        "'\\x1b[2J.json'": "the file name is not a valid task ID",
    }
    assert {bad.file for bad in files.unreadable} == {bad.file for bad in found.unreadable}, (
        "known after any check"
    )
    assert files.create(ADDED).id == "42", "no number without room for the next"


def test_half_a_character_survives_a_claim(files: TaskFiles) -> None:
    """A cut emoji is valid JSON.

    Break: pass it on as it is: the file, ledger and state could not be written.
    """
    put(files, "1", json.dumps({**NEW, "id": "1", "subject": "Cut \ud83d"}))
    assert files.get("1").subject == "Cut \\ud83d"
    assert files.change("1", done).status is TaskStatus.COMPLETED
    assert json.loads((files.directory / "1.json").read_bytes())["subject"] == "Cut \\ud83d"


def test_two_processes_of_llmc_are_never_in_at_once(
    files: TaskFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old client lock of a task can be taken over. Break: use a shared lock in `try_lock`."""
    put(files, "1")
    put(files, "2")
    monkeypatch.setattr(task_files, "LOCK_WAIT_S", 0.2)
    entered, leave = threading.Event(), threading.Event()

    def slow(_: Task) -> None:
        entered.set()
        assert leave.wait(10)

    holder = threading.Thread(target=lambda: TaskFiles(files.directory).change("1", slow))
    holder.start()
    try:
        assert entered.wait(10)
        with pytest.raises(LockTimeout, match="locked by another llmc"):
            TaskFiles(files.directory).change("2", done)
    finally:
        leave.set()
        holder.join(10)
    assert files.change("2", done).status is TaskStatus.COMPLETED
