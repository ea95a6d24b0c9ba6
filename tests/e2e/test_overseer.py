"""The supervisor with a real daemon: what it detects, what it does about it, and how it ends."""

import json
import os
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmc.base.processes import is_alive
from tests.support import auto
from tests.support.auto import add, commit, set_up, until
from tests.support.fleet import Fleet
from tests.support.supervise import QUICK, Overseer

Start = Callable[..., Overseer]
OUTCOMES = (
    "Entering remediation mode...",
    "Remediation completed in",
    "Remediation complete. Restarting daemon...",
)


@pytest.fixture
def overseen(scripted: Fleet) -> Iterator[Start]:
    """Starts supervisors of a fleet, and stops them all afterwards."""
    made: list[Overseer] = []

    def start(*args: Any, **more: Any) -> Overseer:
        made.append(Overseer(scripted, *args, **more))
        return made[-1]

    yield start
    for overseer in made:
        overseer.close()


def wait_for(overseer: Overseer, probe: Callable[[], Any], timeout_s: float = 60) -> Any:
    try:
        return auto.wait_for(overseer.fleet, probe, timeout_s)
    except AssertionError as error:
        raise AssertionError(f"{error}\n--- the supervisor said\n{overseer.said}") from error


def failures(fleet: Fleet) -> list[tuple[str, str]]:
    return [(row["kind"], row["cause"]) for row in fleet.events("overseer_failure")]


def remediations(fleet: Fleet) -> list[str]:
    return [row["outcome"] for row in fleet.events("overseer_remediation") if "outcome" in row]


def told(fleet: Fleet) -> list[str]:
    path = fleet.root / "told.jsonl"
    return [json.loads(line)["kind"] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.req(
    *("0-010", "0-100", "0-104", "0-106", "0-108", "0-116", "0-120", "0-122", "0-124", "0-130", "0-131"),
    *("0-151", "0-160", "0-163", "0-165", "0-240", "0-242", "0-245"),
)
def test_a_daemon_that_is_killed(scripted: Fleet, overseen: Start) -> None:
    """Break: restart without a remediation, treat a zombie as alive, or let `down` silently end it."""
    fleet = set_up(scripted, **QUICK)
    go = fleet.marks / "go"
    add(fleet, 1, commit(1, until(go)))
    gate = fleet.dir / "gate"
    overseer = overseen(f"cat > {fleet.dir}/prompt; {until(gate)}")
    first = wait_for(overseer, overseer.daemon)
    wait_for(overseer, lambda: auto.at_work(fleet))
    assert (fleet.dir / "called").read_text() == "up --auto\n"
    os.kill(first, signal.SIGKILL)
    wait_for(overseer, lambda: overseer.row["state"] == "remediating" and (fleet.dir / "prompt").exists())
    view = fleet.llmc("status", "--json").json["overseer"]
    assert (view["state"], view["pid"], view["daemon_pid"], view["attempt"]) == (
        *("remediating", overseer.process.pid),
        *(None, 1),
    )
    assert "Overseer  Remediating" in fleet.llmc("status").out
    registered = overseer.row
    assert registered["pid"] == overseer.process.pid
    assert str(uuid.UUID(registered["instance_id"])) == registered["instance_id"]
    assert registered["start_time_unix"] < (fleet.dir / "prompt").stat().st_mtime
    assert "supervisor started" in Path(registered["log_file"]).read_text()
    gate.touch()
    second = wait_for(overseer, lambda: overseer.daemon(other_than=first))
    daemon = json.loads((fleet.root / ".llmc/daemon.json").read_text())
    assert daemon["caller_dir"] == str(Path(__file__).parents[2]), "where the supervisor was started"
    go.touch()
    auto.wait_completed(fleet, 1)
    assert auto.landed(fleet) == [1]
    assert overseer.row["instance_id"] == registered["instance_id"], "another daemon, the same supervisor"
    # What every surface shows.
    view = fleet.llmc("status", "--json").json["overseer"]
    assert (view["state"], view["daemon_pid"], view["attempt"]) == ("running", second, None)
    assert 0 <= view["uptime_s"] < 60
    assert [row["action"] for row in view["events"]][-2:] == [
        "overseer_remediation",
        "overseer_daemon_started",
    ]
    shown = fleet.llmc("status").out
    assert f"Overseer  Running  pid {overseer.process.pid}  daemon {second} up " in shown
    assert "remediation 1: completed" in shown
    state = auto.state(fleet)
    assert state["overseer_active"] is True
    assert 0 < state["auto"]["last_task_assignment_unix"] < state["auto"]["last_task_completion_unix"]
    prompt = (fleet.dir / "prompt").read_text()
    assert prompt.startswith("Fix it.\n")
    assert "(killed by signal 9)" in prompt
    assert f"PID {first}," in prompt
    assert "auto-1 task 1 claimed" in prompt
    # No other supervisor may watch, and `down` does not stop the daemon behind its back.
    assert "a supervisor is already running for this root" in overseen_twice(overseen)
    refused = fleet.llmc("down", code=3).err
    assert f"kill -TERM {overseer.process.pid}" in refused
    assert is_alive(second)
    assert overseer.stop() == 0
    assert not is_alive(second)
    assert all(overseer.said.count(text) == 1 for text in OUTCOMES), overseer.said
    assert (failures(fleet), remediations(fleet)) == ([("process", "")], ["completed"])
    view = fleet.llmc("status", "--json").json["overseer"]
    assert (view["state"], view["pid"], view["why"]) == ("terminated", None, "stopped on request")
    assert auto.state(fleet)["overseer_active"] is False
    assert fleet.llmc("down").out == "nothing is running\n"


def overseen_twice(overseen: Start) -> str:
    second = overseen("true")
    assert second.ends() == 3
    return second.said


@pytest.mark.req("0-105", "0-110", "0-121", "0-150", "0-152", "0-154")
@pytest.mark.soak
def test_a_daemon_that_does_not_start_and_another_one(scripted: Fleet, overseen: Start) -> None:
    """Break: exit if the daemon dies before it registers, keep the other daemon,
    or start despite the file that asks for the user.
    """
    fleet = set_up(scripted, **{**QUICK, "overseer.restart_cooldown_secs": "0.001"})
    stale = {"pid": os.getpid(), "start_time_unix": 1.0, "instance_id": "old", "ready": True}
    (fleet.root / ".llmc/daemon.json").write_text(json.dumps(stale))
    (fleet.dir / "broken").touch()
    note = fleet.root / ".llmc/manual_intervention_needed_1.txt"
    # The first time it fixes the fault, the second time it does nothing; then it asks for the user.
    overseer = overseen(
        f"cat > {fleet.dir}/prompt; test ! -e {fleet.dir}/second || echo the key is gone > {note}; "
        f"test -e {fleet.dir}/broken || touch {fleet.dir}/second; rm -f {fleet.dir}/broken"
    )
    first = wait_for(overseer, overseer.daemon)
    assert failures(fleet) == [("start", "")]
    prompt = (fleet.dir / "prompt").read_text()
    assert "The daemon did not start" in prompt
    assert "it is broken" in prompt
    # Another daemon is started while the supervisor is frozen.
    overseer.freeze()
    os.kill(first, signal.SIGKILL)
    fleet.up("--auto")
    other = fleet.daemon_pid()
    os.kill(overseer.process.pid, signal.SIGCONT)
    second = wait_for(overseer, lambda: overseer.daemon(other_than=first))
    assert second != other
    assert not is_alive(other)
    assert failures(fleet)[1:] == [("identity", "")]
    # A daemon without its registration is not healthy either; this time the user is needed.
    (fleet.root / ".llmc/daemon.json").unlink()
    assert overseer.ends() == 11
    assert not is_alive(second)
    assert failures(fleet)[2:] == [("identity", "")]
    assert remediations(fleet) == ["completed"] * 3
    assert "the key is gone" in overseer.said
    assert "the key is gone" in (fleet.root / "logs/overseer.log").read_text()
    assert told(fleet) == [*["overseer_failure"] * 3, "overseer_ended"]
    again = overseen("true")
    assert again.ends() == 11, "the file is still there"


@pytest.mark.req("0-111", "0-121", "0-153")
@pytest.mark.soak
def test_a_daemon_that_hangs_and_a_spiral(scripted: Fleet, overseen: Start) -> None:
    """Break: trust any heartbeat, never send SIGKILL, or remediate a second time within the cooldown."""
    fleet = set_up(scripted, **{**QUICK, "overseer.heartbeat_timeout_secs": "8"})
    overseer = overseen("exit 4", grace_s=0.5)
    first = wait_for(overseer, overseer.daemon)
    os.kill(first, signal.SIGSTOP)
    second = wait_for(overseer, lambda: overseer.daemon(other_than=first))
    assert not is_alive(first)
    assert "⚠ Remediation issue: exit code 4" in overseer.said
    os.kill(second, signal.SIGKILL)
    assert overseer.ends() == 10
    assert failures(fleet) == [("heartbeat", ""), ("process", "")]
    assert remediations(fleet) == ["failed"]
    assert "failure spiral" in overseer.said
    assert fleet.events("overseer_stopped")[-1]["code"] == 10
    assert told(fleet) == ["overseer_failure", "overseer_ended"]


@pytest.mark.req("0-093", "0-113", "0-120", "0-133", "0-152")
@pytest.mark.soak
def test_a_lane_that_hangs_and_a_login_that_is_gone(scripted: Fleet, overseen: Start) -> None:
    """Break: log a stuck lane at INFO, or remediate what only the user can fix."""
    fleet = set_up(scripted, **QUICK)
    add(fleet, 1)
    variables = fleet.dir / "variables"
    variables.write_text("export LLMC_STUCK_S=3 LLMC_FAULT=claim.ledger:before:hang\n")
    overseer = overseen(f"cat > {fleet.dir}/prompt; rm {variables}", grace_s=2)
    auto.wait_for(fleet, lambda: auto.auto(fleet)["tasks_completed"] == 1, 90)
    assert failures(fleet) == [("log", "bug")]
    assert "the daemon's work on auto-1" in (fleet.dir / "prompt").read_text()
    add(fleet, 2, "@error 401")
    assert overseer.ends() == 12
    assert failures(fleet)[1:] == [("log", "auth")]
    assert remediations(fleet) == ["completed"]
    assert "manual fix required (auth)" in overseer.said
    assert "Log in again" in overseer.said
    assert "terminated" in fleet.llmc("status", "--json").json["overseer"]["state"]


@pytest.mark.req("0-115", "0-123", "0-155")
@pytest.mark.soak
def test_a_stall(scripted: Fleet, overseen: Start) -> None:
    """Break: remediate a stall, or reset no worker."""
    fleet = set_up(scripted, **{**QUICK, "overseer.stall_timeout_secs": "5"})
    hang = f"@sh test -e {fleet.marks}/tried || {{ touch {fleet.marks}/tried; echo kept > half; while :; do sleep 1; done; }}"
    add(fleet, 1, hang, commit(1))
    overseer = overseen("false")
    first = wait_for(overseer, overseer.daemon)
    wait_for(overseer, (fleet.marks / "tried").exists)
    fleet.llmc("config", "set", "overseer.stall_timeout_secs", "600")  # for the next daemon
    second = wait_for(overseer, lambda: overseer.daemon(other_than=first))
    auto.wait_completed(fleet, 1)
    assert not is_alive(first)
    assert failures(fleet) == [("stall", "")]
    restart = fleet.events("overseer_restart")[-1]
    assert restart["workers"] == ["auto-1"]
    assert fleet.events("worker_reset")
    pinned = [row["ref"] for row in fleet.events("work_pinned")]
    assert any("half" in fleet.git("ls-tree", "--name-only", ref, cwd=fleet.root) for ref in pinned)
    assert remediations(fleet) == []
    assert overseer.daemon() == second
    assert overseer.stop(signal.SIGTERM) == 0


@pytest.mark.req("0-101", "0-106", "0-114", "0-163", "0-164")
@pytest.mark.soak
def test_its_own_end(scripted: Fleet, overseen: Start) -> None:
    """Break: wait for the daemon after a second Ctrl-C or leave it running, or start another one beside a running one."""
    fleet = set_up(scripted)
    assert "overseer.remediation_prompt" in fleet.llmc("overseer", code=2).err
    fleet.llmc("config", "set", "overseer.remediation_prompt", "Fix it.")
    assert "`llmc` is not on your PATH" in fleet.llmc("overseer", code=4, PATH="/usr/bin:/bin").err
    fleet.up()
    manual = overseen()
    assert manual.ends() == 3
    assert "llmc down" in manual.said
    fleet.llmc("down")
    log = fleet.root / "logs/daemon.jsonl"
    with log.open("a") as file:  # from an earlier run
        file.write('{"level": "ERROR", "message": "old", "cause": "bug"}\n')
    # Killed, and followed by another supervisor, which takes its daemon over.
    first = overseen()
    pid = wait_for(first, first.daemon)
    first.close()
    killed = fleet.llmc("status", "--json").json["overseer"]
    assert (killed["state"], killed["why"]) == ("terminated", "the supervisor was killed")
    second = overseen()
    wait_for(second, lambda: f"took over daemon {pid}" in second.said)
    assert second.daemon() == pid
    os.kill(pid, signal.SIGSTOP)
    os.kill(second.process.pid, signal.SIGINT)
    wait_for(second, lambda: "stopping the daemon ..." in second.said)
    assert second.stop() == 130
    wait_for(second, lambda: not is_alive(pid))  # it hangs, so only SIGKILL ends it
    assert failures(fleet) == []


@pytest.mark.req("0-160", "0-161", "0-162")
def test_its_session_is_nobodys(scripted: Fleet) -> None:
    """Break: kill the tmux server in `down`, or report the session as an orphan in doctor."""
    fleet = scripted.set_up("adam")
    fleet.up()
    name = f"llmc-{fleet.root.name}-overseer"

    def there() -> bool:
        return name in fleet.tmux("list-sessions", "-F", "#{session_name}").split()

    fleet.tmux("new-session", "-d", "-s", name, "sleep", "1000")
    assert there()
    assert name not in fleet.llmc("doctor", code=None).out
    fleet.llmc("doctor", "--repair", "--yes", code=None)
    assert there()
    fleet.llmc("nuke", "--all", "--yes")
    assert there()
    fleet.llmc("down")
    assert there()
    fleet.up()
    (fleet.root / "state.json").write_text("{broken")
    fleet.llmc("down", "--force", code=None)
    assert there()
