"""The ledger of tasks, and what follows from it."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from llmc.agents.claude.task_files import TaskFiles
from llmc.base.files import DiskFull
from llmc.base.given import MOST_LINE
from llmc.base.names import TaskId, TaskKey
from llmc.records import task_ledger as ledger_file
from llmc.records.books import Action, Books, Claim, entry, fold, hopeless, name_the_unnamed
from llmc.records.task import Task, TaskStatus
from llmc.records.task_ledger import TaskLedger
from llmc.tasks.claude_files import ClaudeTasks
from llmc.tasks.task_list import _held


def claim(number: int, task: str = "7", worker: str = "auto-1") -> Claim:
    return Claim(f"c{number}", key(task), worker)


def key(task: str, list_name: str = "list") -> TaskKey:
    return TaskKey(list_name, TaskId(task))


def test_the_life_of_a_task() -> None:
    """Break: count `released` as a failure, or forget failures when a claim ends."""
    rows = [
        entry("claimed", claim(1), 1),
        entry("failed", claim(1), 2, cause="crash", reason="code 7"),
        entry("claimed", claim(2), 3),
        entry("released", claim(2), 4, reason="shutdown"),
        entry("claimed", claim(3), 5),
    ]
    books = fold(Books(), rows)
    assert books.claims == {"auto-1": claim(3)}
    assert [(row.cause, row.reason, row.at_unix) for row in books.failures[key("7")]] == [
        ("crash", "code 7", 2)
    ]
    fold(books, [entry("completed", claim(3), 6, commit="abc")])
    assert (books.claims, books.completed, books.failures) == ({}, {"list": {"7"}}, {})


@pytest.mark.req("4-064")
def test_three_failures_wait_for_a_person_who_can_put_it_back() -> None:
    """Break: quarantine at two, or keep the count when the user requeues it."""
    books = Books()
    for number in range(3):
        assert not books.is_quarantined(key("7"))
        fold(books, [entry("claimed", claim(number), 1), entry("failed", claim(number), 1, cause="task")])
    assert books.is_quarantined(key("7"))
    fold(books, [entry("requeued", claim(9), 2)])
    assert books.attempts(key("7")) == 0


def test_what_is_said_of_a_task_that_failed_is_what_happened() -> None:
    """Break: say "failed too often" for all: a missing model shows in one attempt, which does not count."""
    tasks, task = (
        ClaudeTasks(TaskFiles(Path("/lists/list")), TaskLedger(Path("none"))),
        Task(TaskId("7"), "Pay by card", "", TaskStatus.PENDING),
    )
    begun = entry("claimed", claim(1), 1)
    hopeless_one = entry("released", claim(1), 2, reason="there is no model 'opsu'", hold="quarantined")
    failure = entry("failed", claim(1), 2, cause="crash", reason="code 7")
    for rows, words in (
        (
            [begun, hopeless_one],
            "cannot be done as written: Pay by card (there is no model 'opsu')",
        ),
        ([begun, failure] * 3, "failed 3 times: Pay by card (code 7)"),
    ):
        (said,) = _held(tasks, fold(Books(), rows), [task]).values()
        assert said["text"] == f"task 7 {words}"
    (by_its_file,) = _held(
        tasks, Books(), [replace(task, metadata={"llmc": {"hold": "quarantined"}})]
    ).values()
    assert by_its_file["text"] == "task 7 is quarantined: Pay by card"


@pytest.mark.req("0-051")
def test_a_task_whose_agent_crashed_waits_longer_each_time() -> None:
    """Break: leave the power out of waits_s; count other failures; or wait for a time in the future."""

    def after(*causes: str) -> Books:
        rows = []
        for number, cause in enumerate(causes, 1):
            rows += [entry("claimed", claim(number), 100), entry("failed", claim(number), 100, cause=cause)]
        return fold(Books(), rows)

    assert Books().waits_s(key("7"), 10, 100) == 0
    assert [after("crash").waits_s(key("7"), 10, now) for now in (100, 104, 110, 111)] == [10, 6, 0, 0]
    assert after("crash", "crash").waits_s(key("7"), 10, 100) == 20
    assert after("task", "crash").waits_s(key("7"), 10, 100) == 10
    assert after("crash", "task").waits_s(key("7"), 10, 100) == 0, "it did not crash the last time"
    assert after("crash").waits_s(key("7"), 0, 100) == 0
    assert after("crash").waits_s(key("7"), 10, 40) == 0, "the clock was set back"
    put_back = fold(after("crash"), [entry("requeued", claim(1), 101.0)])
    assert put_back.waits_s(key("7"), 10, 101) == 0, "the user does not wait"


def test_the_end_of_an_earlier_claim_does_not_end_this_one() -> None:
    """Break: release by worker alone."""
    books = fold(Books(), [entry("claimed", claim(1), 1), entry("claimed", claim(2, "8"), 2)])
    fold(books, [entry("released", claim(1), 3), entry("failed", claim(1), 3, cause="task")])
    assert books.claims == {"auto-1": claim(2, "8")}
    assert books.attempts(key("7")) == 0


ACTIONS: list[Action] = ["claimed", "completed", "released", "failed", "requeued"]


@given(
    st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 3), st.sampled_from(["1", "2"])), max_size=30)
)
def test_reading_in_pieces_and_repeating_the_last_line_change_nothing(
    moves: list[tuple[Action, int, str]],
) -> None:
    rows = [entry(action, claim(number, task), 1, cause="task") for action, number, task in moves]
    at_once = fold(Books(), rows)
    pieces = Books()
    for row in rows:
        fold(fold(pieces, [row]), [row] if row["action"] != "requeued" else [])
    assert pieces == at_once


def test_the_file_is_read_on_and_a_torn_line_is_skipped(tmp_path: Path) -> None:
    """Break: read from the start each time; every failure would count again."""
    ledger = TaskLedger(tmp_path / "tasks.jsonl")
    assert ledger.books() == Books()
    ledger.write(entry("claimed", claim(1), 1))
    ledger.write(entry("failed", claim(1), 2, cause="crash", reason="ünï"))
    assert ledger.books().attempts(key("7")) == 1
    with (tmp_path / "tasks.jsonl").open("ab") as file:
        file.write(b'{"action": "fai\n{"action": "claimed", "task": "9", "wor')
    assert ledger.books().attempts(key("7")) == 1
    ledger.write(entry("claimed", claim(2, "8"), 3))
    assert ledger.books().claims == {"auto-1": claim(2, "8")}
    assert TaskLedger(tmp_path / "tasks.jsonl").books() == ledger.books()


def test_what_is_kept_back_says_why_until_somebody_takes_it_or_puts_it_back() -> None:
    """Break: leave `hold` out of _keep_back, or keep `kept` when it is requeued."""
    books = fold(Books(), [entry("claimed", claim(1), 1, subject="Add it")])
    fold(books, [entry("released", claim(1), 2, reason="over $5", cause="budget", hold="parked")])
    assert (books.kept_back(key("7")), books.kept[key("7")].reason) == ("parked", "over $5")
    fold(books, [entry("requeued", claim(1), 3)])
    assert books.kept_back(key("7")) == ""
    assert books.subjects == {key("7"): "Add it"}


def failed(number: int, task: str, worker: str, cause: str = "agent") -> list[dict[str, object]]:
    of = claim(number, task, worker)
    return [entry("claimed", of, 1), entry("failed", of, 2, cause=cause, reason="")]


@pytest.mark.req("0-054", "0-055")
def test_when_going_on_makes_no_sense() -> None:
    """Break: count any failure, even in another worker's streak; or forget it when the ledger is reread."""
    workers = ["auto-1", "auto-2"]
    rows = [*failed(1, "7", "auto-1"), *failed(2, "7", "auto-1"), *failed(3, "7", "auto-2")]
    assert hopeless(fold(Books(), rows), workers, "auto-2") == "", "one bad task is quarantined, and no more"
    other_cause = [*rows, *failed(4, "8", "auto-1", "crash")]
    assert hopeless(fold(Books(), other_cause), workers, "auto-1") == ""
    same = [*rows, *failed(4, "8", "auto-1")]
    assert (
        hopeless(fold(Books(), same), workers, "auto-1")
        == "tasks 7, 8 failed on auto-1 for the same reason (agent)"
    )
    everybody = [*failed(1, "7", "auto-1"), *failed(2, "8", "auto-2")]
    assert (
        hopeless(fold(Books(), everybody), workers, "auto-2")
        == "tasks failed on every worker for the same reason (agent): 7, 8"
    )
    assert hopeless(fold(Books(), everybody), [*workers, "auto-3"], "auto-2") == ""
    released = [*same, entry("claimed", claim(5, "9"), 3), entry("released", claim(5, "9"), 4)]
    assert hopeless(fold(Books(), released), workers, "auto-1"), "neither a restart nor a release resets it"
    by_another = [*same, *failed(6, "9", "auto-2", "crash")]
    assert hopeless(fold(Books(), by_another), workers, "auto-2") == "", "an old streak is not this worker's"
    done = [*same, entry("claimed", claim(5, "9"), 3), entry("completed", claim(5, "9"), 4)]
    assert hopeless(fold(Books(), done), workers, "auto-1") == ""
    of_one = [
        *failed(1, "7", "auto-1"),
        entry("claimed", claim(2, "8"), 3),
        entry("completed", claim(2, "8"), 4),
    ]
    later = [*of_one, *failed(3, "9", "auto-2"), *failed(4, "10", "auto-1")]
    assert hopeless(fold(Books(), later), workers, "auto-1") != "", "both, with nothing completed since"
    between = [*failed(1, "7", "auto-2"), *of_one[2:], *failed(4, "10", "auto-1")]
    assert hopeless(fold(Books(), between), workers, "auto-1") == "", "one was completed in between"


def test_checks_that_fail_are_the_tasks_own() -> None:
    """Break: count them as a crash: two bad tasks in a list end the night, and the good ones are never tried."""
    rows = [row for n in range(1, 5) for row in failed(n, str(n), "auto-1", "task")]
    assert hopeless(fold(Books(), rows), ["auto-1"], "auto-1") == ""
    fifth = [*rows, *failed(5, "5", "auto-1", "task")]
    assert hopeless(fold(Books(), fifth), ["auto-1"], "auto-1") == (
        "5 tasks in a row failed their checks: 1, 2, 3, 4, 5"
    )
    landed = [
        *rows,
        entry("claimed", claim(6, "6", "auto-2"), 3),
        entry("completed", claim(6, "6", "auto-2"), 4),
    ]
    again = [*landed, *failed(7, "7", "auto-1", "task")]
    assert hopeless(fold(Books(), again), ["auto-1", "auto-2"], "auto-1") == "", "another worker's work lands"


def test_a_claim_of_ours_that_ended() -> None:
    """Break: treat another root's claim, or an active one, as ended."""
    books = fold(Books(), [entry("claimed", claim(1), 1)])
    assert not books.has_ended("c1", key("7"))
    fold(books, [entry("released", claim(1), 2)])
    assert books.has_ended("c1", key("7"))
    assert not books.has_ended("of another root", key("7"))
    assert not books.has_ended("", key("9"))


def test_what_was_handed_out_does_not_change(tmp_path: Path) -> None:
    """Several threads read it. Break: fold new lines into the books that others iterate over."""
    ledger = TaskLedger(tmp_path / "tasks.jsonl")
    ledger.write(entry("claimed", claim(1), 1))
    before = ledger.books()
    ledger.write(entry("failed", claim(1), 2, cause="crash", reason=""))
    ledger.write(entry("claimed", claim(2, "8", "auto-2"), 3))
    assert ledger.books().attempts(key("7")) == 1
    assert (before.claims, before.failures, before.streaks) == ({"auto-1": claim(1)}, {}, {})
    assert ledger.books() is ledger.books()


@pytest.mark.req("0-054")
def test_a_part_of_a_goal_that_is_tried_again_as_another_task_is_one_piece_of_work() -> None:
    """Break: count tasks in `_pieces`; one bad plan item would end auto mode before the user is asked."""

    def tried(number: int, task: str, worker: str, part: str) -> list[dict[str, object]]:
        claimed, lost = failed(number, task, worker)
        return [{**claimed, "part": part}, lost]

    workers = ["auto-1", "auto-2"]
    again = [*tried(1, "7", "auto-1", "goal_1/S1.1.1"), *tried(2, "8", "auto-1", "goal_1/S1.1.1")]
    everywhere = [*again, *tried(3, "9", "auto-2", "goal_1/S1.1.1")]
    assert hopeless(fold(Books(), again), workers, "auto-1") == ""
    assert hopeless(fold(Books(), everywhere).copy(), workers, "auto-2") == ""
    other = [*again, *tried(3, "9", "auto-1", "goal_1/S1.1.2")]
    assert "tasks 7, 8, 9 failed" in hopeless(fold(Books(), other), workers, "auto-1")


def unnamed(action: Action, number: int, **more: object) -> dict[str, object]:
    """A row of an older llmc."""
    return {name: value for name, value in entry(action, claim(number), 1, **more).items() if name != "list"}


def test_rows_without_a_list_are_of_the_one_that_was_named_first(tmp_path: Path) -> None:
    """Break: let a later name, or a later configuration, move them to another list."""
    ledger = TaskLedger(tmp_path / "tasks.jsonl", list_name="old")
    failed_once = (
        unnamed("claimed", 1, subject="S", dispatch="D", part="p"),
        unnamed("failed", 1, cause="task", reason="r"),
    )
    for row in (
        *failed_once,
        unnamed("claimed", 2),
        unnamed("completed", 2, commit="c0ffee"),
        unnamed("claimed", 3),
    ):
        ledger.write(row)
    books = ledger.books()
    seven = key("7", "old")
    assert (books.unnamed, books.completed, books.claims) == (
        "old",
        {"old": {"7"}},
        {"auto-1": Claim("c3", seven, "auto-1")},
    )
    assert (books.dispatches, books.parts, books.subjects) == ({"D": seven}, {seven: "p"}, {seven: "S"})
    assert (books.latest, books.landed_as("c0ffee")) == ({seven: "c3"}, seven)
    later = TaskLedger(tmp_path / "tasks.jsonl", list_name="new")
    later.write(name_the_unnamed("new", 9) | {"worker": "", "task": ""})
    later.write(unnamed("requeued", 4))
    assert (later.books().unnamed, later.books().completed) == ("old", {"old": set()})
    assert TaskLedger(tmp_path / "tasks.jsonl").books() == later.books()
    assert later.books().is_completed(key("7", "")) is False


def test_a_ledger_that_cannot_be_written_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break: let the reader fail where the name of the old rows cannot be written."""
    TaskLedger(tmp_path / "tasks.jsonl").write(unnamed("completed", 2, commit=""))

    def full(*_: object, **__: object) -> None:
        raise DiskFull("the disk is full")

    monkeypatch.setattr(ledger_file, "append_line", full)
    assert TaskLedger(tmp_path / "tasks.jsonl", list_name="old").books().completed == {"old": {"7"}}


def test_a_line_of_any_length_is_passed_over(tmp_path: Path) -> None:
    """Break: treat the rest of a too long line as a row, or stop there."""
    path = tmp_path / "tasks.jsonl"
    row = json.dumps(entry("completed", claim(1), 1, commit="")).encode()
    inside = json.dumps(entry("completed", claim(1, "8"), 1, commit="")).encode()
    path.write_bytes(b"x" * MOST_LINE + inside + b"\n" + row + b"\n" + b"y" * (2 * MOST_LINE))
    ledger = TaskLedger(path)
    assert ledger.books().completed == {"list": {"7"}}
    ledger.write(entry("completed", claim(1, "9"), 1, commit=""))
    assert ledger.books().completed == {"list": {"7", "9"}}
