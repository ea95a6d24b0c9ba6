"""One task list for several roots and for agents: every task has one winner, and no change is lost."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from llmc.agents.claude.task_files import TaskFiles
from llmc.records.task_ledger import TaskLedger
from llmc.tasks.claude_files import ClaudeTasks
from llmc.tasks.queue import TaskQueue
from tests.support import on_postgres
from tests.support.auto import until
from tests.support.fleet import REAL_IN_SOAK, Fleet
from tests.support.plans import COMMIT, auto_config
from tests.support.waiting import wait_until

pytestmark = on_postgres.SHARED_FILES
OWN_LIST = pytest.mark.uncontained("a contained agent has a task list of its own")

REPOSITORY = Path(__file__).parents[2]


def write_tasks(folder: Path, count: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, count + 1):
        task = {"id": str(number), "subject": f"Task {number}", "description": "", "status": "pending"}
        (folder / f"{number}.json").write_text(json.dumps({**task, "blocks": [], "blockedBy": []}))


def claim_at_once(fleet: Fleet, folder: Path, first: Callable[[], object]) -> "list[subprocess.Popen[bytes]]":
    """Two processes, each with its own ledger, that start at the same moment, right after `first`."""
    claimers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.claimers", str(folder)]
            + [str(fleet.dir / name) for name in (f"ledger-{root}", f"won-{root}")],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
        )
        for root in ("a", "b")
    ]
    wait_until(lambda: len(list(fleet.dir.glob("won-*-ready"))) == 2, 30)
    try:
        first()
        for claimer in claimers:
            assert claimer.stdin is not None
            claimer.stdin.write(b"go\n")
    finally:
        for claimer in claimers:
            assert claimer.stdin is not None
            claimer.stdin.close()
    return claimers


def check_claims(fleet: Fleet, folder: Path, claimers: "list[subprocess.Popen[bytes]]", count: int) -> None:
    assert [claimer.wait(300) for claimer in claimers] == [0, 0]
    won = [json.loads((fleet.dir / f"won-{root}").read_text()) for root in ("a", "b")]
    assert sorted(won[0] + won[1], key=int) == [str(number) for number in range(1, count + 1)]
    assert all(won), "both took part"
    ledgers = [(fleet.dir / f"ledger-{root}").read_text().splitlines() for root in ("a", "b")]
    rows = [[json.loads(line) for line in ledger] for ledger in ledgers]
    for mine, ledger, ledger_name in zip(won, rows, ("ledger-a", "ledger-b"), strict=True):
        lost = {row["claim"] for row in ledger if row["action"] == "released"}
        held = {row["task"]: row["claim"] for row in ledger if row["claim"] not in lost}
        assert set(held) == set(mine), "the ledger knows what was won"
        # The client writes back the metadata it read before: the daemon restores the claim at its next check.
        TaskQueue(ClaudeTasks(TaskFiles(folder), TaskLedger(fleet.dir / ledger_name))).check()
        for task, claim in held.items():
            file = json.loads((folder / f"{task}.json").read_text())
            assert (file["status"], file["metadata"]["llmc"]["claim"]) == ("in_progress", claim)


def share(fleet: Fleet, count: int) -> None:
    """The agent creates and changes tasks of the list while two processes claim all of it."""
    fleet.set_up("adam", config={"auto.task_list_id": "plan", "auto.worker_tasks": "accept"})
    fleet.llmc("config", "set", "defaults.env.CLAUDE_CODE_ENABLE_TODO_TOOLS", "1")
    folder = fleet.client_config / "tasks/plan"
    write_tasks(folder, count)
    fleet.up()
    notes = {str(1 + number * (count // 8)): f"note {number}" for number in range(8)}
    said = [f"@update {task} {note}" for task, note in notes.items()]
    said += [f"@task By the agent {number}" for number in range(4)]
    claimers = claim_at_once(fleet, folder, lambda: fleet.llmc("message", "adam", "\n".join(said)))
    wait_until(lambda: fleet.client_status("adam") == "idle" and len(fleet.events("agent_stopped")), 120)
    for claimer in claimers:
        claimer.wait(300)
    for task, note in notes.items():
        assert json.loads((folder / f"{task}.json").read_text())["metadata"]["note"] == note, (
            "a change was lost"
        )
    made = {str(number) for number in range(count + 1, count + 5)}
    subjects = [json.loads((folder / f"{task}.json").read_text())["subject"] for task in sorted(made)]
    assert subjects == [f"By the agent {number}" for number in range(4)]
    won = [json.loads((fleet.dir / f"won-{root}").read_text()) for root in ("a", "b")]
    for index, root in enumerate(("a", "b")):  # tasks created by the agent may have been claimed, too
        (fleet.dir / f"won-{root}").write_text(json.dumps([task for task in won[index] if task not in made]))
        ledger = fleet.dir / f"ledger-{root}"
        rows = [line for line in ledger.read_text().splitlines() if json.loads(line)["task"] not in made]
        ledger.write_text("".join(f"{row}\n" for row in rows))
    check_claims(fleet, folder, claimers, count)


@OWN_LIST
@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
@pytest.mark.soak
def test_claims_while_the_agent_changes_the_list(fleet: Fleet) -> None:
    """Break: leave `_ours` or `_clients` out of TaskFiles.change."""
    share(fleet, 160)


@OWN_LIST
@pytest.mark.soak
def test_a_thousand_claims_while_the_agent_changes_the_list(fleet: Fleet) -> None:
    """Break: as above."""
    share(fleet, 1000)


@pytest.mark.soak
@pytest.mark.parametrize("count", [6, 12])
def test_two_daemons_on_one_list(scripted: Fleet, count: int) -> None:
    """Break: claim without the claim's id: auto-1 of one root would take the other's claim as its own."""
    other = Fleet("scripted")
    try:
        other.settings = scripted.settings
        for root in (scripted, other):
            root.set_up(config={**auto_config(scripted), "defaults.patrol_interval_secs": "5"})
        gate = scripted.marks / "gate"  # or the first root could finish before the second one has started
        for number in range(1, count + 1):
            work = f"@sh {until(gate)}; echo {number} > {number}.txt; git add -A; {COMMIT} 'Task {number}'"
            scripted.llmc("tasks", "add", f"Do {number}", "--description", work)
        for root in (scripted, other):
            root.up("--auto", "--concurrency", "1" if count < 12 else "2")
        for root in (scripted, other):
            wait_until(lambda root=root: root.events("task_assigned"), 40)  # type: ignore[misc]
        gate.touch()
        scripted.llmc("wait", "--tasks-done", "--timeout", "60")
        for root in (scripted, other):
            root.llmc("down")
        landed = [
            subject for root in (scripted, other) for subject in root.log() if subject.startswith("Task")
        ]
        assert sorted(landed) == sorted(f"Task {number}" for number in range(1, count + 1))
        assert scripted.events("task_completed")
        assert other.events("task_completed")
    finally:
        other.close()
