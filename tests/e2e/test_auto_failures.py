"""Auto mode when something goes wrong: what is retried, what counts, what waits, and what ends it."""

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from llmc import hook_client
from tests.support import auto, on_postgres
from tests.support.attention import listed
from tests.support.auto import Daemon, add, commit, put, set_up, task_dir, until
from tests.support.fleet import Fleet
from tests.support.plans import COMMIT, ledger, tasks_of


def failures(fleet: Fleet) -> list[tuple[str, str, int]]:
    return [(row["task_id"], row["cause"], row["attempt"]) for row in fleet.events("task_failed")]


@pytest.mark.req("0-043", "4-063", "4-064")
def test_work_that_is_not_good_enough(scripted: Fleet) -> None:
    """Break: count no attempts in give_up, ask for a commit each time, or accept without `verify`."""
    fleet = set_up(scripted)
    out = fleet.marks
    verify = {"verify": "test -e good || { echo it is not good; false; }"}
    mend = f"@on-verify echo > good; git add good; {COMMIT} 'More of 1'"
    add(fleet, 1, commit(1), mend, llmc=verify)
    asked = f"@on-commit git add half; {COMMIT} 'Task 2'"
    add(fleet, 2, "@sh echo 2 > half", asked)
    # The first attempt does not do the work, not even when asked; the second one does.
    add(
        fleet,
        3,
        f"@sh test -e {out}/tried || {{ touch {out}/tried; echo kept > unfinished; exit 0; }}; {commit(3)[4:]}",
    )
    add(fleet, 4, commit(4), llmc={"verify": "echo never; false"})
    # Commits plus an uncommitted change: that cannot land.
    add(fleet, 5, commit(5), "@sh echo left > left", "@on-verify rm left")
    daemon = Daemon(fleet)
    auto.wait_for(fleet, lambda: auto.auto(fleet)["tasks_completed"] == 4, 60)
    auto.wait_for(fleet, lambda: fleet.events("task_quarantined"), 60)
    assert auto.landed(fleet) == [1, 2, 3, 5]
    assert failures(fleet) == [("3", "agent", 1), ("4", "task", 1), ("4", "task", 2), ("4", "task", 3)]
    assert auto.auto(fleet)["errors"] == 4
    sent_back = [(row["task_id"], row["round"]) for row in fleet.events("task_sent_back")]
    assert sent_back == [("1", 1), *[("4", 1), ("4", 2)] * 3, ("5", 1)]
    told = [text for text in fleet.user_turns() if "it is not good" in text]
    assert len(told) == 1
    assert any("auto-1 has uncommitted changes: left" in text for text in fleet.user_turns())
    bad = tasks_of(fleet)["4"]
    assert (bad["status"], "owner" in bad, bad["metadata"]["llmc"]["hold"]) == (
        "pending",
        False,
        "quarantined",
    )
    # The unfinished work is in the trash, and can be restored.
    ref = next(row["ref"] for row in fleet.events("task_failed") if row["task_id"] == "3")
    assert fleet.git("show", f"{ref}:unfinished", cwd=fleet.root) == "kept"
    assert ref.removeprefix("refs/llmc/trash/") in fleet.llmc("trash", "list").out
    assert daemon.stop() == 0


def test_wait_ends_when_nothing_runs_that_could_finish_the_tasks(scripted: Fleet) -> None:
    """Break: wait only for the tasks (until the timeout), or for no task at all (forever)."""
    fleet = set_up(scripted)
    add(fleet, 1, "@error 401")
    assert Daemon(fleet).ends() == 1
    waited = fleet.llmc("wait", "--tasks-done", code=1)
    (shown,) = (item for item in listed(fleet).values() if item["kind"] == "auto")
    assert f"1 task left, but {shown['text']}. Next: {shown['next']}" in waited.err
    waited = fleet.llmc("wait", "--tasks-done", "--timeout", "0", "--json", code=1)
    assert waited.json == {
        "reached": False,
        "open": ["1"],
        "needs_a_person": [],
        "problem": f"1 task left, but {shown['text']}",
    }


@pytest.mark.soak
def test_wait_ends_when_auto_mode_finished_early(scripted: Fleet) -> None:
    """As with `--until`: nothing failed, but a task stays open. Break: end only for a failure."""
    fleet = set_up(scripted)
    add(fleet, 1)
    add(fleet, 2)
    assert Daemon(fleet, "--max-tasks", "1").ends() == 0
    waited = fleet.llmc("wait", "--tasks-done", code=1)
    said = "1 task left, but auto mode finished: --max-tasks 1 reached. Next: llmc up --auto --detach --max-tasks 1"
    assert said in waited.err
    if fleet.rows is None:  # another root, or a client, has the task; among nodes: test_fleet_auto.py
        put(fleet, {**tasks_of(fleet)["2"], "status": "in_progress", "owner": "somebody"})
        assert "timed out: 1 task left" in fleet.llmc("wait", "--tasks-done", "--timeout", "0", code=1).err


@pytest.mark.soak
@pytest.mark.req("0-051", "0-081", "0-084", "4-064")
def test_what_goes_wrong_between_a_claim_and_its_prompt(scripted: Fleet) -> None:
    """Break: wait for the lanes without a time limit.

    Or treat an unreadable task as a configuration failure, which ends auto mode.
    Or let a reset leave the task on a worker that is already idle; it would be reset forever.
    """
    fleet = set_up(scripted)
    # A hanging lane does not keep the daemon from exiting.
    add(fleet, 1)
    daemon = Daemon(fleet, LLMC_FAULT="claim.ledger:after:hang")
    auto.wait_for(fleet, lambda: any(row["action"] == "claimed" for row in ledger(fleet)))
    assert daemon.stop() == 0
    assert "the daemon's work on auto-1 did not finish within 10 s" in daemon.said
    assert fleet.tmux("list-sessions") == ""
    daemon = Daemon(fleet, "--max-tasks", "1")
    assert daemon.ends() == 0
    assert auto.landed(fleet) == [1]
    if fleet.rows is None:
        _a_file_breaks_after_it_was_taken(fleet)
    assert failures(fleet) == []
    # A prompt that is never received.
    add(fleet, 4)
    resets = len(fleet.events("worker_reset"))
    fault = ",".join(f"submit.enter:before:fail:{number}" for number in (1, 2, 3))
    daemon = Daemon(fleet, LLMC_FAULT=fault)
    auto.wait_for(fleet, lambda: auto.landed(fleet)[-1] == 4)
    assert failures(fleet) == [("4", "agent", 1)]
    assert "cannot deliver the prompt" in fleet.events("task_failed")[0]["reason"]
    assert len(fleet.events("worker_reset")) - resets <= 2
    assert daemon.stop() == 0


def _a_file_breaks_after_it_was_taken(fleet: Fleet) -> None:
    add(fleet, 2)
    daemon = Daemon(fleet, LLMC_FAULT="claim.record:after:kill")
    daemon.ends()
    (task_dir(fleet) / "2.json").write_text("{ no task")
    os.utime(task_dir(fleet) / "2.json", (1, 1))
    add(fleet, 3)
    before = len(fleet.events("task_released"))
    daemon = Daemon(fleet)
    auto.wait_for(fleet, lambda: auto.landed(fleet) == [1, 3])
    assert [row["task_id"] for row in fleet.events("task_released")[before:]] == ["2"]
    add(fleet, 2)
    auto.wait_for(fleet, lambda: auto.landed(fleet) == [1, 3, 2])
    assert daemon.stop() == 0


@pytest.mark.req("0-051", "0-052", "0-055", "4-064")
@pytest.mark.soak
def test_crashes_limits_and_lost_sessions(scripted: Fleet) -> None:
    """Break: count a limit as a failure, probe with every worker, or leave a dead agent as it is.

    Or restart a crashed agent's task immediately: leave `waits_s` out of `_startable`.
    """
    fleet = set_up(scripted, **{"auto.crash_backoff_secs": "1.5"})
    out = fleet.marks
    add(
        fleet,
        1,
        f"@sh test -e {out}/crashed || {{ touch {out}/crashed; kill -9 $PPID; sleep 9; }}",
        commit(1),
    )
    done = f"echo 2 > file-2; git add file-2; {COMMIT} 'Task 2'"
    add(fleet, 2, f"@sh touch {out}/limit", "@limit 1", f"@on-resume {done}")
    daemon = Daemon(fleet, "--concurrency", "2")
    auto.wait_for(fleet, lambda: fleet.events("fleet_parked"))
    add(fleet, 3)
    auto.wait_completed(fleet, 3)
    parked, resumed = fleet.events("fleet_parked"), fleet.events("fleet_resumed")
    assert [row["cause"] for row in parked] == ["limit"]
    assert len(resumed) == 1
    begun = next(row["ts"] for row in fleet.events("task_assigned") if row["task_id"] == "3")
    assert begun >= resumed[0]["ts"], "no worker gets a task while the fleet is parked"
    assert failures(fleet) == [("1", "crash", 1)]
    go = fleet.marks / "go"
    add(fleet, 4, commit(4, until(go)))
    worker = auto.wait_for(fleet, lambda: next(iter(auto.at_work(fleet)), None))
    auto.wait_for(fleet, lambda: auto.state(fleet)["workers"][worker]["status"] == "working")
    fleet.tmux("kill-session", "-t", fleet.session(worker))
    auto.wait_for(fleet, lambda: [row["cause"] for row in fleet.events("task_released")] == ["tmux"])
    go.touch()
    auto.wait_completed(fleet, 4)
    assert failures(fleet) == [("1", "crash", 1)], "a lost session counts against no task"
    assert auto.auto(fleet)["parks"] == 0
    once = f"@sh test -e {out}/crashed-5 || {{ touch {out}/crashed-5; kill -9 $PPID; sleep 9; }}"
    add(fleet, 5, once, commit(5))
    auto.wait_completed(fleet, 5)
    assert sorted(auto.landed(fleet)) == [1, 2, 3, 4, 5]
    crashed = fleet.events("task_failed")[-1]
    again = [row["ts"] for row in fleet.events("task_assigned") if row["task_id"] == "5"][1]
    assert (crashed["task_id"], crashed["attempt"]) == ("5", 1)
    assert 0 < crashed["retry_in_s"] <= 1.5
    (failed,) = [row["ts"] for row in ledger(fleet) if (row["action"], row["task"]) == ("failed", "5")]
    assert again - failed >= 1.5, "although no worker had anything else to do"
    assert daemon.stop() == 0


@pytest.mark.req(
    "0-006",
    "0-030",
    "0-054",
    "0-056",
    "0-080",
    "0-082",
    "0-083",
    "0-084",
    "4-002",
    "4-073",
    "4-093",
    "4-103",
    "4-104",
)
@pytest.mark.soak
def test_what_ends_it(scripted: Fleet) -> None:
    """Break: retry after an auth error, exit with 0, or complete the task after its post-accept command."""
    fleet = set_up(scripted, **{"auto.crash_backoff_secs": "60"})
    fleet.llmc("config", "unset", "auto.task_list_id")
    assert "auto.task_list_id is not set" in fleet.llmc("up", "--auto", code=2).err
    fleet.llmc("config", "set", "auto.task_list_id", "plan")
    context = fleet.source / ".claude/llmc_task_context.toml"
    context.parent.mkdir()
    context.write_text("[ui\n")
    refused = fleet.llmc("up", "--auto", code=1).err
    assert "cannot use the task context" in refused
    assert "llmc_task_context.toml: " in refused
    context.unlink()
    assert not fleet.events("session_launched"), "all messages before an agent starts"
    # The login is gone: no retry.
    add(fleet, 1, "@sh echo begun > begun", "@error 401")
    daemon = Daemon(fleet)
    assert daemon.ends() == 1
    assert "auto mode failed (auth): Please run /login" in daemon.said
    failed = fleet.events("auto_failed")[-1]
    assert (failed["worker"], failed["task_id"], failed["cause"]) == ("auto-1", "1", "auth")
    assert failed["status"] == "error"
    assert "auto-1 was error" in (fleet.root / "logs/auto.log").read_text()
    assert (tasks_of(fleet)["1"]["status"], tasks_of(fleet)["1"].get("owner")) == ("pending", None)
    assert (fleet.worktree("auto-1") / "begun").read_text() == "begun\n", "worktrees stay as they are"
    assert fleet.tmux("list-sessions") == ""
    assert len(fleet.events("task_assigned")) == 1
    # Fixed; a landed commit stays when the post-accept command fails.
    add(fleet, 1)
    daemon = Daemon(fleet, "--post-accept-command", "echo broken pipe; exit 7")
    assert daemon.ends() == 1
    assert auto.landed(fleet) == [1]
    assert auto.statuses(fleet) == {"1": "completed"}
    worker = auto.state(fleet)["workers"]["auto-1"]
    assert worker.get("assignment") is None
    assert [row["code"] for row in fleet.events("post_accept")] == [7]
    rows = [json.loads(line) for line in (fleet.root / "logs/daemon.jsonl").read_text().splitlines()]
    last = [row for row in rows if row["level"] == "ERROR"][-1]
    assert (last["action"], last["cause"], last["task_id"]) == ("auto_failed", "command", "1")
    assert (last["worker"], last["status"]) == ("auto-1", "idle")
    assert last["task_file"] == (fleet.rows.where("1") if fleet.rows else str(task_dir(fleet) / "1.json"))
    assert last["message"] == "the post-accept command failed with exit code 7"
    assert "broken pipe" in last["output"]
    assert "broken pipe" in (fleet.root / "logs/auto.log").read_text()
    # A claim that cannot be written.
    add(fleet, 5)
    daemon = Daemon(fleet, LLMC_FAULT="claim.ledger:before:fail")
    assert daemon.ends() == 1
    assert "auto mode failed (task): injected fault claim.ledger" in daemon.said
    auto.remove(fleet, 5)
    # Two tasks of one worker fail for the same reason: the tasks are not at fault.
    for number in (2, 3):
        add(fleet, number, "@crash 3")
    add(fleet, 4, after=(2, 3))
    daemon = Daemon(fleet)
    assert daemon.ends(60) == 1
    assert "tasks 2, 3 failed on auto-1 for the same reason (crash)" in daemon.said
    # While the first of them waits, the other one starts.
    assert failures(fleet)[-2:] == [("2", "crash", 1), ("3", "crash", 1)]


@pytest.mark.req("4-023", "4-024", "4-094", "4-095", "4-106")
def test_a_list_that_cannot_be_followed(scripted: Fleet) -> None:
    """Break: leave the cycle, or missing dependencies, out of `stuck`."""
    fleet = set_up(scripted)
    good = {"subject": "S", "description": "", "status": "pending", "blocks": [], "blockedBy": []}
    bad = {
        "task 7 depends on task 99, which does not exist": {**good, "id": "7", "blockedBy": ["99"]},
        "dependency cycle: 8": {**good, "id": "8", "blocks": ["8"]},
    }
    for words, task in bad.items():
        put(fleet, task)
        assert words in fleet.llmc("up", "--auto", code=1).err
        auto.remove(fleet, int(task["id"]))
    assert not fleet.events("session_launched")


@on_postgres.TASK_FILES
@pytest.mark.req("4-041", "4-090", "4-091", "4-092", "4-106")
def test_files_that_are_no_tasks_stop_nobody(scripted: Fleet) -> None:
    """Break: read a file once, while it is written; raise for an unreadable one or skip it; clear nothing."""
    fleet = set_up(scripted)
    unreadable = task_dir(fleet) / "6.json"  # even for root
    unreadable.symlink_to(unreadable.name)
    (task_dir(fleet) / "7.json").write_text(json.dumps({"id": "7"}))
    os.utime(task_dir(fleet) / "7.json", (1, 1))
    add(fleet, 1)
    add(fleet, 9, after=(7,))
    daemon = Daemon(fleet)
    auto.wait_completed(fleet, 1)

    def noted() -> set[str]:
        return {item["who"] for item in auto.state(fleet).get("attention", {}).values()}

    def told() -> dict[str, str]:
        rows = fleet.llmc("status", "--json").json["attention"]
        return {row["who"]: f"{row['kind']} {row['text']}" for row in rows}

    auto.wait_for(fleet, lambda: noted() == {"6.json", "7.json"})
    assert sorted(told()) == ["6.json", "7.json"]
    assert "6.json is not a valid task: Too many levels of symbolic links" in told()["6.json"]
    unreadable.unlink()
    auto.wait_for(fleet, lambda: noted() == {"7.json"})
    assert f"bad_input {task_dir(fleet)}/7.json is not a valid task: `subject` is missing" in told()["7.json"]
    # A file that is just being written gets a second; then it counts.
    (task_dir(fleet) / "8.json").write_text('{"id": "8"')
    auto.wait_for(fleet, lambda: {"7.json", "8.json"} == noted())
    assert "invalid JSON" in told()["8.json"]
    # While an agent is working, tasks are linked in a cycle: they are held, and block no other task.
    nine = json.loads((task_dir(fleet) / "9.json").read_text())
    linked = [{**nine, "id": str(n), "blockedBy": [str(81 - n)]} for n in (40, 41)]
    began, go = fleet.marks / "began", fleet.marks / "go"
    add(fleet, 2, f"@sh touch {began}; {until(go)}", commit(2))
    auto.wait_for(fleet, began.exists)
    for task in linked:
        (task_dir(fleet) / f"{task['id']}.json").write_text(json.dumps(task))
    go.touch()
    auto.wait_completed(fleet, 2)
    auto.wait_for(fleet, lambda: "40" in noted())
    assert "stuck dependency cycle: 40, 41" in told()["40"]
    (task_dir(fleet) / "8.json").unlink()
    add(fleet, 7)
    auto.wait_completed(fleet, 4)  # 9 was waiting for it
    (task_dir(fleet) / "40.json").unlink()
    (task_dir(fleet) / "41.json").unlink()
    auto.wait_for(fleet, lambda: not noted())
    assert told() == {}
    assert daemon.stop() == 0


@on_postgres.TASK_FILES
@pytest.mark.req("4-011", "4-066")
@pytest.mark.soak
def test_a_night_with_hostile_files(scripted: Fleet) -> None:
    """Break: pass a task's text on as it is (surrogates, ESC); count what cannot be typed as a git failure;
    or read a file that blocks or fills the memory. Or give out a task with an invalid label; or leave a task
    that its file calls in progress, but that no worker has.
    """
    fleet = set_up(scripted)
    folder = task_dir(fleet)
    good = {
        "description": "",
        "status": "pending",
        "blocks": [],
        "blockedBy": [],
        "metadata": {"priority": 0},
    }

    def put(number: int, **fields: Any) -> None:
        path = folder / f"{number}.json"
        path.write_text(json.dumps({**good, "id": str(number), **fields}))
        os.utime(path, (1, 1))

    put(1, subject="A cut emoji \ud83d", description=commit(1))
    put(2, subject="A pasted log", description=f"\x1b[31mred\x1b[0m\x07\n{commit(2)}")
    put(3, subject=" ", description="\u200b")
    put(4, subject="", description="")
    put(5, subject="NaN", metadata={"priority": float("nan")})
    put(6, subject="Far away", metadata={"priority": 10**400, "llmc": {"budget": {"max_cost": 10**400}}})
    put(7, subject="x" * 5_000, description=commit(7))
    (folder / "8.json").write_text("[" * 100_000)
    os.mkfifo(folder / "9.json")
    (folder / "10.json").symlink_to("/dev/zero")
    with (folder / "11.json").open("wb") as file:
        file.truncate(1 << 30)
    (folder / "12.json").mkdir()
    put(13, subject="Odd", blockedBy=["../../x"])
    put(14, subject="Line\u2028ends\x85and\x0cmore", description=commit(14))
    put(15, subject="Labelled", description=commit(15), metadata={"label": "a b"})
    put(16, subject="Nobody's", description=commit(16), status="in_progress")
    for number in (8, 9, 10, 11, 12):
        os.utime(folder / f"{number}.json", (1, 1), follow_symlinks=False)
    add(fleet, 20, priority=4)
    found = fleet.llmc("doctor", "--json", code=None).json["findings"]
    assert [row["text"] for row in found if row["kind"] == "unowned_task"] == [
        "task 16 is marked in progress, but no worker has claimed it"
    ]
    daemon = Daemon(fleet)
    auto.wait_completed(fleet, 6, 90)
    auto.wait_for(fleet, lambda: sorted(auto.landed(fleet)) == [1, 2, 7, 14, 16, 20])
    assert [row["reason"] for row in fleet.events("task_released") if row["task_id"] == "16"] == [
        "the task was in progress without an owner"
    ]
    states = {row["id"]: row["state"] for row in fleet.llmc("tasks", "list", "--json", code=1).json["tasks"]}
    assert {name: states[name] for name in ("3", "4")} == {"3": "quarantined", "4": "quarantined"}
    assert "cannot send the task text: the prompt is empty" in fleet.llmc("tasks", "show", "3").out
    told = {row["who"]: row["kind"] for row in fleet.llmc("status", "--json").json["attention"]}
    bad = {f"{number}.json": "bad_input" for number in (5, 6, 8, 9, 10, 11, 12, 13, 15)}
    assert told == {**bad, "3": "quarantined", "4": "quarantined"}
    assert "bug in the daemon's work" not in (fleet.root / "logs/daemon.jsonl").read_text()
    assert daemon.stop() == 0
    for command in (("tasks", "list"), ("tasks", "graph"), ("digest",), ("doctor",), ("status",)):
        assert "bug in llmc" not in fleet.llmc(*command, code=None).err


@pytest.mark.req("0-056", "0-070", "0-071", "0-072")
@pytest.mark.soak
def test_a_state_without_its_workers(scripted: Fleet) -> None:
    """Break: leave `_compare` out of the tick."""
    fleet = set_up(scripted)
    path = fleet.root / "state.json"
    daemon = Daemon(fleet, "--concurrency", "2")
    auto.wait_for(fleet, lambda: "auto mode started with 2 workers" in daemon.said)
    with fleet.frozen_daemon():
        workers = auto.state(fleet)["workers"]
        path.write_text(json.dumps({**auto.state(fleet), "workers": {"auto-1": workers["auto-1"]}}))
    auto.wait_for(fleet, lambda: "auto workers missing from state.json (1 of 2): auto-2" in daemon.said)
    rows = [json.loads(line) for line in (fleet.root / "logs/daemon.jsonl").read_text().splitlines()]
    assert [(row["level"], row["workers"]) for row in rows if row["action"] == "workers_missing"] == [
        ("WARNING", ["auto-2"])
    ]
    add(fleet, 1)
    auto.wait_completed(fleet, 1)
    with fleet.frozen_daemon():
        path.write_text(json.dumps({**auto.state(fleet), "workers": {}}))
    assert daemon.ends() == 1
    assert "state corruption: no auto workers" in daemon.said
    daemon = Daemon(fleet)
    auto.wait_for(fleet, lambda: "auto mode started with 1 worker" in daemon.said)
    with fleet.frozen_daemon():
        path.write_text("{ no state")
    assert daemon.ends() == 1
    assert "state corruption" in daemon.said
    assert fleet.tmux("list-sessions") == ""


@pytest.mark.req("0-056", "0-215", "0-223", "0-224")
@pytest.mark.soak
def test_what_else_nobody_would_notice(scripted: Fleet) -> None:
    """Break: continue without the hooks' socket or with a broken config; wait forever for a stale lock."""
    fleet = set_up(scripted)
    daemon = Daemon(fleet)
    auto.wait_for(fleet, lambda: "auto mode started with 1 worker" in daemon.said)
    (fleet.root / ".llmc/run/wake.sock").unlink()
    assert daemon.ends() == 1
    assert "cannot receive hooks: the socket" in daemon.said
    config = fleet.root / "config.toml"
    good = config.read_text()
    daemon = Daemon(fleet)
    auto.wait_for(fleet, lambda: "auto mode started with 1 worker" in daemon.said)
    config.write_text(f"{good}\nno toml [\n")
    assert daemon.ends() == 1
    assert fleet.events("auto_failed")[-1]["cause"] == "config"
    config.write_text(good)
    if fleet.rows is None:
        _a_stale_lock_of_the_source(fleet)


def _a_stale_lock_of_the_source(fleet: Fleet) -> None:
    """A node lands on the remote."""
    add(fleet, 1)
    lock = fleet.source / ".git/refs/heads/main.lock"
    lock.touch()
    os.utime(lock, (1, 1))
    daemon = Daemon(fleet)
    assert daemon.ends() == 1
    assert f"stale git lock file {lock}" in daemon.said
    assert auto.landed(fleet) == []
    lock.unlink()
    daemon = Daemon(fleet, "--max-tasks", "1")
    assert daemon.ends() == 0
    assert auto.landed(fleet) == [1]


@on_postgres.CHECKOUT
@pytest.mark.req("0-060", "0-063", "0-064", "0-065", "0-240")
@pytest.mark.soak
def test_a_source_in_use(scripted: Fleet) -> None:
    """Break: forget the wait at a restart, or count no retries."""
    fleet = set_up(scripted)
    readme = fleet.source / "README.md"
    readme.write_text("a person writes\n")
    add(fleet, 1)
    daemon = Daemon(fleet)
    auto.wait_for(fleet, lambda: "attempt 1/10" in daemon.said)
    assert (
        "Source repository has uncommitted changes. Will retry in 60 seconds (attempt 1/10)." in daemon.said
    )
    assert fleet.status("auto-1")["status"] == "needs_review"
    fleet.kill_daemon()
    daemon.ends()
    waits = auto.auto(fleet)
    assert (waits["source_repo_dirty_backoff_secs"], waits["source_repo_dirty_retry_count"]) == (60, 1)
    # The wait is over for the next daemon: one more try, and the next wait is twice as long.
    _end_the_wait(fleet)
    daemon = Daemon(fleet)
    auto.wait_for(fleet, lambda: "Will retry in 120 seconds (attempt 2/10)." in daemon.said)
    assert (auto.landed(fleet), readme.read_text()) == ([], "a person writes\n")
    fleet.kill_daemon()
    daemon.ends()
    fleet.git("commit", "-qam", "By a person")
    _end_the_wait(fleet)
    daemon = Daemon(fleet)
    auto.wait_completed(fleet, 1)
    assert fleet.log()[:2] == ["Task 1", "By a person"]
    after = auto.auto(fleet)
    assert (after["source_repo_dirty_retry_after_unix"], after["source_repo_dirty_retry_count"]) == (0, 0)
    # Ten retries failed: the next one is the last.
    readme.write_text("again\n")
    assert daemon.stop() == 0
    _change_auto(fleet, source_repo_dirty_retry_count=10)
    add(fleet, 2)
    daemon = Daemon(fleet)
    assert daemon.ends() == 1
    assert "gave up waiting for the source repository" in daemon.said
    assert auto.auto(fleet)["errors"] == 1
    assert readme.read_text() == "again\n"


@on_postgres.CHECKOUT
@pytest.mark.req("0-060", "0-064")
def test_a_source_that_is_clean_again_is_noticed(scripted: Fleet) -> None:
    """Break: land only when the wait is over; or look at the source only once."""
    fleet = set_up(scripted, **{"auto.concurrency": "1", "auto.dirty_backoff_secs": "600"})
    readme, untracked = fleet.source / "README.md", fleet.source / "file-2"
    readme.write_text("a person writes\n")
    add(fleet, 1)
    daemon = Daemon(fleet)
    auto.wait_for(fleet, lambda: fleet.events("source_dirty"))
    fleet.git("commit", "-qam", "By a person")
    auto.wait_completed(fleet, 1, 20)
    # A file that the work would overwrite.
    untracked.write_text("mine\n")
    add(fleet, 2)
    auto.wait_for(fleet, lambda: len(fleet.events("source_dirty")) == 2)
    untracked.unlink()
    auto.wait_completed(fleet, 2, 20)
    assert [row["attempt"] for row in fleet.events("source_dirty")] == [1, 1], (
        "it is tried only when it is clean"
    )
    assert "the source repository is clean again; landing" in daemon.said
    assert daemon.stop() == 0


def _end_the_wait(fleet: Fleet) -> None:
    _change_auto(fleet, source_repo_dirty_retry_after_unix=1.0)


def _change_auto(fleet: Fleet, **fields: float) -> None:
    found = auto.state(fleet)
    found["auto"].update(fields)
    (fleet.root / "state.json").write_text(json.dumps(found))


@pytest.mark.req("0-032", "0-033", "0-040", "0-084", "4-063", "4-065")
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.soak)])
def test_the_end_and_the_next_start(scripted: Fleet, number: signal.Signals) -> None:
    """Break: kill running agents at a start, keep the claims at the end, or pin nothing.

    Or show the start of a released task's prompt, which is the prologue. Or leave settle_claim out of
    _assign: a task whose worker became idle before it was sent would be lost.
    """
    fleet = set_up(scripted)
    (fleet.source / ".claude").mkdir()
    fleet.commit(".claude/llmc_task_context.toml", '[default]\nprologue = "Mind the gap."\n', "Context")
    go = fleet.marks / "go"
    add(fleet, 1, f"@sh echo half > half; {until(go)}; rm half", commit(1))
    daemon = Daemon(fleet)
    auto.wait_for(fleet, lambda: (fleet.worktree("auto-1") / "half").exists())
    fleet.kill_daemon()
    daemon.ends()
    daemon = Daemon(fleet)
    auto.wait_for(fleet, lambda: "auto mode started with 1 worker" in daemon.said)
    assert len(fleet.events("session_launched")) == 1, "the running agent continues"
    assert auto.at_work(fleet) == {"auto-1": "1"}
    assert daemon.stop(number) == 0
    assert tasks_of(fleet)["1"]["status"] == "pending"
    assert "owner" not in tasks_of(fleet)["1"]
    released = fleet.events("task_released")
    assert [(row["task_id"], row["reason"]) for row in released] == [("1", "the daemon was stopped")]
    assert (fleet.worktree("auto-1") / "half").read_text() == "half\n"
    assert released[0]["ref"].removeprefix("refs/llmc/trash/") in fleet.llmc("trash", "list").out
    assert fleet.git("show", f"{released[0]['ref']}:half", cwd=fleet.root) == "half"
    assert fleet.tmux("list-sessions") == ""
    assert "Mind the gap." in fleet.status("auto-1")["prompt"]
    assert "Do 1" in fleet.llmc("status").out
    for command in ("status", "digest", "doctor"):
        assert "Mind the gap." not in fleet.llmc(command, code=None).out
    go.touch()
    daemon = Daemon(fleet, "--max-tasks", "1")
    assert daemon.ends() == 0
    assert auto.landed(fleet) == [1]
    assert "half" not in fleet.git("ls-tree", "--name-only", "main")
    # Killed while its agent is restarted with the task's model.
    add(fleet, 2, llmc={"model": "haiku"})
    daemon = Daemon(fleet, LLMC_FAULT="session.launch:before:kill:2")
    daemon.ends()
    daemon = Daemon(fleet, "--max-tasks", "1")
    assert daemon.ends() == 0
    assert auto.landed(fleet) == [1, 2]
    assert fleet.events("session_launched")[-1]["model"] == "haiku"
    assert not fleet.events("task_failed")
    assert len(fleet.events("worker_added")) == 1, "the worker of the first start is used again"


@pytest.mark.req("4-064")
def test_a_task_that_takes_too_long(scripted: Fleet) -> None:
    """Break: leave the task's time limit out of steps._with_task."""
    fleet = set_up(scripted, **{"auto.task_timeout_secs": "4", "defaults.patrol_interval_secs": "1"})
    slow = fleet.marks / "slow"
    add(fleet, 1, f"@sh test -e {slow} || {{ touch {slow}; echo half > half; sleep 300; }}", commit(1))
    daemon = Daemon(fleet)
    auto.wait_completed(fleet, 1)
    assert failures(fleet) == [("1", "agent", 1)]
    assert fleet.events("task_failed")[0]["reason"] == "timed out after 4 s"
    ref = fleet.events("task_failed")[0]["ref"]
    assert fleet.git("show", f"{ref}:half", cwd=fleet.root) == "half"
    assert daemon.stop() == 0


@pytest.mark.soak
def test_a_limit_while_conflicts_are_resolved(scripted: Fleet) -> None:
    """Break: leave `rebasing` out of what a limit can stop; patrol calls it stalled and gives the task up."""
    fleet = set_up(scripted)
    out = fleet.marks
    resolve = (
        f"@on-conflict touch {out}/told; {until(out / 'resolve')}; git checkout --theirs shared; git add shared; "
        "git -c user.name=W -c user.email=w@example.com -c core.editor=true rebase --continue"
    )
    work = f"@sh touch {out}/one; {until(out / 'go')}; echo 1 > shared; git add shared; {COMMIT} 'Task 1'"
    add(fleet, 1, work, resolve)
    daemon = Daemon(fleet)
    auto.wait_for(fleet, lambda: (out / "one").exists())
    fleet.commit("shared", "a person's", "By a person")
    (out / "go").touch()
    auto.wait_for(fleet, lambda: (out / "told").exists())
    hook(fleet, "auto-1", hook_event_name="StopFailure", error="rate_limit", last_assistant_message="limit")
    auto.wait_for(fleet, lambda: fleet.events("fleet_parked"))
    assert fleet.status("auto-1")["status"] == "rebasing"
    auto.wait_for(
        fleet, lambda: len([t for t in fleet.prompts_in_transcripts() if "[llmc conflict-" in t]) == 2
    )
    (out / "resolve").touch()
    auto.wait_completed(fleet, 1)
    assert fleet.log()[:2] == ["Task 1", "By a person"]
    assert failures(fleet) == []
    auto.wait_for(fleet, lambda: fleet.events("fleet_resumed"))
    assert daemon.stop() == 0


def hook(fleet: Fleet, worker: str, **payload: str) -> None:
    """What the agent's own hook would report now."""
    env = {**fleet.env, "LLMC_INSTANCE": auto.state(fleet)["workers"][worker]["instance"]}
    argv = [sys.executable, "-I", "-S", hook_client.__file__, str(fleet.root / ".llmc/inbox" / worker)]
    body = json.dumps(payload).encode()
    subprocess.run([*argv, str(fleet.root / ".llmc/run/wake.sock")], input=body, env=env, check=True)


@pytest.mark.req("0-043", "4-064")
@pytest.mark.soak
def test_a_default_branch_that_fails_its_own_validation(scripted: Fleet) -> None:
    """No task is at fault: no attempt counts, no task starts, the work lands once the branch passes.

    Break: catch BaseFails as any CommandFailed in `land`,
    or give out tasks while the state has a `failing_base`.
    """
    fleet = scripted
    fleet.commit("check.sh", "test ! -e bad || { echo E: it is bad; false; }\n", "Add a check")
    fleet.commit("bad", "bad\n", "Break main")
    set_up(
        fleet, **{"repo.validate": "sh check.sh", "auto.concurrency": "2", "auto.dirty_backoff_secs": "0.5"}
    )
    add(fleet, 1)
    daemon = Daemon(fleet)
    # Nothing has passed in a slot yet: the base is checked in the worktree.
    auto.wait_for(fleet, lambda: fleet.events("base_failed"))
    add(fleet, 2)
    (item,) = [item for item in fleet.llmc("status", "--json").json["attention"] if item["key"] == "base"]
    assert (item["kind"], item["severity"], item["who"]) == ("base_fails", "blocked", "main")
    assert item["text"].startswith("main itself fails `sh check.sh` (at ")
    show = subprocess.run(item["next"].replace("less", "cat"), shell=True, capture_output=True, text=True)
    assert "E: it is bad" in show.stdout
    assert "main itself fails `sh check.sh`" in fleet.llmc("digest").out
    fleet.commit("note", "x\n", "Another commit on a main that still fails")
    auto.wait_for(fleet, lambda: len(fleet.events("base_failed")) == 2)
    assert [row["task_id"] for row in fleet.events("task_assigned")] == ["1"]
    fix(fleet)
    auto.wait_completed(fleet, 2)
    assert auto.landed(fleet) == [1, 2]
    assert seq(fleet, "base_passed") < seq(fleet, "task_assigned"), "task 2 started after that"
    # A slot has worked: the base is checked there. A restart releases the task; no worker has pending work.
    fleet.commit("bad", "bad\n", "Break main again")
    add(fleet, 3)
    auto.wait_for(fleet, lambda: len(fleet.events("base_failed")) == 3)
    assert daemon.stop() == 0
    daemon = Daemon(fleet)
    auto.wait_for(fleet, lambda: len(fleet.events("auto_started")) == 2)
    fix(fleet)
    auto.wait_completed(fleet, 3)
    assert seq(fleet, "base_passed") < seq(fleet, "task_assigned"), "task 3 started again after that"
    assert "base" not in auto.state(fleet)["attention"]
    assert failures(fleet) == []
    assert fleet.events("task_sent_back") == []
    assert daemon.stop() == 0


def fix(fleet: Fleet) -> None:
    fleet.git("rm", "-q", "bad")
    fleet.git("commit", "-q", "-m", "Fix main")


def seq(fleet: Fleet, action: str) -> int:
    """The number of the latest event of that kind."""
    return int(fleet.events(action)[-1]["seq"])
