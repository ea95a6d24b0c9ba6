"""What a client's own files tell: what waits in its queue."""

import json
from pathlib import Path

import pytest

from llmc.agents.claude.client_files import asks_by_itself
from llmc.agents.claude.transcripts import queued_in


def rows(path: Path, *operations: tuple[str, str | None]) -> Path:
    lines = [
        {"type": "queue-operation", "operation": operation, **({"content": text} if text else {})}
        for operation, text in operations
    ]
    other = {"type": "user", "message": {"content": 'she wrote "queue-operation"'}}
    path.write_text("".join(json.dumps(row) + "\n" for row in [other, *lines, other]))
    return path


PUT_A, PUT_B = ("enqueue", "a"), ("enqueue", "b")


@pytest.mark.parametrize(
    ("operations", "left"),
    [
        ([], []),
        ([PUT_A], ["a"]),
        ([PUT_A, ("dequeue", None)], []),
        ([PUT_A, PUT_B, ("dequeue", None)], ["b"]),
        ([PUT_A, PUT_B, ("remove", "b")], ["a"]),
        ([PUT_A, ("popAll", "a")], []),
        ([PUT_A, PUT_B, ("popOne", "b"), ("dequeue", None)], []),
        ([("dequeue", None), PUT_A], ["a"]),
        ([PUT_A, PUT_A, ("remove", "a")], ["a"]),
        ([PUT_A, ("of-next-year", None)], None),
    ],
)
def test_what_waits_in_the_queue(
    tmp_path: Path, operations: list[tuple[str, str | None]], left: list[str] | None
) -> None:
    """Breaks when a row that takes one out empties the queue, or one that is not known counts as nothing."""
    assert queued_in(rows(tmp_path / "t.jsonl", *operations)) == left


def test_a_conversation_that_was_not_begun_has_no_queue(tmp_path: Path) -> None:
    assert queued_in(tmp_path / "none.jsonl") == []


@pytest.mark.parametrize(
    ("waiting_for", "asks"),
    [("dialog open", False), ("permission prompt", True), ("input needed", True), ("", False)],
)
def test_whose_dialog_it_is(tmp_path: Path, waiting_for: str, asks: bool) -> None:
    """Breaks when an agent's own question counts as a person's dialog: its worker would wait for nobody all night."""
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions/7.json").write_text(json.dumps({"status": "waiting", "waitingFor": waiting_for}))
    assert asks_by_itself(tmp_path, 7) == asks
