"""User commands on auto workers while the daemon runs: the task is free again, and the loop continues."""

import json
from pathlib import Path

import pytest

from tests.support import auto, plans
from tests.support.auto import Daemon, add, commit, set_up, until
from tests.support.fleet import Fleet
from tests.support.plans import COMMIT, tasks_of


def ledger(fleet: Fleet) -> list[tuple[str, str, str]]:
    return [(row["action"], row["task"], row["worker"]) for row in plans.ledger(fleet)]


@pytest.mark.req("0-021", "0-025")
def test_start_is_for_a_persons_workers(scripted: Fleet) -> None:
    """Break: let `start` take any worker by name, or pick an idle auto worker."""
    fleet = set_up(scripted)
    fleet.up("--auto")
    refused = fleet.llmc("start", "--worker", "auto-1", "--prompt", "@say hello", code=3)
    assert "cannot start a task on auto-1: auto workers take their tasks from the task list" in refused.err
    assert "llmc tasks add" in refused.err
    assert "every worker is an auto worker" in fleet.llmc("start", "--prompt", "@say hello", code=4).err
    assert "Auto Mode: 1 worker, 0 tasks completed, 0 errors" in fleet.llmc("status").out


@pytest.mark.req("0-026", "0-027", "0-072", "4-063")
@pytest.mark.soak
def test_reset_and_nuke_give_the_task_back(scripted: Fleet) -> None:
    """Break: leave release_task_of out of reset.cancel; the task stays claimed without a worker."""
    fleet = set_up(scripted)
    go = fleet.marks / "go"
    for number in (1, 2):
        add(fleet, number, f"@sh echo half > half; {until(go)}; rm half", commit(number))
    daemon = Daemon(fleet, "--concurrency", "2")
    auto.wait_for(fleet, lambda: len(list(fleet.root.glob(".worktrees/*/half"))) == 2)
    at_work = auto.at_work(fleet)
    gone, stays = "auto-1", "auto-2"
    assert "peek" not in fleet.llmc("peek", gone).err
    done = fleet.llmc("reset", gone, "--json").json
    assert fleet.git("show", f"{done['ref']}:half", cwd=fleet.root) == "half"
    released = fleet.events("task_released")
    assert [(row["task_id"], row["worker"], row["reason"]) for row in released] == [
        (at_work[gone], gone, "reset of auto-1")
    ]
    auto.wait_for(fleet, lambda: ledger(fleet).count(("claimed", at_work[gone], gone)) == 2)
    auto.wait_for(fleet, lambda: (fleet.worktree(gone) / "half").exists())
    fleet.llmc("nuke", gone, "--yes")
    assert ledger(fleet)[-1] == ("released", at_work[gone], gone)
    assert tasks_of(fleet)[at_work[gone]]["status"] == "pending"
    go.touch()
    auto.wait_completed(fleet, 2)
    assert sorted(auto.landed(fleet)) == [1, 2]
    completed_by = {row["worker"] for row in fleet.events("task_completed")}
    assert completed_by == {stays}
    assert "auto workers missing from state.json" not in daemon.said
    assert not fleet.events("task_failed")
    fleet.llmc("reset", "--all")
    fleet.llmc("nuke", "--all", "--yes")
    assert daemon.ends() == 0, daemon.said
    assert "every auto worker was removed" in daemon.said


@pytest.mark.req("0-009", "0-026", "0-053", "4-004")
@pytest.mark.soak
def test_hold_message_and_accept(scripted: Fleet) -> None:
    """Break: give tasks to a held worker, or treat the user's messages to a worker as a task."""
    elsewhere = scripted.dir / "context.toml"
    elsewhere.write_text('[default]\nprologue = "From elsewhere."\n')
    fleet = set_up(scripted, **{"auto.context_config_path": str(elsewhere), "defaults.model": "haiku"})
    fleet.llmc("config", "set", "workers.auto-1.model", "opus", code=4)
    # The first /clear is lost: it is sent again, and the prompt follows.
    daemon = Daemon(fleet, LLMC_FAULT="submit.clear:before:fail")
    auto.wait_for(fleet, lambda: "auto mode started with 1 worker" in daemon.said)
    argv = Path(f"/proc/{fleet.agent_pid('auto-1')}/cmdline").read_text().split("\0")
    assert argv[argv.index("--model") + 1] == "haiku"
    assert "AskUserQuestion" in argv[argv.index("--disallowedTools") + 1]
    fleet.llmc("hold", "auto-1")
    add(fleet, 1, "@ask Which one?", commit(1))
    fleet.wake("auto-1")
    fleet.llmc("release", "auto-1")
    auto.wait_completed(fleet, 1)
    assert [row["task_id"] for row in fleet.events("task_assigned")] == ["1"]
    assert len([text for text in fleet.prompts_in_transcripts() if "Do 1" in text]) == 1
    assert [row["source"] for row in fleet.events("session_started")] == ["startup", "clear"]
    assert any("From elsewhere.\n\nDo 1" in text for text in fleet.user_turns())
    first, released = fleet.events("task_assigned")[0], fleet.events("released")[0]
    assert first["ts"] >= released["ts"]
    note = f"echo by hand > hand; git add hand; {COMMIT} 'By hand'"
    fleet.llmc("message", "auto-1", f"@sh {note}")
    fleet.wait("auto-1", "needs_review")
    add(fleet, 2)
    fleet.llmc("accept", "auto-1")
    auto.wait_completed(fleet, 2)
    assert fleet.log()[:3] == ["Task 2", "By hand", "Task 1"]
    assert auto.auto(fleet)["tasks_completed"] == 2, "the user's own work is not a task"
    # The user accepts a task's work before the daemon does: it counts once. A node lands on the remote.
    readme = fleet.source / "README.md"
    if fleet.rows is None:
        readme.write_text("a person writes\n")
    add(fleet, 3)
    if fleet.rows is None:
        auto.wait_for(fleet, lambda: fleet.events("source_dirty"))
        with fleet.frozen_daemon():
            fleet.git("checkout", "-q", "README.md")
            fleet.llmc("accept", "auto-1")
    add(fleet, 4)
    auto.wait_completed(fleet, 4)
    assert daemon.stop() == 0
    assert fleet.log()[:2] == ["Task 4", "Task 3"]
    assert auto.auto(fleet)["source_repo_dirty_retry_count"] == 0


@pytest.mark.req("0-001", "0-003", "0-008", "0-092", "4-105")
@pytest.mark.soak
def test_options_and_a_daemon_without_auto(scripted: Fleet) -> None:
    """Break: start auto workers with every daemon; let --until end a running task;
    stop the user's agent with auto mode.
    """
    fleet = set_up(scripted)
    add(fleet, 1, commit(1, "sleep 4"))
    add(fleet, 2)
    for option in (["--max-tasks", "1"], ["--until", "07:30"], ["--concurrency", "2"]):
        assert f"{option[0]} requires --auto" in fleet.llmc("up", *option, code=2).err
    (fleet.root / "logs/auto.log").mkdir(parents=True)  # an unwritable log stops nothing
    daemon = Daemon(fleet, "--until", "4s")
    assert daemon.ends() == 0
    assert json.loads((fleet.root / ".llmc/auto.heartbeat").read_text())["instance_id"]
    assert auto.landed(fleet) == [1], "a started task is finished, and none is started"
    assert "auto mode finished: time limit reached" in daemon.said
    assert list(auto.state(fleet)["workers"]) == ["auto-1"]
    fleet.llmc("add", "adam")
    fleet.up()
    fleet.llmc("start", "--worker", "adam", "--prompt", commit(7))
    fleet.wait("adam", "needs_review")
    assert fleet.status("auto-1")["status"] == "offline"
    assert auto.statuses(fleet) == {"1": "completed", "2": "pending"}
    assert [row["task_id"] for row in fleet.events("task_assigned")] == ["1"]
    # Auto mode ends by itself: its own workers stop with it, the user's worker keeps running.
    agent = fleet.tmux("display-message", "-p", "-t", fleet.session("adam"), "#{pane_pid}")
    fleet.up("--auto", "--max-tasks", "1")
    auto.wait_for(fleet, lambda: not fleet.has_daemon())
    assert auto.statuses(fleet) == {"1": "completed", "2": "completed"}
    assert {name: row["status"] for name, row in auto.state(fleet)["workers"].items()} == {
        "auto-1": "offline",
        "adam": "needs_review",
    }
    assert fleet.tmux("list-panes", "-a", "-F", "#{pane_pid}") == agent


@pytest.mark.soak
def test_a_worker_that_is_held_does_not_keep_the_fleet_parked(scripted: Fleet) -> None:
    """Break: wait for a probe by a worker that the user holds; no worker would run until it is released."""
    fleet = set_up(scripted, **{"auto.limit_backoff_secs": "3"})
    done = f"echo 1 > file-1; git add file-1; {COMMIT} 'Task 1'"
    add(fleet, 1, "@limit 1", f"@on-resume {done}")
    daemon = Daemon(fleet, "--concurrency", "2")
    parked = auto.wait_for(fleet, lambda: fleet.events("fleet_parked"))[0]
    fleet.llmc("hold", parked["worker"])
    add(fleet, 2)
    auto.wait_completed(fleet, 1)
    assert auto.landed(fleet) == [2]
    fleet.llmc("release", parked["worker"])
    auto.wait_completed(fleet, 2)
    assert auto.landed(fleet) == [2, 1]
    assert not fleet.events("task_failed")
    assert daemon.stop() == 0
