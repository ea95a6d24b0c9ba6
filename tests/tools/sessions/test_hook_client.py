"""The hook sender, run as the agent's settings run it: silent, bounded, exit 0, and the payload is kept."""

import contextlib
import json
import os
import posix
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmc import hook_client
from llmc.config.paths import Root
from llmc.records import inbox as state_inbox
from llmc.records.hook_events import HookEvent, Malformed
from tests.support.waiting import wait_until

SENDER = [sys.executable, "-I", "-S", hook_client.__file__]

#: what it may load: the interpreter's own startup, and three extension modules
FREE_MODULES = {
    *("_frozen_importlib_external", "_imp", "_io", "_thread", "_warnings", "_weakref", "marshal", "posix"),
    *(
        "winreg",
        "time",
        "zipimport",
        "_codecs",
        "codecs",
        "encodings",
        "encodings.aliases",
        "encodings.utf_8",
    ),
    *("_abc", "abc", "io", "_signal", "_locale", "_socket", "_codecs_iso2022", "encodings.latin_1"),
}


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    path = tmp_path / ".llmc/inbox/adam"
    path.mkdir(parents=True)
    return path


def send(
    inbox: Path, data: bytes = b'{"hook_event_name":"Stop"}', *arguments: str, **env: str
) -> "subprocess.CompletedProcess[bytes]":
    target = str(inbox.parent.parent / "wake.sock")
    done = subprocess.run(
        [*SENDER, str(inbox), target, *arguments], input=data, capture_output=True, env=env, timeout=30
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    return done


def files(inbox: Path) -> list[str]:
    return sorted(os.listdir(inbox))


def only(inbox: Path) -> bytes:
    (name,) = files(inbox)
    return (inbox / name).read_bytes()


def events(inbox: Path) -> list[HookEvent | Malformed]:
    return state_inbox.read(Root(inbox.parents[2]), inbox.name)


def test_the_payload_is_kept_as_it_came(inbox: Path) -> None:
    """Break: strip or parse the payload in main()."""
    payload = b'{"hook_event_name": "Stop",\n "text": "\xc3\xa4 \\u00e4 \\" ",  "n": 1.0e2}'
    send(inbox, payload, LLMC_WORKER="adam", LLMC_INSTANCE="i1")
    assert only(inbox) == b'{"worker":"adam","instance":"i1","payload":' + payload + b"}"
    (event,) = events(inbox)
    assert isinstance(event, HookEvent)
    assert (event.name, event.instance, event.payload["n"]) == ("Stop", "i1", 100)


def test_names_sort_by_time(inbox: Path) -> None:
    """Break: name the file by pid first."""
    before = time.time_ns()
    for number in range(4):
        send(inbox, b'{"n":%d}' % number)
    names = files(inbox)
    assert all(re.fullmatch(r"[0-9]{19}-[0-9]+\.json", name) for name in names)
    assert before < int(names[0].partition("-")[0]) < time.time_ns()
    assert [json.loads((inbox / name).read_bytes())["payload"]["n"] for name in names] == [0, 1, 2, 3]
    assert (inbox / names[0]).stat().st_mode & 0o777 == 0o600


def test_an_event_name_needs_no_standard_input(inbox: Path) -> None:
    """tmux reports a dead pane, with nothing to read. Break: always call read_all(0)."""
    reader, writer = os.pipe()
    try:
        argv = [*SENDER, str(inbox), "/none", "PaneDied"]
        assert subprocess.run(argv, stdin=reader, timeout=30).returncode == 0
    finally:
        os.close(reader)
        os.close(writer)
    (event,) = events(inbox)
    assert isinstance(event, HookEvent)
    assert event.name == "PaneDied"


@pytest.mark.parametrize("garbage", [b"", b"not json", b"\xff\xfe\0", b'{"a":', b"}}}}", b"[1]"])
def test_garbage_is_stored_for_the_reader_to_judge(inbox: Path, garbage: bytes) -> None:
    """Break: catch only msgspec's errors in inbox.load."""
    send(inbox, garbage)
    (event,) = events(inbox)
    assert isinstance(event, Malformed)
    assert event.problem


def test_marks_cannot_break_the_envelope(inbox: Path) -> None:
    """Break: no filter in plain()."""
    send(inbox, b"{}", LLMC_WORKER='a","payload":{},"x":"', LLMC_INSTANCE="i\n1\\")
    assert json.loads(only(inbox)) == {"worker": "apayloadx", "instance": "i1", "payload": {}}


def test_paths_with_spaces_and_quotes(tmp_path: Path) -> None:
    """Break: take the worker's name from the directory as it is."""
    inbox = tmp_path / 'it\'s "a" dir\\ä/in box/ad"am'
    inbox.mkdir(parents=True)
    send(inbox, b"{}")
    assert json.loads(only(inbox))["payload"] == {}


def test_a_path_that_is_not_text(tmp_path: Path) -> None:
    inbox = os.fsencode(tmp_path) + b"/\xff\xfe/adam\xff"
    os.makedirs(inbox)
    done = subprocess.run([*SENDER, inbox, b"/none"], input=b"{}", capture_output=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(os.listdir(inbox)) == 1


def test_a_missing_inbox_is_made(inbox: Path) -> None:
    inbox.rmdir()
    send(inbox)
    assert len(events(inbox)) == 1
    assert inbox.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("how", ["file", "parents missing", "no arguments"])
def test_an_inbox_that_cannot_be_written_is_silent(inbox: Path, how: str) -> None:
    if how == "file":
        inbox.rmdir()
        inbox.write_text("")
        send(inbox)
    elif how == "parents missing":
        send(inbox / "not/there")
    else:
        done = subprocess.run(SENDER, input=b"{}", capture_output=True, timeout=30)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_full_disk_leaves_no_litter(tmp_path: Path) -> None:
    """Break: no unlink of the temp file in store()."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("NO SMALL DISK: mounting a tmpfs needs root")
    try:
        send(disk, b"x" * 200_000)
        assert files(disk) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_closed_standard_input_is_silent(inbox: Path) -> None:
    command = '"$@" <&-'
    argv = ["sh", "-c", command, "sh", *SENDER, str(inbox), "/none"]
    done = subprocess.run(argv, capture_output=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_closed_output_is_fine(inbox: Path) -> None:
    argv = ["sh", "-c", '"$@" >&- 2>&-', "sh", *SENDER, str(inbox), "/none"]
    assert subprocess.run(argv, input=b"{}", timeout=30).returncode == 0
    assert len(events(inbox)) == 1


def test_a_standard_input_that_never_ends_is_bounded(inbox: Path) -> None:
    """Break: no alarm in main(): the agent would wait for its hook forever."""
    reader, writer = os.pipe()
    begun = time.monotonic()
    try:
        os.write(writer, b'{"hook_event_name":"Stop"}')
        done = subprocess.run([*SENDER, str(inbox), "/none"], stdin=reader, capture_output=True, timeout=60)
    finally:
        os.close(reader)
        os.close(writer)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert time.monotonic() - begun < hook_client.LIMIT_S + 10


def test_three_megabytes_are_kept(inbox: Path) -> None:
    """Break: one read() instead of the loop in read_all."""
    payload = json.dumps({"hook_event_name": "Stop", "text": "x" * 3_000_000}).encode()
    send(inbox, payload)
    (event,) = events(inbox)
    assert isinstance(event, HookEvent)
    assert len(event.payload["text"]) == 3_000_000


def test_no_partial_file_is_ever_visible(inbox: Path) -> None:
    """Break: open the final name in store()."""
    payload = json.dumps({"text": "x" * 2_000_000}).encode()
    senders = [subprocess.Popen([*SENDER, str(inbox), "/none"], stdin=subprocess.PIPE) for _ in range(4)]

    def feed(process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin
        process.stdin.write(payload)
        process.stdin.close()

    threads = [threading.Thread(target=feed, args=[process]) for process in senders]
    for thread in threads:
        thread.start()
    sizes = set()
    while any(process.poll() is None for process in senders):
        for name in files(inbox):
            if name.endswith(".json") and not name.startswith("."):
                sizes.add((inbox / name).stat().st_size)
    for thread in threads:
        thread.join()
    sizes |= {(inbox / name).stat().st_size for name in files(inbox)}
    assert len(files(inbox)) == 4
    assert len(sizes) == 1


def test_it_is_on_disk_before_it_has_its_name(inbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: no fsync in store()."""
    order: list[str] = []

    def recorded(name: str) -> Callable[..., None]:
        real = getattr(posix, name)

        def call(*args: object) -> None:
            order.append(name)
            real(*args)

        return call

    for name in ("fsync", "rename"):
        monkeypatch.setattr(posix, name, recorded(name))
    hook_client.store(str(inbox), "1-1.json", b"{}")
    assert order == ["fsync", "rename"]
    assert files(inbox) == ["1-1.json"]


#: a sender on a disk that does not answer, with a shorter limit
ON_A_SLOW_DISK = """
import posix, sys, time
from llmc import hook_client
hook_client.LIMIT_S = 1
posix.fsync = lambda fd: time.sleep(300)
hook_client.main()
"""


def test_a_slow_disk_loses_no_event(inbox: Path) -> None:
    """Break: exit in the alarm whatever is written: a SessionStart is lost, and its worker stays offline."""
    target = str(inbox.parent.parent / "wake.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(target)
        sock.settimeout(30)
        argv = [sys.executable, "-c", ON_A_SLOW_DISK, str(inbox), target]
        done = subprocess.run(argv, input=b'{"hook_event_name":"Stop"}', capture_output=True, timeout=60)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        (event,) = events(inbox)
        assert isinstance(event, HookEvent)
        assert event.name == "Stop"
        assert sock.recv(100) == b"adam"


@pytest.fixture
def daemon_socket(inbox: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(inbox.parent.parent / "wake.sock"))
        sock.settimeout(10)
        yield sock


def test_the_daemon_is_woken_after_the_file_is_there(inbox: Path, daemon_socket: socket.socket) -> None:
    """Break: wake() before store() in main()."""
    process = subprocess.Popen(
        [*SENDER, str(inbox), str(inbox.parent.parent / "wake.sock")],
        stdin=subprocess.PIPE,
        env={"LLMC_WORKER": "adam"},
    )
    assert process.stdin
    process.stdin.write(b"{}")
    process.stdin.close()
    assert daemon_socket.recv(100) == b"adam"
    assert len(events(inbox)) == 1
    assert process.wait(30) == 0


def test_a_daemon_that_does_not_listen_blocks_nobody(inbox: Path, daemon_socket: socket.socket) -> None:
    """Its queue is full. Break: a blocking socket in wake()."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as filler:
        filler.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                filler.sendto(b"x", daemon_socket.getsockname())
        begun = time.monotonic()
        send(inbox)
        assert time.monotonic() - begun < hook_client.LIMIT_S
    assert len(events(inbox)) == 1


def test_it_imports_next_to_nothing(inbox: Path) -> None:
    """Break: `import json` (or re, os, socket) in hook_client.py."""
    argv = [sys.executable, "-I", "-S", "-X", "importtime", hook_client.__file__, str(inbox), "/none"]
    done = subprocess.run(argv, input=b"{}", capture_output=True, text=False, timeout=30)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()[1:]}
    assert "_socket" in loaded
    assert loaded <= FREE_MODULES
    wait_until(lambda: len(events(inbox)) == 1)
