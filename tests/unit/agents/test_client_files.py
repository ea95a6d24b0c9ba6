"""What a client's own files reveal: the messages in its queue."""

import json
import os
from pathlib import Path

import pytest

from llmc.agents.claude.home import carry
from llmc.agents.claude.reader import ClaudeReader
from llmc.agents.claude.transcripts import ClaudeTranscript
from llmc.agents.glance import glance
from llmc.agents.protocol import ClientState, ClientStatus
from llmc.base.files import remove_tree
from llmc.base.processes import start_of
from llmc.records.items import Glance
from tests.support.deep import nested


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
    """Breaks when a row that removes one message empties the queue, or an unknown row is ignored."""
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
    """Breaks when an agent's own question counts as the user's dialog: its worker would wait in vain."""
    said = status_file(tmp_path, status="waiting", waitingFor=waiting_for, procStart=start_of(os.getpid()))
    assert (said.status, said.asks, said.wants_answer) == (ClientStatus.WAITING, asks, wants_answer)


def test_a_status_file_of_another_process_says_nothing(tmp_path: Path) -> None:
    """Breaks when the pid alone is trusted: it may belong to another process by now."""
    assert status_file(tmp_path, status="busy", procStart="1") == ClientState()


def status_file(folder: Path, **record: str | None) -> ClientState:
    """What a status file of this process says."""
    (folder / "sessions").mkdir()
    (folder / f"sessions/{os.getpid()}.json").write_text(json.dumps(record))
    return ClaudeReader().state(folder, os.getpid())


@pytest.mark.parametrize("agent", ["nope", "", None, 7, "../x", "protocol"])
def test_a_record_of_an_unknown_agent_is_read_as_claude_code(tmp_path: Path, agent: object) -> None:
    """Like `kind_of`. Break: import the agent's module without a fallback in agents/glance.py."""
    assert glance(agent, str(tmp_path), os.getpid()) == Glance()


@pytest.mark.parametrize("contained", [True, False])
@pytest.mark.parametrize("odd", ["pipe", "link", "folder", "linked folder"])
def test_what_an_agent_puts_in_place_of_a_transcript(tmp_path: Path, odd: str, contained: bool) -> None:
    """llmc does not wait for a pipe, and follows no link to another file.

    Break: `path.open` in transcripts.py.
    """
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
    # The user's own client may have its directories anywhere.
    is_read = odd == "linked folder" and not contained
    assert found.last_reply_id(2e9) == ("u1" if is_read else "")
    assert found.replies(0)[0] == (1 if is_read else 0)
    assert found.meter().read() == {}


@pytest.mark.parametrize("linked", ["1", "1/subagents"])
def test_no_link_leads_to_the_subagents_of_another_conversation(tmp_path: Path, linked: str) -> None:
    """Even where the agent creates a file like the holder's. Break: check only a path's last two parts."""
    home = tmp_path / "home/adam"
    theirs = tmp_path / "theirs"
    usage = {"input_tokens": 1, "output_tokens": 1}
    reply = {"type": "assistant", "message": {"id": "m1", "model": "m", "usage": usage}}
    for folder in (theirs, theirs / "subagents"):
        folder.mkdir()
        (folder / "agent-1.jsonl").write_text(json.dumps(reply) + "\n")
    link = home / "projects/slug" / linked
    link.parent.mkdir(parents=True)
    link.symlink_to(theirs)
    found = ClaudeTranscript(home / "projects/slug/1.jsonl")
    assert found.meter().read() != {}
    (home / "projects/slug.pid").touch()
    home.with_name("adam.pid").touch()
    assert found.meter().read() == {}


def test_a_conversation_is_looked_for_among_links_that_lead_nowhere(tmp_path: Path) -> None:
    """Break: `stat` in `find_transcript`: `llmc doctor --rebuild` would fail."""
    folder = tmp_path / "projects/-w"
    folder.mkdir(parents=True)
    (folder / "1.jsonl").symlink_to("/nowhere")
    found = ClaudeReader().find_transcript(tmp_path, None, "/w")
    assert found is not None
    assert found.size() < 100


ID = "8a3a4089-2348-46da-87ab-c4e06ebe6e5d"


def test_what_an_agent_leaves_beside_a_conversation_is_not_carried(tmp_path: Path) -> None:
    """Links, pipes, and files that fill the disk.

    Break: `symlinks=True` in `carry`: the user's client writes through it.
    """
    folder = tmp_path / "home/adam/projects/slug"
    inner = folder / ID / "subagents"
    inner.mkdir(parents=True)
    (folder / f"{ID}.jsonl").write_text("{}")
    (inner / "agent-1.jsonl").write_text("{}")
    (inner / "agent-2.jsonl").symlink_to(tmp_path / "theirs")
    (inner / "more").symlink_to(tmp_path)
    os.mkfifo(inner / "agent-3.jsonl")
    with (inner / "agent-4.jsonl").open("w") as file:
        file.truncate(1 << 40)
    theirs = tmp_path / "theirs/projects"
    carry(folder / f"{ID}.jsonl", theirs)
    assert {path.name for path in theirs.rglob("*") if not path.is_dir()} == {f"{ID}.jsonl", "agent-1.jsonl"}


def test_a_conversation_is_carried_from_and_to_deep_directories(tmp_path: Path) -> None:
    """Break: `shutil.copytree` in `carry`, or `os.walk` in `_remove_links`."""
    source, home = tmp_path / "user/projects/slug", tmp_path / "home/adam"
    (source / ID / "subagents").mkdir(parents=True)
    (source / ID / "subagents/agent-1.jsonl").write_text("new")
    (source / f"{ID}.jsonl").write_text("new")
    (home / f"projects/slug/{ID}").mkdir(parents=True)
    home.with_name("adam.pid").touch()
    for top in (source / ID, home / f"projects/slug/{ID}"):
        nested(top, "d", 1500)
    try:
        carry(source / f"{ID}.jsonl", home / "projects")
        assert (home / f"projects/slug/{ID}/subagents/agent-1.jsonl").read_text() == "new"
    finally:
        for top in (source, home):
            remove_tree(top)  # pytest itself cannot


@pytest.mark.parametrize("planted", [f"{ID}.jsonl", ".", f"{ID}/subagents/agent-1.jsonl"])
def test_a_conversation_is_not_carried_through_a_link(tmp_path: Path, planted: str) -> None:
    """Back into a contained agent's home, where it may have made links.

    Break: no `_remove_links` in `carry`.
    """
    source = tmp_path / "user/projects/slug"
    (source / ID / "subagents").mkdir(parents=True)
    for name in (f"{ID}.jsonl", f"{ID}/subagents/agent-1.jsonl"):
        (source / name).write_text("new")
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "file").write_text("of the user")
    home = tmp_path / "home/adam"
    link = home / "projects/slug" / planted
    link.parent.mkdir(parents=True)
    link.symlink_to(theirs if planted == "." else theirs / "file")
    home.with_name("adam.pid").touch()
    carry(source / f"{ID}.jsonl", home / "projects")
    assert [path.read_text() for path in theirs.iterdir()] == ["of the user"]
    assert (home / f"projects/slug/{ID}.jsonl").read_text() == "new"


@pytest.mark.parametrize(
    ("name", "copied"),
    [("8a3a4089-2348-46da-87ab-c4e06ebe6e5d", True), ("memory", False), ("settings", False)],
)
def test_only_a_conversation_is_carried_to_another_home(tmp_path: Path, name: str, copied: bool) -> None:
    """Break: carry every name: an agent could replace the memory of the user's own client."""
    folder = tmp_path / "home/adam/projects/slug"
    (folder / name).mkdir(parents=True)
    (folder / name / "MEMORY.md").write_text("of the agent")
    (folder / f"{name}.jsonl").write_text("{}")
    theirs = tmp_path / "theirs/projects"
    carry(folder / f"{name}.jsonl", theirs)
    found = {path.name for path in theirs.rglob("*") if path.is_file()}
    assert found == ({f"{name}.jsonl", "MEMORY.md"} if copied else set())
