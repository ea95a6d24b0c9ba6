"""Tasks that agents make: proposed, approved, accepted; and tasks that people write by hand."""

import json
from pathlib import Path

import pytest

from tests.support.fleet import REAL_IN_SOAK, Fleet
from tests.support.plans import COMMIT
from tests.support.waiting import wait_until

MAKE = f"@sh echo made > made; git add made; {COMMIT} 'Made'"


def states(fleet: Fleet) -> dict[str, str]:
    return {row["id"]: row["state"] for row in fleet.llmc("tasks", "list", "--json").json["tasks"]}


def claimed(fleet: Fleet) -> list[str]:
    rows = [json.loads(line) for line in (fleet.root / ".llmc/tasks.jsonl").read_text().splitlines()]
    return [row["task"] for row in rows if row["action"] == "claimed"]


@pytest.mark.parametrize("fleet", REAL_IN_SOAK, indirect=True)
def test_what_an_agent_proposes_waits_for_a_person(fleet: Fleet) -> None:
    """Break: leave PreToolUse out of the settings, or worker_tasks.mark out of intake."""
    fleet.set_up(config={"auto.task_list_id": "plan", "auto.concurrency": "2"})
    fleet.llmc(
        "tasks",
        "add",
        "Plan it",
        "-d",
        f"@task {MAKE}\n@task Second\n@sh echo a > a; git add a; {COMMIT} 'A'",
    )
    fleet.up("--auto")
    wait_until(lambda: states(fleet) == {"1": "completed", "2": "proposed", "3": "proposed"}, 60)
    assert claimed(fleet) == ["1"], f"an idle worker waited for tasks all the time\n{fleet.story()}"
    worker = fleet.events("task_assigned")[0]["worker"]
    proposed = fleet.events("task_proposed")
    assert [(row["worker"], row["task_id"]) for row in proposed] == [(worker, "2"), (worker, "3")]
    hooks = [
        row["hook"] for row in fleet.events("hook_received") if row["hook"] in ("PreToolUse", "TaskCreated")
    ]
    assert hooks == ["PreToolUse", "TaskCreated"] * 2, "told before the file exists, and of this tool only"
    assert f"made by {worker} at task 1" in fleet.llmc("tasks", "list").out
    assert fleet.llmc("tasks", "approve", "2").out.startswith("approved 2: @sh echo made")
    wait_until(lambda: states(fleet)["2"] == "completed", 60)
    assert states(fleet)["3"] == "proposed"
    assert "Made" in fleet.log()


@pytest.mark.req("4-005")
def test_accepted_ones_run_and_off_makes_none_and_people_write_files(scripted: Fleet) -> None:
    """Break: set the task tools' variable also for `off`; leave the look after the grace out of AutoMode.tick;
    or do not read the whole list once it is watched.
    """
    scripted.set_up(config={"auto.task_list_id": "plan", "auto.worker_tasks": "accept"})
    work = f"@sh env | grep CLAUDE_CODE_ > env; git add env; {COMMIT} 'Env'"
    scripted.llmc("tasks", "add", "Plan it", "-d", f"@task {MAKE}\n{work}")
    scripted.up("--auto")
    wait_until(lambda: states(scripted) == {"1": "completed", "2": "completed"}, 60)
    environment = scripted.git("show", "main:env")
    assert "CLAUDE_CODE_TASK_LIST_ID=plan" in environment
    assert "CLAUDE_CODE_ENABLE_TODO_TOOLS=1" in environment
    assert scripted.events("task_proposed") == []
    scripted.llmc("down")

    scripted.llmc("config", "set", "auto.worker_tasks", "off")
    by_hand = {"id": "7", "subject": "By hand", "status": "pending", "blocks": [], "blockedBy": []}
    by_hand["description"] = (
        f"@task Never\n{work.replace('Env', 'Again')}\n@sh date > d; git add d; {COMMIT} 'D'"
    )
    starting = scripted.spawn("up", "--detach", "--auto")
    daemon = scripted.root / ".llmc/daemon.json"
    wait_until(lambda: daemon.exists() and not json.loads(daemon.read_text())["ready"])
    # The list was checked, and nobody watches it yet.
    (Path(scripted.client_config) / "tasks/plan/7.json").write_text(json.dumps(by_hand))
    assert starting.wait(60) == 0
    wait_until(lambda: states(scripted).get("7") == "completed", 60)
    assert set(states(scripted)) == {"1", "2", "7"}
    assert "CLAUDE_CODE_ENABLE_TODO_TOOLS" not in scripted.git("show", "main:env")
