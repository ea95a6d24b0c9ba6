"""The user's task commands: release and requeue; and how list and show present holds and attempts."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.fleet import Fleet
from tests.support.plans import COMMIT, auto_config, tasks_of
from tests.support.waiting import wait_until


def state(fleet: Fleet, task: str) -> str:
    return str(fleet.llmc("tasks", "show", task, "--json").json["state"])


def edit(fleet: Fleet, task: str, **fields: Any) -> None:
    """A user, or a client, changes a file by hand."""
    path = fleet.dir / f"tasks/plan/{task}.json"
    new = {
        key: value for key, value in {**json.loads(path.read_text()), **fields}.items() if value is not None
    }
    path.with_suffix(".new").write_text(json.dumps(new))
    path.with_suffix(".new").rename(path)


def completed_words(fleet: Fleet, *words: str) -> list[str]:
    """What a shell offers after these words."""
    said = " ".join(("llmc", *words))
    env = {"_LLMC_COMPLETE": "bash_complete", "COMP_WORDS": said, "COMP_CWORD": str(said.count(" "))}
    program = str(Path(sys.executable).with_name("llmc"))
    done = subprocess.run(
        [program], cwd=fleet.source, env={**fleet.env, **env}, capture_output=True, text=True
    )
    return [word for line in done.stdout.splitlines() if (word := line.partition(",")[2])]


def test_a_shell_completes_what_is_known(scripted: Fleet) -> None:
    """Break: complete the whole of `a,b`, or the keys of no worker."""
    fleet = scripted.set_up("adam")
    for form in ([], ["--mermaid"]):
        assert fleet.llmc("tasks", "graph", *form).out == ("no tasks\n" if not form else "flowchart TD\n")
    fleet.llmc("tasks", "add", "One")
    (fleet.worktree("adam") / "mine").write_text("x")
    fleet.llmc("reset", "adam")
    (entry,) = fleet.llmc("trash", "list", "--json").json
    for words, offered in {
        ("wait", "adam", "--status", "needs_r"): ["needs_review"],
        ("wait", "adam", "--status", "idle,no"): ["idle,no_changes"],
        ("wait", "adam", "ad"): ["adam"],
        ("config", "set", "repo.de"): ["repo.default_branch"],
        ("config", "unset", "defaults.self_review.e"): ["defaults.self_review.enabled"],
        ("config", "get", "workers.adam.m"): ["workers.adam.model"],
        ("trash", "restore", "adam"): [entry["name"]],
        ("trash", "restore", "x", "--to", ""): ["adam"],
        ("tasks", "list", "--state", "r"): ["ready"],
    }.items():
        assert completed_words(fleet, *words) == offered, words


@pytest.mark.req("4-063")
@pytest.mark.soak
def test_a_task_that_failed_too_often_is_put_back_by_a_person(scripted: Fleet) -> None:
    """Break: leave out `books.failures.pop` for "requeued" in books._enter; or release_task_of in workers/reset.py."""
    scripted.set_up(config=auto_config(scripted))
    mended = scripted.dir / "mended"
    script = f"test -e {mended} && (echo made > made; git add made; {COMMIT} 'Made') || llmc report blocked 'no key'"
    scripted.llmc("tasks", "add", "Needs a key", "-d", f"@sh {script}")
    scripted.up("--auto")
    wait_until(lambda: state(scripted, "1") == "quarantined", 60)
    shown = scripted.llmc("tasks", "show", "1", "--json").json
    assert [row["cause"] for row in shown["attempts"]] == ["task"] * 3
    assert "no key" in shown["attempts"][0]["reason"]
    assert shown["hold"] == "quarantined"
    told = scripted.llmc("tasks", "list", "--state", "quarantined").out
    assert "it failed 3 times: the agent reported a blocker: no key" in told
    assert "attempt 3: task: the agent reported a blocker: no key" in scripted.llmc("tasks", "show", "1").out
    assert completed_words(scripted, "tasks", "requeue", "") == ["1"]
    assert completed_words(scripted, "tasks", "release", "") == []
    assert "llmc tasks requeue 1" in scripted.llmc("tasks", "release", "1", code=3).err
    mended.touch()
    assert scripted.llmc("tasks", "requeue", "1").out == "requeued 1: Needs a key\n"
    wait_until(lambda: state(scripted, "1") == "completed", 60)
    assert scripted.llmc("tasks", "show", "1", "--json").json["attempts"] == []

    # A worker has it: only its reset releases it.
    scripted.llmc("tasks", "add", "Takes long", "-d", "@sh sleep 600")
    scripted.wait("auto-1", "working")
    assert "`llmc reset auto-1`" in scripted.llmc("tasks", "release", "2", code=3).err
    assert (
        "cannot change task 2: auto-1 is working on it" in scripted.llmc("tasks", "requeue", "2", code=3).err
    )
    with scripted.frozen_daemon():
        scripted.llmc("reset", "auto-1")
        assert (tasks_of(scripted)["2"]["status"], state(scripted, "2")) == ("pending", "ready")
    assert [row["task_id"] for row in scripted.events("task_released")] == ["2"]
    scripted.llmc("down")

    # A task completed in the ledger stays so, with or without files; a file that disagrees is a question.
    edit(scripted, "1", status="pending")
    assert state(scripted, "1") == "question"
    Path(scripted.dir / "tasks/plan/1.json").unlink()
    rows = scripted.llmc("tasks", "list", "--json").json["tasks"]
    assert [(row["id"], row["state"], row["subject"]) for row in rows] == [
        ("1", "completed", "Needs a key"),
        ("2", "ready", "Takes long"),
    ]
    assert "its file no longer exists" in scripted.llmc("tasks", "requeue", "1", code=4).err
    Path(scripted.dir / "tasks/plan/2.json").unlink()
    assert scripted.llmc("tasks", "add", "New", "--json").json["id"] == "3", "1 would count as completed"


def test_each_task_for_itself(scripted: Fleet) -> None:
    """Break: count the ledger's claim of a lost worker as in progress."""
    scripted.set_up(config=auto_config(scripted))
    for subject in ("Somebody's", "Ready", "Done", "Held"):
        scripted.llmc("tasks", "add", subject)
    edit(scripted, "1", status="in_progress", owner="auto-1", metadata={"llmc": {"claim": "of another root"}})
    edit(scripted, "3", status="completed")
    edit(scripted, "4", metadata={"llmc": {"hold": "parked"}, "else": 1})
    assert completed_words(scripted, "tasks", "release", "") == ["1"]
    assert completed_words(scripted, "tasks", "requeue", "3", "") == ["4"]
    done = scripted.llmc("tasks", "release", "1", "2", "9", "--json", code=1)
    rows = {row["id"]: row for row in done.json["tasks"]}
    assert [row["outcome"] for row in rows.values()] == ["released", "failed", "failed"]
    assert rows["2"]["error"] == "cannot release task 2: it is ready, not in progress"
    assert "no task 9" in done.err
    assert "no task 9" in scripted.llmc("tasks", "release", "9", code=4).err
    assert "has not run yet" in scripted.llmc("tasks", "requeue", "2", code=3).err
    assert "is ready, not proposed" in scripted.llmc("tasks", "approve", "2", code=3).err
    assert scripted.llmc("tasks", "requeue", "3", "4").out == "requeued 3: Done\nrequeued 4: Held\n"
    files = tasks_of(scripted)
    assert [(file["status"], file.get("owner")) for file in files.values()] == [("pending", None)] * 4
    assert files["4"]["metadata"] == {"else": 1}
    assert [row["task_id"] for row in scripted.events("task_requeued")] == ["3", "4"]

    # A removed worker has left its claim in the ledger, too.
    edit(scripted, "2", status="in_progress", owner="auto-7", metadata={"llmc": {"claim": "c1"}})
    row = {"ts": 1, "action": "claimed", "task": "2", "worker": "auto-7", "claim": "c1"}
    with (scripted.root / ".llmc/tasks.jsonl").open("a") as ledger:
        ledger.write(json.dumps(row) + "\n")
    scripted.llmc("tasks", "release", "2")
    assert state(scripted, "2") == "ready"
    assert (
        "is not available to agents"
        in scripted.llmc("tasks", "approve", "2", code=3, LLMC_WORKER="auto-1").err
    )


def test_a_person_changes_the_priority(scripted: Fleet) -> None:
    """Break: rewrite the metadata, and lose the label and the verify command."""
    scripted.set_up(config=auto_config(scripted))
    for subject in ("First", "Second"):
        scripted.llmc("tasks", "add", subject, "--label", "io", "--verify", "true", "--priority", "2")
    done = scripted.llmc("tasks", "edit", "2", "--priority", "0", "--json").json
    shown = scripted.llmc("tasks", "show", "2", "--json").json
    assert (shown["priority"], shown["label"], shown["verify"]) == (0, "io", "true")
    assert "2" in json.dumps(done)
    assert "task_prioritised" in scripted.llmc("events", "--json").out
    scripted.llmc("tasks", "done", "2")
    assert "is completed" in scripted.llmc("tasks", "edit", "2", "--priority", "1", code=3).err
    assert "7" in scripted.llmc("tasks", "edit", "7", "--priority", "1", code=4).err
    scripted.llmc("tasks", "edit", "1", "--priority", "99", code=2)
