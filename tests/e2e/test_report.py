"""The agent's side: `llmc report`, on both agents."""

import json

import pytest

from tests.support.fleet import REAL_IN_SOAK, Fleet
from tests.support.waiting import wait_until

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"


@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_no_changes_needs_the_agents_own_word(fleet: Fleet) -> None:
    """Break: treat every clean Stop as no_changes; a clarifying question would end the task."""
    fleet.set_up("adam")
    fleet.up("--no-patrol")
    fleet.llmc("start", "--prompt", "@say I looked at it")
    assert fleet.wait("adam", "needs_input")["reason"] == "stopped_clean"
    fleet.llmc("message", "adam", "@sh llmc report done --no-changes 'It is right already'\n@say reported")
    assert fleet.wait("adam", "no_changes")["reason"] == "It is right already"
    fleet.llmc("start", "--prompt", f"@sh echo x > x; git add x; {COMMIT} 'X'")
    fleet.wait("adam", "needs_review")


def test_what_does_not_come_from_the_workers_own_session_is_refused(scripted: Fleet) -> None:
    """Break: trust LLMC_WORKER without checking the process's parents."""
    scripted.set_up("adam", "baker")
    scripted.up("--no-patrol")
    assert "for agents" in scripted.llmc("report", "done", code=2).err
    instance = json.loads((scripted.root / "state.json").read_text())["workers"]["adam"]["instance"]
    forged = {"LLMC_WORKER": "adam", "LLMC_INSTANCE": instance}
    assert "this command was not run by" in scripted.llmc("report", "done", code=3, **forged).err
    prompt = "@sh LLMC_WORKER=adam llmc report blocked 'by baker' || echo refused > refused.txt"
    scripted.llmc("start", "--worker", "baker", "--prompt", prompt)
    scripted.wait("baker", "needs_input")
    assert (scripted.worktree("baker") / "refused.txt").exists()
    assert not scripted.events("agent_reported")


def test_an_agent_of_another_launch_is_refused(scripted: Fleet) -> None:
    """It runs in the pane, but the state has a later launch. Break: no instance check in check_reporter()."""
    scripted.set_up("adam")
    scripted.up("--no-patrol")
    go, code = scripted.dir / "go", scripted.dir / "code"
    wait = f"until [ -e {go} ]; do sleep 0.05; done"
    scripted.llmc(
        "start", "--prompt", f"@sh {wait}; llmc report blocked x; echo $? > {code}.tmp; mv {code}.tmp {code}"
    )
    scripted.wait("adam", "working")
    with scripted.frozen_daemon():
        state = json.loads((scripted.root / "state.json").read_text())
        state["workers"]["adam"]["instance"] = "0123456789ab"
        (scripted.root / "state.json").write_text(json.dumps(state))
        go.touch()
        wait_until(code.exists)
    assert code.read_text().strip() == "3"
    assert not scripted.events("agent_reported")


def test_blocked_says_what_it_needs(scripted: Fleet) -> None:
    scripted.set_up("adam")
    scripted.up("--no-patrol")
    scripted.llmc("start", "--prompt", "@sh llmc report blocked 'a password for the database'\n@say stopped")
    view = scripted.wait("adam", "needs_input")
    assert view["reason"] == "blocked"
    assert view["error_reason"] == "a password for the database"
    assert "--no-changes" in scripted.llmc("report", "--help").out
