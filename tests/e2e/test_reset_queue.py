"""A reset with messages queued in the client: none of them runs in the fresh worktree."""

import os
import signal
from pathlib import Path

import pytest

from llmc.base.panes import Pane
from llmc.repo.project import open_project
from llmc.sessions import leftovers
from tests.support.fleet import CLIENTS_IN_SOAK, Fleet
from tests.support.mess import is_clean
from tests.support.waiting import wait_until

COMMIT = "git -c user.name=Worker -c user.email=worker@example.com commit -q -m"


def in_a_tool_call(fleet: Fleet, *command: str) -> None:
    """The agent runs a command that says so itself: its prompt is on the screen before it starts."""
    begun = fleet.dir / "begun"
    fleet.llmc(*command, f"@say begun\n@sh touch {begun}; python3 -c 'import time; time.sleep(60)'")
    wait_until(begun.exists)


def busy_with_a_queue(fleet: Fleet, count: int, *, marks: str) -> None:
    """The agent is in a tool call, and messages wait behind it."""
    in_a_tool_call(fleet, "start", "--worker", "adam", "--prompt")
    for number in range(count):
        stale = f"@sh echo {number} >> {fleet.dir / marks}; echo s > s{number}; git add -A; {COMMIT} 'STALE{number}'"
        sent = fleet.llmc("message", "adam", stale, "--json").json
        assert sent["outcome"] == "queued"


@pytest.mark.parametrize("fleet", CLIENTS_IN_SOAK, indirect=True)
@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_a_queued_message_does_not_run_after_a_reset(fleet: Fleet, count: int) -> None:
    """Break: interrupt the agent and trust its first idle moment; the client then sends what was queued."""
    fleet.set_up("adam")
    fleet.up()
    busy_with_a_queue(fleet, count, marks="stale")
    done = fleet.llmc("reset", "adam", "--json").json
    assert (done["status"], done["restarted"]) == ("idle", True)
    wait_until(lambda: fleet.client_status("adam") == "idle")  # a new one prints nothing for a moment
    # Whatever is still to run comes before a task that is queued behind it.
    assert (
        fleet.llmc("start", "--worker", "adam", "--prompt", "@say hello", "--json").json["outcome"]
        == "acknowledged"
    )
    fleet.wait("adam", "needs_input")
    assert not (fleet.dir / "stale").exists(), fleet.story()
    assert is_clean(fleet, "adam")
    assert not [row for row in fleet.events("work_pinned") if row["reason"] == "start"]


@pytest.mark.soak
@pytest.mark.parametrize("command", [("reset", "adam"), ("nuke", "adam", "--yes")], ids=["reset", "nuke"])
def test_nor_does_one_that_the_transcript_does_not_have_yet(
    scripted: Fleet, command: tuple[str, ...]
) -> None:
    """Break: look for a queue after cancelling the delivery, the only record of the queued message."""
    fleet = scripted.set_up("adam")
    fleet.up()
    busy_with_a_queue(fleet, 1, marks="stale")
    transcript = Path(fleet.record("adam")["transcript_path"])
    rows = [row for row in transcript.read_text().splitlines() if '"queue-operation"' not in row]
    transcript.write_text("".join(f"{row}\n" for row in rows))
    fleet.llmc(*command)
    assert "interrupted by user" not in transcript.read_text(), "an interrupt sends what is queued"
    assert not (fleet.dir / "stale").exists(), fleet.story()


@pytest.mark.parametrize("fleet", CLIENTS_IN_SOAK, indirect=True)
def test_a_queued_message_that_died_with_its_agent_is_said(fleet: Fleet) -> None:
    """Break: keep `queued` when another agent is launched; the message is lost without a trace."""
    fleet.set_up("adam")
    fleet.up()
    busy_with_a_queue(fleet, 1, marks="stale")
    pane = fleet.tmux("display-message", "-p", "-t", fleet.session("adam"), "#{pane_pid}")
    os.kill(int(pane), signal.SIGKILL)
    fleet.wait("adam", "offline")
    fleet.llmc("up", "--detach")
    (item,) = (row for row in fleet.llmc("status", "--json").json["attention"] if row["who"] == "adam")
    assert (item["kind"], item["next"]) == ("unconfirmed", "llmc message adam")
    assert "when the client exited" in item["text"]
    assert "STALE0" in fleet.llmc("logs", "adam").out
    fleet.llmc("message", "adam", "@say go on")
    fleet.wait("adam", "needs_input")
    kinds = [row["kind"] for row in fleet.llmc("status", "--json").json["attention"]]
    assert "unconfirmed" not in kinds


@pytest.mark.parametrize("fleet", CLIENTS_IN_SOAK, indirect=True)
def test_what_was_queued_and_taken_needs_no_new_session(fleet: Fleet) -> None:
    """Break: restart the session whenever something was ever queued; every reset then takes seconds."""
    fleet.set_up("adam")
    fleet.up()
    go = fleet.dir / "go"
    fleet.llmc(
        "start", "--worker", "adam", "--prompt", f"@sh while ! test -e {go}; do sleep 0.05; done\n@say begun"
    )
    wait_until(lambda: fleet.client_status("adam") == "busy")
    for word in ("one", "two"):
        assert fleet.llmc("message", "adam", f"@say {word}", "--json").json["outcome"] == "queued"
    go.touch()
    fleet.wait("adam", "needs_input")
    wait_until(lambda: any("two" in text for text in fleet.prompts_in_transcripts()))
    wait_until(lambda: fleet.client_status("adam") == "idle")
    in_a_tool_call(fleet, "message", "adam")
    project = open_project(str(fleet.root))
    record = project.store.worker("adam")
    pane = project.pane(record)
    assert isinstance(pane, Pane)
    rows = [row for row in fleet.transcript_rows() if row.get("type") == "queue-operation"]
    assert (bool(rows), leftovers.has_queue(record, pane)) == (True, False), rows
    assert fleet.llmc("reset", "adam", "--json").json["status"] == "idle"


@pytest.mark.soak
def test_a_queue_that_went_with_its_process_stops_nothing(scripted: Fleet) -> None:
    """Break: trust only the transcript; a queue of a dead process would keep work from landing."""
    fleet = scripted.set_up("adam")
    fleet.up()
    fleet.llmc(
        "start", "--prompt", f"@sh echo x > x; git add x; {COMMIT} 'X'; touch {fleet.dir}/there\n@sleep 60"
    )
    wait_until(lambda: (fleet.dir / "there").exists() and fleet.client_status("adam") == "busy")
    assert fleet.llmc("message", "adam", "@say never", "--json").json["outcome"] == "queued"
    os.kill(
        int(fleet.tmux("display-message", "-p", "-t", fleet.session("adam"), "#{pane_pid}")), signal.SIGKILL
    )
    fleet.wait("adam", "offline")
    fleet.llmc("up")
    fleet.wait("adam", "needs_review")
    rows = [row for row in fleet.transcript_rows() if row.get("type") == "queue-operation"]
    assert [row["operation"] for row in rows] == ["enqueue"]
    fleet.llmc("accept", "adam")
    assert fleet.log()[0] == "X"
