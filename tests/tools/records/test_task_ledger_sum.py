"""The sum beside the ledger: it saves adding up, and always agrees with the ledger."""

import json
import os
from pathlib import Path

import pytest

from llmc.records import task_ledger
from llmc.records.books import Books
from llmc.records.task_ledger import TaskLedger


def rows(first: int, last: int) -> str:
    made = []
    for number in range(first, last):
        same = {"task": str(number), "list": "plan", "worker": "adam", "claim": f"c{number}"}
        made.append({"ts": float(number), "action": "claimed", **same, "subject": f"Täsk {number}"})
        made.append({"ts": float(number), "action": "completed", **same, "commit": f"{number:040x}"})
    return "".join(json.dumps(row) + "\n" for row in made)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text(rows(1, 500))
    return path


def added_up(path: Path) -> Books:
    """Without the sum."""
    other = path.with_name("copy.jsonl")
    other.write_bytes(path.read_bytes())
    return TaskLedger(other, None, "plan").books()


def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    read: list[bytes] = []
    real = task_ledger.json_row
    monkeypatch.setattr(task_ledger, "json_row", lambda line: (read.append(line), real(line))[1])
    return read


def test_what_was_added_up_is_not_read_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: leave `_begin_with_sum` out: every command reads every row ever written."""
    before = TaskLedger(path, None, "plan").books()
    with path.open("a") as file:
        file.write(rows(500, 510))
    read = parsed(monkeypatch)
    books = TaskLedger(path, None, "plan").books()
    assert len(read) == 20
    assert books == added_up(path)
    assert len(books.completed["plan"]) == len(before.completed["plan"]) + 10


@pytest.mark.parametrize("how", ["replaced", "rewritten", "shorter", "rules", "damaged", "other version"])
def test_a_sum_of_something_else_is_not_believed(
    path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Break: leave inode, tail or rules out of the comparison."""
    TaskLedger(path, None, "plan").books()
    kept = path.with_suffix(".books")
    assert kept.stat().st_mode & 0o077 == 0
    match how:
        case "replaced":  # as doctor does, or an editor
            path.with_name("new").write_text(rows(1, 500).replace('"completed"', '"released"', 1))
            os.replace(path.with_name("new"), path)
        case "rewritten":
            path.write_text(rows(1001, 1500))
        case "shorter":
            with path.open("r+") as file:
                file.truncate(len(rows(1, 100).encode()))
        case "rules":
            monkeypatch.setattr(task_ledger, "_rules", lambda: "another llmc")
        case "damaged":
            kept.write_bytes(kept.read_bytes()[:-7])
        case _:
            kept.write_bytes(b"\x81\xa1a\x01")
    assert TaskLedger(path, None, "plan").books() == added_up(path)


def test_it_is_written_again_as_the_ledger_grows(path: Path) -> None:
    long_lived = TaskLedger(path, None, "plan")
    long_lived.books()
    size = path.with_suffix(".books").stat().st_size
    with path.open("a") as file:
        file.write(rows(500, 1000))
    assert len(long_lived.books().completed["plan"]) == 999
    assert path.with_suffix(".books").stat().st_size > size
    assert TaskLedger(path, None, "plan").books() == long_lived.books()
