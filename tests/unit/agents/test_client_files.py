"""What a client's own files tell: what waits in its queue."""

import json
import os
from pathlib import Path

import pytest

from llmc.agents.claude.home import carry
from llmc.agents.claude.reader import ClaudeReader
from llmc.agents.claude.transcripts import ClaudeTranscript
from llmc.agents.glance import glance
from llmc.agents.protocol import ClientState, ClientStatus
from llmc.base.processes import start_of
from llmc.records.items import Glance


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
    assert ClaudeTranscript(rows(tmp_path / "t.jsonl", *operations)).queued() == left


def test_a_conversation_that_was_not_begun_has_no_queue(tmp_path: Path) -> None:
    assert ClaudeTranscript(tmp_path / "none.jsonl").queued() == []


@pytest.mark.parametrize(
    ("waiting_for", "asks", "wants_answer"),
    [
        ("dialog open", False, False),
        ("permission prompt", True, True),
        ("input needed", True, True),
        ("plan approval", True, False),
        ("", False, False),
    ],
)
def test_whose_dialog_it_is(tmp_path: Path, waiting_for: str, asks: bool, wants_answer: bool) -> None:
    """Breaks when an agent's own question counts as a person's dialog: its worker would wait for nobody all night."""
    said = status_file(tmp_path, status="waiting", waitingFor=waiting_for, procStart=start_of(os.getpid()))
    assert (said.status, said.asks, said.wants_answer) == (ClientStatus.WAITING, asks, wants_answer)


def test_a_status_file_of_another_process_says_nothing(tmp_path: Path) -> None:
    """Breaks when the pid alone is believed: it may be another process by now."""
    assert status_file(tmp_path, status="busy", procStart="1") == ClientState()


def status_file(folder: Path, **record: str | None) -> ClientState:
    """What a status file of this very process says."""
    (folder / "sessions").mkdir()
    (folder / f"sessions/{os.getpid()}.json").write_text(json.dumps(record))
    return ClaudeReader().state(folder, os.getpid())


@pytest.mark.parametrize("agent", ["nope", "", None, 7, "../x", "protocol"])
def test_a_record_of_an_unknown_agent_is_read_as_claude_code(tmp_path: Path, agent: object) -> None:
    """`kind_of` does the same. Break: import the module of the agent without a fallback in agents/glance.py."""
    assert glance(agent, str(tmp_path), os.getpid()) == Glance()


@pytest.mark.parametrize("contained", [True, False])
@pytest.mark.parametrize("odd", ["pipe", "link", "folder", "linked folder"])
def test_what_an_agent_puts_in_place_of_a_transcript(tmp_path: Path, odd: str, contained: bool) -> None:
    """A pipe is not waited for, and no link leads to another file. Break: `path.open` in transcripts.py."""
    home = tmp_path / "home/adam"
    folder = home / "projects/slug"
    folder.mkdir(parents=True)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    reply = {"type": "assistant", "uuid": "u1", "message": {"content": "private"}}
    (theirs / "1.jsonl").write_text(json.dumps(reply) + "\n")
    if contained:
        home.with_name("adam.pid").touch()
    path = folder / "1.jsonl"
    match odd:
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to(theirs / "1.jsonl")
        case "folder":
            path.mkdir()
        case "linked folder":
            folder.rmdir()
            folder.symlink_to(theirs)
    found = ClaudeTranscript(path)
    # The user's own client may have its folders where it likes.
    is_read = odd == "linked folder" and not contained
    assert found.last_reply_id() == ("u1" if is_read else "")
    assert found.replies(0)[0] == (1 if is_read else 0)
    assert found.meter().read() == {}


@pytest.mark.parametrize(
    ("name", "copied"),
    [("8a3a4089-2348-46da-87ab-c4e06ebe6e5d", True), ("memory", False), ("settings", False)],
)
def test_only_a_conversation_is_carried_to_another_home(tmp_path: Path, name: str, copied: bool) -> None:
    """Break: take every name: an agent could replace the memory of the user's own client."""
    folder = tmp_path / "home/adam/projects/slug"
    (folder / name).mkdir(parents=True)
    (folder / name / "MEMORY.md").write_text("of the agent")
    (folder / f"{name}.jsonl").write_text("{}")
    theirs = tmp_path / "theirs/projects"
    carry(folder / f"{name}.jsonl", theirs)
    found = {path.name for path in theirs.rglob("*") if path.is_file()}
    assert found == ({f"{name}.jsonl", "MEMORY.md"} if copied else set())
