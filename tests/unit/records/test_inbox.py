"""Reading the hook inbox: in order, without a lock, and nothing in it can stop the reader."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from llmc.config.paths import Root
from llmc.records import inbox
from llmc.records.hook_events import HookEvent, Malformed


@pytest.fixture
def root(tmp_path: Path) -> Root:
    (tmp_path / ".llmc/inbox/adam").mkdir(parents=True)
    return Root(tmp_path)


def write(root: Root, name: str, content: bytes | None = None, **payload: Any) -> None:
    envelope = {"worker": "adam", "instance": "i1", "payload": payload}
    data = json.dumps(envelope).encode() if content is None else content
    (root.inbox / "adam" / name).write_bytes(data)


def test_events_come_in_the_order_of_their_time(root: Root) -> None:
    """Break: no sorted() in pending_ids."""
    for number in (3, 1, 10, 2):
        write(root, f"17000000000000000{number:02}-99.json", n=number)
    read = inbox.read(root, "adam")
    assert [event.payload["n"] for event in read if isinstance(event, HookEvent)] == [1, 2, 3, 10]
    assert [event.at_unix for event in read if isinstance(event, HookEvent)] == [1.7e9] * 4


def test_no_inbox_is_an_empty_one(root: Root) -> None:
    assert inbox.read(root, "eve") == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not json",
        b"null",
        b"[]",
        b"{}",
        b'{"worker":"adam","instance":"i1"}',
        b'{"worker":"adam","instance":"i1","payload":null}',
        b'{"worker":"adam","instance":"i1","payload":[1]}',
        b'{"worker":"adam","instance":5,"payload":{}}',
        b'{"worker":"adam","instance":"i1","payload":{"a":"\xff"}}',
        b'{"worker":"adam","instance":"i1","payload":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
    ],
)
def test_what_is_no_event_says_so(root: Root, content: bytes) -> None:
    """Break: catch only msgspec's errors in inbox.load: one such file would block the worker forever."""
    write(root, "1700000000000000000-1.json", content)
    (found,) = inbox.read(root, "adam")
    assert isinstance(found, Malformed)
    assert found.problem
    assert found.at_unix == 1.7e9


@pytest.mark.parametrize(
    ("payload", "read"),
    [
        (rb'{"\ud83d": "cut \ud83d"}', {"\\ud83d": "cut \\ud83d"}),
        (rb'{"a": "\ud83d\ude00"}', {"a": "\U0001f600"}),
        (b'{"a": 9223372036854776000, "b": 100000000000000000000}', {"a": 9223372036854776000, "b": 10**20}),
        (b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}", None),
    ],
)
def test_what_javascript_writes_is_read(root: Root, payload: bytes, read: dict[str, Any] | None) -> None:
    """Half of a surrogate pair, as where a text was cut within an emoji, is written as an escape.

    Break: decode with msgspec alone: hooks with such a text are lost.
    """
    content = b'{"worker":"adam","instance":"i1","payload":' + payload + b"}"
    write(root, "1700000000000000000-1.json", content)
    (found,) = inbox.read(root, "adam")
    assert isinstance(found, HookEvent)
    assert read in (None, found.payload)
    msgspec.json.encode(found.payload)


def test_a_directory_in_the_way_is_malformed_and_can_be_forgotten(root: Root) -> None:
    """Break: catch only FileNotFoundError, in load or forget."""
    (root.inbox / "adam/1700000000000000000-1.json").mkdir()
    (found,) = inbox.read(root, "adam")
    assert isinstance(found, Malformed)
    inbox.forget(root, "adam", [found.id])


@pytest.mark.parametrize(
    "name", [".tmp-1700000000000000000-1.json", "notes.json", "1-1.json.bak", "x-1.json", "-1.json", "1.json"]
)
def test_only_names_that_the_sender_gives_are_events(root: Root, name: str) -> None:
    """The name is the time and is stored in state.json. Break: accept every name that ends in .json."""
    write(root, name, hook_event_name="PaneDied")
    assert inbox.read(root, "adam") == []
    assert (root.inbox / "adam" / name).exists()


def test_a_name_that_is_not_text_is_no_event(root: Root) -> None:
    path = bytes(root.inbox / "adam") + b"/1700000000000000000-\xff.json"
    with open(path, "wb"):
        pass
    assert inbox.read(root, "adam") == []


def test_forgetting_is_for_the_named_and_can_be_repeated(root: Root) -> None:
    for number in (1, 2):
        write(root, f"170000000000000000{number}-1.json")
    for _ in range(2):
        inbox.forget(root, "adam", ["1700000000000000001-1.json"])
    assert inbox.pending_ids(root, "adam") == ["1700000000000000002-1.json"]


def test_a_file_that_somebody_else_applied_meanwhile_is_skipped(root: Root) -> None:
    write(root, "1700000000000000001-1.json")
    assert inbox.load(root, "adam", "1700000000000000002-1.json") is None


def test_an_event_that_names_another_worker_is_refused(root: Root) -> None:
    """Break: ignore the name in the file: only the directory says whose it is."""
    envelope = {"worker": "eve", "instance": "i1", "payload": {}}
    write(root, "1700000000000000001-1.json", json.dumps(envelope).encode())
    (found,) = inbox.read(root, "adam")
    assert isinstance(found, Malformed)
    assert found.problem == "the event names eve, not adam"


def odd_files(root: Root, end: str) -> list[str]:
    """A link, a pipe, a directory and a huge file, each with the name of a valid event."""
    names = [f"170000000000000000{number}-1.{end}" for number in range(4)]
    paths = [root.inbox / "adam" / name for name in names]
    paths[0].symlink_to("/etc/passwd")
    os.mkfifo(paths[1])
    (paths[2] / "inner").mkdir(parents=True)
    with paths[3].open("wb") as file:
        file.truncate(1 << 40)
    return names


def test_what_is_no_plain_file_does_not_stop_the_reader(root: Root) -> None:
    """Break: open what an agent created without O_NONBLOCK and O_NOFOLLOW."""
    names = odd_files(root, "json")
    write(root, "1800000000000000000-1.json", n=1)
    *odd, good = inbox.read(root, "adam")
    assert [event.id for event in odd if isinstance(event, Malformed)] == names
    assert isinstance(good, HookEvent)
    assert odd_files(root, "ask")[3:] == inbox.requests(root, "adam")


def test_files_that_no_sender_makes_are_told_and_removed_before_a_launch(root: Root) -> None:
    """Break: let `others` skip names that start with a dot."""
    folder = root.inbox / "adam"
    ours = [
        "1800000000000000001-1.json",
        "1800000000000000001-1.ask",
        "1800000000000000001-1.answer",
        ".tmp-1800000000000000001-1.json",
        ".1800000000000000001-1.ask.7.0a1b2c3d.tmp",
    ]
    for name in ours:
        (folder / name).touch()
    assert inbox.others(root, "adam") == []
    odd = [*odd_files(root, "json")[:3], "notes.txt", ".hidden", "a\nb"]
    for name in odd[3:]:
        (folder / name).touch()
    assert sorted(inbox.others(root, "adam")) == sorted(odd)
    folder.chmod(0)  # by the agent, so that the next one does not start
    inbox.clear(root, "adam")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in sorted(folder.iterdir())] == [
        "1700000000000000003-1.json",
        "1800000000000000001-1.json",
    ]


def test_a_flood_is_read_in_parts(root: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: read everything at once: thousands of large files would fill the memory."""
    monkeypatch.setattr(inbox, "MOST_EVENTS", 10)
    monkeypatch.setattr(inbox, "MOST_BYTES_AT_ONCE", 1000)
    monkeypatch.setattr(inbox, "MOST_FILES", 50)
    for number in range(30):
        write(root, f"17000000000000000{number:02}-1.json", b"x" * 30)
    assert inbox.pending_ids(root, "adam") == [f"170000000000000000{number}-1.json" for number in range(10)]
    write(root, "1600000000000000000-1.json", b"x" * 2000)
    assert inbox.pending_ids(root, "adam") == ["1600000000000000000-1.json"]
    assert inbox.others(root, "adam") == []
    for number in range(30):
        write(root, f"18000000000000000{number:02}-1.json", b"x")
    assert len(inbox.others(root, "adam")) == 50, "more than any sender creates"


@pytest.mark.skipif(os.getuid() == 0, reason="root reads every directory")
def test_an_inbox_that_the_agent_closed_is_opened(root: Root) -> None:
    write(root, "1700000000000000001-1.json", n=1)
    (root.inbox / "adam").chmod(0)
    assert inbox.pending_ids(root, "adam") == ["1700000000000000001-1.json"]
