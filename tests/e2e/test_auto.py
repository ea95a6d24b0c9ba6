"""Auto mode when all goes well: the order of tasks, what the agent is told, what lands, what is recorded."""

import json
import re
from typing import Any

import pytest

from tests.support import auto
from tests.support.auto import Daemon, add, commit, put, set_up, task_dir, until
from tests.support.fleet import Fleet
from tests.support.plans import COMMIT, tasks_of

CONTEXT = """
[default]
prologue = "Of all tasks."
[ui]
prologue = "Of the UI."
epilogue = "Look at it in a browser."
"""


def lines(fleet: Fleet, name: str) -> list[str]:
    return (fleet.marks / name).read_text().splitlines()


@pytest.mark.req(
    "0-002", "0-004", "0-005", "0-008", "0-010", "0-011", "0-020", "0-022", "0-031", "0-034", "0-041", "0-044",
    "0-045", "0-047", "0-048", "0-073", "0-084", "0-090", "0-095", "4-003",
    "4-004", "4-006", "4-020", "4-021", "4-022",
    "4-025", "4-045", "4-046", "4-060", "4-061", "4-062", "4-070", "4-072", "4-100", "4-107",
)  # fmt: skip
def test_tasks_land_one_after_another(scripted: Fleet) -> None:
    """Break: leave the priority out of `choose.rank`, complete the task after post_accept, or run it twice.

    Or keep the task's own model afterwards: `has_its_model` always true.
    """
    fleet = set_up(scripted, **{"auto.post_accept_command": "exit 9"})
    (fleet.source / ".claude").mkdir()
    fleet.commit(".claude/llmc_task_context.toml", CONTEXT, "Context of tasks")
    root, out = fleet.root, fleet.marks
    look = f"@sh touch {out}/at-4; {until(out / 'seen')}"
    add(fleet, 2, priority=2)
    add(fleet, 10, priority=2, label="ui", llmc={"model": "haiku"})
    add(fleet, 3, after=(10,), priority=0)
    add(fleet, 4, look, commit(4, "git fetch -q"), priority=1, label="odd")
    add(fleet, 5, "@sh llmc report done --no-changes 'it is there'")
    signed = f"@sh echo 6 > file-6; git add file-6; {COMMIT} 'Task 6' -m 'Co-Authored-By: Claude <noreply@anthropic.com>'"
    add(fleet, 6, signed, priority=4)
    put(fleet, {**tasks_of(fleet)["6"], "blocks": ["7"]})
    add(fleet, 7, priority=0)
    (task_dir(fleet) / "notes.txt").write_text("no task")
    other = fleet.dir / "tasks/other"
    other.mkdir()
    (other / "1.json").write_text("{ no task, and of no interest")
    after = (
        f"pwd >> {out}/where; echo $LLMC_TASK_ID $FROM_OUTSIDE >> {out}/done; cp {root}/state.json {out}/after-$LLMC_TASK_ID.json; "
        f"cp {root}/.llmc/daemon.json {root}/.llmc/auto.heartbeat {out}; git log -1 --format=%s"
    )
    given = {"FROM_OUTSIDE": "yes", "LLMC_TRACE": "1"}
    daemon = Daemon(fleet, "--max-tasks", "7", "--post-accept-command", after, **given)
    auto.wait_for(fleet, (out / "at-4").exists)
    _check_claim(fleet)
    (out / "seen").touch()
    assert daemon.ends() == 0, daemon.said
    assert auto.landed(fleet) == [4, 2, 10, 3, 6, 7]
    assert [row["task_id"] for row in fleet.events("task_completed")] == ["4", "2", "10", "3", "5", "6", "7"]
    assert set(auto.statuses(fleet).values()) == {"completed"}
    assert not any("owner" in task for task in tasks_of(fleet).values())
    assert "Co-Authored" not in fleet.git("log", "--format=%B", "main")
    _check_log(fleet)
    _check_prompts(fleet)
    _check_models(fleet)
    _check_post_accept(fleet)
    assert "--max-tasks 7 reached" in daemon.said
    assert auto.auto(fleet)["tasks_completed"] == 7
    assert not fleet.events("task_failed")


def _check_claim(fleet: Fleet) -> None:
    """What is visible while the agent works on task 4."""
    claimed = tasks_of(fleet)["4"]
    assert (claimed["owner"], claimed["status"]) == ("auto-1", "in_progress")
    worker = auto.state(fleet)["workers"]["auto-1"]
    assert worker["assignment"]["task_id"] == "4"
    assert worker["assignment"]["claim"] == claimed["metadata"]["llmc"]["claim"]
    assert worker["worktree_path"] == str(fleet.worktree("auto-1"))
    daemon = json.loads((fleet.root / ".llmc/daemon.json").read_text())
    first = json.loads((fleet.root / ".llmc/auto.heartbeat").read_text())
    assert first["instance_id"] == daemon["instance_id"], "before the first task"


def _check_log(fleet: Fleet) -> None:
    log = (fleet.root / "logs/daemon.jsonl").read_text().splitlines()
    writes = [row for row in map(json.loads, log) if row.get("action") == "state_written"]
    assert writes
    assert {row["message"] for row in writes} == {"state.json written (workers: 1, auto workers: 1)"}


def _check_prompts(fleet: Fleet) -> None:
    by_task = {text.partition("\nDo ")[2].split()[0]: text for text in fleet.user_turns() if "\nDo " in text}
    ui, plain = by_task["10"], by_task["2"]
    assert (
        ui.index("worktree") < ui.index("Of the UI.\n\nDo 10\n\n@sh") < ui.index("Look at it in a browser.")
    )
    assert "Of all tasks.\n\nDo 2\n\n@sh" in plain
    assert "browser" not in plain


def _check_models(fleet: Fleet) -> None:
    """Task 10 has its own model: the transcript says which model answered."""
    used: dict[str, set[str]] = {}
    task = ""
    for row in fleet.transcript_rows():
        content = (row.get("message") or {}).get("content")
        if row.get("type") == "user" and isinstance(content, str) and "\nDo " in content:
            task = content.partition("\nDo ")[2].split()[0]
        elif row.get("type") == "assistant":
            used.setdefault(task, set()).add(row["message"]["model"].split("-")[1])
    assert used.pop("10") == {"haiku"}
    assert set().union(*used.values()) == {"opus"}
    launched = [row["model"] for row in fleet.events("session_launched")]
    assert launched == ["opus", "haiku", "opus"]


def _check_post_accept(fleet: Fleet) -> None:
    assert lines(fleet, "done") == [f"{number} yes" for number in (4, 2, 10, 3, 6, 7)]
    assert set(lines(fleet, "where")) == {str(fleet.source)}
    for number in (4, 7):
        after: dict[str, Any] = json.loads((fleet.marks / f"after-{number}.json").read_text())
        assert (after["workers"]["auto-1"]["status"], after["workers"]["auto-1"].get("assignment")) == (
            "idle",
            None,
        )
    log = (fleet.root / "logs/post_accept.log").read_text()
    assert [line for line in log.splitlines() if line.startswith("Task ")] == [
        f"Task {number}" for number in (4, 2, 10, 3, 6, 7)
    ]
    daemon = json.loads((fleet.marks / "daemon.json").read_text())
    beat = json.loads((fleet.marks / "auto.heartbeat").read_text())
    assert beat["instance_id"] == daemon["instance_id"]
    assert beat["timestamp_unix"] >= daemon["start_time_unix"]
    assert daemon["log_file"] == str(fleet.root / "logs/daemon.jsonl")
    said = (fleet.root / "logs/auto.log").read_text()
    assert "auto-1: task 4 completed" in said
    stamp = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4} ")
    assert all(stamp.match(line) for line in said.splitlines())
    begun = [line for line in log.splitlines() if stamp.match(line) and " $ pwd" in line]
    assert [line.split(" ", 1)[1].partition(" $ ")[0] for line in begun] == [
        f"auto-1 task {number}" for number in (4, 2, 10, 3, 6, 7)
    ]


@pytest.mark.req("0-042", "0-046", "0-049", "0-050", "4-026", "4-027", "4-028", "4-029", "4-107")
@pytest.mark.soak
def test_several_workers(scripted: Fleet) -> None:
    """Break: leave `run.taking` out of _assign (two workers, one label), or hand a conflict to give_up."""
    fleet = set_up(scripted)
    daemon = Daemon(fleet, "--concurrency", "2")
    auto.wait_for(fleet, lambda: "auto mode started with 2 workers" in daemon.said)
    go = fleet.marks / "go"
    both = f"touch {fleet.marks}/began-$LLMC_WORKER; {until(go)}; echo $LLMC_WORKER >> shared; git add shared; {COMMIT}"
    resolve = "@on-conflict git checkout --theirs shared; git add shared; git -c user.name=W -c user.email=w@example.com -c core.editor=true rebase --continue"
    with fleet.frozen_daemon():  # so that all of them are there before a worker asks
        add(fleet, 1, f"@sh {both} 'Task 1'", resolve, label="a")
        add(fleet, 2, label="a")
        add(fleet, 3, f"@sh {both} 'Task 3'", resolve, label="b", priority=4)
    auto.wait_for(fleet, lambda: len(list(fleet.marks.glob("began-*"))) == 2)
    assert sorted(auto.at_work(fleet).values()) == ["1", "3"]
    go.touch()
    auto.wait_completed(fleet, 3)
    assert sorted(auto.landed(fleet)) == [1, 2, 3]
    assert len(fleet.events("rebase_resolved")) == 1
    went_on = fleet.marks / "go-on"
    with fleet.frozen_daemon():
        for number in (4, 5):
            add(fleet, number, commit(number, until(went_on)), label="a")
        add(fleet, 6, commit(6, until(went_on)), priority=4)
    # One of them has label a; the task without a label differs from it, even though its priority is lowest.
    auto.wait_for(fleet, lambda: sorted(auto.at_work(fleet).values()) == ["4", "6"])
    add(fleet, 7, "@sh false", label="x", after=(4, 6))
    add(fleet, 7, commit(7), label="x", after=(4, 5, 6))  # edited while it waits
    went_on.touch()
    auto.wait_completed(fleet, 7)
    assert auto.landed(fleet)[-1] == 7
    with fleet.frozen_daemon():
        for number in (8, 9):
            add(fleet, number, commit(number, until(fleet.marks / "last")), label="a")
    auto.wait_for(fleet, lambda: sorted(auto.at_work(fleet).values()) == ["8", "9"])
    (fleet.marks / "last").touch()
    auto.wait_completed(fleet, 9)
    assert daemon.stop() == 0
    assert auto.auto(fleet)["errors"] == 0
    levels = [
        json.loads(line)["level"] for line in (fleet.root / "logs/daemon.jsonl").read_text().splitlines()
    ]
    assert set(levels) == {"INFO"}


@pytest.mark.req("0-004", "0-093")
def test_nothing_lands_and_nothing_begins_during_a_post_accept_command(scripted: Fleet) -> None:
    """Break: leave run_due out of attend and out of the step that lands."""
    fleet = set_up(scripted)
    out = fleet.marks
    command = f"echo $LLMC_TASK_ID >> {out}/began; {until(out / 'end')}"
    add(fleet, 1, commit(1, f"touch {out}/one"))
    add(fleet, 2, commit(2, f"touch {out}/two; {until(out / 'go')}"))
    add(fleet, 3, after=(1,))  # for the third worker, which is idle
    daemon = Daemon(fleet, "--concurrency", "3", "--post-accept-command", command)
    auto.wait_for(fleet, lambda: (out / "two").exists() and (out / "began").exists())
    (out / "go").touch()
    auto.wait_for(
        fleet, lambda: "needs_review" in {row["status"] for row in auto.state(fleet)["workers"].values()}
    )
    beat = fleet.root / ".llmc/auto.heartbeat"
    before = beat.read_text()
    auto.wait_for(fleet, lambda: beat.read_text() != before)  # it stays alive for some seconds
    assert auto.landed(fleet) == [1]
    assert [row["task_id"] for row in fleet.events("task_assigned")] == ["1", "2"]
    (out / "end").touch()
    auto.wait_completed(fleet, 3)
    auto.wait_for(fleet, lambda: lines(fleet, "began") == ["1", "2", "3"])
    assert daemon.stop() == 0


@pytest.mark.req("4-101", "1-125")
def test_a_state_that_was_lost(scripted: Fleet) -> None:
    """Without its copy, and without the ledger.

    Break: create records without the tasks that their workers claimed; ask only the ledger who has a task;
    or, in a fleet, look for the ledger in a file of this root.
    """
    fleet = set_up(scripted)
    for number, other in enumerate(("state.json.bak", ".llmc/tasks.jsonl"), 1):
        began, go = fleet.marks / f"began-{number}", fleet.marks / f"go-{number}"
        add(fleet, number, commit(number, f"touch {began}; {until(go)}"))
        daemon = Daemon(fleet)
        auto.wait_for(fleet, began.exists)
        fleet.kill_daemon()
        daemon.ends()
        claimed = auto.state(fleet)["workers"]["auto-1"]["assignment"]
        if other == "state.json.bak":  # the books know who has it, even under a new subject
            put(fleet, {**tasks_of(fleet)["1"], "subject": "Another subject"})
        for name in ("state.json", other):
            (fleet.root / name).unlink(missing_ok=fleet.rows is not None)
        made = fleet.llmc("doctor", "--rebuild", "--yes", "--json").json
        assert made["workers"][0]["task_id"] == str(number), other
        assert auto.state(fleet)["workers"]["auto-1"]["assignment"]["claim"] == claimed["claim"], other
        go.touch()
        daemon = Daemon(fleet)
        done = {str(each): "completed" for each in range(1, number + 1)}
        auto.wait_for(
            fleet, lambda done=done: len(auto.landed(fleet)) == len(done) and auto.statuses(fleet) == done
        )
        assert len(fleet.events("task_assigned")) == number, f"{other}: its worker continued; no second start"
        assert daemon.stop() == 0
    assert auto.landed(fleet) == [1, 2]
