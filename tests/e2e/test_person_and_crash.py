"""A user at the agent's own terminal, and an agent that is killed: on both agents."""

import os
import signal

import pytest

from llmc.base.processes import is_alive
from tests.support.fleet import CLIENTS_IN_SOAK, REAL_IN_SOAK, Fleet
from tests.support.people import attached
from tests.support.waiting import wait_until

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"


def pane(fleet: Fleet, worker: str, what: str) -> str:
    return fleet.tmux("display-message", "-p", "-t", fleet.session(worker), what).strip()


@pytest.mark.req("1-105", "2-006")
@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_what_a_person_types_is_work_too(fleet: Fleet) -> None:
    """Break: let `_person_began` change nothing, or type into a pane that the user is attached to."""
    fleet.set_up("adam")
    fleet.up()
    with attached(fleet, "adam") as keyboard:
        refused = fleet.llmc("message", "adam", "not now", "--json", code=3).json
        assert "attached" in refused["reason"]
        os.write(keyboard, f"@sh echo x > x; git add x; {COMMIT} 'By hand'".encode())
        wait_until(lambda: "By hand" in fleet.screen("adam"))
        os.write(keyboard, b"\r")
        fleet.wait("adam", "needs_review")
    wait_until(lambda: pane(fleet, "adam", "#{pane_width}x#{pane_height}") == "500x100")
    assert "not now" not in "".join(fleet.prompts_in_transcripts())
    fleet.llmc("accept", "adam")
    assert fleet.log() == ["By hand", "First commit"]


@pytest.mark.req("1-140", "1-141", "2-028")
@pytest.mark.parametrize("fleet", CLIENTS_IN_SOAK, indirect=True)
def test_a_killed_agent_comes_back_with_its_conversation(fleet: Fleet) -> None:
    """Break: launch without --resume, or treat a signal as a normal exit.

    Or leave `end_with_its_agent` out of intake: its tool's processes would run beside the next one.
    """
    fleet.set_up("adam")
    fleet.up()
    left = fleet.dir / "left"
    stays = f"setsid sh -c 'echo $$ > {left}.new; mv {left}.new {left}; while :; do sleep 0.2; done' & "
    fleet.llmc(
        "start", "--prompt", f"@say one\n@sh echo x > half-done.txt; {stays} while :; do sleep 0.2; done"
    )
    wait_until(left.exists, story=fleet.story)
    os.kill(int(pane(fleet, "adam", "#{pane_pid}")), signal.SIGKILL)
    row = fleet.wait("adam", "offline")
    assert (row["reason"], row["cause"]) == ("crashed", "crash")
    child = int(left.read_text())
    wait_until(lambda: not is_alive(child))
    assert [pid for row in fleet.events("background_ended") for pid in row["pids"]].count(child) == 1
    session = fleet.events("session_started")[-1]["claude_session_id"]
    fleet.up()
    assert fleet.wait("adam", "needs_input")["reason"] == "restarted"
    assert fleet.events("session_started")[-1]["claude_session_id"] == session
    assert (fleet.worktree("adam") / "half-done.txt").exists()
    sent = fleet.llmc("message", "adam", f"@sh git add -A; {COMMIT} 'Whole'", "--json").json
    assert sent["outcome"] == "acknowledged"
    fleet.wait("adam", "needs_review")
