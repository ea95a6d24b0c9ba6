"""Claims on real task files: what a crash between the ledger and the file leaves is put right."""

from functools import partial
from pathlib import Path

from llmc.agents.claude.task_files import TaskFiles
from llmc.base.names import TaskId
from llmc.records.books import entry
from llmc.records.ledger import Ledger
from llmc.records.task import TaskStatus
from llmc.tasks import queue
from llmc.tasks.rules.claims import freed
from llmc.tasks.rules.draft import Draft, fields


def test_a_give_back_that_was_cut_short_is_finished(tmp_path: Path) -> None:
    """Break: leave what `has_ended` out of claims.settle_files, or the hold."""
    files, ledger = TaskFiles(tmp_path / "list"), Ledger(tmp_path / "tasks.jsonl")
    for subject in ("One", "Two", "Three"):
        files.create(fields(Draft(subject), TaskId))
    first = queue.take(files, ledger, "auto-1", files.key("1"), "One")
    second = queue.take(files, ledger, "auto-2", files.key("2"), "Two")
    assert first is not None
    assert second is not None
    ledger.write(entry("released", first, 1.0, reason="over $5", cause="budget", hold="parked"))
    persons = {"status": "in_progress", "owner": "a person"}
    files.change("3", lambda task, raw: {**raw, **persons})

    assert queue.settle_files(files, ledger.books()) == [files.key("1")]
    one, two, three = files.get("1"), files.get("2"), files.get("3")
    assert (one.status, one.owner, one.claim, one.waits_for_a_person) == (
        TaskStatus.PENDING,
        "",
        "",
        "parked",
    )
    assert (two.owner, two.claim) == ("auto-2", second.id)
    assert three.owner == "a person"
    assert queue.take(files, ledger, "auto-1", files.key("1"), "One") is None, "it waits for a person"


def test_what_somebody_took_meanwhile_is_not_freed(tmp_path: Path) -> None:
    """Break: let claims.freed ignore what was seen."""
    files, ledger = TaskFiles(tmp_path / "list"), Ledger(tmp_path / "tasks.jsonl")
    seen = files.create(fields(Draft("One"), TaskId))
    assert queue.take(files, ledger, "auto-1", files.key(seen.id), "One")
    assert files.change("1", partial(freed, seen=seen)).owner == "auto-1"
    assert files.change("1", partial(freed, seen=files.get("1"))).owner == ""


def test_the_end_of_a_claim_is_written_into_the_list_that_it_is_from(tmp_path: Path) -> None:
    """Another list was configured meanwhile. Break: change the task of that number in the list at hand."""
    old, new = TaskFiles(tmp_path / "old"), TaskFiles(tmp_path / "new")
    ledger = Ledger(tmp_path / "tasks.jsonl")
    for files in (old, new):
        for subject in ("One", "Two"):
            files.create(fields(Draft(subject), TaskId))
    first = queue.take(old, ledger, "auto-1", old.key("1"), "One")
    second = queue.take(old, ledger, "auto-2", old.key("2"), "Two")
    assert first is not None
    assert second is not None
    for number, claim in (
        ("1", first),
        ("2", second),
    ):  # a client of that list has lost the claim of its own worker
        new.change(
            number, lambda _, raw, claim=claim: {**raw, "status": "in_progress", "owner": claim.worker}
        )  # type: ignore[misc]
    queue.complete(new, ledger, first, "c0ffee")
    queue.give_back(new, ledger, second, "stopped")
    assert [old.get(number).status for number in ("1", "2")] == [TaskStatus.COMPLETED, TaskStatus.PENDING]
    assert [new.get(number).status for number in ("1", "2")] == [TaskStatus.IN_PROGRESS] * 2
    books = ledger.books()
    assert (books.completed_in("old"), books.completed_in("new")) == ({"1"}, set())
