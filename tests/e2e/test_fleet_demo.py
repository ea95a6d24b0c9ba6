"""llmc demo --fleet: three machines with their own PostgreSQL and remote; nothing is left of them."""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.support import zygote
from tests.support.fleet import Fleet, in_soak
from tests.support.postgres import Postgres
from tests.support.waiting import wait_until


@pytest.mark.timeout(400)  # 30 tasks on a busy machine
@pytest.mark.parametrize("tasks", in_soak(3, 30))
def test_three_machines_land_the_tasks_and_leave_nothing(
    scripted: Fleet, postgres: Postgres, tasks: int
) -> None:
    """Break: leave a daemon or the server running; also count a task that another machine landed."""
    done = scripted.llmc("demo", "--fleet", "--tasks", str(tasks), timeout=300, TMPDIR=place(scripted))
    assert f"{tasks} tasks, {tasks} commits, no merges; each task landed once." in done.out
    landed = re.findall(r"(?m)^(\S+) +(\d+) landed: (.*)$", done.out)
    assert [name for name, _, _ in landed] == ["laptop", "server-1", "server-2"]
    numbers = [number for _, count, told in landed if count != "0" for number in told.split(", ")]
    assert sorted(numbers, key=int) == [str(number) for number in range(1, tasks + 1)]
    assert f"tasks     {tasks} completed (list greetings)" in done.out
    assert left_behind(scripted) == ([], [])


@pytest.mark.parametrize("moment", ["laptop$ llmc fleet init", *in_soak("server-1$ llmc up", "landed task")])
def test_after_ctrl_c_nothing_is_left(scripted: Fleet, postgres: Postgres, moment: str) -> None:
    """Break: stop only the first machine; or remove the directory of a server that is still running."""
    said = scripted.dir / "said"
    env = {**scripted.env, "TMPDIR": place(scripted)}
    begun = zygote.spawn(["demo", "--fleet"], cwd=scripted.source, env=env, output=said)
    wait_until(lambda: said.exists() and moment in said.read_text(), 60)
    os.kill(begun.pid, signal.SIGINT)
    assert begun.wait(60) == 130, said.read_text()
    assert left_behind(scripted) == ([], [])


def test_it_goes_with_no_other_demo(scripted: Fleet) -> None:
    refused = scripted.llmc("demo", "--fleet", "--keep", code=2)
    assert "the only option allowed with --fleet is --tasks" in refused.err


def place(fleet: Fleet) -> str:
    """A temporary directory that PostgreSQL's user can enter, too."""
    fleet.dir.chmod(0o711)
    found = fleet.dir / "tmp"
    found.mkdir()
    found.chmod(0o711)
    return str(found)


def left_behind(fleet: Fleet) -> tuple[list[str], list[str]]:
    """Files, and command lines of processes, that still mention the demo's directory."""
    found = fleet.dir / "tmp"
    commands = [_command(path) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [path.name for path in found.iterdir()], [text for text in commands if str(found) in text]


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_text().replace("\0", " ")
    except OSError:  # it has exited
        return ""
