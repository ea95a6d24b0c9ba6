"""How things end: what a killed agent leaves running, and whom `down` may signal."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc.services import supervised_daemon
from llmc.services.project import open_project
from llmc.tools import locks
from llmc.tools.processes import is_alive, start_of
from tests.support.fleet import OLD_CLIENT_TOO, Fleet
from tests.support.people import SHELL, opens, seat_of
from tests.support.waiting import wait_until

every_client = pytest.mark.parametrize("fleet", OLD_CLIENT_TOO, indirect=True)


def leaves(fleet: Fleet, worker: str) -> int:
    """The pid of something that a worker's tool runs, and that does not hear of the end of its agent."""
    left = fleet.dir / f"left-{worker}"
    begun = f"sh -c 'echo $$ > {left}.new; mv {left}.new {left}; while :; do sleep 0.2; done'"
    fleet.llmc("start", "--worker", worker, "--prompt", f"@sh setsid {begun} & while :; do sleep 0.2; done")
    wait_until(left.exists, story=fleet.story)
    return int(left.read_text())


@every_client
def test_what_a_killed_agent_ran_ends_with_it(fleet: Fleet) -> None:
    """Break: leave `end_with_its_agent` out of intake. It went on writing into the worktree, under the next agent's hands."""
    ends_with_its_agent(fleet, "daemon")


@pytest.mark.parametrize("by", ["status", "up", "reset", "down"])
def test_whoever_notices_ends_it(scripted: Fleet, by: str) -> None:
    """Break: as above; or leave the leftovers out of `sessions.end`."""
    ends_with_its_agent(scripted, by)


def ends_with_its_agent(fleet: Fleet, by: str) -> None:
    fleet.set_up("adam", "baker")
    fleet.up()
    agent = seat_of(fleet)
    child, others = leaves(fleet, "adam"), leaves(fleet, "baker")
    console = opens(fleet, "split-window", "-c", str(fleet.worktree("adam")), *SHELL, target=agent.pane)
    instance = json.loads((fleet.root / "state.json").read_text())["workers"]["adam"]["instance"]
    marked = subprocess.Popen(
        ["sleep", "300"], env={"LLMC_INSTANCE": instance}
    )  # as a person's shell might be
    try:
        if by != "daemon":
            fleet.kill_daemon()
        os.kill(agent.pid, signal.SIGKILL)
        wait_until(lambda: not agent.lives)
        match by:
            case "daemon":
                fleet.wait("adam", "offline")
            case "status":
                wait_until(lambda: fleet.status("adam")["status"] == "offline")
            case "up":
                fleet.up()
            case "reset":
                fleet.llmc("reset", "adam", "--yes")
            case _:
                fleet.llmc("down")
        wait_until(lambda: not is_alive(child))
        assert is_alive(others) is (by != "down")
        assert console.lives
        assert marked.poll() is None
        if by in ("daemon", "status", "up"):
            rows = fleet.events("background_ended")
            assert {row["worker"] for row in rows} == {"adam"}
            assert [pid for row in rows for pid in row["pids"]].count(child) == 1
            assert any("while :" in command for row in rows for command in row["commands"])
        assert fleet.events("agent_exited")[-1]["exit_code"] == 137
    finally:
        marked.kill()
        marked.wait()


@pytest.mark.parametrize("fault", ["intake.apply:before:kill", "session.launch:before:kill"])
def test_whoever_notices_may_be_killed_too(scripted: Fleet, fault: str) -> None:
    """Break: end them after the worker is offline; its launch, and so its children, would be unknown from then on."""
    scripted.set_up("adam")
    scripted.up()
    agent, child = seat_of(scripted), leaves(scripted, "adam")
    scripted.kill_daemon()
    os.kill(agent.pid, signal.SIGKILL)
    wait_until(lambda: not agent.lives)
    scripted.llmc("up", "--detach", code=None, LLMC_FAULT=fault)
    scripted.up()
    assert not is_alive(child)
    assert scripted.status("adam")["status"] == "needs_input"


@pytest.fixture
def innocent() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that has nothing to do with llmc."""
    process = subprocess.Popen(["sleep", "300"])
    yield process
    process.kill()
    process.wait()


def says(fleet: Fleet, pid: int, **more: object) -> Path:
    """daemon.json of a daemon that is gone, whose pid is another's by now."""
    path = fleet.root / ".llmc/daemon.json"
    path.write_text(
        json.dumps({"pid": pid, "start_time_unix": 1.0, "instance_id": "old", "ready": True, **more})
    )
    return path


@pytest.mark.parametrize("flags", [[], ["--force"]])
def test_down_signals_nobody_it_does_not_know(
    scripted: Fleet, innocent: "subprocess.Popen[bytes]", flags: list[str]
) -> None:
    """Break: signal the pid of daemon.json while anybody holds the lock. The file outlives a daemon that was killed."""
    scripted.set_up("adam")
    claim = locks.hold_forever(scripted.root / ".llmc/locks/daemon.lock")  # as `doctor --rebuild` does
    assert claim is not None
    for more in ({}, {"start_ticks": start_of(innocent.pid)}, {"start_ticks": "1"}):
        says(scripted, innocent.pid, **more)
        refused = scripted.llmc("down", *flags, code=3)
        assert "is not its daemon" in refused.err
    assert innocent.poll() is None
    os.close(claim)
    scripted.llmc("down", *flags)
    assert innocent.poll() is None


def test_down_finds_the_daemon_whatever_its_file_says(
    scripted: Fleet, innocent: "subprocess.Popen[bytes]"
) -> None:
    """Break: believe the file alone; the daemon whose file was lost would go on, and `down` say that all is down."""
    scripted.set_up("adam")
    for content in (None, "{torn", json.dumps({"pid": innocent.pid}), json.dumps({"pid": "x"})):
        scripted.up()
        daemon = scripted.daemon_pid()
        path = scripted.root / ".llmc/daemon.json"
        path.unlink() if content is None else path.write_text(content)
        scripted.llmc("down")
        assert not is_alive(daemon)
        assert innocent.poll() is None


def test_the_supervisor_ends_no_stranger(scripted: Fleet, innocent: "subprocess.Popen[bytes]") -> None:
    """Break: end the pid of daemon.json while anybody holds the lock."""
    scripted.set_up("adam")
    project = open_project(str(scripted.root))
    claim = locks.hold_forever(project.root.lock("daemon"))
    assert claim is not None
    says(scripted, innocent.pid)
    with pytest.raises(Exception, match="does not name itself"):
        supervised_daemon.end_all(project, None, 0.2)
    os.close(claim)
    assert innocent.poll() is None
