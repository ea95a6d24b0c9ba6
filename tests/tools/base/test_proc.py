"""The single entry point for subprocesses."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from llmc.agents.kinds import tool_children
from llmc.base import proc, processes
from llmc.base.errors import LlmcError, ToolFailed
from llmc.hook_client import PORTABLE
from tests.support.waiting import wait_until

#: starts a child that ignores SIGTERM, writes both pids, and waits
FAMILY = "trap '' TERM; sleep 300 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait"


def pids_in(path: Path) -> list[int]:
    return [int(pid) for pid in path.read_text().split()]


def test_done_and_failed(tmp_path: Path) -> None:
    done = proc.run(["sh", "-c", "printf out; printf err >&2; exit 3"], check=False)
    assert (done.returncode, done.stdout, done.stderr, done.ok) == (3, "out", "err", False)
    with pytest.raises(ToolFailed, match="failed with exit code 3: err") as failed:
        proc.run(["sh", "-c", "printf out; printf err >&2; exit 3"])
    assert failed.value.returncode == 3
    assert proc.run(["cat"], input=b"given").stdout == "given"
    assert proc.run(["cat"]).stdout == "", "nothing reads our terminal"


def test_bytes_that_are_not_text_survive() -> None:
    done = proc.run(["printf", "caf\\351"])
    assert done.stdout.encode("utf-8", "surrogateescape") == b"caf\xe9"


def test_a_timeout_ends_the_whole_group(tmp_path: Path) -> None:
    """Breaks when only the program itself is killed: its children would keep running."""
    pids = tmp_path / "pids"
    with pytest.raises(ToolFailed, match=r"timed out after 0\.5 s"):
        proc.run(["sh", "-c", FAMILY.format(pids=pids)], timeout_s=0.5)
    family = pids_in(pids)
    assert len(family) == 2
    wait_until(lambda: not any(processes.is_alive(pid) for pid in family))


def test_what_a_program_leaves_running_may_print_and_go_on(tmp_path: Path) -> None:
    """Break: collect the output in pipes, which are closed by then: SIGPIPE ends the job at its first line."""
    ended, later = tmp_path / "ended", tmp_path / "later"
    job = f"while [ ! -e {ended} ]; do sleep 0.02; done; echo more; echo more >&2; touch {later}"
    done = proc.run(["sh", "-c", f"echo out; echo err >&2; ({job}) & exit 3"], check=False, outlived=True)
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")
    ended.touch()
    wait_until(later.exists)
    with pytest.raises(proc.PrintedTooMuch):
        proc.run(["seq", "1", "5000"], most_bytes=100, outlived=True)
    assert proc.run(["cat"], input=b"x" * 200_000, outlived=True).stdout == "x" * 200_000


@pytest.mark.parametrize("noise", ["sleep 300", "while :; do echo more; done"])
def test_what_a_program_leaves_running_is_neither_waited_for_nor_killed(tmp_path: Path, noise: str) -> None:
    """Break: wait for the end of its output, or read until it ends: both depend on a process of somebody else."""
    pids, program = tmp_path / "pids", "seq 1 5000; {noise} & echo $! > {pids}"
    done = proc.run(["sh", "-c", program.format(noise=noise, pids=pids)], timeout_s=8)
    (left,) = pids_in(pids)
    try:
        assert (done.returncode, done.stdout[:4]) == (0, "1\n2\n")
        assert "\n5000\n" in done.stdout, "all that it printed itself"
        assert processes.is_alive(left) or "echo" in noise, "only that one writes to a pipe that is closed"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(left, signal.SIGKILL)


def test_a_large_output_is_read_to_its_end() -> None:
    """Break: stop reading when the program has ended: a pipe may be full then."""
    size = 3_000_000
    program = f"import sys; sys.stdout.write('x' * {size}); sys.stderr.write('y' * 60_000)"
    done = proc.run([sys.executable, "-c", program])
    assert (len(done.stdout), len(done.stderr)) == (size, 60_000)


def test_an_endless_output_does_not_outlast_the_timeout() -> None:
    """Break: read as long as there is something: `yes` always has more, until the memory is full."""
    with pytest.raises(ToolFailed, match=r"timed out after 0\.1 s"):
        proc.run(["yes"], timeout_s=0.1)


def test_an_interrupt_ends_the_whole_group(tmp_path: Path) -> None:
    """Breaks when only timeouts kill: ^C would leave its children running."""
    pids = tmp_path / "pids"
    script = (
        "import sys; from llmc.base import proc\n"
        f"proc.run(['sh', '-c', {FAMILY.format(pids=pids)!r}], timeout_s=60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL) as caller:
        wait_until(pids.exists)
        caller.send_signal(signal.SIGINT)
    family = pids_in(pids)
    wait_until(lambda: not any(processes.is_alive(pid) for pid in family))


def test_a_missing_program_has_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(proc.ToolMissing) as missing:
        proc.run(["no-such-program"])
    assert "no-such-program" in missing.value.message
    assert "no-such-program" in missing.value.hint
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(proc.ToolMissing) as missing:
        proc.run(["tmux", "-V"])
    assert "apt-get install tmux" in missing.value.hint


def test_what_cannot_start_is_an_error_for_people(tmp_path: Path) -> None:
    """Breaks when only FileNotFoundError is caught: the rest would be a traceback."""
    plain = tmp_path / "plain"
    plain.write_text("not a program")
    with pytest.raises(ToolFailed, match="Permission denied"):
        proc.run([str(plain)])
    plain.chmod(0o700)
    with pytest.raises(ToolFailed, match="Exec format error"):
        proc.run([str(plain)])
    with pytest.raises(ToolFailed, match="not a directory"):
        proc.run(["true"], cwd=tmp_path / "gone")
    with pytest.raises(ToolFailed, match="not a directory"):
        proc.run(["true"], cwd=plain)


def test_what_steers_git_is_stripped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when GIT_* is inherited, or a user's command loses their language."""
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/elsewhere/index")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    env = proc.clean_env({"EXTRA": "1"})
    assert {key for key in env if key.startswith("GIT_")} == {"GIT_TERMINAL_PROMPT"}
    assert (env["LC_ALL"], env["EXTRA"]) == ("C", "1")
    assert "GIT_DIR" not in proc.run(["env"]).stdout
    assert "GIT_DIR" not in proc.command_env()
    assert proc.command_env()["LC_ALL"] == "de_DE.UTF-8"


@pytest.mark.parametrize("relative", [".", "", "node_modules/.bin"])
def test_no_program_of_the_directory_it_runs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relative: str
) -> None:
    """Break: pass PATH on as it is: in an agent's worktree, the agent's git would run."""
    planted = tmp_path / relative / "git"
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_text("#!/bin/sh\necho planted\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", f"{relative}{os.pathsep}{os.environ['PATH']}")
    assert proc.run(["git", "--version"], cwd=tmp_path).stdout.startswith("git version")
    monkeypatch.setenv("PATH", relative)
    assert "planted" not in proc.run(["sh", "-c", "git --version"], cwd=tmp_path, check=False).stdout


def test_run_logged_appends_and_returns_its_own_part(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "w1.log"
    first = proc.run_logged("echo one; exit 4", cwd=tmp_path, env=proc.clean_env(), log=log, timeout_s=10)
    second = proc.run_logged("pwd; printf two >&2", cwd=tmp_path, env=proc.clean_env(), log=log, timeout_s=10)
    assert (first.returncode, first.stdout) == (4, "one\n")
    assert (second.returncode, second.stdout) == (0, f"{tmp_path}\ntwo")
    lines = log.read_text().splitlines()
    assert [line.partition(" ")[2] for line in lines if line[:2] == "20"] == [
        "$ echo one; exit 4",
        "exit code 4",
        "$ pwd; printf two >&2",
        "exit code 0",
    ]
    assert [line for line in lines if line[:2] != "20"] == ["one", str(tmp_path), "two"]
    assert log.stat().st_mode & 0o777 == 0o600
    assert log.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("command", "why"),
    [(f"true #{'x' * 200_000}", "Argument list too long"), ("true\0x", "embedded null byte")],
)
def test_run_logged_says_why_a_command_cannot_start(tmp_path: Path, command: str, why: str) -> None:
    """Break: start it without `_start`: the error is a bug of llmc, and the log does not have it."""
    log = tmp_path / "w1.log"
    with pytest.raises(ToolFailed, match=f"failed to start: {why}"):
        proc.run_logged(command, cwd=tmp_path, env=proc.clean_env(), log=log, timeout_s=10)
    assert why in log.read_text().splitlines()[-1]
    with pytest.raises(ToolFailed, match=why):
        proc.run(["sh", "-c", command])


def test_run_logged_returns_the_tail_only(tmp_path: Path) -> None:
    log = tmp_path / "w1.log"
    done = proc.run_logged("seq 1 5000", cwd=tmp_path, env=proc.clean_env(), log=log, timeout_s=10)
    assert len(done.stdout) == 8000
    assert done.stdout.endswith("4999\n5000\n")
    assert log.read_text().partition(" ")[2].startswith("$ seq 1 5000\n1\n2\n")


def test_run_logged_stops_a_command_that_hangs(tmp_path: Path) -> None:
    """Breaks when the group is not killed, or a timeout looks like success."""
    log, pids = tmp_path / "w1.log", tmp_path / "pids"
    command = "echo begun; " + FAMILY.format(pids=pids)
    done = proc.run_logged(command, cwd=tmp_path, env=proc.clean_env(), log=log, timeout_s=0.5)
    assert done.returncode == 124
    assert done.stdout == "begun\n\n(stopped by llmc after 0.5 s)\n"
    family = pids_in(pids)
    wait_until(lambda: not any(processes.is_alive(pid) for pid in family))


def test_run_logged_without_its_directory(tmp_path: Path) -> None:
    with pytest.raises(LlmcError, match="gone is not a directory"):
        proc.run_logged("true", cwd=tmp_path / "gone", env={}, log=tmp_path / "log", timeout_s=1)


def test_detached_output_goes_to_a_private_file(tmp_path: Path) -> None:
    output = tmp_path / "daemon.out"
    process = proc.spawn_detached(["sh", "-c", "echo alive; pwd"], output)
    assert process.wait(10) == 0
    assert output.read_text() == "alive\n/\n"
    assert output.stat().st_mode & 0o777 == 0o600


def bounded(command: str, input: bytes, most_bytes: int = 3_000_000) -> proc.Done:
    argv = ["/bin/sh", "-c", command]
    return proc.run_bounded(
        argv, cwd=Path("/"), env=proc.clean_env(), input=input, timeout_s=60, most_bytes=most_bytes
    )


def test_a_program_is_fed_while_it_talks() -> None:
    """More than a pipe holds goes in and comes out; a program that stops reading,
    or never reads, is not a failure.

    Break: write all of the input before reading, or let a BrokenPipeError out.
    """
    data = b"0123456789abcde\n" * 65536
    done = bounded("tee /dev/stderr", data)
    assert (done.stdout.encode(), done.stderr.encode()) == (data, data)
    assert bounded("head -c 4", data).stdout == "0123"
    assert bounded("exec 0<&-; echo deaf; sleep 0.1", data).stdout == "deaf\n"
    silent = bounded("exec >&- 2>&-; cat > /dev/null; exit 7", data)
    assert (silent.returncode, silent.stdout) == (7, "")
    with pytest.raises(proc.Overran, match="printed more than 1000 bytes"):
        bounded("cat", data, most_bytes=1000)


def test_leftovers_are_found_by_both_marks(tmp_path: Path) -> None:
    """Breaks when one mark is enough: the client itself, or another worker's tool, would be killed."""
    mine = f"i{os.getpid()}"  # it checks the whole machine, and other runs of this test may be active
    marks = [
        {"LLMC_INSTANCE": mine, "CLAUDE_CODE_CHILD_SESSION": "1"},
        {"LLMC_INSTANCE": mine},
        {"LLMC_INSTANCE": f"{mine}0", "CLAUDE_CODE_CHILD_SESSION": "1"},
        {"CLAUDE_CODE_CHILD_SESSION": "1"},
    ]
    started = [subprocess.Popen(["sleep", "300"], env={**os.environ, **mark}) for mark in marks]
    try:
        wait_until(lambda: tool_children(mine))
        assert [process.pid for process in tool_children(mine)] == [started[0].pid]
        assert tool_children("") == []
        reaper = threading.Thread(target=started[0].wait)
        reaper.start()
        processes.terminate(processes.identify(started[0].pid), grace_s=5)
        reaper.join()
        assert not processes.is_alive(started[0].pid)
        found = processes.identify(started[1].pid)
        assert found is not None
        processes.kill([found])
        assert started[1].wait(5) == -9
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.skipif(PORTABLE, reason="only on Linux")
def test_a_pid_that_is_anothers_by_now_is_not_signalled() -> None:
    """Break: os.kill by pid alone; or no check of the parent."""
    innocent = subprocess.Popen(["sleep", "300"])
    try:
        mine = processes.identify(innocent.pid, parent=os.getpid())
        assert mine is not None
        earlier = processes.Process(innocent.pid, str(int(mine.ticks) - 1))
        assert not earlier.is_alive
        assert processes.send(earlier, 9) is False
        processes.kill([earlier])
        assert processes.end_all([earlier], grace_s=1) == []
        assert processes.identify(innocent.pid, parent=1) is None
        processes.terminate(None, grace_s=1)
        assert innocent.poll() is None
        assert processes.send(mine, 9) is True
        assert innocent.wait(5) == -9
        assert processes.send(mine, 9) is False
    finally:
        innocent.kill()
        innocent.wait()


def test_without_pidfds_the_start_is_still_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break: fall back to os.kill without the check."""

    def missing(pid: int) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", missing)
    innocent = subprocess.Popen(["sleep", "300"])
    try:
        mine = processes.identify(innocent.pid)
        assert mine is not None
        assert processes.send(mine._replace(ticks="1"), 9) is False
        assert processes.send(mine, 9) is True
        assert innocent.wait(5) == -9
    finally:
        innocent.kill()
        innocent.wait()
