"""A person at the agent's own terminal, and an agent that is killed: on both agents."""

import os
import pty
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.fleet import REAL_IN_SOAK, Fleet
from tests.support.waiting import wait_until

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"


@contextmanager
def attached(fleet: Fleet, worker: str) -> Iterator[int]:
    """`llmc attach` in a terminal of its own; its keyboard."""
    pid, keyboard = pty.fork()
    if pid == 0:
        os.chdir(fleet.source)
        os.execve(sys.executable, [sys.executable, "-m", "llmc", "attach", worker], fleet.env)
    try:
        wait_until(lambda: fleet.status(worker)["attached"])
        yield keyboard
        os.write(keyboard, b"\x02d")
        wait_until(lambda: not fleet.status(worker)["attached"])
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        os.close(keyboard)


def pane(fleet: Fleet, worker: str, what: str) -> str:
    return fleet.tmux("display-message", "-p", "-t", fleet.session(worker), what).strip()


@pytest.mark.req("1-105", "2-006")
@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_what_a_person_types_is_work_too(fleet: Fleet) -> None:
    """Break that fails it: let `_person_began` change nothing, or type into a pane a person is attached to."""
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
def test_a_killed_agent_comes_back_with_its_conversation(fleet: Fleet) -> None:
    """Break that fails it: launch without --resume, or call a signal a normal end."""
    fleet.set_up("adam")
    fleet.up()
    fleet.llmc("start", "--prompt", "@say one\n@sh echo x > half-done.txt\n@sh sleep 60")
    wait_until((fleet.worktree("adam") / "half-done.txt").exists)
    os.kill(int(pane(fleet, "adam", "#{pane_pid}")), signal.SIGKILL)
    row = fleet.wait("adam", "offline")
    assert (row["reason"], row["cause"]) == ("crashed", "crash")
    session = fleet.events("session_started")[-1]["claude_session_id"]
    fleet.up()
    assert fleet.wait("adam", "needs_input")["reason"] == "restarted"
    assert fleet.events("session_started")[-1]["claude_session_id"] == session
    assert (fleet.worktree("adam") / "half-done.txt").exists()
    sent = fleet.llmc("message", "adam", f"@sh git add -A; {COMMIT} 'Whole'", "--json").json
    assert sent["outcome"] == "acknowledged"
    fleet.wait("adam", "needs_review")
