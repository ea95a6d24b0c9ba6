"""How things end: what a killed agent leaves running, and what `down` may signal."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmc.base import locks
from llmc.base.processes import is_alive, start_of
from llmc.repo.project import open_project
from llmc.supervisor import daemon_process
from tests.support.fleet import CLIENTS_IN_SOAK, Fleet
from tests.support.people import SHELL, Seat, opens, seat_of
from tests.support.waiting import wait_until


def leaves(fleet: Fleet, worker: str) -> int:
    """The pid of a process that a worker's tool runs, and that does not notice the end of its agent."""
    left = fleet.dir / f"left-{worker}"
    left.unlink(missing_ok=True)
    begun = f"sh -c 'echo $$ > {left}.new; mv {left}.new {left}; while :; do sleep 0.2; done'"
    fleet.llmc("start", "--worker", worker, "--prompt", f"@sh setsid {begun} & while :; do sleep 0.2; done")
    wait_until(left.exists, story=fleet.story)
    return int(left.read_text())


@pytest.mark.parametrize("fleet", CLIENTS_IN_SOAK, indirect=True)
@pytest.mark.soak
def test_what_a_killed_agent_ran_ends_with_it(fleet: Fleet) -> None:
    """The process that notices ends it.

    Break: leave `end_with_its_agent` out of intake:
    it would keep writing into the worktree while the next agent works there.
    """
    fleet.set_up("adam", "baker")
    fleet.up()
    others = leaves(fleet, "baker")
    for by in ("daemon", "status", "up", "reset", "down"):
        ends_with_its_agent(fleet, by, others)


def ends_with_its_agent(fleet: Fleet, by: str, others: int) -> None:
    """adam's agent is killed during a tool call; afterwards it runs again, and is idle."""
    agent = agent_of(fleet)
    child = leaves(fleet, "adam")
    console = opens(fleet, "split-window", "-c", str(fleet.worktree("adam")), *SHELL, target=agent.pane)
    instance = json.loads((fleet.root / "state.json").read_text())["workers"]["adam"]["instance"]
    marked = subprocess.Popen(["sleep", "300"], env={"LLMC_INSTANCE": instance})  # as a user's shell might
    before, exits = len(fleet.events("background_ended")), len(fleet.events("agent_exited"))
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
        wait_until(lambda: not is_alive(child), story=lambda: by)
        assert is_alive(others) is (by != "down"), by
        assert console.lives, by
        assert marked.poll() is None, by
        if by in ("daemon", "status", "up"):
            rows = fleet.events("background_ended")[before:]
            assert {row["worker"] for row in rows} == {"adam"}, by
            assert [pid for row in rows for pid in row["pids"]].count(child) == 1, by
            assert any("while :" in command for row in rows for command in row["commands"]), by
        assert [row["exit_code"] for row in fleet.events("agent_exited")[exits:]] == [137], by
    finally:
        marked.kill()
        marked.wait()
    if by != "down":
        fleet.tmux("kill-pane", "-t", console.pane)
        fleet.up()
        fleet.llmc("reset", "adam", "--yes")


def agent_of(fleet: Fleet) -> Seat:
    pane = json.loads((fleet.root / "state.json").read_text())["workers"]["adam"]["pane_id"]
    return Seat(pane, int(fleet.tmux("display-message", "-p", "-t", pane, "#{pane_pid}")))


@pytest.mark.soak
def test_whoever_notices_may_be_killed_too(scripted: Fleet) -> None:
    """Break: end them after the worker is offline; its launch, and so its children, are unknown by then."""
    scripted.set_up("adam")
    scripted.up()
    for fault in ("intake.apply:before:kill", "session.launch:before:kill"):
        agent, child = seat_of(scripted), leaves(scripted, "adam")
        scripted.kill_daemon()
        os.kill(agent.pid, signal.SIGKILL)
        wait_until(lambda agent=agent: not agent.lives)  # type: ignore[misc]
        scripted.llmc("up", "--detach", code=None, LLMC_FAULT=fault)
        scripted.up()
        assert not is_alive(child), fault
        assert scripted.status("adam")["status"] == "needs_input", fault
        scripted.llmc("reset", "adam", "--yes")


@pytest.fixture
def innocent() -> Iterator["subprocess.Popen[bytes]"]:
    """A process unrelated to llmc."""
    process = subprocess.Popen(["sleep", "300"])
    yield process
    process.kill()
    process.wait()


def says(fleet: Fleet, pid: int, **more: object) -> Path:
    """daemon.json of a dead daemon, whose pid now belongs to another process."""
    path = fleet.root / ".llmc/daemon.json"
    path.write_text(
        json.dumps({"pid": pid, "start_time_unix": 1.0, "instance_id": "old", "ready": True, **more})
    )
    return path


def test_down_signals_nobody_it_does_not_know(scripted: Fleet, innocent: "subprocess.Popen[bytes]") -> None:
    """Break: signal the pid in daemon.json if the lock is held at all. The file outlives a killed daemon."""
    scripted.set_up("adam")
    ticks = start_of(innocent.pid)
    for flags, files in (
        ([], ({}, {"start_ticks": ticks})),
        (["--force"], ({"start_ticks": ticks}, {"start_ticks": "1"})),
    ):
        claim = locks.hold_forever(scripted.root / ".llmc/locks/daemon.lock")  # as `doctor --rebuild` does
        assert claim is not None
        for more in files:
            says(scripted, innocent.pid, **more)
            refused = scripted.llmc("down", *flags, code=3)
            assert "is not the daemon" in refused.err, flags
        assert innocent.poll() is None, flags
        os.close(claim)
        scripted.llmc("down", *flags)
        assert innocent.poll() is None, flags


def test_down_finds_the_daemon_whatever_its_file_says(
    scripted: Fleet, innocent: "subprocess.Popen[bytes]"
) -> None:
    """Break: trust only the file; a daemon without its file would keep running, and `down` report success."""
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
    """Break: end the pid in daemon.json if the lock is held at all."""
    scripted.set_up("adam")
    project = open_project(str(scripted.root))
    claim = locks.hold_forever(project.root.lock("daemon"))
    assert claim is not None
    says(scripted, innocent.pid)
    with pytest.raises(Exception, match="does not name it"):
        daemon_process.end_all(project, None, 0.2)
    os.close(claim)
    assert innocent.poll() is None
