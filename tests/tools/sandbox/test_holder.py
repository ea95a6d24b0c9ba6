"""The launcher as the holder of a contained program: signals, exit codes, and what the program cannot do."""

import os
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from llmc.base.processes import Process, start_of
from llmc.sandbox.rules import Mount
from tests.support.contained import held, needs_bubblewrap
from tests.support.waiting import wait_until

pytestmark = needs_bubblewrap

#: an ordinary user, who owns nothing
NOBODY = 65534
#: says that it is running, then waits for a signal and says which one came
WAITS = """
import os, signal, time
for name in ("TERM", "HUP", "INT"):
    signal.signal(getattr(signal, "SIG" + name), lambda n, f: (os.write(1, signal.Signals(n).name.encode() + b"\\n"), os._exit(7)))
os.write(1, b"runs\\n")
time.sleep(60)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.mark.parametrize("code", [0, 1, 7, 127])
def test_it_ends_with_the_exit_code_of_the_program(place: Path, code: int) -> None:
    with held(place, ["/bin/sh", "-c", f"exit {code}"]) as done:
        assert done.wait(20) == code


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGHUP])
def test_it_ends_by_the_signal_that_ended_the_program(place: Path, number: signal.Signals) -> None:
    """Break: `os._exit(code)` alone in `_end_as`: a killed agent would look like one that returned 137."""
    with held(place, ["/bin/sh", "-c", f"kill -{number.value} $$"]) as done:
        assert done.wait(20) == -number


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_it_forwards_signals(place: Path, number: signal.Signals) -> None:
    """Break: no `_send` in `run_in_box`: the agent would be killed without its SessionEnd."""
    with held(place, ["/usr/bin/python3", "-c", WAITS]) as done:
        assert done.stdout is not None
        assert done.stdout.readline() == "runs\n"
        done.send_signal(number)
        assert done.stdout.readline() == f"{number.name}\n"
        assert done.wait(20) == 7


def test_nothing_outlives_it(place: Path) -> None:
    """Break: no `--die-with-parent`: a killed pane would leave its agent running."""
    with held(place, ["/bin/sh", "-c", "echo runs; setsid sleep 97 & sleep 97"]) as done:
        assert done.stdout is not None
        assert done.stdout.readline() == "runs\n"
        agent = recorded(place)
        assert agent.is_alive
        done.kill()
        assert done.stdout.read() == ""  # whatever could still write has exited
    wait_until(lambda: not agent.is_alive)


def test_the_program_is_recorded_as_it_is_known_out_here(place: Path) -> None:
    with held(place, ["/bin/sh", "-c", "echo $$; read x"], stdin=subprocess.PIPE) as done:
        assert done.stdout is not None
        inside = done.stdout.readline().strip()
        agent = recorded(place)
        assert start_of(agent.pid) == agent.ticks
        assert pid_file(place).read_text().split()[2] == inside
        assert int(inside) < 10 < agent.pid


def recorded(place: Path) -> Process:
    wait_until(pid_file(place).exists)
    pid, ticks, _ = pid_file(place).read_text().split()
    return Process(int(pid), ticks)


def pid_file(place: Path) -> Path:
    return place.parent / f"{place.name}.pid"


def test_a_program_that_does_not_exist(place: Path) -> None:
    done = held(place, ["/no/such/program"])
    _, said = done.communicate(timeout=20)
    assert done.returncode == 127
    assert "/no/such/program" in said


def tried(place: Path, script: str, *mounts: Mount) -> str:
    """What a contained shell printed."""
    out, said = held(place, ["/bin/sh", "-c", script], *mounts).communicate(timeout=20)
    return out + said


def test_it_sees_and_writes_only_what_it_was_given(place: Path) -> None:
    beside = place.parent / "beside"
    beside.mkdir()
    (beside / "secret").write_text("secret")
    shown = place.parent / "shown"
    shown.mkdir()
    said = tried(place, f"cat {beside}/secret; touch {shown}/x; touch own && echo written", Mount(str(shown)))
    assert "written" in said
    assert (place / "own").exists()
    assert not (shown / "x").exists()
    assert "No such file" in said
    assert "secret\n" not in said


def test_it_cannot_mount_again_what_is_read_only(place: Path) -> None:
    """Even as root. Break: leave out `--cap-drop ALL` in sandbox/rules.py."""
    said = tried(
        place, "mount -o remount,rw,bind /usr && echo remounted; touch /usr/llmc-was-here && echo wrote"
    )
    assert "remounted" not in said
    assert "wrote" not in said
    assert not os.path.exists("/usr/llmc-was-here")


def test_it_cannot_change_the_kernel(place: Path) -> None:
    """/proc/sys belongs to root, regardless of capabilities."""
    assert "wrote" not in tried(place, "echo x > /proc/sys/kernel/core_pattern && echo wrote")


def test_it_cannot_signal_or_see_others(place: Path) -> None:
    said = tried(place, f"kill -0 {os.getpid()} && echo reached; ls -d /proc/{os.getpid()} && echo seen")
    assert "reached" not in said
    assert "seen" not in said


TYPE_INTO_TERMINAL = """
import fcntl, os, pty, sys, termios
master, slave = pty.openpty()
for name, number in (("TIOCSTI", 0x5412), ("TIOCLINUX", 0x541C)):
    try:
        fcntl.ioctl(slave, number, b"x")
        print(name, "done")
    except OSError as error:
        print(name, error.errno)
termios.tcgetattr(slave)
print("others work")
"""


def test_it_cannot_type_into_the_terminal(place: Path) -> None:
    """Break: no `--seccomp` in launch.py: a program may type on its own terminal,
    and a shell outside reads it.
    """
    out, said = held(place, ["/usr/bin/python3", "-c", TYPE_INTO_TERMINAL]).communicate(timeout=20)
    assert out.splitlines() == ["TIOCSTI 1", "TIOCLINUX 1", "others work"], said


LEASE = """
import fcntl, os
with open("own", "w+") as file:
    for name, how in (("F_WRLCK", fcntl.F_WRLCK), ("F_RDLCK", fcntl.F_RDLCK)):
        try:
            fcntl.fcntl(os.open("own", os.O_RDONLY), fcntl.F_SETLEASE, how)
            print(name, "leased")
        except OSError as error:
            print(name, error.errno)
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("others work")
"""


def test_it_cannot_lease_a_file(place: Path) -> None:
    """Opening a leased file waits for its holder, and a lease needs only read access.

    Break: no `fcntl` in the filter.
    """
    out, said = held(place, ["/usr/bin/python3", "-c", LEASE]).communicate(timeout=20)
    assert out.splitlines() == ["F_WRLCK 1", "F_RDLCK 1", "others work"], said


@pytest.mark.skipif(os.getuid() != 0, reason="the other tests here run as an ordinary user already")
def test_an_ordinary_user_is_contained_too() -> None:
    """In its own user namespace: the same signals, exit codes and refusals."""
    with tempfile.TemporaryDirectory(prefix="llmc-t-", dir="/tmp") as directory:
        place = Path(directory) / "work"
        place.mkdir()
        with held(place, ["/usr/bin/python3", "-c", WAITS], user=NOBODY) as done:
            assert done.stdout is not None
            assert done.stdout.readline() == "runs\n"
            done.send_signal(signal.SIGTERM)
            assert done.stdout.readline() == "SIGTERM\n"
            assert done.wait(20) == 7
        with held(place, ["/bin/sh", "-c", "kill -9 $$"], user=NOBODY) as done:
            assert done.wait(20) == -signal.SIGKILL
        with held(place, ["/usr/bin/python3", "-c", TYPE_INTO_TERMINAL], user=NOBODY) as done:
            assert done.communicate(timeout=20)[0].splitlines() == ["TIOCSTI 1", "TIOCLINUX 1", "others work"]
        script = f"id -u; touch own && echo written; touch {directory}/beside; mount -o remount,rw,bind /usr && echo MOUNTED"
        with held(place, ["/bin/sh", "-c", script], user=NOBODY) as done:
            assert done.communicate(timeout=20)[0].split() == [str(NOBODY), "written"]
        assert not (Path(directory) / "beside").exists()


def test_a_code_that_looks_like_a_stop_does_not_stop_it(place: Path) -> None:
    """Break: no `stops` in `_end_as`: the holder would stop, and its parent would wait."""
    with held(place, ["/bin/sh", "-c", f"exit {128 + signal.SIGSTOP}"]) as done:
        assert done.wait(20) == 128 + signal.SIGSTOP
