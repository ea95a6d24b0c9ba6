"""Claims on real task files: what a crash leaves between the ledger and the file is fixed."""

from functools import partial
from pathlib import Path

from msgspec.structs import replace

from llmc.agents.claude.task_files import TaskFiles
from llmc.base.names import TaskId
from llmc.records.books import entry
from llmc.records.task import TaskStatus
from llmc.records.task_ledger import TaskLedger
from llmc.tasks.claude_files import ClaudeTasks
from llmc.tasks.rules.claims import set_by_user
from llmc.tasks.rules.draft import Draft, new_task


def test_a_give_back_that_was_cut_short_is_finished(tmp_path: Path) -> None:
    """Break: leave what `has_ended` out of ClaudeTasks.settle, or the hold."""
    files, ledger = TaskFiles(tmp_path / "list"), TaskLedger(tmp_path / "tasks.jsonl")
    tasks = ClaudeTasks(files, ledger)
    for subject in ("One", "Two", "Three"):
        files.create(new_task(Draft(subject), TaskId))
    first = tasks.claim(files.key("1"), "auto-1", "One")
    second = tasks.claim(files.key("2"), "auto-2", "Two")
    assert first is not None
    assert second is not None
    ledger.write(entry("released", first, 1.0, reason="over $5", cause="budget", hold="parked"))
    files.change("3", lambda task: replace(task, status=TaskStatus.IN_PROGRESS, owner="a person"))

    assert tasks.settle() == [files.key("1")]
    one, two, three = files.get("1"), files.get("2"), files.get("3")
    assert (one.status, one.owner, one.claim, one.waits_for_a_person) == (
        TaskStatus.PENDING,
        "",
        "",
        "parked",
    )
    assert (two.owner, two.claim) == ("auto-2", second.id)
    assert three.owner == "a person"
    assert tasks.claim(files.key("1"), "auto-1", "One") is None, "it waits for the user"


def test_what_somebody_took_meanwhile_is_not_freed(tmp_path: Path) -> None:
    """Break: let claims.set_by_user ignore what was seen."""
    files, ledger = TaskFiles(tmp_path / "list"), TaskLedger(tmp_path / "tasks.jsonl")
    tasks = ClaudeTasks(files, ledger)
    seen = files.create(new_task(Draft("One"), TaskId))
    assert tasks.claim(files.key(seen.id), "auto-1", "One")
    assert files.change("1", partial(set_by_user, seen=seen)).owner == "auto-1"
    assert files.change("1", partial(set_by_user, seen=files.get("1"))).owner == ""


def test_the_end_of_a_claim_is_written_into_the_list_that_it_is_from(tmp_path: Path) -> None:
    """Another list was configured since. Break: change the task of that number in the current list."""
    old, new = TaskFiles(tmp_path / "old"), TaskFiles(tmp_path / "new")
    ledger = TaskLedger(tmp_path / "tasks.jsonl")
    tasks = ClaudeTasks(old, ledger)
    for files in (old, new):
        for subject in ("One", "Two"):
            files.create(new_task(Draft(subject), TaskId))
    first = tasks.claim(old.key("1"), "auto-1", "One")
    second = tasks.claim(old.key("2"), "auto-2", "Two")
    assert first is not None
    assert second is not None
    for number, claim in (
        ("1", first),
        ("2", second),
    ):  # a client of that list has lost its own worker's claim
        had = partial(replace, status=TaskStatus.IN_PROGRESS, owner=claim.worker)
        new.change(number, had)
    configured_since = ClaudeTasks(new, ledger)
    configured_since.finish(first, "c0ffee")
    configured_since.release(second, "stopped")
    assert [old.get(number).status for number in ("1", "2")] == [TaskStatus.COMPLETED, TaskStatus.PENDING]
    assert [new.get(number).status for number in ("1", "2")] == [TaskStatus.IN_PROGRESS] * 2
    books = ledger.books()
    assert (books.completed_in("old"), books.completed_in("new")) == ({"1"}, set())
