"""Every list starts at number 1: a task is identified by list and number, in the ledger as for people."""

import json
from typing import Any

import pytest

from llmc.base.names import TaskId, TaskKey
from llmc.repo.project import open_project
from llmc.tasks import task_orders
from llmc.tasks.source import source_of
from tests.support import auto
from tests.support.auto import Daemon, add, commit, set_up, task_dir
from tests.support.fleet import Fleet
from tests.support.plans import tasks_of


def attention(fleet: Fleet) -> list[dict[str, Any]]:
    return list(fleet.llmc("status", "--json").json["attention"])


def states(fleet: Fleet) -> dict[str, str]:
    return {row["id"]: row["state"] for row in fleet.llmc("tasks", "list", "--json", code=None).json["tasks"]}


def edit(fleet: Fleet, number: int, **fields: Any) -> None:
    path = task_dir(fleet) / f"{number}.json"
    path.with_suffix(".new").write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    path.with_suffix(".new").rename(path)


@pytest.mark.soak
def test_a_new_list_has_the_numbers_of_an_old_one(scripted: Fleet) -> None:
    """Break: key the ledger by number alone; the tasks of the new list are `completed` with no work done."""
    fleet = set_up(scripted)
    add(fleet, 1)
    add(fleet, 2)
    daemon = Daemon(fleet)
    auto.wait_completed(fleet, 2)
    daemon.stop()
    fleet.llmc("config", "set", "auto.task_list_id", "other")
    (fleet.dir / "tasks/other").mkdir()
    for number in (1, 2):
        task = {**tasks_of(fleet)[str(number)], "status": "pending", "description": commit(10 + number)}
        (fleet.dir / f"tasks/other/{number}.json").write_text(json.dumps({**task, "metadata": {}}))
    assert states(fleet) == {"1": "ready", "2": "ready"}
    daemon = Daemon(fleet)
    auto.wait_completed(fleet, 4)
    assert sorted(auto.landed(fleet)) == [1, 2, 11, 12]
    lists = [(row["task_list"], row["task_id"]) for row in fleet.events("task_completed")]
    assert sorted(lists) == [("other", "1"), ("other", "2"), ("plan", "1"), ("plan", "2")]
    daemon.stop()
    fleet.llmc("config", "set", "auto.task_list_id", "plan")
    assert states(fleet) == {"1": "completed", "2": "completed"}


def test_a_ledger_of_an_older_llmc_is_about_the_list_of_that_time(scripted: Fleet) -> None:
    """Break: read rows without a list as the current list's; after a change they belong to another one."""
    fleet = set_up(scripted)
    for number in (1, 2):
        add(fleet, number)
    rows = [
        {"ts": 1.0, "action": "claimed", "task": "1", "worker": "auto-1", "claim": "c1", "subject": "Do 1"},
        {
            "ts": 2.0,
            "action": "completed",
            "task": "1",
            "worker": "auto-1",
            "claim": "c1",
            "commit": "c0ffee",
        },
    ]
    edit(fleet, 1, status="completed")
    ledger = fleet.root / ".llmc/tasks.jsonl"
    ledger.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert states(fleet) == {"1": "completed", "2": "ready"}
    fleet.llmc("config", "set", "auto.task_list_id", "other")
    (fleet.dir / "tasks/other").mkdir()
    other = {**tasks_of(fleet)["1"], "status": "pending"}
    (fleet.dir / "tasks/other/1.json").write_text(json.dumps(other))
    assert states(fleet) == {"1": "ready"}
    assert [json.loads(line).get("list") for line in ledger.read_text().splitlines()] == [None, None, "plan"]


def test_config_set_is_the_first_that_a_new_llmc_does(scripted: Fleet) -> None:
    """Break: leave `name_old_tasks` out of `config set`: the old rows would become the new list's."""
    fleet = set_up(scripted)
    row = {
        "ts": 2.0,
        "action": "completed",
        "task": "1",
        "worker": "auto-1",
        "claim": "c1",
        "commit": "c0ffee",
    }
    (fleet.root / ".llmc/tasks.jsonl").write_text(f"{json.dumps(row)}\n")
    fleet.llmc("config", "set", "auto.task_list_id", "other")
    books = source_of(open_project(str(fleet.root))).books()
    assert books.completed == {"plan": {"1"}}


@pytest.mark.soak
def test_a_pending_file_under_a_completed_number_is_a_question(scripted: Fleet) -> None:
    """One is done again, and one is left as it is.

    Break: let ClaudeTasks.settle rewrite every file that the ledger has as completed.
    """
    fleet = set_up(scripted)
    for number in (1, 2):
        add(fleet, number)
    daemon = Daemon(fleet)
    auto.wait_completed(fleet, 2)
    daemon.stop()
    for number in (1, 2):
        edit(fleet, number, status="pending", description=commit(8 + number))
    add(fleet, 3, after=(1, 2))
    daemon = Daemon(fleet)
    auto.wait_completed(fleet, 3)  # tasks that waited for them continue: their work has landed
    auto.wait_for(fleet, lambda: len(auto.state(fleet)["attention"]) == 2)
    for number, item in zip(
        ("1", "2"), sorted(attention(fleet), key=lambda row: str(row["who"])), strict=True
    ):
        wanted = ("task_question", number, f"llmc tasks requeue {number}")
        assert (item["kind"], item["who"], item["next"]) == wanted
        assert f"llmc tasks done {number}" in item["text"]
        assert (tasks_of(fleet)[number]["status"], states(fleet)[number]) == ("pending", "question")
    assert fleet.llmc("tasks", "done", "2").out.endswith(" 2: Do 2\n")
    assert fleet.llmc("tasks", "requeue", "1").out.endswith(" 1: Do 1\n")
    auto.wait_completed(fleet, 4)
    auto.wait_for(fleet, lambda: not auto.state(fleet)["attention"])
    assert set(states(fleet).values()) == {"completed"}
    assert attention(fleet) == []
    assert auto.landed(fleet) == [1, 2, 3, 9], "what was requeued has landed, and what was left has not"
    daemon.stop()


def test_a_crash_between_ledger_and_file_is_no_question(scripted: Fleet) -> None:
    """Break: ask about files with our own claim, too."""
    fleet = set_up(scripted)
    add(fleet, 1)
    daemon = Daemon(fleet, LLMC_FAULT="claim.complete:after:kill")
    daemon.ends()
    assert tasks_of(fleet)["1"]["status"] == "in_progress"
    daemon = Daemon(fleet)
    auto.wait_for(fleet, lambda: tasks_of(fleet)["1"]["status"] == "completed")
    assert attention(fleet) == []
    daemon.stop()


def test_a_task_whose_work_is_undone_is_taken_back(scripted: Fleet) -> None:
    """Break: write `requeued` for a deleted file: the tasks that wait for it could never start."""
    fleet = set_up(scripted)
    for number in (1, 2):
        add(fleet, number)
    daemon = Daemon(fleet)
    auto.wait_completed(fleet, 2)
    daemon.stop()
    project = open_project(str(fleet.root))
    commits = {row["task_id"]: row["commit"] for row in fleet.events("task_completed")}
    books = source_of(project).books()
    task = books.landed_as(commits["1"])
    assert task == TaskKey("plan", TaskId("1"))
    for _ in range(2):  # the second is the one after a crash
        back = task_orders.take_back(project, task, "its work was undone")
        assert back is not None
        assert (back.status, back.owner) == ("pending", "")
    assert not source_of(project).books().is_completed(task)
    assert task_orders.pending_again(project, commits["1"]) == ("1", "task 1 is pending again"), (
        "as after a crash"
    )
    assert task_orders.pending_again(project, "0" * 40) == ("", "")
    assert states(fleet) == {"1": "ready", "2": "completed"}
    assert books.landed_as("0" * 40) is None
    (task_dir(fleet) / "2.json").unlink()
    two = TaskKey("plan", TaskId("2"))
    assert task_orders.take_back(project, two, "its work was undone") is None
    assert "its file no longer exists" in task_orders.pending_again(project, commits["2"])[1]
    assert source_of(project).books().is_completed(two)
    # It was started again since: its new worker keeps it.
    taken = source_of(project).claim(task, "auto-1", "Do 1")
    assert taken is not None
    again = task_orders.take_back(project, task, "its work was undone")
    assert again is not None
    assert again.claim == taken.id
