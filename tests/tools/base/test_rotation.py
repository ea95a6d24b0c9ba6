"""Log rotation: no line is lost or torn, whichever process writes, dies or reads in the meantime."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc.base import proc
from llmc.base.files import append_line
from llmc.base.log_reader import LogReader, archives, whole_lines
from llmc.base.rotation import Limit, rotate
from llmc.base.tmux import Tmux
from llmc.config.model import Config, Logs, Repo
from llmc.config.paths import Root
from llmc.records import events
from llmc.records.store import Store
from llmc.repo.project import Project
from llmc.repo.user_commands import follow_own_output, rotate_logs
from tests.support.waiting import wait_until

WRITER = """
import sys
from pathlib import Path
from llmc.base.files import append_line
name, log, said = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
with said.open("ab", buffering=0) as sure:
    for number in range(int(sys.argv[4]), 10**9):
        append_line(log, f"{name} {number} {'x' * (number % 300)} end".encode())
        sure.write(f"{number}\\n".encode())
"""

ROTATOR = """
import sys, time
from pathlib import Path
from llmc.base.rotation import Limit, rotate
while True:
    rotate(Path(sys.argv[1]), Limit(20_000))
"""


def run(code: str, *args: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", code, *args], start_new_session=True)


@pytest.fixture
def ours() -> Iterator[list["subprocess.Popen[bytes]"]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def sure_of(path: Path) -> int:
    """The last number that a writer knows to be written."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return int(lines[-1]) if lines else -1


@pytest.mark.soak
@pytest.mark.req("7-031", "7-034")
def test_two_writers_and_two_rotators_that_are_killed_lose_and_tear_nothing(
    tmp_path: Path, ours: list["subprocess.Popen[bytes]"]
) -> None:
    """A reader that follows gets each line once and in order, too.

    Break: leave out `samestat` in lock_to_append; or let `_was_rotated` be False.
    """
    log, chance = tmp_path / "a.log", random.Random(7)
    follower, followed = LogReader(str(log)), list[bytes]()

    def start(name: str) -> "subprocess.Popen[bytes]":
        if name.startswith("rotator"):
            process = run(ROTATOR, str(log))
        else:
            said = tmp_path / f"{name}.said"
            # A killed writer may have written a line that it was not sure of: the next one leaves a gap.
            process = run(WRITER, name, str(log), str(said), str(sure_of(said) + 1000))
        ours.append(process)
        return process

    running = {name: start(name) for name in ("w1", "w2", "rotator1", "rotator2")}
    for _ in range(5):
        seen = len(archives(str(log)))
        wait_until(lambda seen=seen: len(archives(str(log))) > seen + 2, 30)
        followed += follower.lines()
        name = chance.choice(list(running))
        running[name].kill()
        running[name].wait()
        running[name] = start(name)
    for process in ours:
        process.kill()
        process.wait()
    followed += follower.lines()
    written = [line.decode().split() for line in whole_lines(str(log))]
    assert len(archives(str(log))) > 10
    assert followed == list(whole_lines(str(log)))
    assert all(words[-1] == "end" and len(words) in (3, 4) for words in written), "a torn line"
    for name in ("w1", "w2"):
        found = [int(words[1]) for words in written if words[0] == name]
        assert found == sorted(set(found)), "a duplicate line, or out of order"
        sure = {int(number) for number in (tmp_path / f"{name}.said").read_text().split()}
        assert sure <= set(found), "a line is lost"


@pytest.mark.req("7-030")
def test_a_log_is_rotated_by_size_and_only_so_many_files_are_kept(tmp_path: Path) -> None:
    """Break: reverse the `<=` in `_is_due`; or no `_remove_old`."""
    log = tmp_path / "a.log"
    for number in range(6):
        append_line(log, b"%d %s" % (number, b"x" * 50))
        assert not rotate(log, Limit(1000, 3))
        assert not rotate(log, Limit(0, 3))
        assert rotate(log, Limit(50, 3))
        assert not log.exists()
    append_line(log, b"6")
    assert [number for number, _ in archives(str(log))] == [4, 5, 6]
    assert [line[:1] for line in whole_lines(str(log))] == [b"3", b"4", b"5", b"6"]
    assert all(Path(path).stat().st_mode & 0o777 == 0o600 for _, path in archives(str(log)))


@pytest.mark.req("7-031")
def test_a_kill_in_the_middle_leaves_the_log_rotated_or_not(tmp_path: Path) -> None:
    """Break: remove the oldest before the rename."""
    log = tmp_path / "a.log"
    append_line(log, b"one")
    for side, left in (("before", []), ("after", [1])):
        code = f"from pathlib import Path; from llmc.base.rotation import *; rotate(Path({str(log)!r}), Limit(1, 1))"
        env = {**os.environ, "LLMC_FAULT": f"logs.rotate:{side}:kill"}
        assert subprocess.run([sys.executable, "-c", code], env=env).returncode == -signal.SIGKILL
        assert [number for number, _ in archives(str(log))] == left
        assert list(whole_lines(str(log))) == [b"one"]


@pytest.mark.req("7-031")
def test_a_command_that_writes_keeps_its_log_where_it_is(tmp_path: Path) -> None:
    """Its later output must not go to an old file.

    Break: run_logged with a plain open(), or `_rename` without its lock.
    """
    log, go = tmp_path / "adam.log", tmp_path / "go"
    script = f"echo first; while ! test -e {go}; do sleep 0.02; done; echo second"
    code = f"""
from pathlib import Path; import os; from llmc.base.proc import run_logged
run_logged({script!r}, cwd=Path("/"), env=dict(os.environ), log=Path({str(log)!r}), timeout_s=60)
"""
    process = run(code)
    try:
        wait_until(lambda: log.exists() and b"first\n" in log.read_bytes())
        assert not rotate(log, Limit(1))
        append_line(log, b"others may write meanwhile")
        go.touch()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
    assert rotate(log, Limit(1))
    said = [line.decode() for line in whole_lines(str(log))]
    assert said[-4:-1] == ["first", "others may write meanwhile", "second"]
    assert said[-1].endswith(" exit code 0")


def test_a_process_left_running_by_a_command_does_not_hold_the_log(tmp_path: Path) -> None:
    """Break: lock the file that the command gets as its output."""
    log = tmp_path / "adam.log"
    done = proc.run_logged("sleep 60 & echo $!", cwd=Path("/"), env=dict(os.environ), log=log, timeout_s=60)
    pid = int(done.stdout)
    try:
        assert rotate(log, Limit(1))
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.req("7-031")
def test_whoever_stands_still_while_rotating_stops_no_writer(tmp_path: Path) -> None:
    """Break: lock_to_append without a deadline."""
    log = tmp_path / "a.log"
    append_line(log, b"one")
    code = f"""
from pathlib import Path; from llmc.base.rotation import *
rotate(Path({str(log)!r}), Limit(1))
"""
    env = {**os.environ, "LLMC_FAULT": "logs.rotate:before:hang"}
    process = subprocess.Popen([sys.executable, "-c", code], env=env)
    try:
        wait_until(lambda: _is_locked(log))
        began = time.monotonic()
        append_line(log, b"two")
        assert time.monotonic() - began < 10
    finally:
        process.kill()
        process.wait()
    assert list(whole_lines(str(log))) == [b"one", b"two"]


def _is_locked(path: Path) -> bool:
    import fcntl

    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.mark.req("7-034")
def test_a_reader_goes_on_after_truncation_and_when_files_are_removed(tmp_path: Path) -> None:
    """Break: no check of the size in `_read_on`; `_leave` without `_done`."""
    log = tmp_path / "a.log"
    reader = LogReader(str(log))
    assert reader.read() == b""
    append_line(log, b"one")
    assert reader.read() == b"one\n"
    os.truncate(log, 0)
    append_line(log, b"2")
    assert (reader.read(), reader.truncated) == (b"2\n", True)
    rotate(log, Limit(1))
    append_line(log, b"three")
    rotate(log, Limit(1, 1))
    append_line(log, b"four")
    assert reader.read() == b"three\nfour\n"
    log.unlink()
    assert reader.read() == b""
    append_line(log, b"five")
    assert reader.read() == b"five\n"


def test_a_file_that_ends_within_a_line_is_not_glued_to_the_next(tmp_path: Path) -> None:
    """Break: no newline between two files."""
    log = tmp_path / "a.log"
    log.write_bytes(b'whole\n{"torn": ')
    rotate(log, Limit(1))
    append_line(log, b"next")
    assert list(whole_lines(str(log))) == [b"whole", b'{"torn": ', b"next"]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    root = Root(tmp_path)
    store = Store(root)
    store.create()
    config = Config(repo=Repo(source=str(tmp_path)), logs=Logs(max_mb=0.001, keep=2))
    return Project(root, config, store, Tmux("none"))


@pytest.mark.req("7-032")
def test_events_keep_their_numbers_and_all_of_them_stay(project: Project) -> None:
    """Break: use `keep` for events.jsonl as for the others; or let last_seq read only the latest file."""
    log = project.root.events
    for number in range(40):
        with project.store.transaction() as tx:
            tx.emit("held", worker="adam", text="x" * 400, number=number)
        if number % 3 == 2:
            assert rotate_logs(project) == ["events.jsonl"]
    assert len(archives(str(log))) == 13
    rows = [json.loads(line) for line in events.read_lines(log)]
    assert [row["seq"] for row in rows] == list(range(1, 41))
    assert [row["number"] for row in rows] == list(range(40))


@pytest.mark.req("7-033")
def test_what_is_no_log_is_never_touched(project: Project) -> None:
    """Break: treat every file in logs/ as a log."""
    logs = project.root.logs
    logs.mkdir(exist_ok=True)
    kept = ["remediation_20261115T101612.txt", "daemon.jsonl.000003", "a.log.000001", "notes.txt"]
    for name in [*kept, "daemon.jsonl", "adam.log", "daemon.out"]:
        (logs / name).write_bytes(b"x" * 2000)
    assert rotate_logs(project) == ["adam.log", "daemon.jsonl", "daemon.out"]
    assert {path.name for path in logs.iterdir()} == {
        *kept,
        "daemon.jsonl.000004",
        "adam.log.000001",
        "daemon.out.000001",
    }


def test_our_own_output_goes_on_in_the_new_file(tmp_path: Path) -> None:
    """Break: no dup2."""
    out = tmp_path / "daemon.out"
    code = f"""
from pathlib import Path; from llmc.repo.user_commands import *; from llmc.base.rotation import *
path = Path({str(out)!r})
print("before", flush=True); rotate(path, Limit(1)); follow_own_output(path); print("after", flush=True)
"""
    with out.open("ab") as sink:
        subprocess.run([sys.executable, "-c", code], stdout=sink, stderr=sink, check=True)
    assert out.read_text() == "after\n"
    assert list(whole_lines(str(out))) == [b"before", b"after"]
    follow_own_output(tmp_path / "nothing")


@pytest.mark.req("7-034")
def test_logs_prints_and_follows_across_rotation(
    project: Project, ours: list["subprocess.Popen[bytes]"]
) -> None:
    """Break: read `--lines` only from the latest file; reopen the path at the old offset."""
    project.root.config.write_text('[repo]\nsource = "/none"\n')
    project.root.private.mkdir(exist_ok=True)
    log = project.root.log("auto")

    def line(number: int) -> None:
        append_line(log, f"line {number}".encode())

    def llmc(*args: str) -> list[str]:
        return [sys.executable, "-m", "llmc", "--root", str(project.root.path), "logs", "auto", *args]

    missing = subprocess.run(llmc(), capture_output=True, text=True)
    assert (missing.returncode, "does not exist yet" in missing.stderr) == (4, True)
    out = project.root.path / "out"
    with out.open("wb") as sink:
        ours.append(subprocess.Popen(llmc("--follow"), stdout=sink))
    project.root.logs.mkdir(exist_ok=True)
    for number in range(4):
        line(number)
        wait_until(lambda number=number: out.read_text().endswith(f"line {number}\n"), 30)
        assert rotate(log, Limit(1))
    line(4)
    wait_until(lambda: out.read_text().endswith("line 4\n"), 30)
    os.truncate(log, 0)
    wait_until(lambda: log.stat().st_size == 0)
    append_line(log, b"5")
    wait_until(lambda: out.read_text().endswith("line 4\n5\n"), 30)
    assert out.read_text() == "".join(f"line {number}\n" for number in range(5)) + "5\n"
    shown = subprocess.run(llmc("--lines", "3"), capture_output=True, text=True, check=True)
    assert shown.stdout == "line 2\nline 3\n5\n"
    assert subprocess.run(llmc("-n", "0"), capture_output=True, check=True).stdout == b""
