"""The output of a program that runs agents' code: bounded, in order, and protected from that code."""

import os
import signal
import subprocess
import sys
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

from llmc.base import captured, proc, processes
from tests.support.waiting import wait_until

START, END = 200_000, 10_000
#: in two shells, so that the second prints after the first has exited
LIVES_ON = "setsid sh -c 'echo $$ > {pid}.new; mv {pid}.new {pid}; {command}' & while ! test -e {pid}; do sleep 0.01; done"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(captured, "MOST_OF_START", START)
    monkeypatch.setattr(captured, "MOST_OF_END", END)
    (tmp_path / "w1.log").write_text("from before\n")
    return tmp_path / "w1.log"


def run(command: str, log: Path, timeout_s: float = 20) -> proc.Done:
    env = proc.clean_env()
    return proc.run_logged(command, cwd=log.parent, env=env, log=log, timeout_s=timeout_s, untrusted=True)


def end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines()


def test_what_a_program_prints_is_in_the_log_in_order(log: Path) -> None:
    done = run("echo one; echo two >&2; printf three; exit 4", log)
    assert (done.returncode, done.stdout) == (4, "one\ntwo\nthree")
    first, command, *said, last = lines(log)
    assert (first, said) == ("from before", ["one", "two", "three"])
    assert command.endswith(" $ echo one; echo two >&2; printf three; exit 4")
    assert last.endswith(" exit code 4")


@pytest.mark.parametrize(
    "change",
    [
        "truncate -s 300M /proc/self/fd/1",
        ": > /proc/self/fd/1",
        f"{sys.executable} -c 'import os; os.lseek(1, 300 << 20, 0); os.write(1, b\"far\")'",
        f"{sys.executable} -c 'import os; os.ftruncate(2, 0)'",
    ],
)
def test_it_cannot_change_what_is_in_the_log(log: Path, change: str) -> None:
    """Break: `stdout=sink` in `run_logged`."""
    run(f"echo one; {change}; echo two", log)
    assert log.stat().st_size < 10_000
    assert {"from before", "one", "two"} < {*lines(log)}
    assert lines(log)[-1].endswith(" exit code 0")


@pytest.mark.parametrize(
    ("printed", "left_out"),
    [(START, 0), (START + END, 0), (START + END + 1, 1), (5_000_000, 5_000_000 - START - END)],
)
def test_beginning_and_end_of_a_long_output_are_kept(log: Path, printed: int, left_out: int) -> None:
    """Break: write all of it, as the program itself did; or count what is left out before the end is cut."""
    done = run(f"printf begin; head -c {printed - 8} /dev/zero | tr '\\0' .; printf end", log)
    text = log.read_text().partition("; printf end\n")[2]
    note = f"\n(llmc: {left_out:,} bytes of the output are left out here)\n" if left_out else ""
    said, _, last = text.rpartition("\n20")
    assert len(said) == printed - left_out + len(note)
    assert said.startswith("begin...")
    assert said.endswith("...end")
    assert said[START:].startswith(note)
    assert done.stdout.endswith("...end")
    assert last.endswith(" exit code 0\n")


def test_a_long_output_needs_little_memory(log: Path) -> None:
    """Break: keep all of the end until it is written."""
    tracemalloc.start()
    try:
        run("head -c 30M /dev/zero", log)
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()


def test_a_program_that_prints_all_the_time_is_stopped(log: Path) -> None:
    """Break: no check of the clock in `until`."""
    done = run("yes", log, timeout_s=0.3)
    assert done.returncode == 124
    assert done.stdout.endswith("y\n\n(stopped by llmc after 0.3 s)\n")
    assert log.stat().st_size < START + END + 1000


def test_a_pipe_that_is_never_empty_is_left(log: Path) -> None:
    """Break: read until the pipe is empty in `_read`: a program faster than llmc's writes never ends."""
    full = log.with_name("full")
    full.write_bytes(bytes(5 << 20))
    with full.open("rb") as pipe, log.open("ab") as sink:
        captured.Captured(pipe, sink, lambda _: None)._read()
        assert os.lseek(pipe.fileno(), 0, os.SEEK_CUR) == 1 << 20


def test_llmc_can_stop_meanwhile(log: Path) -> None:
    """Earlier output is in the log. Break: no `look` in `until`, or no `finish` after an error."""
    begun = log.with_name("begun")
    with pytest.raises(proc.ShuttingDown):
        proc.run_logged(
            f"echo said; echo $$ > {begun}; exec yes",
            cwd=log.parent,
            env=proc.clean_env(),
            log=log,
            timeout_s=20,
            stopping=lambda: begun.exists() and bool(begun.read_text()),
            untrusted=True,
        )
    assert "said" in lines(log)
    assert not processes.is_alive(int(begun.read_text()))


@pytest.mark.parametrize("command", ["exec sleep 60", "exec yes"])
def test_what_it_leaves_running_is_not_waited_for(log: Path, command: str) -> None:
    """Break: read until the end of the pipe."""
    pid = log.with_name("pid")
    began = time.monotonic()
    done = run(f"{LIVES_ON.format(pid=pid, command=command)}; exit 3", log)
    left = int(pid.read_text())
    try:
        assert done.returncode == 3
        assert time.monotonic() - began < 10
        assert lines(log)[-1].endswith(" exit code 3")
        if command == "exec yes":  # nothing reads it
            wait_until(lambda: not processes.is_alive(left))
    finally:
        end(left)


def test_a_program_that_closes_its_output_is_waited_for(log: Path) -> None:
    """Break: treat the end of the pipe as the end of the program."""
    done = run("echo one; exec >&- 2>&-; sleep 0.3; exit 5", log)
    assert (done.returncode, done.stdout) == (5, "one\n")


CALL = """
import os, sys
from pathlib import Path
from llmc.base.proc import run_logged
run_logged(sys.argv[1], cwd=Path("/"), env=dict(os.environ), log=Path(sys.argv[2]), timeout_s=60, untrusted=True)
"""


def test_its_output_is_seen_while_it_runs(log: Path) -> None:
    """Break: no `flush` in `_write`."""
    go = log.with_name("go")
    command = f"echo first; while ! test -e {go}; do sleep 0.02; done; echo second"
    process = subprocess.Popen([sys.executable, "-c", CALL, command, str(log)])
    try:
        wait_until(lambda: "first" in lines(log))
        assert "second" not in lines(log)
        go.touch()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
    assert lines(log)[-2] == "second"


def test_a_program_does_not_wait_for_a_killed_llmc(log: Path) -> None:
    """Break: let the program have the other end of its pipe."""
    pid = log.with_name("pid")
    command = f"echo $$ > {pid}.new; mv {pid}.new {pid}; exec yes"
    process = subprocess.Popen([sys.executable, "-c", CALL, command, str(log)])
    try:
        wait_until(pid.exists)
    finally:
        process.kill()
        process.wait()
    try:
        wait_until(lambda: not processes.is_alive(int(pid.read_text())))
    finally:
        end(int(pid.read_text()))
