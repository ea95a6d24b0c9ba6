"""Using an agent is the same whether it is contained or not: keys, exits, resuming, large files."""

import shutil
from pathlib import Path

import pytest

from llmc.base.processes import is_alive
from tests.support.contained import needs_bubblewrap
from tests.support.fleet import Fleet
from tests.support.waiting import wait_until

pytestmark = [needs_bubblewrap, pytest.mark.soak]

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"
BOTH_AGENTS = pytest.mark.parametrize(
    "fleet", ["scripted", pytest.param("claude", marks=pytest.mark.real_client)], indirect=True
)
BOTH_WAYS = pytest.mark.parametrize("sandbox", ["off", "on"])


def ready(fleet: Fleet, sandbox: str) -> int:
    """Start adam; returns the pid of its agent."""
    fleet.set_up("adam", config={"defaults.sandbox": sandbox, "defaults.patrol_interval_secs": "600"})
    fleet.up()
    assert fleet.record("adam")["contained"] is (sandbox == "on")
    return fleet.agent_pid("adam")


def press(fleet: Fleet, *keys: str) -> None:
    fleet.tmux("send-keys", "-t", fleet.session("adam"), *keys)


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def works(fleet: Fleet, word: str) -> None:
    fleet.llmc("message", "adam", f"@sh echo {word} > {word}; git add {word}; {COMMIT} '{word}'")
    wait_until(lambda: fleet.git("log", "-1", "--format=%s", cwd=fleet.worktree("adam")) == word)


@BOTH_WAYS
@BOTH_AGENTS
def test_ctrl_z_stops_nobody(fleet: Fleet, sandbox: str) -> None:
    """A client stops itself, and tmux continues it. The real one does not redraw its box; llmc says so."""
    agent = ready(fleet, sandbox)
    press(fleet, "C-z")
    work = f"@sh echo x > x; git add x; {COMMIT} 'X'"
    if fleet.agent == "claude":
        wait_until(lambda: "has been suspended" in fleet.screen("adam"))
        assert "is not on the screen" in fleet.llmc("start", "--prompt", work, code=3).err
    wait_until(lambda: not is_stopped(agent))
    assert fleet.agent_pid("adam") == agent
    fleet.llmc("reset", "adam")
    if fleet.agent == "claude":
        fleet.llmc("down")
        fleet.up()
    fleet.llmc("start", "--prompt", work)
    fleet.wait("adam", "needs_review")


@BOTH_WAYS
@BOTH_AGENTS
def test_ctrl_c_interrupts_a_turn_and_then_ends_the_agent(fleet: Fleet, sandbox: str) -> None:
    agent = ready(fleet, sandbox)
    fleet.llmc("start", "--prompt", "@say begun\n@sh sleep 60\n@say never said")
    wait_until(lambda: "begun" in fleet.screen("adam") and fleet.client_status("adam") == "busy")
    press(fleet, "C-c")
    assert fleet.wait("adam", "needs_input")["reason"] == "interrupted"
    assert is_alive(agent)
    press(fleet, "C-c")
    wait_until(lambda: press(fleet, "C-c") is None and not is_alive(agent))
    fleet.wait("adam", "offline")
    (ended,) = fleet.events("agent_exited")
    assert ended["exit_code"] == 0


@BOTH_WAYS
@BOTH_AGENTS
def test_a_stopped_agent_goes_on_with_its_conversation(fleet: Fleet, sandbox: str) -> None:
    ready(fleet, sandbox)
    fleet.llmc("start", "--prompt", f"@sh echo 1 > one; git add one; {COMMIT} 'One'")
    fleet.wait("adam", "needs_review")
    before = fleet.record("adam")
    fleet.llmc("down")
    fleet.up()
    after = fleet.record("adam")
    assert after["instance"] != before["instance"]
    assert after["claude_session_id"] == before["claude_session_id"]
    assert after["transcript_path"] == before["transcript_path"]
    works(fleet, "two")

    def has_said(text: str) -> bool:
        return any(text in str(row) for row in fleet.transcript_rows() if row.get("type") == "user")

    wait_until(lambda: has_said("echo two > two"))  # the client writes rows a moment later
    assert has_said("echo 1 > one")


@BOTH_AGENTS
def test_a_daemon_that_started_under_a_turn_sees_its_end_as_fast(fleet: Fleet) -> None:
    """Break: mount only the socket, not its directory, in sessions/containing.py: only patrol notices."""
    took = {}
    for sandbox in ("off", "on"):
        if sandbox == "off":
            ready(fleet, sandbox)
        else:
            fleet.llmc("reset", "adam")
            fleet.llmc("down")
            fleet.configure({"defaults.sandbox": sandbox})
            fleet.up()
            assert fleet.record("adam")["contained"]
        fleet.new_case()
        work = f"sleep 6; echo x > x; git add x; {COMMIT} 'X'; date +%s.%N > .ended; git add .ended"
        fleet.llmc("start", "--prompt", f"@sh {work}")
        fleet.wait("adam", "working")
        fleet.kill_daemon()
        fleet.up()
        wait_until(lambda: fleet.record("adam")["status"] not in ("idle", "working"), 30)
        ended = fleet.events("agent_stopped")
        took[sandbox] = ended[-1]["ts"] - float((fleet.worktree("adam") / ".ended").read_text())
    assert took["on"] < took["off"] + 0.5, took
    assert took["on"] < 2.0, took


@BOTH_WAYS
@pytest.mark.skipif(shutil.which("git-lfs") is None, reason="git-lfs is not installed")
def test_large_files_are_read_and_landed(scripted: Fleet, sandbox: str) -> None:
    """Break: no own_large_files.take in repo/own_repos.py: the files stay in the agent's own repository."""
    scripted.git("lfs", "install", "--local")
    scripted.git("lfs", "track", "*.bin")
    (scripted.source / "a.bin").write_text("large\n")
    scripted.git("add", "-A")
    scripted.git("commit", "-q", "-m", "Large file")
    ready(scripted, sandbox)
    scripted.configure({"repo.validate": "test $(cat a.bin) = larger && test $(cat b.bin) = new"})
    work = f"test $(cat a.bin) = large && echo larger > a.bin && echo new > b.bin && git add -A && {COMMIT} 'Larger'"
    scripted.llmc("start", "--prompt", f"@sh {work}")
    scripted.wait("adam", "needs_review")
    scripted.llmc("accept", "adam")
    assert (scripted.source / "a.bin").read_text() == "larger\n"
    assert (scripted.source / "b.bin").read_text() == "new\n"
    assert scripted.git("status", "--porcelain") == ""


def test_a_contained_worker_whose_repository_is_lost_gets_another(scripted: Fleet) -> None:
    """Break: no `own_repo` in `quieten` of workers/reset.py: the agent keeps the mounts of the lost one."""
    ready(scripted, "on")
    lost = (scripted.root / ".llmc/repos/adam").rename(scripted.dir / "lost")
    shutil.rmtree(lost)
    scripted.llmc("reset", "adam")
    works(scripted, "one")
